//! One statement for a whole batch: a CTE per table, each `INSERT … SELECT unnest($1), unnest($2), …`, so that a
//! batch of any size has the same text, one round trip and one sync.
//!
//! **A mismatch aborts the statement.** Each CTE returns the rows that it wrote. If these are fewer than were sent,
//! or if the worker has ended, the outermost SELECT divides by zero and nothing of the batch is written. So a batch
//! without refusals, which is nearly every batch, costs one statement and no reading back; a batch with a refusal is
//! judged change by change. No constraint is violated on purpose: PostgreSQL would write the row, payloads and all,
//! into the server's log.
//!
//! Never use `UPDATE … FROM unnest`: its plan is made while the table is empty, and kept: a sequential scan.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgTypeInfo};
use sqlx::{Arguments as _, Encode, Postgres, Type};

use super::escaped;
use crate::id::Fence;
use crate::store::cell::as_json;
use crate::store::row::{Given, Put};
use crate::store::table::{Column, Kind};

/// The part of the statement for one table. There is one value of each, so that its address identifies it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Insert {
    /// The name of the CTE.
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    pub(super) columns: &'static [Column],
    /// The columns that have the same value in all rows.
    pub(super) constants: &'static [(&'static str, &'static str)],
    /// The SQL text after the rows.
    pub(super) tail: &'static str,
    /// The condition that each written row must satisfy; then there must be as many written rows as were sent.
    /// `None`: an existing row may be left unchanged.
    pub(super) holds: Option<&'static str>,
    /// True if the part deletes the rows that the tail finds by the sent rows, which the tail calls `gone`.
    pub(super) deletes: bool,
}

/// Inserts rows, all of which are new.
pub(super) const PLAIN: Insert = Insert {
    name: "",
    table: "",
    columns: &[],
    constants: &[],
    tail: "ON CONFLICT DO NOTHING",
    holds: Some("true"),
    deletes: false,
};

impl PartialEq for Insert {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Insert {}

impl Hash for Insert {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state); // the text is long, and is looked up for each batch
    }
}

/// A batch under construction.
#[derive(Default)]
pub(super) struct Batch {
    /// The fences of the workers that must be alive.
    fences: Vec<i64>,
    parts: Vec<Part>,
}

struct Part {
    insert: &'static Insert,
    columns: Vec<Sent>,
    rows: i64,
}

impl Batch {
    /// A batch that is written only if these workers are alive, each named once.
    pub(super) fn by(fences: Vec<i64>) -> Self {
        Self { fences, parts: Vec::new() }
    }

    /// Adds the rows of one table, in the order of their keys: two workers that write the same rows must lock them in
    /// one order.
    pub(super) fn insert<T>(
        &mut self,
        insert: &'static Insert,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_>),
    ) {
        if rows.is_empty() {
            return;
        }
        let mut columns: Vec<_> = insert.columns.iter().map(|column| Sent::of(column.kind)).collect();
        for row in rows {
            let mut values = Values { columns: &mut columns, next: 0 };
            bind(row, &mut values);
            debug_assert_eq!(values.next, insert.columns.len(), "a value per column: {}", insert.name);
        }
        self.parts.push(Part { insert, columns, rows: i64::try_from(rows.len()).unwrap_or(i64::MAX) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.fences.is_empty()
    }

    /// True if there is one row of each table, as when a single run is at work. The form is for all parts or none:
    /// otherwise each combination would be a text to keep.
    fn is_single(&self) -> bool {
        self.parts.iter().all(|part| part.rows == 1)
    }

    /// The tables whose rows are counted, in the order in which a judged statement reports them.
    pub(super) fn counted(&self) -> Vec<&'static str> {
        self.parts.iter().filter(|part| part.insert.holds.is_some()).map(|part| part.insert.table).collect()
    }

    fn shape(&self, judged: bool) -> Shape {
        let inserts = self.parts.iter().map(|part| part.insert).collect();
        Shape { inserts, single: self.is_single(), fences: self.fences.len().min(2), judged }
    }

    /// The arguments of a statement that takes runs over: the worker, and the columns of the runs.
    pub(super) fn claiming(self, fence: Fence) -> Result<PgArguments, sqlx::Error> {
        let mut arguments = PgArguments::default();
        arguments.add(fence.0).map_err(sqlx::Error::Encode)?;
        for mut column in self.parts.into_iter().flat_map(|part| part.columns) {
            column.array = true;
            arguments.add(column).map_err(sqlx::Error::Encode)?;
        }
        Ok(arguments)
    }

    /// The arguments, in the order of their numbers in the text.
    fn arguments(self) -> Result<PgArguments, sqlx::Error> {
        let single = self.is_single();
        let mut arguments = PgArguments::default();
        let mut counts = Vec::new();
        match self.fences[..] {
            [] => {}
            [one] => arguments.add(one).map_err(sqlx::Error::Encode)?,
            _ => {
                counts.push(i64::try_from(self.fences.len()).unwrap_or(i64::MAX));
                arguments.add(self.fences).map_err(sqlx::Error::Encode)?;
            }
        }
        for part in self.parts {
            for mut column in part.columns {
                column.array = !single;
                arguments.add(column).map_err(sqlx::Error::Encode)?;
            }
            if part.insert.holds.is_some() && !single {
                counts.push(part.rows);
            }
        }
        for count in counts {
            arguments.add(count).map_err(sqlx::Error::Encode)?;
        }
        Ok(arguments)
    }
}

/// The values of one row, in the order of its columns.
pub(super) struct Values<'a> {
    columns: &'a mut [Sent],
    next: usize,
}

impl Put for Values<'_> {
    fn give(&mut self, value: Given<'_>) {
        match value {
            Given::Null(kind) => self.add(kind, None),
            Given::Text(text) => self.add(Kind::Text, Some(escaped(text).as_bytes())),
            Given::Shared(text) => self.add(Kind::Text, Some(escaped(&text).as_bytes())),
            Given::Number(number) => self.add(Kind::Number, Some(&number.to_be_bytes())),
            Given::Bytes(bytes) => self.add(Kind::Bytes, Some(bytes)),
            Given::Owned(bytes) => self.add(Kind::Bytes, Some(&bytes)),
            Given::Flag(flag) => self.add(Kind::Flag, Some(&[u8::from(flag)])),
            // A list can only be one value of a row as JSON.
            Given::Texts(texts) => self.add(Kind::Text, Some(as_json(&texts).as_bytes())),
            Given::Numbers(numbers) => self.add(Kind::Text, Some(as_json(&numbers).as_bytes())),
        }
    }
}

impl Values<'_> {
    fn add(&mut self, kind: Kind, value: Option<&[u8]>) {
        if let Some(column) = self.columns.get_mut(self.next) {
            debug_assert_eq!(column.kind, kind, "column {}", self.next);
            column.add(value);
        }
        self.next += 1;
    }
}

/// All values of one column in wire format: one array, without a copy of each value; or the one value of a single
/// row, which spares the server the array.
struct Sent {
    kind: Kind,
    array: bool,
    values: i32,
    has_null: bool,
    bytes: Vec<u8>,
}

impl Sent {
    const fn of(kind: Kind) -> Self {
        Self { kind, array: true, values: 0, has_null: false, bytes: Vec::new() }
    }

    fn add(&mut self, value: Option<&[u8]>) {
        self.values = self.values.saturating_add(1);
        let Some(value) = value else {
            self.has_null = true;
            self.bytes.extend((-1_i32).to_be_bytes());
            return;
        };
        // A value beyond 2 GB is far beyond the limits of a payload; the array would be refused below.
        self.bytes.extend(i32::try_from(value.len()).unwrap_or(i32::MAX).to_be_bytes());
        self.bytes.extend_from_slice(value);
    }
}

impl Type<Postgres> for Sent {
    fn type_info() -> PgTypeInfo {
        <Vec<i64> as Type<Postgres>>::type_info() // `produces` returns the real type
    }
}

impl Encode<'_, Postgres> for Sent {
    /// Writes the binary form of an array (`src/backend/utils/adt/arrayfuncs.c`, `array_recv`): the dimensions, a
    /// flag for NULLs, the type of the elements, length, lower bound, then each element after its length.
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        if !self.array {
            let Some(value) = self.bytes.get(4..).filter(|_| !self.has_null) else { return Ok(IsNull::Yes) };
            buffer.extend(value);
            return Ok(IsNull::No);
        }
        let element: i32 = match self.kind {
            Kind::Text => 25,
            Kind::Number => 20,
            Kind::Bytes => 17,
            Kind::Flag => 16,
        };
        for word in [1, i32::from(self.has_null), element, self.values, 1] {
            buffer.extend(&word.to_be_bytes());
        }
        buffer.extend(&self.bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(match (self.kind, self.array) {
            (Kind::Text, true) => <Vec<String> as Type<Postgres>>::type_info(),
            (Kind::Number, true) => <Vec<i64> as Type<Postgres>>::type_info(),
            (Kind::Bytes, true) => <Vec<Vec<u8>> as Type<Postgres>>::type_info(),
            (Kind::Flag, true) => <Vec<bool> as Type<Postgres>>::type_info(),
            (Kind::Text, false) => <String as Type<Postgres>>::type_info(),
            (Kind::Number, false) => <i64 as Type<Postgres>>::type_info(),
            (Kind::Bytes, false) => <Vec<u8> as Type<Postgres>>::type_info(),
            (Kind::Flag, false) => <bool as Type<Postgres>>::type_info(),
        })
    }

    fn size_hint(&self) -> usize {
        20 + self.bytes.len()
    }
}

/// The number of texts that are kept, also as prepared statements by the driver. The shapes that recur are few.
pub(super) const KEPT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    inserts: Vec<&'static Insert>,
    /// True if there is one row of each table.
    single: bool,
    /// The number of fences: none, one, or two for more.
    fences: usize,
    judged: bool,
}

/// The texts of batches that have been seen, so that each is built once.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<Shape, Arc<str>>);

impl Statements {
    /// The statement that writes the whole batch or, with an error, nothing.
    pub(super) fn whole(&mut self, batch: Batch) -> Result<(Arc<str>, PgArguments), sqlx::Error> {
        Ok((self.kept(batch.shape(false)), batch.arguments()?))
    }

    /// The statement that writes as much of a batch as it can, and reports for each counted part if all of it was
    /// written. Only inside a savepoint.
    pub(super) fn judged(&mut self, batch: Batch) -> Result<(Arc<str>, PgArguments), sqlx::Error> {
        Ok((self.kept(batch.shape(true)), batch.arguments()?))
    }

    fn kept(&mut self, shape: Shape) -> Arc<str> {
        if let Some(sql) = self.0.get(&shape) {
            return sql.clone();
        }
        let sql: Arc<str> = text(&shape).into();
        if self.0.len() >= KEPT {
            self.0.clear(); // the shapes in use are soon back
        }
        self.0.insert(shape, sql.clone());
        sql
    }
}

/// The part that checks the worker. FOR KEY SHARE makes a worker that ends this one wait for a batch that is under
/// way, and a later batch see the end: without it a batch could become durable after the other worker has looked. It
/// does not conflict with a heartbeat, which changes no key.
const ALIVE: &str = "w AS (SELECT fence FROM worker WHERE fence = $1 AND ended_at IS NULL FOR KEY SHARE)";
const ALL_ALIVE: &str = "w AS (SELECT fence FROM worker WHERE fence = ANY($1) AND ended_at IS NULL \
                         ORDER BY fence FOR KEY SHARE)";

fn text(shape: &Shape) -> String {
    let mut next = 1;
    let (mut ctes, mut checks) = (Vec::new(), Vec::new());
    if shape.fences > 0 {
        next += 1;
        ctes.push(if shape.fences == 1 { ALIVE } else { ALL_ALIVE }.to_owned());
        checks.push(("w", "", shape.fences == 1));
    }
    for insert in &shape.inserts {
        ctes.push(cte(insert, shape.single, &mut next));
        if insert.holds.is_some() {
            checks.push((insert.name, " WHERE holds", shape.single));
        }
    }
    let check = |(name, holds, single)| {
        if single {
            return format!("EXISTS (SELECT FROM {name}{holds})");
        }
        next += 1;
        format!("(SELECT count(*) FROM {name}{holds}) = ${}", next - 1)
    };
    let checks: Vec<_> = checks.into_iter().map(check).collect();
    let with = ctes.join(", ");
    match (shape.judged, checks.is_empty()) {
        (_, true) => format!("WITH {with} SELECT 1"),
        (true, false) => format!("WITH {with} SELECT {}", checks.join(", ")),
        // A constant 1/0 would be computed when the statement is planned.
        (false, false) => {
            format!("WITH {with} SELECT 1 / CASE WHEN {} THEN 1 ELSE 0 END", checks.join(" AND "))
        }
    }
}

/// The value of a column, as an argument.
fn argument(column: Column, number: usize) -> String {
    let kind = match column.kind {
        Kind::Text => "text",
        Kind::Number => "bigint",
        Kind::Bytes => "bytea",
        Kind::Flag => "boolean",
    };
    format!("${number}::{kind}")
}

/// All values of a column, as one argument.
pub(super) fn array(column: Column, number: usize) -> String {
    argument(column, number) + "[]"
}

fn cte(insert: &Insert, single: bool, next: &mut usize) -> String {
    let names = insert.columns.iter().map(|column| column.name);
    let names: Vec<_> = names.chain(insert.constants.iter().map(|(name, _)| *name)).collect();
    let mut values = Vec::new();
    for column in insert.columns {
        // In the list of a SELECT, arrays are unnested in step, and nothing is stored in between as after FROM.
        values.push(if single {
            argument(*column, *next)
        } else {
            format!("unnest({})", array(*column, *next))
        });
        *next += 1;
    }
    values.extend(insert.constants.iter().map(|(_, value)| (*value).to_owned()));
    let (names, values) = (names.join(", "), values.join(", "));
    let Insert { name, table, tail, .. } = insert;
    let mut returning = insert.holds.map(|holds| format!(" RETURNING {holds} AS holds")).unwrap_or_default();
    if insert.deletes {
        return format!(
            "{name} AS (DELETE FROM {table} USING (SELECT {values}) AS gone ({names}) WHERE {tail}{returning})"
        );
    }
    if *insert == super::special::MORE {
        returning.push_str(", tenant, name, last");
    }
    if *insert == super::special::EVENT {
        let placed = names.replace("seq", "more.last - new.seq").replace("tenant", "new.tenant");
        let more = super::special::MORE.name;
        return format!(
            "{name} AS (INSERT INTO {table} ({names}) SELECT {placed} FROM (SELECT {values}) AS new ({names}) \
             JOIN {more} AS more ON more.tenant = new.tenant AND more.name = new.aggregate {tail}{returning})"
        );
    }
    format!("{name} AS (INSERT INTO {table} ({names}) SELECT {values} {tail}{returning})")
}

/// Texts with every part in every form, for the test that prepares and explains them.
pub(super) fn texts(inserts: &[&'static Insert]) -> Vec<String> {
    // The events of the outbox are placed by the positions that the statement has computed for their aggregates.
    let with = |insert| {
        if insert == &super::special::EVENT { vec![&super::special::MORE, insert] } else { vec![insert] }
    };
    let each = inserts.iter().map(|insert| with(*insert)).chain([inserts.to_vec()]);
    let forms = |inserts: Vec<_>| {
        [(true, 0, true), (false, 0, true), (true, 1, false), (false, 1, false), (false, 2, false)]
            .map(|(single, fences, judged)| text(&Shape { inserts: inserts.clone(), single, fences, judged }))
    };
    each.flat_map(forms).collect()
}

#[cfg(test)]
mod tests {
    use super::{Batch, Insert, KEPT, PLAIN, Statements};
    use crate::store::row::Put as _;
    use crate::store::table::number;

    static INSERTS: [Insert; 10] =
        [const { Insert { name: "n", table: "t", columns: &[number("a")], ..PLAIN } }; 10];

    // The number of kept texts has a limit, and a shape that recurs gets the same text.
    #[test]
    fn the_texts_that_are_kept_have_a_limit() {
        let batch = |shape: usize| {
            let mut batch = Batch::by(vec![1]);
            for (bit, insert) in INSERTS.iter().enumerate().filter(|(bit, _)| (shape >> bit) & 1 == 1) {
                batch.insert(insert, &[bit], |_, row| {
                    row.cell(&1_i64);
                });
            }
            batch
        };
        let mut statements = Statements::default();
        for shape in 0..1024 {
            let (first, _) = statements.whole(batch(shape)).unwrap();
            let (again, _) = statements.whole(batch(shape)).unwrap();
            assert!(std::sync::Arc::ptr_eq(&first, &again), "put together once");
            assert!(statements.0.len() <= KEPT, "{} texts are kept", statements.0.len());
        }
    }
}
