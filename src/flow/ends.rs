//! The consequences of a run's end, here or in another process: the callers and runs that wait for the end are told.

use std::sync::Arc;

use super::child::lineage::ENDED;
use super::error::RunError;
use super::inner::Inner;
use crate::id::{Ids, RunId, Tenant};
use crate::store::{Run, RunState, Store as _, StoreError};

impl Inner {
    /// Ends this engine's work for a run. Its waiting callers are told, except in a shared store: there another worker
    /// has the run, and its end is looked for at each heartbeat.
    pub(super) fn give_up(&self, id: RunId) {
        if !self.core.hears_of_others() || self.core.is_closing() {
            self.ends.give_up(id);
        }
    }

    /// Wakes the other workers, one of which began the run and may have a caller that waits for the end.
    pub(super) async fn tell_starter(&self, id: RunId) {
        if self.core.is_shared() && Ids::giver(id.0) != self.core.fence {
            let _ = self.core.group.wake_others().await; // only a hint
        }
    }

    /// Tells the parent of a child that has ended durably, in case the worker that was to do so did not. This is only a
    /// hint.
    pub(super) async fn tell_parent(self: &Arc<Self>, child: &Run) {
        let Some(parent) = child.parent else { return };
        let id = child.id.to_string();
        match self.core.group.signal_find(&child.tenant, parent, ENDED, &id).await {
            Ok(Some(signal)) => self.delivered(signal).await,
            Ok(None) => {}
            Err(error) => {
                log_trouble!(error, tenant = %child.tenant, run = %parent, "parent run not told of the end of its child");
            }
        }
    }

    /// Looks for the ends of runs that callers wait for here and that other workers carry out.
    pub(super) async fn look_for_ends(&self) -> Result<(), StoreError> {
        for (tenant, id) in self.ends.elsewhere(|id| self.runs.has(id)) {
            if let Some(run) = self.core.group.run_find(&tenant, id).await?
                && (run.state.is_final() || matches!(run.state, RunState::Blocked { .. }))
            {
                self.ends.tell(id, &run.state);
            }
        }
        Ok(())
    }
    /// The state of a run that is over or blocked. A run that this process carries out is not read: its task reports
    /// the end.
    pub(super) async fn ended_state(&self, tenant: &Tenant, id: RunId) -> Result<Option<RunState>, RunError> {
        if self.runs.has_of(tenant, id) {
            return Ok(None);
        }
        let run = self.core.group.run_find(tenant, id).await?.ok_or(RunError::Unknown { run: id })?;
        let ended = run.state.is_final() || matches!(run.state, RunState::Blocked { .. });
        Ok(ended.then_some(run.state))
    }
}
