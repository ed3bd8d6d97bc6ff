//! The database in which the ledger shares its transactions with the user's own tables. Not a part of the store's
//! trait: only here is it known what kind of connection the user is given.

use std::future::Future;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Clock;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::id::EscalationId;
use crate::ledger::Origin;
use crate::payload::Payload;
#[cfg(feature = "postgres")]
use crate::store::postgres::Postgres;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::Sqlite;
use crate::store::{Change, Step, TransactionError};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::store::{Delivery, Known, SetAside, StoreError};

/// One for each kind of database that can be shared.
pub enum Database {
    /// The ledger's own file.
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<Sqlite>),
    /// The ledger's own server.
    #[cfg(feature = "postgres")]
    Postgres(Arc<Postgres>),
    /// The tables of a simulation, beside its disk.
    #[cfg(all(feature = "sim", feature = "sqlite"))]
    Simulated(crate::sim::Database),
}

impl Database {
    /// Why its rows may be older than the world, if there is a sign of it, and for a server where the rows are. `before`: where they
    /// were when the ledger was opened last.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(clippy::unused_async, reason = "only a server takes time to say")
    )]
    pub(super) async fn continuity(
        &self,
        before: Option<&Origin>,
    ) -> Result<(Option<&'static str>, Option<Origin>), crate::store::StoreError> {
        #[cfg(not(feature = "postgres"))]
        let _ = before;
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => Ok((sqlite.doubt(), None)),
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => {
                let origin = postgres.origin().await?.map(|origin| origin.or_as_it_was(before));
                let doubt = origin.as_ref().zip(before).and_then(|(origin, before)| origin.doubt(before));
                Ok((doubt, origin))
            }
            #[allow(unreachable_patterns, reason = "as the features are")]
            _ => Ok((None, None)),
        }
    }

    /// It is marked from outside, so that an older state of it is told from this one.
    pub(super) const fn keeps_mark(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => true,
            #[allow(unreachable_patterns, reason = "as the features are")]
            _ => false,
        }
    }

    /// Marks it. `raise`: for what was written since it was opened.
    #[cfg_attr(not(feature = "sqlite"), allow(clippy::unused_async, reason = "as the features are"))]
    pub(super) async fn mark(&self, raise: bool) -> Result<(), crate::store::StoreError> {
        #[cfg(not(feature = "sqlite"))]
        let _ = raise;
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.mark(raise).await,
            #[allow(unreachable_patterns, reason = "as the features are")]
            _ => Ok(()),
        }
    }

    /// Ends writing, and gives a file free.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(clippy::unused_async, reason = "there is none to end")
    )]
    pub(super) async fn retire(&self) {
        match *self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref sqlite) => sqlite.retire().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(ref postgres) => postgres.retire().await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(_) => {}
        }
    }
}

/// What is written about messages without a closure.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Database {
    #[cfg(feature = "_messages")]
    pub(super) async fn inbox_known(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.inbox_known(delivery).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.inbox_known(delivery).await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(tables) => tables.inbox_known(delivery).await,
        }
    }

    #[cfg(feature = "_messages")]
    pub(super) async fn inbox_count(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.inbox_count(delivery).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.inbox_count(delivery).await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(tables) => tables.inbox_count(delivery).await,
        }
    }

    pub(super) async fn inbox_failed(&self, delivery: &Delivery, detail: &str) -> Result<i64, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.inbox_failed(delivery, detail).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.inbox_failed(delivery, detail).await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(tables) => tables.inbox_failed(delivery, detail).await,
        }
    }

    pub(super) async fn inbox_set_aside(
        &self,
        delivery: &Delivery,
        tries: i64,
        why: &SetAside,
        question: EscalationId,
    ) -> Result<Option<EscalationId>, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.inbox_set_aside(delivery, tries, why, question).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.inbox_set_aside(delivery, tries, why, question).await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(tables) => tables.inbox_set_aside(delivery, tries, why, question).await,
        }
    }

    pub(super) async fn inbox_again(
        &self,
        delivery: &Delivery,
        question: EscalationId,
    ) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => sqlite.inbox_again(delivery, question).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.inbox_again(delivery, question).await,
            #[cfg(all(feature = "sim", feature = "sqlite"))]
            Self::Simulated(tables) => tables.inbox_again(delivery, question).await,
        }
    }
}

/// A transaction to be: what it records, and for how long it may run.
pub struct Shared<'a> {
    /// By whom, and in which lane.
    pub(crate) change: Change,
    /// The checkpoint of its result.
    pub(crate) step: Step,
    pub(crate) limit: Duration,
    pub(crate) clock: &'a dyn Clock,
}

/// A connection to the ledger's own database, as [`Ctx::transaction`](crate::Ctx::transaction) gives it to its closure:
/// sqlx's `SqliteConnection` or `PgConnection`, as the engine's store is. No other type can be one.
pub trait OwnConnection: Sized + Send {
    /// Runs `work` and records its result, in one transaction. `None` if the database is of another kind.
    ///
    /// # Crash
    /// Before it returns: changes and checkpoint are both there, or neither. After: both.
    #[doc(hidden)]
    fn transaction<T, E, F>(
        database: &Database,
        shared: Shared<'_>,
        work: F,
    ) -> impl Future<Output = Option<Result<T, TransactionError<E>>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send;

    /// Runs `work` and writes the change that it gives, in one transaction behind `mark`. `None` if the database is of another
    /// kind.
    #[cfg(feature = "_sealed")]
    #[doc(hidden)]
    fn sealed<T, E, F>(
        database: &Database,
        mark: &Change,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> impl Future<Output = Option<Result<(T, Change), TransactionError<E>>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Change), E>> + Send;

    /// Runs `work` and records that a message is processed, in one transaction, unless it is known what became of it.
    /// `None` if the database is of another kind.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    #[doc(hidden)]
    fn process<T, E, F>(
        database: &Database,
        delivery: &Delivery,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> impl Future<Output = Option<Result<Result<T, Known>, TransactionError<E>>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send;
}

#[cfg(feature = "sqlite")]
impl OwnConnection for sqlx::sqlite::SqliteConnection {
    async fn transaction<T, E, F>(
        database: &Database,
        shared: Shared<'_>,
        work: F,
    ) -> Option<Result<T, TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        let Shared { change, step, limit, clock } = shared;
        match database {
            Database::Sqlite(sqlite) => Some(sqlite.transaction(change, step, limit, clock, work).await),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
            #[cfg(feature = "sim")]
            Database::Simulated(tables) => Some(tables.transaction(change, step, limit, clock, work).await),
        }
    }

    #[cfg(feature = "_sealed")]
    async fn sealed<T, E, F>(
        database: &Database,
        mark: &Change,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Option<Result<(T, Change), TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Change), E>> + Send,
    {
        match database {
            Database::Sqlite(sqlite) => Some(sqlite.sealed(mark, limit, clock, work).await),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
            #[cfg(feature = "sim")]
            Database::Simulated(tables) => Some(tables.sealed(mark, limit, clock, work).await),
        }
    }

    async fn process<T, E, F>(
        database: &Database,
        delivery: &Delivery,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Option<Result<Result<T, Known>, TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        match database {
            Database::Sqlite(sqlite) => Some(sqlite.process(delivery, limit, clock, work).await),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
            #[cfg(feature = "sim")]
            Database::Simulated(tables) => Some(tables.process(delivery, limit, clock, work).await),
        }
    }
}

#[cfg(feature = "postgres")]
impl OwnConnection for sqlx::postgres::PgConnection {
    async fn transaction<T, E, F>(
        database: &Database,
        shared: Shared<'_>,
        work: F,
    ) -> Option<Result<T, TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        let Shared { change, step, limit, clock } = shared;
        match database {
            Database::Postgres(postgres) => {
                Some(postgres.transaction(change, step, limit, clock, work).await)
            }
            #[cfg(feature = "sqlite")]
            _ => None,
        }
    }

    #[cfg(feature = "_sealed")]
    async fn sealed<T, E, F>(
        database: &Database,
        mark: &Change,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Option<Result<(T, Change), TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Change), E>> + Send,
    {
        match database {
            Database::Postgres(postgres) => Some(postgres.sealed(mark, limit, clock, work).await),
            #[cfg(feature = "sqlite")]
            _ => None,
        }
    }

    async fn process<T, E, F>(
        database: &Database,
        delivery: &Delivery,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Option<Result<Result<T, Known>, TransactionError<E>>>
    where
        T: Send,
        E: Send,
        F: for<'c> FnOnce(&'c mut Self) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        match database {
            Database::Postgres(postgres) => Some(postgres.process(delivery, limit, clock, work).await),
            #[cfg(feature = "sqlite")]
            _ => None,
        }
    }
}
