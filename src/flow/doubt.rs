//! A write that failed may have taken place all the same, because only its answer was lost. When the queue tries it again it is
//! even refused: its rows are there already. Whoever asked for the write is told that it failed. What must follow from it follows
//! in this process all the same, and does not wait for the next one.

use std::sync::Arc;

use super::inner::{Inner, RETRY};
use crate::id::{QuestionId, RunId, Tenant};
use crate::store::{RunState, Signal, Store as _, StoreError};

impl Inner {
    /// The write would have made this run active and this worker's. If it did, the run is carried out.
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

    /// The write would have said this to a run. If it did, the run is told.
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

    /// The write would have answered this question. If it did, the runs that wait for the answer are woken.
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

    /// Looks a moment later, when a write that was still on its way has arrived. An engine that shuts down waits for a look that
    /// has begun, and not for that moment.
    fn find_out(self: &Arc<Self>, look: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let core = self.core.clone();
        tokio::spawn(async move {
            core.clock.sleep(RETRY).await;
            let _looking = core.tracker.token(); // taken before it is asked, or closing could overtake
            if !core.is_closing()
                && let Err(error) = look.await
            {
                tracing::error!(%error, "whether a write that failed is there cannot be read: left to the next process");
            }
        });
    }
}
