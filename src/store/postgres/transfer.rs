//! This database as the target of a move from another one.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor as _};

use super::connect::{Connector, Purpose};
use super::open::{FILLING, Opening, prepare};
use super::statement::array;
use super::{Columns, Options, StoreError, escaped, failure};
use crate::store::table::{Column, Kind, TABLES, Table};
use crate::store::transfer::table::{Row, Rows, Value, read};

/// A database that is being filled. A mark in its table of migrations says so, and no engine opens it.
pub(in crate::store) struct Target {
    connector: Arc<Connector>,
    connection: PgConnection,
}

impl Target {
    pub(in crate::store) async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let connector = Arc::new(Connector::new(url, options)?);
        let connection = prepare(&connector, Purpose::Guest, Opening::Transfer).await?;
        Ok(Self { connector, connection })
    }

    pub(in crate::store) fn place(&self) -> String {
        self.connector.place()
    }

    /// The identity of the source from which the database is being filled, if it is.
    pub(in crate::store) async fn filled_from(&mut self) -> Result<Option<String>, StoreError> {
        let mark = sqlx::query("SELECT digest FROM migration WHERE number = $1").bind(FILLING);
        let row = mark.fetch_optional(&mut self.connection).await.map_err(|e| failure(&e))?;
        row.map(|row| Columns::of("migration", &row).take()).transpose()
    }

    /// Marks the database as being filled from the source, unless a table has rows already: then the database is left
    /// unchanged. The next fence comes after the last one of the source.
    pub(in crate::store) async fn fill_from(
        &mut self,
        source: &str,
        last_fence: i64,
    ) -> Result<Option<&'static str>, StoreError> {
        self.run("BEGIN").await?;
        // An engine that opens the database at this very moment does not see the mark. The row of its worker is then
        // one too many, which the digests reveal.
        let mark = sqlx::query(
            "INSERT INTO migration (number, name, digest, works_from) VALUES ($1, 'a move is under way', $2, $1)",
        );
        mark.bind(FILLING).bind(source).execute(&mut self.connection).await.map_err(|e| failure(&e))?;
        for table in TABLES {
            if self.count(table).await? > 0 {
                self.run("ROLLBACK").await?;
                return Ok(Some(table.name));
            }
        }
        let fence = sqlx::query("UPDATE fence SET last = GREATEST(last, $1) WHERE id = 1").bind(last_fence);
        fence.execute(&mut self.connection).await.map_err(|e| failure(&e))?;
        self.run("COMMIT").await?;
        Ok(None)
    }

    pub(in crate::store) async fn count(&mut self, table: &Table) -> Result<u64, StoreError> {
        let count = sqlx::query(AssertSqlSafe(format!("SELECT count(*) FROM {}", table.name)));
        let row = count.fetch_one(&mut self.connection).await.map_err(|e| failure(&e))?;
        let count: i64 = Columns::of(table.name, &row).take()?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The key of the last row: all earlier rows are there, too.
    pub(in crate::store) async fn last(&mut self, table: &'static Table) -> Result<Option<Row>, StoreError> {
        let key = table.key.join(", ");
        let down = table.key.join(" DESC, ");
        let sql = format!("SELECT {key} FROM {} ORDER BY {down} DESC LIMIT 1", table.name);
        let last = sqlx::query(AssertSqlSafe(sql)).fetch_optional(&mut self.connection).await;
        let last = last.map_err(|e| failure(&e))?;
        last.map(|row| read(table.key_columns(), &mut Columns::of(table.name, &row))).transpose()
    }

    /// Inserts all rows, or none of them.
    pub(in crate::store) async fn insert(&mut self, table: &Table, rows: Vec<Row>) -> Result<(), StoreError> {
        let arrays: Vec<_> =
            table.columns.iter().zip(1..).map(|(column, number)| array(*column, number)).collect();
        let sql = format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({})",
            table.name,
            table.names(),
            arrays.join(", ")
        );
        let mut columns: Vec<Vec<Value>> =
            table.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (column, values) in table.columns.iter().zip(columns) {
            query = bind(query, *column, values);
        }
        query.execute(&mut self.connection).await.map(drop).map_err(|e| failure(&e))
    }

    pub(in crate::store) fn rows(&mut self, table: &'static Table) -> Rows<'_> {
        let sql = format!("SELECT {} FROM {} ORDER BY {}", table.names(), table.name, table.key.join(", "));
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch(&mut self.connection).map_err(|e| failure(&e));
        let columns = || table.columns.iter().copied();
        rows.map(move |row| row.and_then(|row| read(columns(), &mut Columns::of(table.name, &row)))).boxed()
    }

    /// Releases the database: from now on engines open it.
    pub(in crate::store) async fn release(&mut self) -> Result<(), StoreError> {
        // The planner knows nothing of the rows yet, and would learn about them only some minutes after the engines
        // began.
        let tables: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        self.run(&format!("ANALYZE {}", tables.join(", "))).await?;
        let mark = sqlx::query("DELETE FROM migration WHERE number = $1").bind(FILLING);
        mark.execute(&mut self.connection).await.map(drop).map_err(|e| failure(&e))
    }

    async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        self.connection.execute(sql).await.map(drop).map_err(|e| failure(&e))
    }
}

type Statement = Query<'static, sqlx::Postgres, PgArguments>;

fn bind(query: Statement, column: Column, values: Vec<Value>) -> Statement {
    let number = |value: &Value| if let Value::Number(number) = value { Some(*number) } else { None };
    match column.kind {
        Kind::Number => query.bind(values.iter().map(number).collect::<Vec<_>>()),
        Kind::Flag => query.bind(values.iter().map(|v| number(v).map(|n| n != 0)).collect::<Vec<_>>()),
        Kind::Text => {
            let text =
                |value| if let Value::Text(text) = value { Some(escaped(&text).into_owned()) } else { None };
            query.bind(values.into_iter().map(text).collect::<Vec<_>>())
        }
        Kind::Bytes => {
            let bytes = |value| if let Value::Bytes(bytes) = value { Some(bytes) } else { None };
            query.bind(values.into_iter().map(bytes).collect::<Vec<_>>())
        }
    }
}
