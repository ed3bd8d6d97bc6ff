//! The values of a fetched row. Errors distinguish damage from trouble.

use std::borrow::Cow;
use std::fmt::Write as _;

use sqlx::{ColumnIndex, Decode, Row};

use crate::store::StoreError;
use crate::store::row::Take;

/// A row as its database returns it.
pub(in crate::store) trait FetchedRow: Row {
    /// The text that a stored text stands for; `None` for one that this engine never writes.
    fn plain(stored: &str) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(stored))
    }
}

/// Reads the columns of a row in their order.
pub(in crate::store) struct Columns<'r, R> {
    row: &'r R,
    next: usize,
    what: &'static str,
}

impl<'r, R: Row> Columns<'r, R>
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database>,
{
    pub(in crate::store) const fn of(what: &'static str, row: &'r R) -> Self {
        Self { row, next: 0, what }
    }

    pub(in crate::store) fn take<T: Decode<'r, R::Database>>(&mut self) -> Result<T, StoreError> {
        let index = self.next;
        self.next += 1;
        // The tables have checked the types when the row was written.
        self.row.try_get_unchecked(index).map_err(|error| self.damage(error))
    }

    fn damage(&self, detail: impl std::fmt::Display) -> StoreError {
        let mut row = self.what.to_owned();
        if let Ok(first) = self.row.try_get_unchecked::<i64, _>(0) {
            let _ = write!(row, " {first:x}");
        }
        StoreError::Corrupt { row, detail: detail.to_string() }
    }
}

impl<'r, R: FetchedRow> Take for Columns<'r, R>
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database>,
    bool: Decode<'r, R::Database>,
    &'r str: Decode<'r, R::Database>,
    &'r [u8]: Decode<'r, R::Database>,
{
    fn text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        let text = self.take::<Option<&str>>()?.map(|text| R::plain(text).and_then(|text| read(&text)));
        self.known(text)
    }

    fn bytes<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, StoreError> {
        let bytes = self.take::<Option<&[u8]>>()?.map(read);
        self.known(bytes)
    }

    fn number<T>(&mut self, read: impl FnOnce(i64) -> Option<T>) -> Result<Option<T>, StoreError> {
        let number = self.take::<Option<i64>>()?.map(read);
        self.known(number)
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        self.take()
    }

    fn damaged(&self, detail: &str) -> StoreError {
        self.damage(detail)
    }
}
