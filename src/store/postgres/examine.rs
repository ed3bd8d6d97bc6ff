//! The examination of a database: whether its indexes are there, valid, and used.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::pool::Pool;
use super::{Columns, StoreError};
use crate::store::defect::{Defect, PLANNED};
use crate::store::migration::MIGRATIONS;
use crate::store::row::Take as _;

pub(super) async fn examine(pool: &Pool) -> Result<Vec<Defect>, StoreError> {
    let indexes = "SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                   WHERE c.relnamespace = current_schema()::regnamespace";
    let rows = pool.all(|| sqlx::query(indexes)).await?;
    let read = |row| {
        let mut columns = Columns::of("index", row);
        Ok((columns.cell()?, columns.flag()?))
    };
    let found: BTreeMap<String, bool> = rows.iter().map(read).collect::<Result<_, StoreError>>()?;
    let mut defects = Vec::new();
    for (name, sql) in expected() {
        match found.get(name) {
            Some(true) => {}
            Some(false) => defects.push(Defect {
                part: "index",
                found: format!("index {name} is not valid"),
                remedy: format!("REINDEX INDEX {name}"),
            }),
            None => defects.push(Defect::of_schema("index", &format!("index {name}"), false, sql)),
        }
    }
    for (query, index) in PLANNED.into_iter().filter(|(_, index)| found.get(*index) == Some(&true)) {
        let explain: Arc<str> = format!("EXPLAIN (COSTS OFF) {query}").into();
        let rows = pool.all(|| sqlx::query(AssertSqlSafe(explain.clone())).persistent(false)).await?;
        let line = |row| Columns::of("plan", row).cell::<String>();
        let plan = rows.iter().map(line).collect::<Result<Vec<_>, _>>()?.join("; ");
        if !plan.contains(index) {
            defects.push(Defect::unused(index, &plan));
        }
    }
    Ok(defects)
}

/// The indexes that the migrations make and leave, each with its statement.
fn expected() -> BTreeMap<&'static str, &'static str> {
    let mut indexes = BTreeMap::new();
    for statement in MIGRATIONS.iter().flat_map(|migration| migration.postgres.split(';')) {
        let from = ["CREATE INDEX ", "CREATE UNIQUE INDEX ", "DROP INDEX "];
        let Some(start) = from.iter().filter_map(|verb| statement.find(verb)).min() else { continue };
        let statement = statement[start..].trim();
        let mut words = statement.split_whitespace().skip_while(|word| *word != "INDEX").skip(1);
        let Some(name) = words.next() else { continue };
        if statement.starts_with("DROP") {
            indexes.remove(name);
        } else {
            indexes.insert(name, statement);
        }
    }
    indexes
}

#[cfg(test)]
mod tests {
    use super::expected;

    #[test]
    fn the_indexes_are_those_that_the_migrations_make() {
        let indexes = expected();
        assert!(indexes.len() > 20, "{indexes:?}");
        let key = indexes.get("record_key");
        assert_eq!(key, Some(&"CREATE UNIQUE INDEX record_key ON record (tenant, key)"));
    }
}
