//! Statements for a whole batch: one `INSERT … SELECT … FROM (VALUES …)` per table, in a few fixed sizes, so that
//! they stay in the driver's cache, padded with rows of NULLs that a WHERE drops.
//!
//! **A refusal aborts the statement.** If a change may not be written, a NOT NULL column becomes NULL or a unique
//! index objects, SQLite aborts, and nothing of the batch is written. So a batch without refusals, which is nearly
//! every batch, costs one statement and no reading back; a batch with a refusal is judged change by change.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sqlx::Arguments as _;
use sqlx::sqlite::SqliteArguments;

use crate::id::Fence;

/// The numbers of rows of a statement. Each is prepared once and kept, which takes memory by the row.
const SIZES: [usize; 6] = [128, 64, 32, 8, 2, 1];
/// The number of changes up to which a batch is one text, however many tables it writes: each text costs a wake-up in
/// both directions between the caller and the driver's thread. Larger batches are split by table, because otherwise
/// each combination of sizes would be kept.
const TOGETHER: usize = 8;
/// The number of rows to which a few rows of a table are padded in a larger batch, so that they share one text with
/// others that follow: rows that go out with the calls of others, such as an artifact, then cost them no wake-up for
/// each of their tables.
const FEW: usize = 8;

/// The statement of one table, without its rows. There is one value of each, so that its address identifies it.
#[derive(Debug)]
pub(super) struct Insert {
    /// The SQL text up to the rows.
    pub(super) head: &'static str,
    /// The number of columns of a row.
    pub(super) columns: usize,
    /// The SQL text after the rows. The first column is NULL in a padding row and nowhere else.
    pub(super) tail: &'static str,
}

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

/// The SQL and the arguments of a batch under construction.
pub(super) struct Batch {
    together: bool,
    parts: Vec<Part>,
}

/// The text and the arguments that go to the driver in one piece.
#[derive(Default)]
pub(super) struct Part {
    shape: Vec<(&'static Insert, usize)>,
    pub(super) arguments: SqliteArguments,
}

impl Batch {
    /// A batch for the rows of this number of changes.
    pub(super) const fn of(changes: usize) -> Self {
        Self { together: changes <= TOGETHER, parts: Vec::new() }
    }

    /// Adds the rows of one table, each with its writer, which comes behind the other columns if the statement has a
    /// column for it.
    pub(super) fn insert<T>(
        &mut self,
        insert: &'static Insert,
        rows: &[(T, Option<Fence>)],
        put: impl Fn(&T, &mut Values<'_>),
    ) {
        let mut rest = rows;
        while !rest.is_empty() {
            let size = if self.together || rest.len() > FEW { fitting(rest.len()) } else { FEW };
            let (now, later) = rest.split_at(size.min(rest.len()));
            let joins = |part: &Part| self.together || size == FEW && part.is_of_few();
            if !self.parts.last().is_some_and(joins) {
                self.parts.push(Part::default());
            }
            let Some(Part { shape, arguments }) = self.parts.last_mut() else { return };
            shape.push((insert, size));
            arguments.reserve(size * insert.columns, 0);
            for (row, writer) in now {
                let end = arguments.len() + insert.columns;
                put(row, &mut Values(arguments));
                if arguments.len() < end {
                    Values(arguments).value(writer.map(|fence| fence.0));
                }
                debug_assert_eq!(arguments.len(), end, "a value per column");
            }
            for _ in 0..(size - now.len()) * insert.columns {
                Values(arguments).value(None::<i64>);
            }
            rest = later;
        }
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

impl Part {
    /// The SQL of the part, for use inside an open transaction.
    pub(super) fn sql(&self) -> String {
        inserts(&self.shape)
    }

    fn is_of_few(&self) -> bool {
        self.shape.iter().all(|(_, size)| *size == FEW)
    }
}

/// The smallest size that holds `rows`, unless most of it would be padding.
fn fitting(rows: usize) -> usize {
    let holding = SIZES.into_iter().rev().find(|size| *size >= rows && rows * 2 > *size);
    holding.or_else(|| SIZES.into_iter().find(|size| *size <= rows)).unwrap_or(1)
}

/// The arguments of one row, in the order of its columns.
pub(super) struct Values<'a>(&'a mut SqliteArguments);

impl<'a> Values<'a> {
    pub(super) const fn of(arguments: &'a mut SqliteArguments) -> Self {
        Self(arguments)
    }

    pub(super) fn value<'v, T>(&mut self, value: T) -> &mut Self
    where
        T: sqlx::Encode<'v, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + 'v,
    {
        if let Err(error) = self.0.add(value) {
            // Integers, text, bytes and NULL always encode. If one did not, the row must not be written.
            tracing::error!(%error, "value not bound to its statement");
            let _ = self.0.add(None::<i64>);
        }
        self
    }
}

/// The number of texts that are kept, also as prepared statements by the driver. The shapes that recur are few. If
/// all shapes were kept, a process that lives for months would keep each combination of sizes.
pub(super) const KEPT: usize = 256;

/// The texts of batches that have been seen, so that each is built once.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<Text, Arc<str>>);

/// The key of a text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Text {
    shape: Vec<(&'static Insert, usize)>,
    begins: bool,
    ends: bool,
}

impl Statements {
    /// The SQL of a part that begins its transaction, or ends it, or both: a statement that is alone commits by
    /// itself.
    pub(super) fn text(&mut self, part: &mut Part, begins: bool, ends: bool) -> Arc<str> {
        let text = Text { shape: std::mem::take(&mut part.shape), begins, ends };
        if let Some(sql) = self.0.get(&text) {
            return sql.clone();
        }
        let sql: Arc<str> = text.sql().into();
        if self.0.len() >= KEPT {
            self.0.clear(); // the shapes in use are soon back
        }
        self.0.insert(text, sql.clone());
        sql
    }
}

impl Text {
    fn sql(&self) -> String {
        let inserts = inserts(&self.shape);
        if self.begins && self.ends && self.shape.len() == 1 {
            return inserts;
        }
        let begin = if self.begins { "BEGIN IMMEDIATE;\n" } else { "" };
        let commit = if self.ends { ";\nCOMMIT" } else { "" };
        format!("{begin}{inserts}{commit}")
    }
}

/// The SQL of several statements, each for its number of rows.
fn inserts(shape: &[(&'static Insert, usize)]) -> String {
    let texts: Vec<_> = shape.iter().map(|(insert, size)| text(insert, *size)).collect();
    texts.join(";\n")
}

/// The SQL of one table's statement for this number of rows.
pub(super) fn text(insert: &Insert, size: usize) -> String {
    let mut sql = String::from(insert.head);
    sql.push_str(" FROM (VALUES ");
    for row in 0..size {
        let marks = vec!["?"; insert.columns].join(",");
        let _ = write!(sql, "{}({marks})", if row == 0 { "" } else { "," });
    }
    sql.push_str(") WHERE column1 IS NOT NULL ");
    sql.push_str(insert.tail);
    sql
}

#[cfg(test)]
mod tests {
    use super::{Batch, Insert, KEPT, Part, SIZES, Statements, Values, fitting};

    const NOTHING: &str = "";
    static INSERT: Insert = Insert { head: NOTHING, columns: 1, tail: NOTHING };

    fn part(shape: usize) -> Part {
        let mut batch = Batch::of(1);
        for bit in 0..10 {
            let rows = vec![(1_i64, None); 1 << ((shape >> bit) & 1)];
            batch.insert(&INSERT, &rows, |row: &i64, columns: &mut Values<'_>| {
                columns.value(*row);
            });
        }
        batch.into_parts().remove(0)
    }

    // The number of kept texts has a limit, and a shape that recurs gets the same text.
    #[test]
    fn the_texts_that_are_kept_have_a_limit() {
        let mut statements = Statements::default();
        for shape in 0..1024 {
            let first = statements.text(&mut part(shape), true, true);
            let again = statements.text(&mut part(shape), true, true);
            assert!(std::sync::Arc::ptr_eq(&first, &again), "put together once");
            assert!(statements.0.len() <= KEPT, "{} texts are kept", statements.0.len());
        }
    }

    #[test]
    fn every_row_has_its_place_and_little_is_padding() {
        for rows in 1..2000 {
            let (mut rest, mut sizes) = (rows, Vec::new());
            while rest > 0 {
                sizes.push(fitting(rest));
                rest = rest.saturating_sub(fitting(rest));
            }
            let places: usize = sizes.iter().sum();
            assert!(places >= rows && places < rows * 2, "{rows} rows in {sizes:?}");
            assert!(sizes.len() <= rows / SIZES[0] + 8, "{rows} rows in {sizes:?}");
        }
    }
}
