//! Statements over a whole batch: one `INSERT … SELECT … FROM (VALUES …)` per table, in a few fixed sizes, so
//! that they stay in the driver's cache, padded with rows of NULLs that a WHERE drops.
//!
//! **A refusal aborts the statement.** Where a change may not be written, a NOT NULL column becomes NULL or a
//! unique index objects, SQLite aborts, and nothing of the batch is written. So a batch without refusals, which
//! is nearly every batch, costs one statement and no reading back; a batch with one is judged change by change.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sqlx::Arguments as _;
use sqlx::sqlite::SqliteArguments;

/// Rows per statement. A batch is cut into the largest that fit.
const SIZES: [usize; 6] = [512, 128, 32, 8, 2, 1];

/// One table's statement, without its rows. There is one of each, so that its place tells it apart.
#[derive(Debug)]
pub(super) struct Insert {
    /// Up to the rows.
    pub(super) head: &'static str,
    /// Columns of a row.
    pub(super) columns: usize,
    /// After the rows. The first column is NULL in a padding row and nowhere else.
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
        std::ptr::hash(self, state); // its text is long, and looked up for each batch
    }
}

/// The SQL and the arguments of a batch under construction.
#[derive(Default)]
pub(super) struct Batch {
    shape: Vec<(&'static Insert, usize)>,
    pub(super) arguments: SqliteArguments,
}

impl Batch {
    /// Adds the rows of one table.
    pub(super) fn insert<T>(&mut self, insert: &'static Insert, rows: &[T], bind: impl Fn(&T, &mut Row<'_>)) {
        let mut rest = rows;
        while !rest.is_empty() {
            let size = fitting(rest.len());
            let (now, later) = rest.split_at(size.min(rest.len()));
            self.shape.push((insert, size));
            self.arguments.reserve(size * insert.columns, 0);
            for row in now {
                let before = self.arguments.len();
                bind(row, &mut Row(&mut self.arguments));
                debug_assert_eq!(self.arguments.len() - before, insert.columns, "a value per column");
            }
            for _ in 0..(size - now.len()) * insert.columns {
                Row(&mut self.arguments).value(None::<i64>);
            }
            rest = later;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }
}

/// The smallest size that holds `rows`, or the largest there is.
fn fitting(rows: usize) -> usize {
    SIZES.iter().rev().copied().find(|size| *size >= rows).unwrap_or(SIZES[0])
}

/// The arguments of one row, in the order of its columns.
pub(super) struct Row<'a>(&'a mut SqliteArguments);

impl Row<'_> {
    pub(super) fn value<'v, T>(&mut self, value: T) -> &mut Self
    where
        T: sqlx::Encode<'v, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + 'v,
    {
        if let Err(error) = self.0.add(value) {
            // Integers, text, bytes and NULL always encode; should that change, the row must not be written.
            tracing::error!(%error, "a value could not be bound");
            let _ = self.0.add(None::<i64>);
        }
        self
    }
}

/// So many texts are kept, as are prepared statements by the driver. The shapes that come again and again are
/// few; were all kept that ever came, a process that lives for months would keep each combination of sizes.
pub(super) const KEPT: usize = 256;

/// The texts of batches that have been seen, so that each is put together once.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<Vec<(&'static Insert, usize)>, Arc<str>>);

impl Statements {
    /// The SQL of a batch. One statement stands alone and commits by itself, which costs the fewest wake-ups
    /// between us and the driver's thread; several are one transaction.
    pub(super) fn transaction(&mut self, batch: &Batch) -> Arc<str> {
        if let Some(sql) = self.0.get(&batch.shape) {
            return sql.clone();
        }
        let single = batch.shape.len() == 1;
        let text = inserts(batch);
        let text = if single { text } else { format!("BEGIN IMMEDIATE;\n{text};\nCOMMIT") };
        let sql: Arc<str> = text.into();
        if self.0.len() >= KEPT {
            self.0.clear(); // the shapes in use are back soon
        }
        self.0.insert(batch.shape.clone(), sql.clone());
        sql
    }
}

/// The SQL of a batch, for use inside an open transaction.
pub(super) fn inserts(batch: &Batch) -> String {
    let texts: Vec<_> = batch.shape.iter().map(|(insert, size)| text(insert, *size)).collect();
    texts.join(";\n")
}

fn text(insert: &Insert, size: usize) -> String {
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
    use super::{Batch, Insert, KEPT, Row, Statements};

    const NOTHING: &str = "";
    static INSERT: Insert = Insert { head: NOTHING, columns: 1, tail: NOTHING };

    fn batch(shape: usize) -> Batch {
        let mut batch = Batch::default();
        for bit in 0..10 {
            let rows = vec![1_i64; 1 << ((shape >> bit) & 1)];
            batch.insert(&INSERT, &rows, |row: &i64, columns: &mut Row<'_>| {
                columns.value(*row);
            });
        }
        batch
    }

    // HAZARDS: whatever comes, what is kept has a limit; and what comes again is the same.
    #[test]
    fn the_texts_that_are_kept_have_a_limit() {
        let mut statements = Statements::default();
        for shape in 0..1024 {
            let first = statements.transaction(&batch(shape));
            let again = statements.transaction(&batch(shape));
            assert!(std::sync::Arc::ptr_eq(&first, &again), "put together once");
            assert!(statements.0.len() <= KEPT, "{} texts are kept", statements.0.len());
        }
    }
}
