//! This file as the source of a move to another database.

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::AssertSqlSafe;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::open::{GIVEN_UP, Options, open_to_move};
use super::{Columns, Sqlite, StoreError, failure};
use crate::clock::Timestamp;
use crate::store::table::Table;
use crate::store::transfer::table::{Row, Rows, Value, read};

/// A file that is being moved. It holds the lock, so no engine works on the file.
pub(in crate::store) struct Source {
    store: Sqlite,
    given_up: bool,
}

impl Source {
    pub(in crate::store) async fn open(path: &Path) -> Result<Self, StoreError> {
        let (store, version) = open_to_move(path, Options::default()).await?;
        Ok(Self { store, given_up: version == GIVEN_UP })
    }

    /// True if an earlier move reached its end, or nearly.
    pub(in crate::store) const fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// The reason why the rows may be older than the world, if no engine has noted it in the rows yet. A file that was
    /// given up has passed this check.
    pub(in crate::store) const fn doubt(&self) -> Option<&'static str> {
        if self.given_up { None } else { self.store.doubt() }
    }

    /// The identity of the file, which differs from other files, and from itself after an engine worked on it again:
    /// the name of its first worker has a random part, and each engine takes a new fence.
    pub(in crate::store) async fn identity(&self) -> Result<String, StoreError> {
        let first = sqlx::query("SELECT name FROM worker ORDER BY fence LIMIT 1");
        let row = first.fetch_optional(&*self.store.readers).await.map_err(|e| failure(&e))?;
        let name: Option<String> = row.map(|row| Columns::of("worker", &row).take()).transpose()?;
        Ok(format!("{} up to {}", name.as_deref().unwrap_or("nobody"), self.last_fence().await?))
    }

    /// The last fence that was given, even if the row of its worker is deleted.
    pub(in crate::store) async fn last_fence(&self) -> Result<i64, StoreError> {
        self.number("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'worker'".to_owned())
            .await
    }

    pub(in crate::store) async fn end_workers(&self, at: Timestamp) -> Result<(), StoreError> {
        self.write(sqlx::query("UPDATE worker SET ended_at = ? WHERE ended_at IS NULL").bind(at.0)).await
    }

    pub(in crate::store) async fn count(&self, table: &Table) -> Result<u64, StoreError> {
        let count = self.number(format!("SELECT count(*) FROM {}", table.name)).await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The rows behind the row with this key.
    pub(in crate::store) fn rows(&self, table: &'static Table, after: Option<Row>) -> Rows<'_> {
        let key = table.key.join(", ");
        let places = vec!["?"; table.key.len()].join(", ");
        let behind = if after.is_some() { format!("WHERE ({key}) > ({places})") } else { String::new() };
        let sql = table.select(&format!("{behind} ORDER BY {key}"));
        let query = after.unwrap_or_default().into_iter().fold(sqlx::query(AssertSqlSafe(sql)), bind);
        let rows = query.fetch(&*self.store.readers).map_err(|e| failure(&e));
        let columns = || table.columns.iter().copied();
        rows.map(move |row| row.and_then(|row| read(columns(), &mut Columns::of(table.name, &row)))).boxed()
    }

    /// Gives the file up: from now on no engine opens it.
    pub(in crate::store) async fn give_up(&self) -> Result<(), StoreError> {
        let mark = format!("PRAGMA user_version = {GIVEN_UP}");
        self.write(sqlx::query(AssertSqlSafe(mark))).await
    }

    pub(in crate::store) async fn close(&self) {
        self.store.close().await;
    }

    async fn number(&self, sql: String) -> Result<i64, StoreError> {
        let query = sqlx::query(AssertSqlSafe(sql));
        let row = query.fetch_one(&*self.store.readers).await.map_err(|e| failure(&e))?;
        Columns::of("number", &row).take()
    }

    async fn write(&self, write: Query<'static, sqlx::Sqlite, SqliteArguments>) -> Result<(), StoreError> {
        let mut writer = self.store.writer.lock().await;
        let writer = writer.as_mut().ok_or(StoreError::Closed)?;
        write.execute(&mut writer.connection).await.map(drop).map_err(|e| failure(&e))
    }
}

type Statement = Query<'static, sqlx::Sqlite, SqliteArguments>;

fn bind(query: Statement, value: Value) -> Statement {
    match value {
        Value::Null => query.bind(None::<i64>),
        Value::Number(number) => query.bind(number),
        Value::Text(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
    }
}
