//! Rows of tables that are declared once: their statements are put together from the declaration.

use std::sync::{Arc, LazyLock};

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Type};

use super::pool::{Pool, Statement};
use super::statement::{Batch, Insert};
use super::{Columns, StoreError, escaped, sound};
use crate::store::row::{Given, KeyOnly, Put, Reader, Revisioned, Row, Take};
use crate::store::table::{Kind, REVISION, Table};
use crate::store::{Document, Schedule};

pub(super) static DOCUMENT: LazyLock<Moves> = LazyLock::new(Moves::of::<Document>);
pub(super) static SCHEDULE: LazyLock<Moves> = LazyLock::new(Moves::of::<Schedule>);

/// The statements of a table whose rows count their changes.
pub(super) struct Moves {
    /// Inserts rows at revision 1.
    pub(super) new: Insert,
    /// Moves rows on by exactly one revision. By way of a row that is never inserted, with a revision below zero: see `record`.
    pub(super) moved: Insert,
}

impl Moves {
    fn of<R: Revisioned>() -> Self {
        let table = R::TABLE;
        let name = table.name;
        let set: String = table.changing().map(|column| format!("{column} = excluded.{column}, ")).collect();
        let moves_on = format!(
            "ON CONFLICT ({}) DO UPDATE SET {set}{REVISION} = -excluded.{REVISION} \
             WHERE {name}.{REVISION} = -excluded.{REVISION} - 1",
            table.key.join(", "),
        );
        // Once for each table: a statement is told apart by its place, and stays.
        let insert = |what: &str, tail: String, holds| Insert {
            name: format!("{name}_{what}").leak(),
            table: name,
            columns: table.columns,
            constants: &[],
            tail: tail.leak(),
            holds: Some(holds),
        };
        Self {
            new: insert("new", "ON CONFLICT DO NOTHING".to_owned(), "true"),
            moved: insert("moved", moves_on, "revision > 0"),
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
        let (new, moved): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.revision() == 1);
        batch.insert(&self.new, &new, |row, values| row.put(values));
        batch.insert(&self.moved, &moved, |row, values| {
            row.put(&mut BelowZero { table: R::TABLE, next: 0, to: values });
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

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written<R: Row>(connection: &mut PgConnection, row: &R) -> Result<bool, sqlx::Error> {
    let mut key = Bound::default();
    row.put(&mut KeyOnly::of(R::TABLE, &mut key));
    let query = sqlx::query_with(AssertSqlSafe(R::TABLE.select_one()), key.0).persistent(false);
    let stored = query.fetch_optional(connection).await?;
    Ok(stored.is_some_and(|stored| read::<R>(&stored).is_ok_and(|stored| stored == *row)))
}

fn read<R: Row>(row: &PgRow) -> Result<R, StoreError> {
    R::take(&mut Columns::of(R::TABLE.name, row))
}

impl Reader for Pool {
    fn indexed_by(_: &str) -> String {
        String::new()
    }

    async fn rows<R: Row>(&self, behind: &str, arguments: &[Given<'_>]) -> Result<Vec<R>, StoreError> {
        let sql: Arc<str> = R::TABLE.select(behind).into();
        Ok(sound(&self.all(|| asking(&sql, arguments)).await?, read))
    }

    async fn row<R: Row>(&self, behind: &str, arguments: &[Given<'_>]) -> Result<Option<R>, StoreError> {
        let sql: Arc<str> = R::TABLE.select(behind).into();
        self.optional(|| asking(&sql, arguments)).await?.as_ref().map(read).transpose()
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

    fn unknown(&self) -> StoreError {
        self.damaged(crate::store::row::UNKNOWN)
    }
}
