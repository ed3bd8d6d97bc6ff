//! Failed writes of which only the answer was lost. Such a write may have taken place all the same. When the queue
//! tries it again it is even refused, because its rows exist already. The caller is told that the write failed. Its
//! consequences follow in this process all the same, and do not wait for the next one.

use std::sync::Arc;

use super::inner::{Inner, RETRY};
use crate::id::{QuestionId, RunId, Tenant};
use crate::store::{RunState, Signal, Store as _, StoreError};

impl Inner {
    /// Looks whether a failed write has made this run active and this worker's. If so, the run is carried out.
    pub(super) fn perhaps_ours(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        let (inner, tenant) = (self.clone(), tenant.clone());
        self.find_out(async move {
            let run = inner.core.group.run_find(&tenant, id).await?;
            let ours = run.filter(|run| run.state == RunState::Active && run.fence == inner.core.fence);
            if let Some(run) = ours.filter(|_| !inner.runs.has_of(&tenant, id)) {
                inner.spawn(Box::new(run), None);
            }
            Ok(())
        });
    }

    /// Looks whether a failed write has stored this signal. If so, the run is told.
    pub(super) fn perhaps_sent(self: &Arc<Self>, signal: Signal) {
        let inner = self.clone();
        self.find_out(async move {
            let Signal { tenant, run, name, id, .. } = &signal;
            if let Some(there) = inner.core.group.signal_unreceived(tenant, *run, name, id).await? {
                inner.delivered(there).await;
            }
            Ok(())
        });
    }

    /// Looks whether a failed write has answered this question. If so, the runs that wait for the answer are woken.
    pub(super) fn perhaps_answered(self: &Arc<Self>, tenant: &Tenant, question: QuestionId) {
        let (inner, tenant) = (self.clone(), tenant.clone());
        self.find_out(async move {
            let found = inner.core.group.escalation_find(&tenant, question).await?;
            match found.filter(|question| question.answer.is_some()) {
                Some(answered) => inner.wake_waiting(&tenant, &answered).await,
                None => Ok(()),
            }
        });
    }

    /// Looks a moment later, when a write that was still on its way has arrived. An engine that shuts down waits for a
    /// look that has begun, and does not wait for a look's moment to come.
    fn find_out(self: &Arc<Self>, look: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let core = self.core.clone();
        tokio::spawn(async move {
            core.clock.sleep(RETRY).await;
            let _looking = core.tracker.token(); // taken before the closing check, or closing could overtake the look
            if !core.is_closing()
                && let Err(error) = look.await
            {
                log_trouble!(error, "fate of a failed write not read, next process reads it");
            }
        });
    }
}
