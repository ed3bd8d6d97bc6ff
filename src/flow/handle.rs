//! A run, as its callers hold it: to be looked at, and waited for.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::error::RunError;
use super::failure::Failure;
use super::history::{PastTurn, by_turn};
use super::inner::{Inner, RETRY};
use super::signal::name::usable;
use super::status::{self, RunStatus, reason};
use crate::exec::{EraseError, erase_run, to_the_end};
use crate::id::{RunId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::{Run, RunState, Signal, Store as _, Turns};

/// A run.
#[derive(Clone)]
pub struct RunHandle<O> {
    pub(super) inner: Arc<Inner>,
    pub(super) tenant: Tenant,
    pub(super) id: RunId,
    _output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    pub(super) const fn of(inner: Arc<Inner>, tenant: Tenant, id: RunId) -> Self {
        Self { inner, tenant, id, _output: PhantomData }
    }

    /// Its name.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// The status of the run: its state, its workflow, and its times.
    pub async fn status(&self) -> Result<RunStatus, RunError> {
        self.row().await.map(RunStatus::from)
    }

    /// Waits until the run has come to rest, and returns its status: it waits as a row for a time, an answer or a signal, is
    /// blocked, or is over. A test that answers or signals a waiting run begins with this.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::flow::{RunState, SignalName};
    /// use counterfoil::{Ctx, Engine, Failure};
    ///
    /// const DECISION: SignalName<bool> = SignalName::new("decision");
    ///
    /// async fn refund(ctx: Ctx, _order: u32) -> Result<bool, Failure> {
    ///     ctx.signal(DECISION).await
    /// }
    ///
    /// let engine = Engine::in_memory().workflow("refund", 1, refund).start().await?;
    /// let run = engine.default_tenant().run(refund, 7).start().await?;
    /// let status = run.until_waiting().await?;
    /// assert!(matches!(status.state, RunState::Waiting { signal: true, .. }));
    /// run.signal(DECISION, true).await?;
    /// assert!(run.result().await?);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::Closed`] if the engine is shut down before.
    pub async fn until_waiting(&self) -> Result<RunStatus, RunError> {
        let (core, rested) = (&self.inner.core, &self.inner.rested);
        loop {
            let rested = rested.notified();
            tokio::pin!(rested);
            rested.as_mut().enable(); // before the row is read, so that no rest in between is missed
            let status = self.status().await?;
            if !matches!(status.state, status::RunState::Queued | status::RunState::Active) {
                return Ok(status);
            }
            if core.is_closing() {
                return Err(RunError::Closed { run: self.id });
            }
            tokio::select! {
                biased;
                () = rested => {}
                () = core.clock.sleep(RETRY) => {} // another process may carry the run out
            }
        }
    }

    /// The row of the run, as the store holds it.
    #[doc(hidden)]
    pub async fn row(&self) -> Result<Run, RunError> {
        let run = self.inner.core.group.run_find(&self.tenant, self.id).await?;
        run.ok_or(RunError::Unknown { run: self.id })
    }
}

/// So many turns are shown at once.
const TURNS: u32 = 100;

impl<O> RunHandle<O> {
    /// The signals that the run has not received, in their order. Of a run that has ended, those that came too late or under a name
    /// that nobody waited for.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub async fn unreceived(&self) -> Result<Vec<Signal>, RunError> {
        let mut pending = self.inner.core.group.signal_pending(&[(self.tenant.clone(), self.id)]).await?;
        pending.retain(|signal| usable(&signal.name).is_ok());
        Ok(pending)
    }

    /// The history of the run by turns, from the turn behind `after` on, at most a hundred turns; none when there are no
    /// more. The last may be under way. What it did outside of loops is shown as turn 0; since it
    /// [went on as new](crate::Ctx::continue_as_new), under the number that its history began with then.
    ///
    /// A turn whose steps were [deleted](crate::flow::Loop::keep_turns) still has its calls.
    pub async fn history(&self, after: Option<u32>) -> Result<Vec<PastTurn>, RunError> {
        let last = self.row().await?.turn;
        let mut first = after.map_or(0, |after| after.saturating_add(1));
        let mut turns = Vec::new();
        while turns.is_empty() && first <= last {
            let page = Turns::between(first, first.saturating_add(TURNS - 1));
            let history = self.inner.core.group.run_history(&self.tenant, self.id, page).await?;
            turns = by_turn(history);
            first = first.saturating_add(TURNS);
        }
        Ok(turns)
    }

    /// The history of the run by turns, from behind a place on: its first `limit` entries, and some of those behind them.
    #[cfg(feature = "api")]
    pub(crate) async fn history_page(
        &self,
        after: &crate::store::HistoryPlace,
        limit: u32,
    ) -> Result<Vec<PastTurn>, RunError> {
        self.row().await?; // an unknown run has no history
        Ok(by_turn(self.inner.core.group.run_history_page(&self.tenant, self.id, after, limit).await?))
    }

    /// The turns behind `after`: at least so many, or all.
    #[cfg(feature = "cli")]
    pub(crate) async fn turns(
        &self,
        mut after: Option<u32>,
        wanted: usize,
    ) -> Result<Vec<PastTurn>, RunError> {
        let mut turns = Vec::new();
        while turns.len() < wanted {
            let page = self.history(after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.turn);
            turns.extend(page);
        }
        Ok(turns)
    }

    /// Erases what the run says, and leaves a tombstone: see [`Executor::erase_run`](crate::Executor::erase_run). A run
    /// that is known by its start key has its handle from [`run_of`](super::TenantClient::run_of).
    ///
    /// # Errors
    /// [`EraseError::RunStillNeeded`] while anything of the run is under way or asked about, or its parent can be retried
    /// or forked.
    pub async fn erase(&self) -> Result<(), EraseError> {
        let (core, tenant, id) = (self.inner.core.clone(), self.tenant.clone(), self.id);
        to_the_end(&self.inner.core.tracker, async move { erase_run(&core, &tenant, id).await }).await
    }

    /// A value of a [past turn](Self::history): a large one is not read before it is asked for.
    pub async fn value(&self, stored: &Stored) -> Result<Payload, RunError> {
        Ok(self.inner.core.load(&self.tenant, stored).await?)
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits until the run is over, however long that takes, and returns what it returned.
    ///
    /// # Errors
    /// [`RunError::Failed`] if it failed, [`RunError::Blocked`] if it waits for a decision about itself, [`RunError::Expired`] if its
    /// [retention](super::Workflow::retention) is over.
    pub async fn result(&self) -> Result<O, RunError> {
        // Asked for before the row is read, so that an end in between is not missed.
        let ended = self.inner.ends.wait(&self.tenant, self.id);
        let state = match self.inner.ended_state(&self.tenant, self.id).await {
            // Once the engine is closing, only a run that still has its task is sure to be told about.
            Ok(None) if !self.inner.core.is_closing() || self.inner.runs.has_of(&self.tenant, self.id) => {
                Some(ended.await.map_err(|_| RunError::Closed { run: self.id })?)
            }
            known => {
                drop(ended);
                self.inner.ends.forget_gone(self.id);
                known?
            }
        };
        self.read(state).await
    }

    async fn read(&self, state: Option<RunState>) -> Result<O, RunError> {
        let state = state.ok_or(RunError::Closed { run: self.id })?;
        if let RunState::Succeeded { output: stored } = &state {
            return Ok(self.inner.core.load(&self.tenant, stored).await?.decode()?);
        }
        match state {
            RunState::Failed { failure } => {
                Err(RunError::Failed { run: self.id, failure: Failure::recorded(&failure) })
            }
            RunState::Blocked { failure } => {
                Err(RunError::Blocked { run: self.id, message: reason(&failure) })
            }
            RunState::Expired { .. } => Err(RunError::Expired { run: self.id }),
            _ => Err(RunError::Closed { run: self.id }),
        }
    }
}
