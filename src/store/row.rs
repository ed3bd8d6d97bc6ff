//! Rows of tables that are declared once: what is written of one, and what is read back, is said in one place for both databases.

use std::hash::Hash;
use std::sync::Arc;

use super::StoreError;
use super::table::{Kind, Table};
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::ledger::RequestHash;

/// A row of a table, as it is read.
pub(in crate::store) trait Readable: Sized + Send {
    const TABLE: &'static Table;

    /// Reads the values, in the order of the table's columns.
    fn take(values: &mut impl Take) -> Result<Self, StoreError>;
}

/// A row whose values are all written at once.
pub(in crate::store) trait Row: Readable + PartialEq {
    /// The values of the table's key: batches are written in their order, so that two workers lock the same rows in one order.
    fn key(&self) -> impl Ord + Hash;

    /// The values, in the order of the table's columns.
    fn put(&self, values: &mut impl Put);

    /// No row is left of it once it is written.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A row that counts its changes. At revision 1 it is new, and a later revision is written only on top of the one before.
pub(in crate::store) trait Revisioned: Row {
    fn revision(&self) -> u32;
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
    fn some_text(&mut self) -> Result<Option<String>, StoreError>;
    fn some_number(&mut self) -> Result<Option<i64>, StoreError>;
    fn some_bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError>;
    fn flag(&mut self) -> Result<bool, StoreError>;
    fn damaged(&self, detail: &str) -> StoreError;

    /// The value that was read last is not one that this engine writes.
    fn unknown(&self) -> StoreError {
        self.damaged("a value that no version of this engine writes")
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

    fn hash(&mut self) -> Result<RequestHash, StoreError> {
        let bytes = self.some_bytes()?;
        bytes.and_then(|bytes| RequestHash::from_column(&bytes)).ok_or_else(|| self.unknown())
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
        let Some(text) = self.some_text()? else { return Ok(None) };
        read(&text).map(Some).ok_or_else(|| self.unknown())
    }

    fn parsed_text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.text()?;
        read(&text).ok_or_else(|| self.unknown())
    }
}

/// Passes on the values of the table's key alone.
pub(in crate::store) struct KeyOnly<'p, P> {
    table: &'static Table,
    next: usize,
    to: &'p mut P,
}

impl<'p, P: Put> KeyOnly<'p, P> {
    pub(in crate::store) const fn of(table: &'static Table, to: &'p mut P) -> Self {
        Self { table, next: 0, to }
    }
}

impl<P: Put> Put for KeyOnly<'_, P> {
    fn give(&mut self, value: Given<'_>) {
        if self.table.columns.get(self.next).is_some_and(|column| self.table.key.contains(&column.name)) {
            self.to.give(value);
        }
        self.next += 1;
    }
}

/// A database that is asked for rows. What both are asked in the same words stands beside the row's type; arguments are numbered from
/// `$1` on. The text of a query goes on behind the name of the table.
pub(in crate::store) trait Reader {
    type Fetched;

    /// What the two databases are asked in words of their own stands side by side.
    fn either<'w>(sqlite: &'w str, postgres: &'w str) -> &'w str;

    async fn fetch(&self, sql: String, arguments: &[Given<'_>]) -> Result<Vec<Self::Fetched>, StoreError>;

    fn read<R: Readable>(fetched: &Self::Fetched) -> Result<R, StoreError>;

    /// The first column, if it is not NULL: the id of a row that has one.
    fn id(fetched: &Self::Fetched) -> Result<Option<i64>, StoreError>;

    /// The number that a query of its own gives, if it gives one.
    async fn number(&self, sql: &str, arguments: &[Given<'_>]) -> Result<Option<i64>, StoreError> {
        let found = self.fetch(sql.to_owned(), arguments).await?;
        Ok(found.first().map(Self::id).transpose()?.flatten())
    }

    /// The row that a query finds, if there is one.
    async fn row<R: Readable>(&self, behind: &str, arguments: &[Given<'_>]) -> Result<Option<R>, StoreError> {
        let found = self.fetch(R::TABLE.select(behind), arguments).await?;
        found.first().map(Self::read).transpose()
    }

    /// All rows that a query finds.
    async fn rows<R: Readable>(&self, behind: &str, arguments: &[Given<'_>]) -> Result<Vec<R>, StoreError> {
        self.fetch(R::TABLE.select(behind), arguments).await?.iter().map(Self::read).collect()
    }

    /// The same without those that are damaged. They are named and passed over: one must not take the others of its list with it.
    async fn sound<R: Readable>(&self, behind: &str, arguments: &[Given<'_>]) -> Result<Vec<R>, StoreError> {
        Ok(sound::<Self, R>(&self.fetch(R::TABLE.select(behind), arguments).await?))
    }

    /// The next page of a list in the order of its ids, from behind `after`, which is `$1`. A page of which all rows are damaged is
    /// passed over: an empty one would say that the list ends here.
    async fn page<R: Readable>(
        &self,
        behind: &str,
        mut after: i64,
        arguments: &[Given<'_>],
    ) -> Result<Vec<R>, StoreError> {
        loop {
            let arguments: Vec<_> = std::iter::once(after.into()).chain(arguments.iter().cloned()).collect();
            let found = self.fetch(R::TABLE.select(behind), &arguments).await?;
            let Some(last) = found.last() else { return Ok(Vec::new()) };
            after = Self::id(last)?.unwrap_or(i64::MAX);
            let sound = sound::<Self, R>(&found);
            if !sound.is_empty() {
                return Ok(sound);
            }
        }
    }
}

fn sound<D: Reader + ?Sized, R: Readable>(found: &[D::Fetched]) -> Vec<R> {
    let read = |row| D::read(row).inspect_err(|error| tracing::error!(%error, "left out of a list")).ok();
    found.iter().filter_map(read).collect()
}
