//! The examination of a file: whether it is whole, and whether its schema is the one of this engine.

use std::collections::BTreeMap;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use super::{Columns, failure};
use crate::store::StoreError;
use crate::store::defect::{Defect, PLANNED};
use crate::store::migration::MIGRATIONS;

/// The parts of a schema: kind, name and text.
type Schema = BTreeMap<(String, String), String>;

/// Reads the whole file.
pub(super) async fn examine(pool: &SqlitePool) -> Result<Vec<Defect>, StoreError> {
    let mut defects = damage(pool).await?;
    let found = schema(pool).await?;
    let reference = SqliteConnectOptions::new().in_memory(true).disable_statement_logging();
    let mut reference = reference.connect().await.map_err(|e| failure(&e))?;
    for sql in MIGRATIONS.map(|migration| migration.sqlite) {
        sqlx::raw_sql(sql).execute(&mut reference).await.map_err(|e| failure(&e))?;
    }
    let rows = sqlx::query(SCHEMA).fetch_all(&mut reference).await.map_err(|e| failure(&e))?;
    let expected = rows.iter().map(part_of_schema).collect::<Result<Schema, _>>()?;
    for ((kind, name), sql) in &expected {
        let there = found.get(&(kind.clone(), name.clone()));
        if there != Some(sql) {
            let part = if kind == "index" { "index" } else { "schema" };
            defects.push(Defect::of_schema(part, &format!("{kind} {name}"), there.is_some(), sql));
        }
    }
    for (query, index) in PLANNED {
        if found.contains_key(&("index".to_owned(), index.to_owned())) {
            let plan = plan(pool, query).await?;
            if !plan.contains(index) {
                defects.push(Defect::unused(index, &plan));
            }
        }
    }
    Ok(defects)
}

const SCHEMA: &str =
    "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'";

async fn schema(pool: &SqlitePool) -> Result<Schema, StoreError> {
    let rows = sqlx::query(SCHEMA).fetch_all(pool).await.map_err(|e| failure(&e))?;
    rows.iter().map(part_of_schema).collect()
}

fn part_of_schema(row: &SqliteRow) -> Result<((String, String), String), StoreError> {
    let mut columns = Columns::of("schema", row);
    Ok(((columns.take()?, columns.take()?), columns.take()?))
}

async fn damage(pool: &SqlitePool) -> Result<Vec<Defect>, StoreError> {
    let defect = |found: String| Defect {
        part: "integrity",
        found,
        remedy: "shut the engine down, keep the file, and restore a backup: `counterfoil restore`".to_owned(),
    };
    let mut defects = Vec::new();
    for row in sqlx::query("PRAGMA quick_check(20)").fetch_all(pool).await.map_err(|e| failure(&e))? {
        let line: String = Columns::of("quick_check", &row).take()?;
        if line != "ok" {
            defects.push(defect(line));
        }
    }
    let rows = sqlx::query("PRAGMA foreign_key_check").fetch_all(pool).await.map_err(|e| failure(&e))?;
    if let Some(row) = rows.first() {
        let table: String = Columns::of("foreign_key_check", row).take()?;
        defects.push(defect(format!("{} rows of {table} refer to rows that are not there", rows.len())));
    }
    Ok(defects)
}

async fn plan(pool: &SqlitePool, query: &str) -> Result<String, StoreError> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}"));
    let rows = sqlx::query(explain).fetch_all(pool).await.map_err(|e| failure(&e))?;
    let line = |row| {
        let mut columns = Columns::of("plan", row);
        let _: (i64, i64, i64) = (columns.take()?, columns.take()?, columns.take()?);
        columns.take::<String>()
    };
    Ok(rows.iter().map(line).collect::<Result<Vec<_>, StoreError>>()?.join("; "))
}
