//! The state that all runs of an engine share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::host_values::HostValues;
use super::queue::Queues;
use super::runs::Runs;
use super::unwanted::Unwanted;
use super::waiters::{AnswerWaiters, EndWaiters};
use super::workflow::Workflows;
use crate::exec::Core;
use crate::store::{OrderingKey, Run, Store as _, StoreError};

/// A run whose process died more often is quarantined, unless the builder says otherwise.
pub(super) const MAX_RECOVERY_ATTEMPTS: u32 = 10;
/// After a write failed, a run is tried again this much later.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Gives a run a task. A fresh run has nothing recorded, and its row is on its way in this lane.
pub(super) type CarryOut = fn(Arc<Inner>, Box<Run>, Option<OrderingKey>);

/// The state that all runs of an engine share.
pub(super) struct Inner {
    pub(super) core: Arc<Core>,
    pub(super) workflows: Workflows,
    pub(super) queues: Queues,
    /// The values that the host hands to its workflows.
    pub(super) host_values: HostValues,
    /// The runs that have a task here.
    pub(super) runs: Runs,
    /// The callers that wait here for the end of a run.
    pub(super) ends: EndWaiters,
    /// Notified when a run has come to rest here: it waits as a row, is blocked or is over.
    pub(super) rested: Notify,
    /// The runs that wait for answers.
    pub(super) answers: AnswerWaiters,
    /// The signals that runs left unreceived when they parked here.
    pub(super) unwanted: Unwanted,
    pub(super) max_recovery_attempts: u32,
    /// The driver. It is handed in, because much of what it calls starts other runs.
    carry_out: CarryOut,
}

impl Inner {
    pub(super) fn of(core: Arc<Core>, workflows: Workflows, queues: Queues, carry_out: CarryOut) -> Self {
        let (runs, ends, answers) = (Runs::default(), EndWaiters::default(), AnswerWaiters::default());
        Self {
            core,
            workflows,
            queues,
            host_values: HostValues::default(),
            runs,
            ends,
            rested: Notify::new(),
            answers,
            unwanted: Unwanted::default(),
            max_recovery_attempts: MAX_RECOVERY_ATTEMPTS,
            carry_out,
        }
    }

    /// One that carries out no runs: they are only looked at.
    pub(super) fn looking_on(core: Arc<Core>, workflows: Workflows) -> Arc<Self> {
        Arc::new(Self::of(core, workflows, Queues::default(), |_, _, _| {}))
    }

    /// Sees to the deadline of a run whose row is durable.
    pub(super) fn note_deadline(&self, run: &Run) {
        if let Some(at) = run.deadline {
            self.core.agenda.note(at);
        }
    }

    /// Does work in the background after a moment, and again [while the store is away](Core::until_stored): the work of an
    /// engine that is still there.
    pub(super) fn until_stored_later<F>(
        self: &Arc<Self>,
        attempt: impl Fn(Arc<Self>) -> F + Send + 'static,
        give_up: impl FnOnce(StoreError) + Send + 'static,
    ) where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let weak = Arc::downgrade(self); // a sleeper must not keep a file locked
        let attempt = move |_: Arc<Core>| {
            let attempted = weak.upgrade().map(&attempt);
            async move {
                match attempted {
                    Some(attempted) => attempted.await,
                    None => Ok(()),
                }
            }
        };
        self.core.until_stored_later(attempt, give_up);
    }

    /// Tells the workers that a client has written something for them. This is only a hint.
    pub(super) fn hand_over(&self) {
        let core = self.core.clone();
        self.core.tracker.spawn(async move { core.group.wake_others().await });
    }

    /// Gives a run a task, unless it has one, which then sees to it. A client leaves the run to the workers.
    pub(super) fn spawn(self: &Arc<Self>, run: Box<Run>, fresh: Option<OrderingKey>) {
        if self.core.is_client() {
            return self.hand_over();
        }
        self.note_deadline(&run);
        if self.runs.enter(&run) {
            (self.carry_out)(self.clone(), run, fresh);
        }
    }
}
