//! The rows of declared tables: their writing and reading is defined in one place for both databases.

use std::hash::Hash;
use std::sync::Arc;

use super::StoreError;
use super::cell::{Cell, Declared};
use super::table::{Chosen, Kind, Table};
use crate::id::Tenant;

/// The values that nearly all rows have in some of their columns, as SQL: these values are not sent. A column that is
/// NULL is left out.
pub(in crate::store) type Form = &'static [(&'static str, &'static str)];

/// A row that can be written.
pub(in crate::store) trait Row: Declared + PartialEq {
    /// The forms of a row. The first form that the row [has](Self::has) counts.
    const FORMS: &'static [Form] = &[];

    /// True if the row is of this form.
    fn has(&self, form: usize) -> bool {
        let _ = form;
        false
    }

    /// The key by which a batch is sorted before it is written, so that two workers lock the same rows in one order.
    fn key(&self) -> impl Ord + Hash {
        self.place()
    }

    /// True if rows of this type can be deleted by a change.
    const GOES: bool = false;

    /// True if the row is deleted by this change.
    fn is_gone(&self) -> bool {
        false
    }

    /// True if the stored row is what this change would have written: the change was written before, and its answer
    /// was lost. The whole row is compared, because one worker may compute two changes from the same revision; the
    /// later one is stale.
    fn is_as_written(&self, written: &Self) -> bool {
        self == written
    }
}

/// A value on its way to the database.
#[derive(Clone, Debug)]
pub(in crate::store) enum Given<'v> {
    Text(&'v str),
    /// A shared text: a database in this process needs no copy.
    Shared(Arc<str>),
    Number(i64),
    Bytes(&'v [u8]),
    Owned(Vec<u8>),
    Flag(bool),
    Null(Kind),
    /// A list, as an argument of a query: an array in PostgreSQL, JSON in SQLite.
    Texts(Vec<&'v str>),
    Numbers(Vec<i64>),
}

impl<'v> From<&'v str> for Given<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl From<&Tenant> for Given<'_> {
    fn from(tenant: &Tenant) -> Self {
        Self::Shared(tenant.text())
    }
}

impl From<Arc<str>> for Given<'_> {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl<'v> From<&'v [u8]> for Given<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for Given<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Given<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// A receiver of the values of a row, or of the arguments of a query, one after the other.
pub(in crate::store) trait Put {
    fn give(&mut self, value: Given<'_>);

    /// True if the next value is not asked for: it then counts as given, and need not be put together.
    fn skips(&mut self) -> bool {
        false
    }

    fn cell(&mut self, cell: &impl Cell) -> &mut Self
    where
        Self: Sized,
    {
        cell.put(self);
        self
    }

    fn with<'v>(&mut self, value: impl Into<Given<'v>>) -> &mut Self
    where
        Self: Sized,
    {
        self.give(value.into());
        self
    }
}

/// The values of a stored row, one after the other. Errors distinguish damage from trouble. A text is read in place.
pub(in crate::store) trait Take: Sized {
    fn text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn bytes<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn number<T>(&mut self, read: impl FnOnce(i64) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn flag(&mut self) -> Result<bool, StoreError>;
    fn damaged(&self, detail: &str) -> StoreError;

    /// An error: the last value is one that this engine never writes.
    fn unknown(&self) -> StoreError {
        self.damaged("a value that no version of this engine writes")
    }

    /// The decoded value, or `None` for NULL; an error if the value was not decoded.
    #[allow(clippy::option_option, reason = "no value, a value that is none, and one that was read")]
    fn known<T>(&self, read: Option<Option<T>>) -> Result<Option<T>, StoreError> {
        match read {
            Some(None) => Err(self.unknown()),
            read => Ok(read.flatten()),
        }
    }

    /// The value of the next column.
    fn cell<C: Cell>(&mut self) -> Result<C, StoreError> {
        C::take(self)
    }
}

/// A filter that passes on the values of some columns.
pub(in crate::store) struct Only<'p, P> {
    columns: Chosen,
    /// The columns whose sign is inverted.
    turned: Chosen,
    next: u32,
    to: &'p mut P,
}

impl<'p, P: Put> Only<'p, P> {
    pub(in crate::store) fn of(columns: Chosen, to: &'p mut P) -> Self {
        Self { columns, turned: Chosen::default(), next: 0, to }
    }

    pub(in crate::store) const fn turned(self, turned: Chosen) -> Self {
        Self { turned, ..self }
    }

    /// A filter for the columns that identify the row.
    pub(in crate::store) fn telling(table: &'static Table, to: &'p mut P) -> Self {
        Self::of(table.choose(|column| table.tells(column.name)), to)
    }
}

impl<P: Put> Put for Only<'_, P> {
    fn skips(&mut self) -> bool {
        let skips = !self.columns.has(self.next);
        self.next += u32::from(skips);
        skips
    }

    fn give(&mut self, value: Given<'_>) {
        let place = self.next;
        self.next += 1;
        if self.columns.has(place) {
            self.to.give(match value {
                Given::Number(number) if self.turned.has(place) => Given::Number(-number),
                value => value,
            });
        }
    }
}
