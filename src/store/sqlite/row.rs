//! Rows of declared tables: their statements are derived from the declaration.

use std::sync::LazyLock;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, SqlSafeStr, Sqlite, SqlitePool};

use super::statement::{Batch, Insert, Values, text};
use super::{Columns, StoreError, failure, run, special};
use crate::id::Fence;
use crate::ledger::Record;
use crate::store::cell::{Declared, as_json};
use crate::store::change::follows;
use crate::store::row::{Form, Given, Only, Put, Row, Take};
use crate::store::sql::ask::{Backend, Listed, Reader, Session};
use crate::store::sql::inbox::Messages;
use crate::store::sql::write::{self, Own, rows, writes};
use crate::store::table::{Chosen, Law, REVISION, Table};
use crate::store::{Question, Refusal};

macro_rules! writes {
    ($($row:ty),+) => {
        vec![$(Writes::of::<$row>()),+]
    };
}

static WRITES: LazyLock<Vec<Writes>> = LazyLock::new(|| rows!(writes));

/// The statements that write the rows of a table.
struct Writes {
    table: &'static Table,
    forms: Vec<Formed>,
}

/// The statement for rows of one form.
struct Formed {
    form: Option<usize>,
    insert: Insert,
    sent: Chosen,
}

impl Writes {
    /// The statements of a table. One statement inserts rows and moves others on: forms that only a first revision
    /// has are not used here.
    fn of<R: Row>() -> Self {
        let forms = R::FORMS.iter().enumerate().map(|(form, constant)| (Some(form), *constant));
        let both = forms.filter(|(_, constant)| constant.iter().all(|(name, _)| *name != REVISION));
        let formed = |(form, constant)| {
            let (insert, sent) = insert(R::TABLE, constant);
            Formed { form, insert, sent }
        };
        Self { table: R::TABLE, forms: both.chain([(None, [].as_slice())]).map(formed).collect() }
    }

    /// The statements of the table, for the tests that explain and pin them.
    fn texts(&'static self) -> impl Iterator<Item = String> {
        self.forms.iter().map(|formed| text(&formed.insert, 2))
    }
}

impl write::Batch for Batch {
    fn rows<'c, R: Row + 'c>(&mut self, rows: impl Iterator<Item = (&'c R, Option<Fence>)>) {
        let mut rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return; // a change writes into few of the tables
        }
        for formed in &writes::<R, _>(&WRITES, |writes| writes.table).forms {
            let of_form: Vec<_>;
            (of_form, rows) =
                rows.into_iter().partition(|(row, _)| formed.form.is_none_or(|form| row.has(form)));
            self.insert(&formed.insert, &of_form, |row, values| row.put(&mut Only::of(formed.sent, values)));
        }
    }

    fn own<T>(&mut self, own: Own, rows: &[(T, Option<Fence>)], put: impl Fn(&T, &mut Values<'_>)) {
        self.insert(special::insert(own), rows, put);
    }

    fn questions(&mut self, rows: &[(&Question, Option<Fence>)]) {
        self.insert(&special::QUESTION, rows, |question, values| question.put(values));
    }

    type Values<'b> = Values<'b>;
}

/// Builds the statement that inserts rows, or moves on by exactly one revision the rows that count their changes.
///
/// The row of a fenced worker gets a NULL, and so does a revision that does not follow, which aborts (see
/// `statement`). If there is no row to move on, a trigger objects; in the table that is written most, a reference to
/// the row's birth does, which an upsert never changes.
fn insert(table: &'static Table, form: Form) -> (Insert, Chosen) {
    let sent = table.choose(|column| form.iter().all(|(name, _)| *name != column.name));
    let columns = sent.of(table).count();
    let guarded = if table.law == Law::Moves { REVISION } else { table.columns[0].name };
    let (mut names, mut values, mut born) = (Vec::new(), Vec::new(), None);
    for (column, place) in sent.of(table).zip(1..) {
        names.push(column.name);
        values.push(if column.name == guarded && table.law != Law::Note {
            let writer = columns + 1;
            format!(
                "(SELECT column{place} FROM worker WHERE worker.fence = column{writer} AND worker.ended_at IS NULL)"
            )
        } else {
            format!("column{place}")
        });
        if column.name == REVISION && table.name == Record::TABLE.name {
            born = Some(("born", format!("column{place}")));
        }
    }
    let constants = form.iter().filter(|(_, value)| *value != "NULL");
    for (name, value) in constants.map(|(name, value)| (*name, (*value).to_owned())).chain(born) {
        names.push(name);
        values.push(value);
    }
    let head = format!("INSERT INTO {} ({}) SELECT {}", table.name, names.join(", "), values.join(", "));
    let columns = if table.law == Law::Note { columns } else { columns + 1 };
    // The text is leaked once for each table: a statement is identified by its address, and stays.
    (Insert { head: head.leak(), columns, tail: tail(table).leak() }, sent)
}

fn tail(table: &Table) -> String {
    match table.law {
        Law::Keep | Law::Note => "ON CONFLICT DO NOTHING".to_owned(),
        Law::Once | Law::Own => String::new(),
        Law::Moves => {
            let (name, key, set) = (table.name, table.key.join(", "), table.changed());
            let same: Vec<_> =
                table.with.iter().map(|with| format!(" AND {name}.{with} = excluded.{with}")).collect();
            let same = same.concat();
            format!(
                "ON CONFLICT ({key}) DO UPDATE SET {set}, {REVISION} = CASE WHEN {name}.{REVISION} = \
                 excluded.{REVISION} - 1{same} THEN excluded.{REVISION} END"
            )
        }
    }
}

/// The statements of all tables, for the tests that explain and pin them.
pub(super) fn statements() -> impl Iterator<Item = String> {
    WRITES.iter().flat_map(Writes::texts).chain([run::PENDING.clone()])
}

/// The refusal of the row that is being written, if the stored row does not allow it.
pub(super) async fn objection<R: Row>(
    connection: &mut SqliteConnection,
    row: &R,
) -> Result<Option<Refusal>, sqlx::Error> {
    Ok(match connection.stored(row).await?.transpose() {
        Ok(stored) => follows(stored.map(|stored| stored.revision()), row.revision()).err(),
        Err(_) => Some(Refusal::Stale), // the stored row is damaged: the change is not computed from its content
    })
}

pub(super) fn read<R: Declared>(row: &SqliteRow) -> Result<R, StoreError> {
    R::take(&mut Columns::of(R::TABLE.name, row))
}

macro_rules! backend {
    ($($database:ty),+) => {
        $(impl Backend for $database {
            type Fetched = SqliteRow;

            fn either<'w>(sqlite: &'w str, _: &'w str) -> &'w str {
                sqlite
            }

            fn values(table: &'static str, row: &SqliteRow) -> impl Take {
                Columns::of(table, row)
            }
        })+
    };
}
backend!(SqlitePool, SqliteConnection);

/// A statement with its arguments.
pub(super) fn asking(
    sql: impl SqlSafeStr,
    arguments: &[Given<'_>],
) -> Query<'static, Sqlite, SqliteArguments> {
    let mut bound = SqliteArguments::default();
    for argument in arguments {
        bound.give(argument.clone());
    }
    sqlx::query_with(sql, bound)
}

impl Reader for SqlitePool {
    async fn fetch(&self, sql: String, arguments: &[Given<'_>]) -> Listed<SqliteRow> {
        asking(AssertSqlSafe(sql), arguments).fetch_all(self).await.map_err(|e| failure(&e))
    }
}

impl Messages for SqliteConnection {
    async fn rows(&mut self, sql: &'static str, arguments: &[Given<'_>]) -> Listed<SqliteRow> {
        asking(sql, arguments).fetch_all(self).await.map_err(|e| failure(&e))
    }
}

impl Session for SqliteConnection {
    type Arguments = SqliteArguments;

    async fn ask(&mut self, sql: String, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, sqlx::Error> {
        sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(self).await
    }
}

impl Put for SqliteArguments {
    fn give(&mut self, value: Given<'_>) {
        Values::of(self).give(value);
    }
}

impl Put for Values<'_> {
    fn give(&mut self, value: Given<'_>) {
        match value {
            Given::Null(_) => self.value(None::<i64>),
            Given::Text(text) => self.value(text.to_owned()),
            Given::Shared(text) => self.value(text),
            Given::Number(number) => self.value(number),
            Given::Bytes(bytes) => self.value(bytes.to_vec()),
            Given::Owned(bytes) => self.value(bytes),
            Given::Flag(flag) => self.value(flag),
            Given::Texts(texts) => self.value(as_json(&texts)),
            Given::Numbers(numbers) => self.value(as_json(&numbers)),
        };
    }
}
