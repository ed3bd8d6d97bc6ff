//! Waking: a run goes on because an answer, a signal or its time has come, whether it has a task here or waits as a row.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::command::is_command;
use super::inner::Inner;
use crate::id::{RunId, Tenant};
use crate::store::{Question, QuestionKind, Run, RunState, Signal, Store as _, StoreError};

/// The greatest number of runs whose signals one query asks for.
const AT_ONCE: usize = 256;

impl Inner {
    /// Starts a run over from its records, because an answer or the run's time has come. While the store is away, this is
    /// tried again in the background: nothing else in this process would wake the run.
    pub(super) async fn wake(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        match self.try_to_wake(tenant, id).await {
            Err(error) if error.is_transient() => self.wake_later(tenant, id),
            Err(error) => not_woken(&error, tenant, id),
            Ok(()) => {}
        }
    }

    fn wake_later(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        let (tenant, of) = (tenant.clone(), tenant.clone());
        let attempt = move |inner: Arc<Self>| {
            let tenant = tenant.clone();
            async move { inner.try_to_wake(&tenant, id).await }
        };
        self.until_stored_later(attempt, move |error| not_woken(&error, &of, id));
    }

    async fn try_to_wake(self: &Arc<Self>, tenant: &Tenant, id: RunId) -> Result<(), StoreError> {
        if self.core.is_client() {
            self.make_due(tenant, id).await?;
            self.hand_over();
            return Ok(());
        }
        if self.runs.bounce(id) {
            return Ok(());
        }
        match self.core.group.run_find(tenant, id).await? {
            Some(run) if run.state == RunState::Active && run.fence == self.core.fence => {
                self.spawn(Box::new(run), None);
            }
            Some(run) if matches!(run.state, RunState::Waiting { .. }) => {
                self.claim(vec![run], |_| {}).await?;
            }
            // A queued run hears a command before it is its turn, and nothing else.
            Some(run) if run.state == RunState::Queued => self.take_up_if_answered(id).await,
            _ => {}
        }
        Ok(())
    }

    /// Makes a run due that waits for an answer, for the workers: while it has another open question, their search for
    /// answered runs does not find it.
    async fn make_due(&self, tenant: &Tenant, id: RunId) -> Result<(), StoreError> {
        let group = &self.core.group;
        let found = group.run_find(tenant, id).await?;
        let Some(due) = found.and_then(|run| run.due_with_answer(self.core.fence, self.core.now())) else {
            return Ok(());
        };
        group.commit_one(self.core.change(None).run(due)).await.map(drop) // refused: the run has moved on
    }

    /// Starts a run over that waits as this row.
    async fn wake_from(self: &Arc<Self>, row: Run) {
        let (tenant, id) = (row.tenant.clone(), row.id);
        match self.claim(vec![row], |_| {}).await {
            Err(error) if error.is_transient() => self.wake_later(&tenant, id),
            Err(error) => not_woken(&error, &tenant, id),
            Ok(_) => {}
        }
    }

    /// Starts over the runs that wait for this durable answer. While the store is away, this is tried again in the
    /// background.
    pub(super) async fn wake_answered(
        self: &Arc<Self>,
        tenant: &Tenant,
        answered: &Question,
    ) -> Result<(), StoreError> {
        match self.wake_waiting(tenant, answered).await {
            Err(error) if error.is_transient() => {
                self.perhaps_answered(tenant, answered.id);
                Ok(())
            }
            woken => woken,
        }
    }

    /// Starts over the runs that wait for this answer.
    pub(super) async fn wake_waiting(
        self: &Arc<Self>,
        tenant: &Tenant,
        answered: &Question,
    ) -> Result<(), StoreError> {
        let uses = match answered.record {
            Some(record) => self.core.group.record_uses(tenant, record).await?,
            None => Vec::new(),
        };
        // Taken after the read, which may fail: the next attempt must still find them.
        let mut runs = self.answers.take(answered.id);
        runs.extend(answered.run);
        runs.extend(uses.iter().map(|used| used.run));
        runs.sort_unstable();
        runs.dedup();
        if QuestionKind::PARKING.contains(&answered.kind) {
            for run in runs {
                self.wake(tenant, run).await;
            }
        }
        Ok(())
    }

    /// Tells or wakes the run that a durable signal is for. This is only a hint: a worker that takes the run over finds
    /// the signal by its row.
    pub(super) fn delivered(self: &Arc<Self>, signal: Signal) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (tenant, run, command) = (signal.tenant.clone(), signal.run, is_command(&signal));
            if self.core.is_client() {
                return self.hand_over();
            }
            if self.runs.deliver(signal) {
                return;
            }
            match self.core.group.run_find(&tenant, run).await {
                Ok(Some(run)) if hears(&run, command) => self.wake_from(run).await,
                Ok(Some(run)) if command && run.state == RunState::Queued => self.wake(&tenant, run.id).await,
                Ok(Some(run)) if run.state == RunState::Active && self.core.is_shared() => {
                    let _ = self.core.group.wake_others().await; // the run's worker looks at each heartbeat anyway
                }
                Ok(_) => {}
                // A run that waits would never resume: the signal's row is looked for until the store is there.
                Err(error) if error.is_transient() => self.take_up_later(run),
                Err(error) => {
                    log_trouble!(error, %tenant, %run, "run not told of a signal, finds it when it resumes");
                }
            }
        })
    }

    /// Hands the runs that have a task here the signals that other processes have sent them.
    pub(super) async fn look_for_signals(&self) -> Result<(), StoreError> {
        for runs in self.runs.in_hand().chunks(AT_ONCE) {
            match self.core.group.signal_pending(runs).await {
                Err(StoreError::Corrupt { .. }) => self.look_for_readable_signals(runs).await?,
                pending => pending?.into_iter().for_each(|signal| {
                    self.runs.deliver(signal);
                }),
            }
        }
        Ok(())
    }

    /// The same, run by run. A run that has a damaged signal starts over, is blocked with a question, and holds up no
    /// other run.
    async fn look_for_readable_signals(&self, runs: &[(Tenant, RunId)]) -> Result<(), StoreError> {
        for run in runs {
            match self.core.group.signal_pending(std::slice::from_ref(run)).await {
                Err(StoreError::Corrupt { .. }) => {
                    self.runs.bounce(run.1);
                }
                pending => pending?.into_iter().for_each(|signal| {
                    self.runs.deliver(signal);
                }),
            }
        }
        Ok(())
    }
}

fn not_woken(error: &StoreError, tenant: &Tenant, run: RunId) {
    log_trouble!(error, %tenant, %run, "run not woken, next process wakes it");
}

/// True if the run waits as a row and this signal wakes it. A command wakes it whatever it waits for.
pub(super) fn hears(run: &Run, command: bool) -> bool {
    matches!(run.state, RunState::Waiting { on, .. } if on.signal || command)
}
