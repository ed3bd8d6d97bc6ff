//! The database that holds the ledger beside the user's own tables: transactions that both share, and the rows about
//! messages that are processed once in them.
//!
//! This trait is separate from [`Store`](super::Store), which may be wrapped: here the type of the connection
//! matters, because the user gets it. The output of a closure passes through the database as an opaque value, so that
//! a database is written without naming the output type.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::inbox::Inbox;
use super::outage::Outage;
use super::{Change, Delivery, Known, Step, StoreFuture, TransactionError};
use crate::clock::Clock;
use crate::ledger::Origin;
use crate::payload::Payload;

/// A database of the user's own that also holds the ledger.
pub trait OwnDatabase: Inbox + Send + Sync {
    /// The transactions of the database, if they run on SQLite's connections.
    #[cfg(feature = "sqlite")]
    fn on_sqlite(&self) -> Option<&dyn TransactionsOn<sqlx::sqlite::SqliteConnection>> {
        None
    }

    /// The transactions of the database, if they run on PostgreSQL's connections.
    #[cfg(feature = "postgres")]
    fn on_postgres(&self) -> Option<&dyn TransactionsOn<sqlx::postgres::PgConnection>> {
        None
    }

    /// The sign that the rows may be older than the world, if there is one; for a server, also the origin of its
    /// rows. `before`: the origin when the ledger was opened last.
    fn continuity<'a>(
        &'a self,
        before: Option<&'a Origin>,
    ) -> StoreFuture<'a, (Option<&'static str>, Option<Origin>)> {
        let _ = before;
        Box::pin(async { Ok((None, None)) })
    }

    /// True if the database is marked from outside, so that an older state of the database can be told from this one.
    fn keeps_mark(&self) -> bool {
        false
    }

    /// Marks the database. `raise`: marks the writes since it was opened.
    fn mark(&self, raise: bool) -> StoreFuture<'_, ()> {
        let _ = raise;
        Box::pin(async { Ok(()) })
    }

    /// Whether the database is away, of one that tries again and reports that by itself.
    fn outage(&self) -> Option<Arc<Outage>> {
        None
    }

    /// Ends writing, and releases a file.
    fn retire(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

// `OwnDatabase` is passed around as `dyn`.
const _: Option<&dyn OwnDatabase> = None;

/// The time limit of a closure, and the clock that measures it.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    pub(crate) limit: Duration,
    pub(crate) clock: &'a dyn Clock,
}

/// The output of a closure, as an opaque value for the database.
pub(crate) type Unseen = Box<dyn Any + Send>;

/// The work on a connection `C`, in an open transaction: it returns `V`, which the database writes.
pub(crate) type Work<'a, C, V> =
    Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(Unseen, V), Unseen>> + Send + 'a>;

/// The end of a transaction: the error of a closure is an opaque value, too.
pub(crate) type Transacted<T> = Result<T, TransactionError<Unseen>>;

/// The future of a transaction.
pub(crate) type Transacting<'a, T> = BoxFuture<'a, Transacted<T>>;

/// Transactions in which the closure of the user gets a connection of this type.
pub trait TransactionsOn<C>: Send + Sync {
    /// Runs `work` and records its result as `step`, in one transaction.
    ///
    /// The step is written first, without a value, so that a closure that commits by itself leaves a mark that resume
    /// can see, instead of changes that would be made twice.
    ///
    /// # Crash
    /// Before it returns: changes and checkpoint are both there, or neither. After: both.
    fn transaction<'a>(
        &'a self,
        change: Change,
        step: Step,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Unseen>;

    /// Runs `work` and writes the change that it returns, in one transaction after `mark`. The mark is the first
    /// write, so that a closure that commits by itself leaves it behind.
    ///
    /// # Crash
    /// Before it returns: the writes of the closure and of both changes are all there, or none of them. After: all of
    /// them.
    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, C, Change>,
    ) -> Transacting<'a, (Unseen, Change)>;

    /// Runs `work` and records that a message is processed, in one transaction, unless the end of the message is
    /// known already.
    ///
    /// # Crash
    /// Before the transaction ends: nothing of it is there, except the attempt if it is counted before. After: all of
    /// it.
    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, C, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>>;
}

/// A closure whose value a wrapper changes before the database gets it.
pub(super) fn turned<'a, C: 'a, V: Send + 'static>(
    work: Work<'a, C, V>,
    turn: impl FnOnce(V) -> V + Send + 'static,
) -> Work<'a, C, V> {
    Box::new(move |connection| {
        let working = work(connection);
        Box::pin(async move { working.await.map(|(value, written)| (value, turn(written))) })
    })
}

/// Runs a closure, at most for as long as it may take.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) async fn in_time<C, V>(
    connection: &mut C,
    Within { limit, clock }: Within<'_>,
    work: Work<'_, C, V>,
) -> Transacted<Result<(Unseen, V), Unseen>> {
    let mut work = work(connection).fuse();
    let mut late = clock.sleep(limit).fuse();
    futures_util::select_biased! {
        worked = work => Ok(worked),
        () = late => Err(TransactionError::TooSlow { limit }),
    }
}

/// A connection to the ledger's own database, as [`Ctx::transaction`](crate::Ctx::transaction) gives it to its
/// closure: sqlx's `SqliteConnection` or `PgConnection`, the same kind as the engine's store. No other type
/// implements this trait.
pub trait OwnConnection: Sized + Send + 'static {
    /// The transactions of a database, if they run on such connections.
    #[doc(hidden)]
    fn of(database: &dyn OwnDatabase) -> Option<&dyn TransactionsOn<Self>>;
}

#[cfg(feature = "sqlite")]
impl OwnConnection for sqlx::sqlite::SqliteConnection {
    fn of(database: &dyn OwnDatabase) -> Option<&dyn TransactionsOn<Self>> {
        database.on_sqlite()
    }
}

#[cfg(feature = "postgres")]
impl OwnConnection for sqlx::postgres::PgConnection {
    fn of(database: &dyn OwnDatabase) -> Option<&dyn TransactionsOn<Self>> {
        database.on_postgres()
    }
}

/// The functions of [`TransactionsOn`] for closures whose types are known. `None` if the database is of another kind
/// than the connection.
impl dyn OwnDatabase + '_ {
    pub(crate) async fn transaction<C, T, E, F>(
        &self,
        change: Change,
        step: Step,
        within: Within<'_>,
        work: F,
    ) -> Option<Result<T, TransactionError<E>>>
    where
        C: OwnConnection,
        T: Send + 'static,
        E: Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        let worked = C::of(self)?.transaction(change, step, within, unseen(work)).await;
        Some(worked.map(seen).map_err(|error| error.map(seen)))
    }

    #[cfg(feature = "_sealed")]
    pub(crate) async fn sealed<C, T, E, F>(
        &self,
        mark: &Change,
        within: Within<'_>,
        work: F,
    ) -> Option<Result<(T, Change), TransactionError<E>>>
    where
        C: OwnConnection,
        T: Send + 'static,
        E: Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(T, Change), E>> + Send,
    {
        let worked = C::of(self)?.sealed(mark, within, unseen(work)).await;
        Some(worked.map(|(value, seal)| (seen(value), seal)).map_err(|error| error.map(seen)))
    }

    pub(crate) async fn process<C, T, E, F>(
        &self,
        delivery: &Delivery,
        within: Within<'_>,
        work: F,
    ) -> Option<Result<Result<T, Known>, TransactionError<E>>>
    where
        C: OwnConnection,
        T: Send + 'static,
        E: Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        let worked = C::of(self)?.process(delivery, within, unseen(work)).await;
        Some(worked.map(|processed| processed.map(seen)).map_err(|error| error.map(seen)))
    }
}

fn unseen<'a, C, T, E, V, F>(work: F) -> Work<'a, C, V>
where
    T: Send + 'static,
    E: Send + 'static,
    V: 'static,
    F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(T, V), E>> + Send + 'a,
{
    Box::new(move |connection| {
        let working = work(connection);
        Box::pin(async move {
            let worked = working.await.map_err(|error| Box::new(error) as Unseen);
            worked.map(|(value, written)| (Box::new(value) as Unseen, written))
        })
    })
}

#[allow(
    clippy::expect_used,
    reason = "a database gives back what its closure has given, and makes none itself"
)]
fn seen<T: 'static>(unseen: Unseen) -> T {
    *unseen.downcast().expect("what the closure has given")
}
