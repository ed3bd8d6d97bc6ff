//! Rows of tables that are declared once: what is written of one, and what is read back, is said in one place for both databases.

use std::hash::Hash;
use std::sync::Arc;

use super::StoreError;
use super::table::{Chosen, Kind, Table};
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::ledger::RequestHash;

/// A row of a table, as it is read.
pub(in crate::store) trait Readable: Sized + Send {
    const TABLE: &'static Table;

    /// Reads the values, in the order of the table's columns.
    fn take(values: &mut impl Take) -> Result<Self, StoreError>;
}

/// What nearly all rows have in some of their columns, as SQL: these are not sent. What is NULL is left out altogether.
pub(in crate::store) type Form = &'static [(&'static str, &'static str)];

/// A row as it is written.
pub(in crate::store) trait Row: Readable + PartialEq {
    /// The first that a row [has](Self::has) counts.
    const FORMS: &'static [Form] = &[];

    /// The row is of this form.
    fn has(&self, form: usize) -> bool {
        let _ = form;
        false
    }

    /// What tells rows apart: batches are written in its order, so that two workers lock the same rows in one order.
    fn key(&self) -> impl Ord + Hash;

    /// The values, in the order of the table's columns.
    fn put(&self, values: &mut impl Put);

    /// Where rows count their changes, which one it is.
    fn revision(&self) -> u32 {
        1
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
    Flag(bool),
    Null(Kind),
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

    fn text(&mut self, value: &str) -> &mut Self {
        self.put(Given::Text(value))
    }

    fn some_text(&mut self, value: Option<&str>) -> &mut Self {
        self.put(value.map_or(Given::Null(Kind::Text), Given::Text))
    }

    fn shared(&mut self, value: Arc<str>) -> &mut Self {
        self.put(Given::Shared(value))
    }

    fn some_shared(&mut self, value: Option<Arc<str>>) -> &mut Self {
        self.put(value.map_or(Given::Null(Kind::Text), Given::Shared))
    }

    fn number(&mut self, value: impl Into<i64>) -> &mut Self {
        self.put(Given::Number(value.into()))
    }

    fn some_number(&mut self, value: Option<i64>) -> &mut Self {
        self.put(value.map_or(Given::Null(Kind::Number), Given::Number))
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.put(Given::Bytes(value))
    }

    fn some_bytes(&mut self, value: Option<&[u8]>) -> &mut Self {
        self.put(value.map_or(Given::Null(Kind::Bytes), Given::Bytes))
    }

    fn flag(&mut self, value: bool) -> &mut Self {
        self.put(Given::Flag(value))
    }

    fn put(&mut self, value: Given<'_>) -> &mut Self {
        self.give(value);
        self
    }
}

/// The values of a stored row, one after the other, telling damage from trouble.
pub(in crate::store) trait Take {
    /// Reads a text where it stands.
    fn with_text<T>(&mut self, read: impl FnOnce(Option<&str>) -> T) -> Result<T, StoreError>;
    fn with_bytes<T>(&mut self, read: impl FnOnce(Option<&[u8]>) -> T) -> Result<T, StoreError>;
    fn some_number(&mut self) -> Result<Option<i64>, StoreError>;
    fn flag(&mut self) -> Result<bool, StoreError>;
    fn damaged(&self, detail: &str) -> StoreError;

    /// The value that was read last is not one that this engine writes.
    fn unknown(&self) -> StoreError {
        self.damaged("a value that no version of this engine writes")
    }

    fn some_text(&mut self) -> Result<Option<String>, StoreError> {
        self.with_text(|text| text.map(ToOwned::to_owned))
    }

    fn text(&mut self) -> Result<String, StoreError> {
        self.some_text()?.ok_or_else(|| self.unknown())
    }

    fn number(&mut self) -> Result<i64, StoreError> {
        self.some_number()?.ok_or_else(|| self.unknown())
    }

    /// A number that counts.
    fn count(&mut self) -> Result<u32, StoreError> {
        self.parsed(|number| u32::try_from(number).ok())
    }

    fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.number().map(Timestamp)
    }

    fn some_time(&mut self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.some_number()?.map(Timestamp))
    }

    fn parsed_bytes<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, StoreError> {
        self.with_bytes(|bytes| bytes.and_then(read))?.ok_or_else(|| self.unknown())
    }

    fn hash(&mut self) -> Result<RequestHash, StoreError> {
        self.parsed_bytes(RequestHash::from_column)
    }

    fn some_hash(&mut self) -> Result<Option<RequestHash>, StoreError> {
        let hash = self.with_bytes(|bytes| bytes.map(RequestHash::from_column))?;
        hash.map(|hash| hash.ok_or_else(|| self.unknown())).transpose()
    }

    fn tenant(&mut self) -> Result<Tenant, StoreError> {
        self.parsed_text(|text| Tenant::new(text).ok())
    }

    fn name(&mut self) -> Result<Name, StoreError> {
        self.parsed_text(|text| Name::new(text).ok())
    }

    fn parsed<T>(&mut self, read: impl FnOnce(i64) -> Option<T>) -> Result<T, StoreError> {
        let number = self.number()?;
        read(number).ok_or_else(|| self.unknown())
    }

    fn some_parsed_text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        let value = self.with_text(|text| text.map(read))?;
        value.map(|value| value.ok_or_else(|| self.unknown())).transpose()
    }

    fn parsed_text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        self.with_text(|text| text.and_then(read))?.ok_or_else(|| self.unknown())
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
