//! The server as the user's own database.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::PgConnection;

use super::{Postgres, TransactionError};
use crate::clock::Clock;
use crate::ledger::Origin;
use crate::payload::Payload;
use crate::store::own::{OwnDatabase, TransactionsOn, Within};
use crate::store::{Change, Outage, Step, StoreFuture};

impl OwnDatabase for Postgres {
    fn outage(&self) -> Option<Arc<Outage>> {
        Some(self.connector.outage.clone())
    }

    fn on_postgres(&self) -> Option<&dyn TransactionsOn<PgConnection>> {
        Some(self)
    }

    fn continuity<'a>(
        &'a self,
        before: Option<&'a Origin>,
    ) -> StoreFuture<'a, (Option<&'static str>, Option<Origin>)> {
        Box::pin(async move {
            let origin = self.origin().await?.map(|origin| origin.or_as_it_was(before));
            let doubt = origin.as_ref().zip(before).and_then(|(origin, before)| origin.doubt(before));
            Ok((doubt, origin))
        })
    }

    fn retire(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.retire())
    }
}

impl Postgres {
    /// Runs a transaction of the user's own, as [`Ctx::transaction`](crate::Ctx::transaction) does: for tests.
    #[doc(hidden)]
    #[allow(clippy::missing_panics_doc, clippy::expect_used, reason = "the connections are the store's own")]
    pub async fn transaction<T, E, F>(
        &self,
        change: Change,
        step: Step,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<T, TransactionError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
    {
        let database: &dyn OwnDatabase = self;
        let done = database.transaction(change, step, Within { limit, clock }, work).await;
        done.expect("it runs on PostgreSQL's connections")
    }
}
