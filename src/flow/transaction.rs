//! Changes in the ledger's own database: exactly once, literally (DESIGN 4.6).

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::{Ctx, Label};
use super::failure::{Failure, FailureCode};
use super::live::Stop;
use super::replay::{Identity, Kind};
use crate::crash::CrashPoint;
use crate::exec::{ExecError, OwnConnection};
use crate::payload::Payload;
use crate::store::own::Within;
use crate::store::{EscalationKind, TransactionError};

/// Other writers wait while a transaction runs.
const LIMIT: Duration = Duration::from_secs(5);
const NO_DATABASE: &str =
    "this engine's store has no transactions on such a connection: it is another database, or none";

impl Ctx {
    /// Runs a closure on the ledger's own database, in one transaction with the record of its result.
    ///
    /// The closure gets the connection, sqlx's `SqliteConnection` or `PgConnection` as the engine's store is, and must leave the transaction open: no COMMIT, no ROLLBACK. It has five
    /// seconds, and no context. An error it returns rolls its changes back, and is recorded. A connection of another kind of
    /// database halts the run with a question.
    ///
    /// # Crash
    /// Changes and record are both there, or neither.
    pub async fn transaction<C, T, F>(&self, label: impl Into<Label>, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        C: OwnConnection,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, Failure>> + Send,
    {
        let open = self.open(Kind::Transaction, label)?;
        if let Some(past) = self.live.recorded(&open).await? {
            let outcome: Result<T, Failure> = self.replayed(open, None, past).await?;
            return outcome;
        }
        self.live.released(&open, None).await;
        let Some(database) = &self.live.engine.core.database else {
            return self.misused(&open.identity).await;
        };
        if let Err(error) = self.live.flushed().await {
            return Err(self.live.failure(error).await);
        }
        let core = &self.live.engine.core;
        let identity = &open.identity;
        let mark = self.live.step(identity, identity.kind.checkpoint(), None, None);
        let committed = {
            let _resting = open.rest();
            let change = core.change(Some(self.live.lane));
            let live = self.live.clone();
            let within = Within { limit: LIMIT, clock: &*core.clock };
            database
                .transaction(change, mark, within, |connection: &mut C| {
                    let mut work = {
                        let _inside = live.inside();
                        work(connection)
                    };
                    let core = core.clone();
                    Box::pin(async move {
                        let output = poll_fn(|cx| {
                            let _inside = live.inside();
                            work.as_mut().poll(cx)
                        })
                        .await?;
                        let payload = Payload::of(&Ok::<_, Failure>(&output))?;
                        core.registry.probe().at(CrashPoint::BeforeTransaction);
                        Ok((output, payload))
                    })
                })
                .await
        };
        let Some(committed) = committed else { return self.misused(&open.identity).await };
        let failure = match committed {
            Ok(output) => {
                core.registry.probe().at(CrashPoint::AfterTransaction);
                if core.publishing.is_able() {
                    core.group.events().notify_one(); // the closure may have added some
                }
                self.live.progressed();
                open.close();
                return Ok(output);
            }
            Err(TransactionError::Closure(failure)) => failure,
            Err(error @ (TransactionError::TooSlow { .. } | TransactionError::Spoilt { .. })) => {
                Failure::coded(FailureCode::Transaction, error.to_string())
            }
            Err(error @ TransactionError::EndedInside) => {
                let question = format!("run {}: the {}: {error}", self.live.id, open.identity);
                return self.halt(EscalationKind::Damaged, question).await;
            }
            Err(TransactionError::Refused(refusal)) => {
                let key = open.identity.to_string();
                return self.live.stop(Stop::Failed(ExecError::Refused { key, refusal })).await;
            }
            Err(TransactionError::Store(source)) => {
                let key = open.identity.to_string();
                return self.live.stop(Stop::Failed(ExecError::Store { key, source })).await;
            }
        };
        let Ok(payload) = Payload::of(&Err::<(), _>(&failure)) else {
            return Err(self.live.shown(open, failure).await); // its detail cannot be recorded, and is left out
        };
        self.live.checkpoint(&open.identity, None, payload).await;
        open.close();
        Err(failure)
    }

    /// The code asks for what only another build or another database can give: the run waits for that.
    async fn misused<T>(&self, identity: &Identity) -> T {
        let question = format!(
            "run {}: the {identity}: {NO_DATABASE}. Nothing was done. Mend the code and go on, or abandon?",
            self.live.id
        );
        self.halt(EscalationKind::Quarantined, question).await
    }
}
