//! The driver: the task of a run, one activation after the other, until the run is over, waits as a row, or belongs to
//! another worker.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::inner::{Inner, RETRY};
use super::live::Live;
use super::resume;
use super::run::{End, activate, unreadable};
use crate::exec::{ExecError, follow_dropped, last};
use crate::id::{Name, RunId, Tenant};
use crate::panics::{caught, quietly};
use crate::store::{OrderingKey, QuestionKind, Run, RunState, Store as _, StoreError};

/// Gives a run a task.
pub(super) fn carry_out(engine: Arc<Inner>, run: Box<Run>, fresh: Option<OrderingKey>) {
    let tracker = engine.core.tracker.clone();
    let queue = run.queue.as_ref().map(|queue| queue.name.clone());
    let task = Task { tenant: run.tenant.clone(), id: run.id, queue, panics: 0, engine };
    tracker.spawn(task.drive(run, fresh));
}

/// The task of one run.
struct Task {
    engine: Arc<Inner>,
    tenant: Tenant,
    id: RunId,
    queue: Option<Name>,
    /// The number of activations in a row that panicked. They count like deaths of the run's process.
    panics: u32,
}

/// The end of a task's last activation.
struct Ended {
    end: End,
    /// True if something came for the run that this activation has not handled.
    again: bool,
}

/// The end of a task without any consequence: the run has no task here any more.
struct GivenUp;

impl Task {
    /// Carries the run out. A panic in code that an activation calls beside the run's own (a clock, a subscriber of the
    /// log, a callback) ends that activation; the run goes on from its durable records.
    async fn drive(mut self, run: Box<Run>, fresh: Option<OrderingKey>) {
        let mut first = Some((run, fresh));
        loop {
            let panic = match caught(Box::pin(self.activations(first.take()))).await {
                Ok(Err(GivenUp)) => return,
                Ok(Ok(ended)) => {
                    let core = Arc::downgrade(&self.engine.core);
                    last(&core, "end of a run", || self.leave(&ended)).await;
                    return;
                }
                Err(panic) => panic,
            };
            self.panics += 1;
            let (tenant, id) = (&self.tenant, self.id);
            quietly(
                || tracing::error!(%tenant, run = %id, panic, "run panicked inside the engine, will resume"),
            );
            if self.engine.core.is_closing() {
                self.give_up();
                return;
            }
            let _ = caught(async { self.engine.core.clock.sleep(RETRY).await }).await; // the clock may be what panics
        }
    }

    /// Runs one activation after the other. `first` holds the run if it need not be read.
    async fn activations(
        &mut self,
        first: Option<(Box<Run>, Option<OrderingKey>)>,
    ) -> Result<Ended, GivenUp> {
        let (mut run, mut fresh) = match first {
            Some(first) => first,
            None => (self.row().await?, None),
        };
        let mut damage = None;
        loop {
            run.deaths = run.deaths.saturating_add(self.panics);
            let is_damaged = damage.is_some();
            let end = match damage.take() {
                Some(error) => Box::pin(unreadable(&self.engine.core, run, error)).await,
                None if run.deaths > self.engine.max_recovery_attempts => {
                    Box::pin(self.quarantine(run)).await
                }
                None => activate(&self.engine, run, fresh.take()).await,
            };
            (fresh, self.panics) = (None, 0);
            match end {
                End::Over(_) | End::Parked => {
                    return Ok(Ended { end, again: self.engine.runs.leave(self.id) });
                }
                End::Again => {}
                End::Failed(error) => match self.failed(error, is_damaged).await {
                    ControlFlow::Continue(found) => damage = found,
                    ControlFlow::Break(given_up) => return Err(given_up),
                },
            }
            run = self.row().await?;
        }
    }

    /// Handles a write of an activation that failed or was refused, and goes on after a while. If the run has a damaged
    /// row, returns the damage that is to block the run: a damaged row does not mend itself, and without a question the
    /// driver would try again for ever. A block that failed itself (`is_damaged`) is tried again like anything else.
    async fn failed(&self, error: ExecError, is_damaged: bool) -> ControlFlow<GivenUp, Option<StoreError>> {
        let (tenant, id) = (&self.tenant, self.id);
        if self.engine.core.is_closing() {
            tracing::debug!(%tenant, run = %id, %error, "run handed over at shutdown");
        } else if error.is_reported() {
            tracing::debug!(%tenant, run = %id, %error, "run interrupted by its database, will resume");
        } else {
            tracing::warn!(%tenant, run = %id, %error, "run interrupted, will resume");
        }
        if self.engine.core.is_closing() || error.is_final() {
            return ControlFlow::Break(self.give_up());
        }
        match error {
            ExecError::Store { source: source @ StoreError::Corrupt { .. }, .. } if !is_damaged => {
                ControlFlow::Continue(Some(source))
            }
            _ => {
                self.engine.core.clock.sleep(RETRY).await;
                ControlFlow::Continue(None)
            }
        }
    }

    /// Reads the run's row. If the run is over or another worker's, the task ends without a consequence.
    async fn row(&self) -> Result<Box<Run>, GivenUp> {
        let (engine, tenant, id) = (&self.engine, &self.tenant, self.id);
        loop {
            match engine.core.group.run_find(tenant, id).await {
                // The end was written and the answer lost: the run is over all the same.
                Ok(Some(run)) if run.state.is_final() => {
                    if run.unsettled {
                        follow_dropped(&engine.core, tenant, id); // the activation took its end for unwritten
                    }
                    engine.runs.leave(id);
                    engine.ends.tell(id, &run.state);
                    engine.tell_starter(id).await;
                    Box::pin(engine.tell_parent(&run)).await;
                    return Err(GivenUp);
                }
                Ok(Some(run)) if run.fence == engine.core.fence => return Ok(Box::new(run)),
                Ok(found) => {
                    match found {
                        Some(_) => tracing::warn!(%tenant, run = %id, "run taken over by another worker"),
                        None => tracing::error!(%tenant, run = %id, "run not found in the database"),
                    }
                    return Err(self.give_up());
                }
                Err(error) => {
                    log_trouble!(error, %tenant, run = %id, "run not read, will retry");
                    engine.core.clock.sleep(RETRY).await;
                }
            }
        }
    }

    /// Ends this process's work for the run.
    fn give_up(&self) -> GivenUp {
        self.engine.runs.leave(self.id);
        self.engine.give_up(self.id);
        GivenUp
    }

    /// Tells those who wait for the run, and the next runs of its queue, when the run has no task here any more.
    async fn leave(&self, ended: &Ended) {
        let (engine, id) = (&self.engine, self.id);
        engine.rested.notify_waiters();
        if let End::Over(state) = &ended.end {
            engine.ends.tell(id, state);
            engine.tell_starter(id).await;
            if let Some(queue) = &self.queue {
                engine.admit_soon(queue.as_str());
            }
            if matches!(state, RunState::Blocked { .. }) {
                Box::pin(self.obey_blocked()).await;
            }
        }
        if ended.again {
            Box::pin(engine.wake(&self.tenant, id)).await;
        } else if engine.core.has_others() && matches!(ended.end, End::Parked) {
            Box::pin(engine.take_up_if_answered(id)).await;
        }
    }

    /// Obeys a command to cancel the run that came while the run was being blocked.
    async fn obey_blocked(&self) {
        let (engine, tenant, id) = (&self.engine, &self.tenant, self.id);
        while let Err(error) = engine.obey_blocked(tenant, id).await {
            log_trouble!(error, %tenant, run = %id, "blocked run not cancelled");
            if engine.core.is_closing() || !error.is_reported() {
                return;
            }
            engine.core.clock.sleep(RETRY).await; // the database is away
        }
    }

    /// Blocks a run that kills its process each time, before it does so again.
    async fn quarantine(&self, run: Box<Run>) -> End {
        let question = format!(
            "{}: its process died {} times without the run getting anywhere. Mend the cause and go on, or abandon?",
            run.id, run.deaths
        );
        let live = Live::unread(&self.engine.core, *run);
        resume::block(&live, QuestionKind::Quarantined, question).await
    }
}
