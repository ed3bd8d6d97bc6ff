//! Failed writes of which only the answer was lost. Such a write may have taken place all the same. When the queue
//! tries it again it is even refused, because its rows exist already. The caller is told that the write failed. Its
//! consequences follow in this process all the same, and do not wait for the next one.

use std::sync::Arc;

use super::inner::Inner;
use crate::id::{QuestionId, RunId, Tenant};
use crate::store::{RunState, Signal, Store as _, StoreError};

impl Inner {
    /// Looks whether a failed write has made this run active and this worker's. If so, the run is carried out.
    pub(super) fn perhaps_ours(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        let tenant = tenant.clone();
        self.find_out(move |inner| {
            let tenant = tenant.clone();
            async move {
                let run = inner.core.group.run_find(&tenant, id).await?;
                let ours = run.filter(|run| run.state == RunState::Active && run.fence == inner.core.fence);
                if let Some(run) = ours.filter(|_| !inner.runs.has_of(&tenant, id)) {
                    inner.spawn(Box::new(run), None);
                }
                Ok(())
            }
        });
    }

    /// Looks whether a failed write has stored this signal. If so, the run is told.
    pub(super) fn perhaps_sent(self: &Arc<Self>, signal: Signal) {
        self.find_out(move |inner| {
            let signal = signal.clone();
            async move {
                let Signal { tenant, run, name, id, .. } = &signal;
                if let Some(there) = inner.core.group.signal_unreceived(tenant, *run, name, id).await? {
                    inner.delivered(there).await;
                }
                Ok(())
            }
        });
    }

    /// Looks whether a failed write has answered this question. If so, the runs that wait for the answer are woken.
    pub(super) fn perhaps_answered(self: &Arc<Self>, tenant: &Tenant, question: QuestionId) {
        let tenant = tenant.clone();
        self.find_out(move |inner| {
            let tenant = tenant.clone();
            async move {
                let found = inner.core.group.escalation_find(&tenant, question).await?;
                match found.filter(|question| question.answer.is_some()) {
                    Some(answered) => inner.wake_waiting(&tenant, &answered).await,
                    None => Ok(()),
                }
            }
        });
    }

    /// Looks a moment later, when a write that was still on its way has arrived, and again while the store cannot be
    /// read: a run that is active and this worker's is nobody else's, so without a look it stands still until the next
    /// process.
    fn find_out<F>(self: &Arc<Self>, look: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        self.until_stored_later(look, |error| {
            log_trouble!(error, "fate of a failed write not read, next process reads it");
        });
    }
}
