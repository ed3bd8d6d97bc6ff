//! Rows of tables that are declared once: their statements are put together from the declaration.

use std::sync::{Arc, LazyLock};

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Type};

use super::pool::{Pool, Statement};
use super::statement::{Batch, Insert, PLAIN};
use super::{Columns, StoreError, escaped, failure};
use crate::ledger::Look;
use crate::store::row::{Given, KeyOnly, Put, Readable, Reader, Revisioned, Row, Take};
use crate::store::table::{Column, Kind, REVISION, Table, number};
use crate::store::{Document, Schedule};

pub(super) static DOCUMENT: LazyLock<Moves> = LazyLock::new(Moves::of::<Document>);
pub(super) static LOOK: LazyLock<Moves> = LazyLock::new(Moves::of::<Look>);
pub(super) static SCHEDULE: LazyLock<Moves> = LazyLock::new(Moves::of::<Schedule>);

/// The statements of a table whose rows count their changes.
pub(super) struct Moves {
    /// Inserts rows at revision 1.
    pub(super) new: Insert,
    /// Moves rows on by exactly one revision. By way of a row that is never inserted, with a revision below zero: see `record`.
    pub(super) moved: Insert,
    /// Takes rows off, at the revision before.
    pub(super) gone: Insert,
}

impl Moves {
    fn of<R: Revisioned>() -> Self {
        let table = R::TABLE;
        let name = table.name;
        let set = table.changed();
        let moves_on = format!(
            "ON CONFLICT ({}) DO UPDATE SET {set}, {REVISION} = -excluded.{REVISION} \
             WHERE {name}.{REVISION} = -excluded.{REVISION} - 1",
            table.key.join(", "),
        );
        let is_key = |column: &&Column| table.key.contains(&column.name);
        let key: Vec<_> = table.columns.iter().filter(is_key).copied().collect();
        let same = key.iter().map(|column| format!("{name}.{0} = gone.{0}", column.name));
        let before = format!("{name}.{REVISION} = gone.{REVISION} - 1");
        let behind = same.chain([before]).collect::<Vec<_>>().join(" AND ");
        // Once for each table: a statement is told apart by its place, and stays.
        let named = |what: &str| -> &'static str { format!("{name}_{what}").leak() };
        let plain = Insert { table: name, columns: table.columns, ..PLAIN };
        Self {
            new: Insert { name: named("new"), ..plain },
            moved: Insert {
                name: named("moved"),
                tail: moves_on.leak(),
                holds: Some("revision > 0"),
                ..plain
            },
            gone: Insert {
                name: named("gone"),
                columns: key.into_iter().chain([number(REVISION)]).collect::<Vec<_>>().leak(),
                tail: behind.leak(),
                deletes: true,
                ..plain
            },
        }
    }

    /// Adds rows.
    pub(super) fn write<'c, R: Revisioned + 'c>(
        &'static self,
        rows: impl Iterator<Item = &'c R>,
        batch: &mut Batch,
    ) {
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|one, other| one.key().cmp(&other.key()));
        let (gone, kept): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_gone());
        let (new, moved): (Vec<_>, Vec<_>) = kept.into_iter().partition(|row| row.revision() == 1);
        batch.insert(&self.new, &new, |row, values| row.put(values));
        batch.insert(&self.moved, &moved, |row, values| {
            row.put(&mut BelowZero { table: R::TABLE, next: 0, to: values });
        });
        batch.insert(&self.gone, &gone, |row, values| {
            row.put(&mut KeyOnly::of(R::TABLE, values));
            values.number(row.revision());
        });
    }
}

/// Turns the revision into one below zero.
struct BelowZero<'p, P> {
    table: &'static Table,
    next: usize,
    to: &'p mut P,
}

impl<P: Put> Put for BelowZero<'_, P> {
    fn give(&mut self, value: Given<'_>) {
        let column = self.table.columns.get(self.next).map(|column| column.name);
        self.next += 1;
        self.to.give(match value {
            Given::Number(revision) if column == Some(REVISION) => Given::Number(-revision),
            value => value,
        });
    }
}

/// The row stands, or is gone, as this change would have left it (see `record::is_written`).
pub(super) async fn is_written<R: Row>(connection: &mut PgConnection, row: &R) -> Result<bool, sqlx::Error> {
    Ok(match stored(connection, row).await? {
        Some(stored) => read::<R>(&stored).is_ok_and(|stored| stored == *row),
        None => row.is_gone(),
    })
}

/// The stored row with this one's key.
pub(super) async fn stored<R: Row>(
    connection: &mut PgConnection,
    row: &R,
) -> Result<Option<PgRow>, sqlx::Error> {
    let mut key = Bound::default();
    row.put(&mut KeyOnly::of(R::TABLE, &mut key));
    let query = sqlx::query_with(AssertSqlSafe(R::TABLE.select_one()), key.0).persistent(false);
    query.fetch_optional(connection).await
}

pub(super) fn read<R: Readable>(row: &PgRow) -> Result<R, StoreError> {
    R::take(&mut Columns::of(R::TABLE.name, row))
}

impl Reader for Pool {
    type Fetched = PgRow;

    fn either<'w>(_: &'w str, postgres: &'w str) -> &'w str {
        postgres
    }

    async fn fetch(&self, sql: String, arguments: &[Given<'_>]) -> Result<Vec<PgRow>, StoreError> {
        let sql: Arc<str> = sql.into();
        self.all(|| asking(&sql, arguments)).await
    }

    fn read<R: Readable>(row: &PgRow) -> Result<R, StoreError> {
        read(row)
    }

    fn id(row: &PgRow) -> Result<Option<i64>, StoreError> {
        use sqlx::Row as _;
        row.try_get_unchecked(0).map_err(|e| failure(&e))
    }
}

fn asking(sql: &Arc<str>, arguments: &[Given<'_>]) -> Statement {
    let mut bound = Bound::default();
    for argument in arguments {
        bound.give(argument.clone());
    }
    sqlx::query_with(AssertSqlSafe(sql.clone()), bound.0)
}

/// The arguments of a query.
#[derive(Default)]
struct Bound(PgArguments);

impl Bound {
    fn add<'v>(&mut self, value: impl Encode<'v, sqlx::Postgres> + Type<sqlx::Postgres> + 'v) {
        if let Err(error) = self.0.add(value) {
            // Numbers, texts and NULL always encode; should that change, the query lacks an argument, and the server refuses it.
            tracing::error!(%error, "a value could not be bound");
        }
    }
}

impl Put for Bound {
    fn give(&mut self, value: Given<'_>) {
        match value {
            Given::Null(Kind::Text) => self.add(None::<String>),
            Given::Null(Kind::Number) => self.add(None::<i64>),
            Given::Null(Kind::Bytes) => self.add(None::<Vec<u8>>),
            Given::Null(Kind::Flag) => self.add(None::<bool>),
            Given::Text(text) => self.add(escaped(text).into_owned()),
            Given::Shared(text) => self.add(escaped(&text).into_owned()),
            Given::Number(number) => self.add(number),
            Given::Bytes(bytes) => self.add(bytes.to_vec()),
            Given::Flag(flag) => self.add(flag),
        }
    }
}

impl Take for Columns<'_> {
    fn some_text(&mut self) -> Result<Option<String>, StoreError> {
        Columns::some_text(self)
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
