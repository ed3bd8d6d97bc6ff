//! Rows of declared tables: their statements are derived from the declaration.

use std::sync::{Arc, LazyLock};

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, SqlSafeStr, Type};

use super::pool::{Pool, Statement};
use super::statement::{Batch, Insert, PLAIN, Values};
use super::{Columns, escaped, failure, special};
use crate::id::Fence;
use crate::store::Question;
use crate::store::cell::Declared;
use crate::store::row::{Form, Given, Only, Put, Row, Take};
use crate::store::sql::ask::{Backend, Listed, Reader, Session};
use crate::store::sql::inbox::Messages;
use crate::store::sql::write::{self, Own, rows, writes};
use crate::store::table::{Chosen, Column, Kind, Law, REVISION, Table, number};

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
    /// Deletes rows, at the revision before.
    gone: Option<Insert>,
}

/// The statements for rows of one form.
struct Formed {
    form: Option<usize>,
    new: Part,
    /// Moves rows on by exactly one revision, for rows that count their changes.
    moved: Option<Part>,
}

struct Part {
    insert: Insert,
    sent: Chosen,
    /// The columns whose sign is inverted.
    turned: Chosen,
}

/// Leaks the values for good: there is one statement of each kind per table, and its address identifies it.
fn kept<T>(values: impl Iterator<Item = T>) -> &'static [T] {
    values.collect::<Vec<_>>().leak()
}

/// A column with the same value in all rows, as SQL.
type Constant = (&'static str, &'static str);

fn constants(form: Form) -> impl Iterator<Item = Constant> {
    form.iter().copied().filter(|(_, value)| *value != "NULL")
}

/// The placeholder for a column of a row that is never stored.
const fn blank(column: &Column) -> Constant {
    let value = match column.kind {
        Kind::Number => "0",
        Kind::Flag => "false",
        Kind::Text | Kind::Bytes => "''",
    };
    (column.name, value)
}

impl Writes {
    fn of<R: Row>() -> Self {
        let table = R::TABLE;
        let forms = R::FORMS.iter().enumerate().map(|(form, constant)| (Some(form), *constant));
        let formed = |(form, constant): (Option<usize>, Form)| {
            let of = form.map(|form| form.to_string()).unwrap_or_default();
            let starts = constant.iter().any(|(name, _)| *name == REVISION);
            let moves = table.law == Law::Moves && !starts;
            Formed { form, new: new(table, constant, &of), moved: moves.then(|| moved(table, constant, &of)) }
        };
        let forms = forms.chain([(None, [].as_slice())]).map(formed).collect();
        Self { table, forms, gone: R::GOES.then(|| gone(table)) }
    }

    /// The statements of the table, for the test that prepares and explains them.
    fn inserts(&'static self) -> Vec<&'static Insert> {
        let forms = self.forms.iter();
        let all = forms.flat_map(|formed| [Some(&formed.new), formed.moved.as_ref()]).flatten();
        all.map(|part| &part.insert).chain(&self.gone).collect()
    }
}

impl write::Batch for Batch {
    fn rows<'c, R: Row + 'c>(&mut self, rows: impl Iterator<Item = (&'c R, Option<Fence>)>) {
        let mut rows: Vec<_> = rows.map(|(row, _)| row).collect();
        if rows.is_empty() {
            return; // a change writes into few of the tables
        }
        let writes = writes::<R, _>(&WRITES, |writes| writes.table);
        rows.sort_by(|one, other| one.key().cmp(&other.key()));
        let (gone, mut rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_gone());
        for formed in &writes.forms {
            let of_form;
            (of_form, rows) = rows.into_iter().partition(|row| formed.form.is_none_or(|form| row.has(form)));
            let (new, moved): (Vec<_>, Vec<_>) = of_form.into_iter().partition(|row| row.revision() == 1);
            for (part, rows) in [(Some(&formed.new), new), (formed.moved.as_ref(), moved)] {
                let Some(Part { insert, sent, turned }) = part else { continue };
                self.insert(insert, &rows, |row, values| {
                    row.put(&mut Only::of(*sent, values).turned(*turned));
                });
            }
        }
        if let Some(insert) = &writes.gone {
            self.insert(insert, &gone, |row, values| {
                row.put(&mut Only::telling(R::TABLE, values));
                values.cell(&row.revision());
            });
        }
    }

    fn own<T>(&mut self, own: Own, rows: &[(T, Option<Fence>)], put: impl Fn(&T, &mut Values<'_>)) {
        self.insert(special::insert(own), rows, |(row, _), values| put(row, values));
    }

    fn questions(&mut self, rows: &[(&Question, Option<Fence>)]) {
        let rows = rows.iter().map(|(question, _)| *question);
        let (new, old): (Vec<_>, Vec<_>) = rows.partition(|question| question.is_new());
        self.insert(&special::QUESTION, &new, |question, values| question.put(values));
        self.insert(&special::ANSWER, &old, |answered, values| {
            values.cell(&answered.tenant).cell(&answered.id).cell(&answered.question);
            values.cell(&answered.answer).cell(&answered.waiting);
        });
    }

    type Values<'b> = Values<'b>;
}

/// The statements of all tables, for the test that prepares and explains them.
pub(super) fn inserts() -> impl Iterator<Item = &'static Insert> {
    WRITES.iter().flat_map(Writes::inserts)
}

/// Inserts rows at revision 1. A row whose key is taken is not written and is missing when rows are counted, unless
/// an existing row may stay.
fn new(table: &'static Table, form: Form, of: &str) -> Part {
    let sent = table.choose(|column| form.iter().all(|(name, _)| *name != column.name));
    // The conflict is by the key alone, which saves looking up the primary key. Primary keys do not clash unless
    // something is very wrong.
    let by = if table.with.len() > 1 { format!("({}) ", table.with.join(", ")) } else { String::new() };
    let insert = Insert {
        name: format!("{}_new{of}", table.name).leak(),
        table: table.name,
        columns: kept(sent.of(table)),
        constants: kept(constants(form)),
        tail: format!("ON CONFLICT {by}DO NOTHING").leak(),
        holds: (!matches!(table.law, Law::Keep | Law::Note)).then_some("true"),
        ..PLAIN
    };
    Part { insert, sent, turned: Chosen::default() }
}

/// Moves rows on by exactly one revision, through rows that are never meant to be inserted: this is the only form of
/// an update whose plan cannot go wrong, because the conflict is found by the key. The revision is sent with its sign
/// inverted. If there is no row to move on, the inserted row shows it, and the statement aborts.
fn moved(table: &'static Table, form: Form, of: &str) -> Part {
    let stays = |column: &Column| column.fixed && !table.tells(column.name);
    let sent = table.choose(|column| !stays(column) && form.iter().all(|(name, _)| *name != column.name));
    let blanks = table.columns.iter().filter(|column| stays(column)).map(blank);
    let changing = constants(form)
        .filter(|(name, _)| table.columns.iter().any(|column| column.name == *name && !stays(column)));
    let (name, changed) = (table.name, table.changed());
    let (tenant, others): (Vec<&str>, Vec<&str>) = table.with.iter().partition(|name| **name == "tenant");
    let unique = tenant.iter().chain(table.key).copied().collect::<Vec<_>>().join(", ");
    let same: Vec<_> = others.iter().map(|other| format!(" AND {name}.{other} = excluded.{other}")).collect();
    let same = same.concat();
    let tail = format!(
        "ON CONFLICT ({unique}) DO UPDATE SET {changed}, {REVISION} = -excluded.{REVISION} \
         WHERE {name}.{REVISION} = -excluded.{REVISION} - 1{same}"
    );
    let insert = Insert {
        name: format!("{name}_moved{of}").leak(),
        table: name,
        columns: kept(sent.of(table)),
        constants: kept(blanks.chain(changing)),
        tail: tail.leak(),
        holds: Some("revision > 0"),
        ..PLAIN
    };
    Part { insert, sent, turned: table.choose(|column| column.name == REVISION) }
}

fn gone(table: &'static Table) -> Insert {
    let told = || table.columns.iter().copied().filter(|column| table.tells(column.name));
    let same = told().map(|Column { name, .. }| format!("{}.{name} = gone.{name}", table.name));
    let before = format!("{}.{REVISION} = gone.{REVISION} - 1", table.name);
    Insert {
        name: format!("{}_gone", table.name).leak(),
        table: table.name,
        columns: kept(told().chain([number(REVISION)])),
        tail: same.chain([before]).collect::<Vec<_>>().join(" AND ").leak(),
        deletes: true,
        ..PLAIN
    }
}

macro_rules! backend {
    ($($database:ty),+) => {
        $(impl Backend for $database {
            type Fetched = PgRow;

            fn either<'w>(_: &'w str, postgres: &'w str) -> &'w str {
                postgres
            }

            fn values(table: &'static str, row: &PgRow) -> impl Take {
                Columns::of(table, row)
            }
        })+
    };
}
backend!(Pool, PgConnection, Beside<'_>);

/// A statement with its arguments.
pub(super) fn asking(sql: impl SqlSafeStr, arguments: &[Given<'_>]) -> Statement {
    let mut bound = Bound::default();
    for argument in arguments {
        bound.give(argument.clone());
    }
    sqlx::query_with(sql, bound.0)
}

impl Reader for Pool {
    async fn fetch(&self, sql: String, arguments: &[Given<'_>]) -> Listed<PgRow> {
        let sql: Arc<str> = sql.into();
        self.all(|| asking(AssertSqlSafe(sql.clone()), arguments)).await
    }
}

/// Statements about a message beside its transaction. They are not retried: the message is delivered again.
pub(super) struct Beside<'p>(pub(super) &'p Pool);

impl Messages for Beside<'_> {
    async fn rows(&mut self, sql: &'static str, arguments: &[Given<'_>]) -> Listed<PgRow> {
        self.0.once(asking(sql, arguments)).await
    }
}

impl Messages for PgConnection {
    async fn rows(&mut self, sql: &'static str, arguments: &[Given<'_>]) -> Listed<PgRow> {
        asking(sql, arguments).fetch_all(self).await.map_err(|e| failure(&e))
    }
}

impl Session for PgConnection {
    type Arguments = Bound;

    async fn ask(&mut self, sql: String, arguments: Bound) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::query_with(AssertSqlSafe(sql), arguments.0).persistent(false).fetch_all(self).await
    }
}

/// The arguments of a query.
#[derive(Default)]
pub(in crate::store) struct Bound(PgArguments);

impl Bound {
    fn add<'v>(&mut self, value: impl Encode<'v, sqlx::Postgres> + Type<sqlx::Postgres> + 'v) {
        if let Err(error) = self.0.add(value) {
            // Numbers, texts and NULL always encode. If one did not, the query would lack an argument, and the server
            // would refuse it.
            tracing::error!(%error, "value not bound to its statement");
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
            Given::Owned(bytes) => self.add(bytes),
            Given::Flag(flag) => self.add(flag),
            Given::Texts(texts) => {
                self.add(texts.into_iter().map(|text| escaped(text).into_owned()).collect::<Vec<_>>());
            }
            Given::Numbers(numbers) => self.add(numbers),
        }
    }
}
