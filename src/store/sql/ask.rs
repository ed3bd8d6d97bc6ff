//! Queries to a database: outside of any transaction, and within an open one.

use crate::store::StoreError;
use crate::store::cell::{Cell, Declared};
use crate::store::row::{Given, Only, Put, Row, Take};

/// The result of a query for at most one row.
pub(in crate::store) type Found<T> = Result<Option<T>, StoreError>;
/// The result of a query for several rows.
pub(in crate::store) type Listed<T> = Result<Vec<T>, StoreError>;

/// One of the two databases. Arguments of queries are numbered from `$1` on for both.
pub(in crate::store) trait Backend {
    type Fetched: Send;

    /// Picks the text for this database, where the two need different words.
    fn either<'w>(sqlite: &'w str, postgres: &'w str) -> &'w str;

    /// The values of a fetched row of this table.
    fn values(table: &'static str, fetched: &Self::Fetched) -> impl Take;

    fn read<R: Declared>(fetched: &Self::Fetched) -> Result<R, StoreError> {
        R::take(&mut Self::values(R::TABLE.name, fetched))
    }
}

/// A database that is queried for rows. A query in the same words for both databases is beside the type of its row.
/// The text of a query is the part behind the name of the table.
pub(in crate::store) trait Reader: Backend + Send + Sync {
    fn fetch(
        &self,
        sql: String,
        arguments: &[Given<'_>],
    ) -> impl Future<Output = Result<Vec<Self::Fetched>, StoreError>> + Send;

    /// The first column, if it is not NULL: the id of a row that has one.
    fn id(fetched: &Self::Fetched) -> Result<Option<i64>, StoreError> {
        Self::values("number", fetched).cell()
    }
}

/// The queries that are the same for both databases. As a [`Store`] it answers only these reads.
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

    /// The number that a query of its own returns, if any.
    pub(in crate::store) async fn number(&self, sql: &str, arguments: &[Given<'_>]) -> Found<i64> {
        let found = self.0.fetch(sql.to_owned(), arguments).await?;
        Ok(found.first().map(D::id).transpose()?.flatten())
    }

    /// The value that a query for one column of a table returns, if it finds a row.
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

    /// All rows that a query finds, without damaged ones. A damaged row is logged and skipped: it must not spoil the
    /// other rows of the list.
    pub(in crate::store) async fn sound<R: Declared>(
        &self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Listed<R> {
        let found = self.0.fetch(R::TABLE.select(behind), arguments).await?;
        Ok(found.iter().filter_map(|row| named(D::read(row))).collect())
    }

    /// A page of a list of due work. `limit` is the last argument. Damaged rows are logged and skipped as in
    /// [`sound`](Self::sound), but they do not shorten the page: a page that is shorter than its limit means that the list
    /// ends there, and work behind the damaged rows would not be found.
    pub(in crate::store) async fn due<R: Declared>(
        &self,
        behind: &str,
        arguments: &[Given<'_>],
        limit: u32,
    ) -> Listed<R> {
        let mut asked = limit;
        loop {
            let arguments: Vec<_> = arguments.iter().cloned().chain(std::iter::once(asked.into())).collect();
            let found = self.0.fetch(R::TABLE.select(behind), &arguments).await?;
            let read: Vec<Result<R, StoreError>> = found.iter().map(D::read).collect();
            let damaged = read.iter().filter(|row| row.is_err()).count();
            let damaged = u32::try_from(damaged).unwrap_or(u32::MAX);
            let enough = limit.saturating_add(damaged);
            if found.len() < asked as usize || enough <= asked {
                return Ok(read.into_iter().filter_map(named).take(limit as usize).collect());
            }
            asked = enough;
        }
    }

    /// The next page of a list in the order of its ids, from behind `after`, which is `$1`. A page with only damaged
    /// rows is skipped: an empty page would mean that the list ends here.
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

/// An open transaction. Its errors say if the transaction can go on.
pub(in crate::store) trait Session: Backend {
    type Arguments: Put + Default + Send;

    async fn ask(
        &mut self,
        sql: String,
        arguments: Self::Arguments,
    ) -> Result<Vec<Self::Fetched>, sqlx::Error>;

    async fn fetch(&mut self, sql: &str, arguments: &[Given<'_>]) -> Result<Vec<Self::Fetched>, sqlx::Error> {
        let mut given = Self::Arguments::default();
        for argument in arguments {
            given.give(argument.clone());
        }
        self.ask(sql.to_owned(), given).await
    }

    /// True if the query finds a row, or its write returns one.
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

    /// The rows that a query finds, without damaged ones.
    async fn sound<R: Declared>(
        &mut self,
        behind: &str,
        arguments: &[Given<'_>],
    ) -> Result<Vec<R>, sqlx::Error> {
        let found = self.fetch(&R::TABLE.select(behind), arguments).await?;
        Ok(found.iter().filter_map(|row| named(Self::read(row))).collect())
    }

    /// The stored row that a change is of.
    async fn stored<R: Row>(&mut self, row: &R) -> Result<Option<Result<R, StoreError>>, sqlx::Error> {
        let mut telling = Self::Arguments::default();
        row.put(&mut Only::telling(R::TABLE, &mut telling));
        Ok(self.ask(R::TABLE.select_one(), telling).await?.first().map(Self::read))
    }

    /// True if the row is stored, or deleted, as a change would have left it: the change was written before, and its
    /// answer was lost.
    async fn is_written<R: Row>(&mut self, row: &R) -> Result<bool, sqlx::Error> {
        Ok(match self.stored(row).await? {
            Some(stored) => stored.is_ok_and(|stored| stored.is_as_written(row)),
            None => row.is_gone(),
        })
    }
}

/// A damaged row, as the error of an open transaction, which ends with it. [`damaged`] finds it there again.
pub(in crate::store) fn damage(row: StoreError) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(row))
}

/// The damaged row that an error is about.
pub(in crate::store) fn damaged(error: &sqlx::Error) -> Option<StoreError> {
    match error {
        sqlx::Error::Decode(row) => row.downcast_ref::<StoreError>().cloned(),
        _ => None,
    }
}

/// Logs a damaged row and skips it.
pub(in crate::store) fn named<R>(read: Result<R, StoreError>) -> Option<R> {
    read.inspect_err(|error| tracing::error!(%error, "row damaged, left out of a list")).ok()
}
