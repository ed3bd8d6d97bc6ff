//! Rows of tables that are declared once: their statements are put together from the declaration.

use std::sync::LazyLock;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, SqlitePool};

use super::statement::{Batch, Insert, Values, text};
use super::{Columns, StoreError, failure, signal};
use crate::id::Fence;
use crate::ledger::Look;
use crate::store::change::follows;
use crate::store::row::{Given, KeyOnly, Put, Readable, Reader, Revisioned, Row, Take};
use crate::store::table::REVISION;
use crate::store::{Document, Refusal, Schedule, Signal};

pub(super) static DOCUMENT: LazyLock<Insert> = LazyLock::new(upsert::<Document>);
pub(super) static LOOK: LazyLock<Insert> = LazyLock::new(upsert::<Look>);
pub(super) static SCHEDULE: LazyLock<Insert> = LazyLock::new(upsert::<Schedule>);
pub(super) static SIGNAL: LazyLock<Insert> = LazyLock::new(insert::<Signal>);

/// Inserts rows. The first column of a fenced worker's row becomes NULL, which aborts.
fn insert<R: Row>() -> Insert {
    let (table, writer) = (R::TABLE, R::TABLE.columns.len() + 1);
    let alive = format!(
        "(SELECT column1 FROM worker WHERE worker.fence = column{writer} AND worker.ended_at IS NULL)"
    );
    let values = std::iter::once(alive).chain((2..writer).map(|column| format!("column{column}")));
    let values = values.collect::<Vec<_>>().join(", ");
    let head = format!("INSERT INTO {} ({}) SELECT {values}", table.name, table.names());
    // Once for each table: a statement is told apart by its place, and stays.
    Insert { head: head.leak(), columns: writer, tail: "" }
}

/// The same at revision 1, and moves others on by exactly one. A revision that does not follow becomes NULL; where there is no row to
/// move on, a trigger objects.
fn upsert<R: Revisioned>() -> Insert {
    let table = R::TABLE;
    let tail = format!(
        "ON CONFLICT ({}) DO UPDATE SET {}, {REVISION} = CASE WHEN {}.{REVISION} = excluded.{REVISION} - 1 \
         THEN excluded.{REVISION} END",
        table.key.join(", "),
        table.changed(),
        table.name,
    );
    Insert { tail: tail.leak(), ..insert::<R>() }
}

/// For the tests that explain and pin them.
pub(super) fn statements() -> impl Iterator<Item = String> {
    let inserts = [&*DOCUMENT, &*LOOK, &*SCHEDULE, &*SIGNAL].into_iter().map(|insert| text(insert, 2));
    inserts.chain([signal::PENDING.clone()])
}

/// Adds rows, each with its writer.
pub(super) fn write<'c, R: Row + 'c>(
    insert: &'static Insert,
    rows: impl Iterator<Item = (&'c R, Option<Fence>)>,
    batch: &mut Batch,
) {
    batch.insert(insert, &rows.collect::<Vec<_>>(), |(row, writer), values| {
        row.put(values);
        values.value(writer.map(|fence| fence.0));
    });
}

/// The row stands, or is gone, as this change would have left it (see `record::is_written`).
pub(super) async fn is_written<R: Row>(
    connection: &mut SqliteConnection,
    row: &R,
) -> Result<bool, sqlx::Error> {
    Ok(match stored(connection, row).await? {
        Some(stored) => stored.is_ok_and(|stored| stored == *row),
        None => row.is_gone(),
    })
}

/// What stands against the row being written.
pub(super) async fn objection<R: Revisioned>(
    connection: &mut SqliteConnection,
    row: &R,
) -> Result<Option<Refusal>, sqlx::Error> {
    Ok(match stored(connection, row).await?.transpose() {
        Ok(stored) => follows(stored.map(|stored| stored.revision()), row.revision()).err(),
        Err(_) => Some(Refusal::Stale), // it is damaged: what is computed from it is not of what is there
    })
}

/// The stored row with this one's key.
async fn stored<R: Row>(
    connection: &mut SqliteConnection,
    row: &R,
) -> Result<Option<Result<R, StoreError>>, sqlx::Error> {
    let mut key = SqliteArguments::default();
    row.put(&mut KeyOnly::of(R::TABLE, &mut Values::of(&mut key)));
    let query = sqlx::query_with(AssertSqlSafe(R::TABLE.select_one()), key);
    Ok(query.fetch_optional(connection).await?.as_ref().map(read))
}

pub(super) fn read<R: Readable>(row: &SqliteRow) -> Result<R, StoreError> {
    R::take(&mut Columns::of(R::TABLE.name, row))
}

impl Reader for SqlitePool {
    type Fetched = SqliteRow;

    fn either<'w>(sqlite: &'w str, _: &'w str) -> &'w str {
        sqlite
    }

    async fn fetch(&self, sql: String, arguments: &[Given<'_>]) -> Result<Vec<SqliteRow>, StoreError> {
        let query = sqlx::query_with(AssertSqlSafe(sql), bound(arguments));
        query.fetch_all(self).await.map_err(|e| failure(&e))
    }

    fn read<R: Readable>(row: &SqliteRow) -> Result<R, StoreError> {
        read(row)
    }

    fn id(row: &SqliteRow) -> Result<Option<i64>, StoreError> {
        use sqlx::Row as _;
        row.try_get_unchecked(0).map_err(|e| failure(&e))
    }
}

fn bound(arguments: &[Given<'_>]) -> SqliteArguments {
    let mut bound = SqliteArguments::default();
    for argument in arguments {
        Values::of(&mut bound).give(argument.clone());
    }
    bound
}

impl Put for Values<'_> {
    fn give(&mut self, value: Given<'_>) {
        match value {
            Given::Null(_) => self.value(None::<i64>),
            Given::Text(text) => self.value(text.to_owned()),
            Given::Shared(text) => self.value(text),
            Given::Number(number) => self.value(number),
            Given::Bytes(bytes) => self.value(bytes.to_vec()),
            Given::Flag(flag) => self.value(flag),
        };
    }
}

impl Take for Columns<'_> {
    fn some_text(&mut self) -> Result<Option<String>, StoreError> {
        self.take()
    }

    fn some_number(&mut self) -> Result<Option<i64>, StoreError> {
        self.take()
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        self.take()
    }

    fn some_bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.take()
    }

    fn damaged(&self, detail: &str) -> StoreError {
        Columns::damaged(self, detail)
    }
}
