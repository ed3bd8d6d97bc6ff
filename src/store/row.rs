//! Rows of tables that are declared once: what is written of one, and what is read back, is said in one place for both databases.

use std::hash::Hash;
use std::sync::Arc;

use super::StoreError;
use super::cell::{Cell, Declared};
use super::table::{Chosen, Kind, Table};
use crate::id::Tenant;

/// What nearly all rows have in some of their columns, as SQL: these are not sent. What is NULL is left out altogether.
pub(in crate::store) type Form = &'static [(&'static str, &'static str)];

/// A row as it is written.
pub(in crate::store) trait Row: Declared + PartialEq {
    /// The first that a row [has](Self::has) counts.
    const FORMS: &'static [Form] = &[];

    /// The row is of this form.
    fn has(&self, form: usize) -> bool {
        let _ = form;
        false
    }

    /// Batches are written in its order, so that two workers lock the same rows in one order.
    fn key(&self) -> impl Ord + Hash {
        self.place()
    }

    /// Some are taken off.
    const GOES: bool = false;

    /// No row is left of it once it is written.
    fn is_gone(&self) -> bool {
        false
    }

    /// It is stored as this change would have written it: it was written before, and its answer was lost. The whole row, because one
    /// worker may compute two changes from the same revision; the later one is stale.
    fn is_as_written(&self, written: &Self) -> bool {
        self == written
    }
}

/// A value on its way to the database.
#[derive(Clone, Debug)]
pub(in crate::store) enum Given<'v> {
    Text(&'v str),
    /// A text that others hold, too: a database in this process spares the copy.
    Shared(Arc<str>),
    Number(i64),
    Bytes(&'v [u8]),
    Owned(Vec<u8>),
    Flag(bool),
    Null(Kind),
    /// A list, as an argument of a query: an array in PostgreSQL, and JSON in SQLite.
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

/// Takes the values of a row, or the arguments of a query, one after the other.
pub(in crate::store) trait Put {
    fn give(&mut self, value: Given<'_>);

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

/// The values of a stored row, one after the other, telling damage from trouble. A text is read where it stands.
pub(in crate::store) trait Take: Sized {
    fn text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn bytes<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn number<T>(&mut self, read: impl FnOnce(i64) -> Option<T>) -> Result<Option<T>, StoreError>;
    fn flag(&mut self) -> Result<bool, StoreError>;
    fn damaged(&self, detail: &str) -> StoreError;

    /// The value that was read last is not one that this engine writes.
    fn unknown(&self) -> StoreError {
        self.damaged("a value that no version of this engine writes")
    }

    /// A value that was read, if there was one.
    #[allow(clippy::option_option, reason = "no value, a value that is none, and one that was read")]
    fn known<T>(&self, read: Option<Option<T>>) -> Result<Option<T>, StoreError> {
        match read {
            Some(None) => Err(self.unknown()),
            read => Ok(read.flatten()),
        }
    }

    /// What stands in the next column.
    fn cell<C: Cell>(&mut self) -> Result<C, StoreError> {
        C::take(self)
    }
}

/// Passes on the values of some columns.
pub(in crate::store) struct Only<'p, P> {
    columns: Chosen,
    /// Those of which the sign is turned.
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

    /// What tells which row it is.
    pub(in crate::store) fn telling(table: &'static Table, to: &'p mut P) -> Self {
        Self::of(table.choose(|column| table.tells(column.name)), to)
    }
}

impl<P: Put> Put for Only<'_, P> {
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
