//! A write has failed, and may be there all the same: its answer was lost. Tried again by the queue, such a write is even
//! refused, for its rows are there. Whoever asked for it is told so; what must follow the write follows all the same, in
//! this process and not only in the next one.

use std::sync::Arc;

use super::engine::{Inner, RETRY};
use crate::id::{EscalationId, RunId, Tenant};
use crate::store::{RunState, Signal, Store as _, StoreError};

impl Inner {
    /// It would have made this run active and this worker's: then somebody must carry it out.
    pub(super) fn perhaps_ours(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        let (inner, tenant) = (self.clone(), tenant.clone());
        self.find_out(async move {
            let run = inner.core.group.run_find(&tenant, id).await?;
            let ours = run.filter(|run| run.state == RunState::Active && run.fence == inner.core.fence);
            if let Some(run) = ours.filter(|_| !inner.is_active(&tenant, id)) {
                inner.spawn(Box::new(run), None);
            }
            Ok(())
        });
    }

    /// It would have said this to a run: then the run must be told.
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

    /// It would have answered this question: then whoever waits for the answer must be woken.
    pub(super) fn perhaps_answered(self: &Arc<Self>, tenant: &Tenant, question: EscalationId) {
        let (inner, tenant) = (self.clone(), tenant.clone());
        self.find_out(async move {
            let found = inner.core.group.escalation_find(&tenant, question).await?;
            match found.filter(|question| question.answer.is_some()) {
                Some(answered) => inner.wake_waiting(&tenant, &answered).await,
                None => Ok(()),
            }
        });
    }

    /// A moment later, when a write that is still on its way has arrived. Who closes waits for the look, and not for the
    /// moment: after a crash whoever gives a command or a signal once more is here, and ends all the same.
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
