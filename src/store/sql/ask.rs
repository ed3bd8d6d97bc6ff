//! Asking a database: outside of any transaction, and within the one that is under way.

use crate::store::StoreError;
use crate::store::cell::{Cell, Declared};
use crate::store::row::{Given, Only, Put, Row, Take};

/// What one row may be the answer of.
pub(in crate::store) type Found<T> = Result<Option<T>, StoreError>;
/// What several are.
pub(in crate::store) type Listed<T> = Result<Vec<T>, StoreError>;

/// A database that is asked for rows. What both are asked in the same words stands beside the row's type; arguments are numbered from
/// `$1` on. The text of a query goes on behind the name of the table.
pub(in crate::store) trait Reader: Send + Sync {
    type Fetched: Send;

    /// What the two databases are asked in words of their own stands side by side.
    fn either<'w>(sqlite: &'w str, postgres: &'w str) -> &'w str;

    fn fetch(
        &self,
        sql: String,
        arguments: &[Given<'_>],
    ) -> impl Future<Output = Result<Vec<Self::Fetched>, StoreError>> + Send;

    /// The values of a row of this table.
    fn values<'r>(table: &'static str, fetched: &'r Self::Fetched) -> impl Take + use<'r, Self>;

    fn read<R: Declared>(fetched: &Self::Fetched) -> Result<R, StoreError> {
        R::take(&mut Self::values(R::TABLE.name, fetched))
    }

    /// The first column, if it is not NULL: the id of a row that has one.
    fn id(fetched: &Self::Fetched) -> Result<Option<i64>, StoreError> {
        Self::values("number", fetched).cell()
    }
}

/// What both databases are asked in the same words. As a [`Store`] it answers that, and nothing else.
#[derive(Debug)]
pub(in crate::store) struct Queries<D>(pub(in crate::store) D);

impl<D: Reader> Queries<D> {
    pub(in crate::store) async fn fetch(
        &self,
        sql: String,
        arguments: &[Given<'_>],
    ) -> Result<Vec<D::Fetched>, StoreError> {
        self.0.fetch(sql, arguments).await
    }

    /// The number that a query of its own gives, if it gives one.
    pub(in crate::store) async fn number(&self, sql: &str, arguments: &[Given<'_>]) -> Found<i64> {
        let found = self.0.fetch(sql.to_owned(), arguments).await?;
        Ok(found.first().map(D::id).transpose()?.flatten())
    }

    /// What a query for one column of a table finds, if it finds a row.
    pub(super) async fn cell<C: Cell>(
        &self,
        table: &'static str,
        sql: &str,
        arguments: &[Given<'_>],
    ) -> Found<C> {
        let found = self.0.fetch(sql.to_owned(), arguments).await?;
        found.first().map(|row| D::values(table, row).cell()).transpose()
    }

    /// The row that a query finds, if there is one.
    pub(in crate::store) async fn row<R: Declared>(&self, behind: &str, arguments: &[Given<'_>]) -> Found<R> {
        let found = self.0.fetch(R::TABLE.select(behind), arguments).await?;
        found.first().map(D::read).transpose()
    }

    /// All rows that a query finds.
    pub(in crate::store) async fn rows<R: Declared>(
        &self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Listed<R> {
        self.0.fetch(R::TABLE.select(behind), arguments).await?.iter().map(D::read).collect()
    }

    /// The same without those that are damaged. They are named and passed over: one must not take the others of its list with it.
    pub(in crate::store) async fn sound<R: Declared>(
        &self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Listed<R> {
        let found = self.0.fetch(R::TABLE.select(behind), arguments).await?;
        Ok(found.iter().filter_map(|row| named(D::read(row))).collect())
    }

    /// The next page of a list in the order of its ids, from behind `after`, which is `$1`. A page of which all rows are damaged is
    /// passed over: an empty one would say that the list ends here.
    pub(in crate::store) async fn page<R: Declared>(
        &self,
        behind: &str,
        mut after: i64,
        arguments: &[Given<'_>],
    ) -> Listed<R> {
        loop {
            let arguments: Vec<_> = std::iter::once(after.into()).chain(arguments.iter().cloned()).collect();
            let found = self.0.fetch(R::TABLE.select(behind), &arguments).await?;
            let Some(last) = found.last() else { return Ok(Vec::new()) };
            after = D::id(last)?.unwrap_or(i64::MAX);
            let sound: Vec<_> = found.iter().filter_map(|row| named(D::read(row))).collect();
            if !sound.is_empty() {
                return Ok(sound);
            }
        }
    }
}

impl<D> std::ops::Deref for Queries<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0
    }
}

/// A transaction that is under way. Its errors say whether it can go on.
pub(in crate::store) trait Session {
    type Fetched: Send;
    type Arguments: Put + Default + Send;

    async fn ask(
        &mut self,
        sql: String,
        arguments: Self::Arguments,
    ) -> Result<Vec<Self::Fetched>, sqlx::Error>;

    fn values<'r>(table: &'static str, fetched: &'r Self::Fetched) -> impl Take + use<'r, Self>;

    fn either<'w>(sqlite: &'w str, postgres: &'w str) -> &'w str;

    fn read<R: Declared>(fetched: &Self::Fetched) -> Result<R, StoreError> {
        R::take(&mut Self::values(R::TABLE.name, fetched))
    }

    async fn fetch(&mut self, sql: &str, arguments: &[Given<'_>]) -> Result<Vec<Self::Fetched>, sqlx::Error> {
        let mut given = Self::Arguments::default();
        for argument in arguments {
            given.give(argument.clone());
        }
        self.ask(sql.to_owned(), given).await
    }

    /// Something is found, or was written and says so.
    async fn finds(&mut self, sql: &str, arguments: &[Given<'_>]) -> Result<bool, sqlx::Error> {
        Ok(!self.fetch(sql, arguments).await?.is_empty())
    }

    /// The row that a query finds, unless it is damaged.
    async fn row<R: Declared>(
        &mut self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Result<Option<R>, sqlx::Error> {
        Ok(self.sound(behind, arguments).await?.pop())
    }

    /// The rows that a query finds, without those that are damaged.
    async fn sound<R: Declared>(
        &mut self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Result<Vec<R>, sqlx::Error> {
        let found = self.fetch(&R::TABLE.select(behind), arguments).await?;
        Ok(found.iter().filter_map(|row| named(Self::read(row))).collect())
    }

    /// The row that a change is of, as it is stored.
    async fn stored<R: Row>(&mut self, row: &R) -> Result<Option<Result<R, StoreError>>, sqlx::Error> {
        let mut telling = Self::Arguments::default();
        row.put(&mut Only::telling(R::TABLE, &mut telling));
        Ok(self.ask(R::TABLE.select_one(), telling).await?.first().map(Self::read))
    }

    /// The row stands, or is gone, as a change would have left it: it was written before, and its answer was lost.
    async fn is_written<R: Row>(&mut self, row: &R) -> Result<bool, sqlx::Error> {
        Ok(match self.stored(row).await? {
            Some(stored) => stored.is_ok_and(|stored| stored.is_as_written(row)),
            None => row.is_gone(),
        })
    }
}

/// What is damaged is named and passed over.
pub(in crate::store) fn named<R>(read: Result<R, StoreError>) -> Option<R> {
    read.inspect_err(|error| tracing::error!(%error, "left out of a list")).ok()
}
