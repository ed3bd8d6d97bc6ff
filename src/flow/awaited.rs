//! Who waits for the ends of runs: in this process, or in a shared store for what another worker carries out.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::child::lineage::ENDED;
use super::engine::Inner;
use crate::id::{Ids, RunId, Tenant};
use crate::store::{Run, RunState, Store as _, StoreError};

/// Who waits for a run's end.
pub(super) struct Awaited {
    tenant: Tenant,
    waiting: Vec<oneshot::Sender<RunState>>,
}

impl Inner {
    /// Resolves when the run is over or halted.
    pub(super) fn result_of(&self, tenant: &Tenant, id: RunId) -> oneshot::Receiver<RunState> {
        let (sender, receiver) = oneshot::channel();
        let awaited = || Awaited { tenant: tenant.clone(), waiting: Vec::new() };
        self.results().entry(id).or_insert_with(awaited).waiting.push(sender);
        receiver
    }

    /// Nobody waits for this result any more.
    pub(super) fn forget_result(&self, id: RunId) {
        let mut results = self.results();
        if let Some(Awaited { waiting, .. }) = results.get_mut(&id) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                results.remove(&id);
            }
        }
    }

    pub(super) fn deliver(&self, id: RunId, state: &RunState) {
        for waiting in self.results().remove(&id).into_iter().flat_map(|awaited| awaited.waiting) {
            let _ = waiting.send(state.clone()); // its caller may have gone
        }
    }

    /// This engine is done with a run. Whoever waits for it is told; in a shared store another worker has it, and its
    /// end is looked for at each beat.
    pub(super) fn give_up(&self, id: RunId) {
        if !self.core.hears_of_others() || self.core.is_closing() {
            self.results().remove(&id);
        }
    }

    /// A run that another worker began is perhaps waited for there.
    pub(super) async fn tell_starter(&self, id: RunId) {
        if self.core.is_shared() && Ids::giver(id.0) != self.core.fence {
            let _ = self.core.group.wake_others().await; // only a hint
        }
    }

    /// The ends of runs that are waited for here and that other workers carry out.
    pub(super) async fn look_for_ends(&self) -> Result<(), StoreError> {
        let awaited: Vec<_> = {
            let active = self.active();
            let results = self.results();
            let elsewhere = results.iter().filter(|(id, _)| !active.contains_key(id));
            elsewhere.map(|(id, awaited)| (awaited.tenant.clone(), *id)).collect()
        };
        for (tenant, id) in awaited {
            if let Some(run) = self.core.group.run_find(&tenant, id).await?
                && (run.state.is_final() || matches!(run.state, RunState::Halted { .. }))
            {
                self.deliver(id, &run.state);
            }
        }
        Ok(())
    }

    fn results(&self) -> MutexGuard<'_, BTreeMap<RunId, Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is heard of any run from here any more: whoever waits is told.
    pub(super) fn forget_all_results(&self) {
        self.results().clear();
    }
}

impl Inner {
    /// A child has ended, durably, and whoever was to tell its parent may not have: only a hint, like any other.
    pub(super) async fn tell_parent(self: &Arc<Self>, child: &Run) {
        let Some(parent) = child.parent else { return };
        let id = child.id.to_string();
        match self.core.group.signal_find(&child.tenant, parent, ENDED, &id).await {
            Ok(Some(signal)) => self.delivered(signal).await,
            Ok(None) => {}
            Err(error) => tracing::error!(run = %parent, %error, "cannot be told of its child's end"),
        }
    }
}
