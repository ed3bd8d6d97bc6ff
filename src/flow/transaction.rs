//! Changes in the ledger's own database: exactly once, literally.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::{Failure, FailureCode};
use super::identity::{Identity, Kind};
use super::label::Label;
use super::live::{Open, Stop};
use crate::crash::CrashPoint;
use crate::exec::{ExecError, OwnConnection};
use crate::payload::Payload;
use crate::store::own::Within;
use crate::store::{QuestionKind, StoreError, TransactionError};

/// The time limit of a transaction: other writers wait while one runs.
const LIMIT: Duration = Duration::from_secs(5);
/// The number of tries of a transaction that the server rolls back for a reason that may pass. After the last one its
/// failure is recorded.
const TRIES: u32 = 5;
const NO_DATABASE: &str =
    "this engine's store has no transactions on such a connection: it is another database, or none";

impl Ctx {
    /// Runs a closure on the ledger's own database, in one transaction with the record of its result.
    ///
    /// The closure gets the connection, which is sqlx's `SqliteConnection` or `PgConnection`, as is the engine's store.
    /// It must leave the transaction open: no COMMIT, no ROLLBACK. It has five seconds, and no context. An error that
    /// it returns rolls its changes back, and is recorded. An error of PostgreSQL that may pass, such as a deadlock, is
    /// recorded only at the fifth try in a row, if the closure returns it by `?`: before that the run goes on from its
    /// records, and the closure runs again. A connection of another kind of database blocks the run with a question.
    ///
    /// # Crash
    /// The changes and the record are both durable, or neither is.
    pub async fn transaction<C, T, F>(&self, label: impl Into<Label>, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        C: OwnConnection,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, Failure>> + Send,
    {
        let open = self.open(Kind::Transaction, label).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            let outcome: Result<T, Failure> = self.replayed(open, None, past).await?;
            return outcome;
        }
        self.live.released(&open, None).await;
        if self.live.core.database.is_none() {
            return self.misused(&open.identity).await;
        }
        if let Err(error) = self.live.flushed().await {
            return Err(self.live.failure(error).await);
        }
        let committed = {
            let _resting = open.rest();
            self.commit(&open, work).await
        };
        match committed {
            None => self.misused(&open.identity).await,
            Some(Ok(output)) => {
                self.live.core.registry.probe().at(CrashPoint::AfterTransaction);
                if self.live.core.publishing.is_able() {
                    self.live.core.group.events().notify_one(); // the closure may have added events
                }
                self.engine.runs.transaction_ended(self.live.id);
                self.live.progressed();
                open.close();
                Ok(output)
            }
            Some(Err(error)) => self.rolled_back(open, error).await,
        }
    }

    /// Commits the closure's changes and the run's record of its result in one transaction. `None` if the store has no
    /// database of this kind.
    async fn commit<C, T, F>(&self, open: &Open, work: F) -> Option<Result<T, TransactionError<Failure>>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        C: OwnConnection,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, Failure>> + Send,
    {
        let (live, core) = (self.live.clone(), &self.live.core);
        let database = core.database.as_ref()?;
        let identity = &open.identity;
        let step = live.step(identity, identity.kind.checkpoint(), None, None);
        let change = core.change(Some(live.lane));
        let within = Within { limit: LIMIT, clock: &*core.clock };
        let transaction = database.transaction(change, step, within, |connection: &mut C| {
            let mut work = {
                let _inside = live.inside();
                work(connection)
            };
            Box::pin(async move {
                let output = poll_fn(|cx| {
                    let _inside = live.inside();
                    work.as_mut().poll(cx)
                })
                .await?;
                if let Some(failure) = live.unmended() {
                    return Err(failure);
                }
                let payload = Payload::of(&Ok::<_, Failure>(&output))?.within(&live.core.limits)?;
                live.core.registry.probe().at(CrashPoint::BeforeTransaction);
                Ok((output, payload))
            })
        });
        transaction.await
    }

    /// Handles a transaction of which nothing was committed: the run's code is told why, or the run is stopped.
    async fn rolled_back<T>(&self, open: Open, error: TransactionError<Failure>) -> Result<T, Failure> {
        let key = || open.identity.to_string();
        let failure = match error {
            // Recorded, the run would fail for good because two transactions have met. The closure can run only once, so
            // the run goes on from its records, and comes here again.
            TransactionError::Closure(failure)
                if failure.may_pass() && self.engine.runs.rolled_back(self.live.id) < TRIES =>
            {
                let detail = "the server rolled the transaction back for a reason that may pass".to_owned();
                let source = StoreError::Busy { detail };
                return self.live.stop(Stop::Failed(ExecError::Store { key: key(), source })).await;
            }
            TransactionError::Closure(failure) => self.live.unless_mendable(failure).await,
            TransactionError::TooSlow { .. } | TransactionError::Spoilt { .. } => {
                Failure::coded(FailureCode::Transaction, error.to_string())
            }
            TransactionError::EndedInside => {
                let question = format!("{}: the {}: {error}", self.live.id, open.identity);
                return self.block(QuestionKind::Damaged, question).await;
            }
            TransactionError::Refused(refusal) => {
                return self.live.stop(Stop::Failed(ExecError::Refused { key: key(), refusal })).await;
            }
            TransactionError::Store(source) => {
                return self.live.stop(Stop::Failed(ExecError::Store { key: key(), source })).await;
            }
        };
        self.engine.runs.transaction_ended(self.live.id);
        let Ok(payload) = Payload::of(&Err::<(), _>(&failure)) else {
            return Err(self.live.shown(open, failure).await); // the failure's detail cannot be recorded, and is left out
        };
        self.live.checkpoint(&open.identity, None, payload).await;
        open.close();
        Err(failure)
    }

    /// Blocks a run whose code asks for something that only another build or another database can give.
    async fn misused<T>(&self, identity: &Identity) -> T {
        let question = format!(
            "{}: the {identity}: {NO_DATABASE}. Nothing was done. Mend the code and go on, or abandon?",
            self.live.id
        );
        self.block(QuestionKind::Quarantined, question).await
    }
}
