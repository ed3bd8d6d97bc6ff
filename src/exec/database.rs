//! The database in which the ledger shares its transactions with the user's own tables. Not a part of the store's
//! trait: only here is it known what kind of connection the user is given.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;

use crate::clock::Clock;
use crate::payload::Payload;
use crate::store::sqlite::{Sqlite, TransactionError};
use crate::store::{Change, Step};

/// One for each kind of database that can be shared.
pub(crate) enum Database {
    /// The ledger's own file.
    Sqlite(Arc<Sqlite>),
    /// The tables of a simulation, beside its disk.
    #[cfg(feature = "sim")]
    Simulated(crate::sim::Database),
}

impl Database {
    /// Runs `work` and records its result as `step`, in one transaction.
    ///
    /// # Crash
    /// Before it returns: changes and checkpoint are both there, or neither. After: both.
    pub(crate) async fn transaction<T, E, F>(
        &self,
        change: Change,
        step: Step,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
    {
        match self {
            Self::Sqlite(sqlite) => sqlite.transaction(change, step, limit, clock, work).await,
            #[cfg(feature = "sim")]
            Self::Simulated(database) => database.transaction(change, step, limit, clock, work).await,
        }
    }

    /// Ends writing and gives the file free.
    pub(super) async fn retire(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.retire().await,
            #[cfg(feature = "sim")]
            Self::Simulated(_) => {}
        }
    }
}
