//! The runs in hand: those that have a task in this process.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::live::{Live, Stop};
use crate::exec::ExecError;
use crate::id::{RunId, Tenant};
use crate::store::{Run, Signal};

/// The runs that have a task in this process.
#[derive(Default)]
pub(super) struct Runs {
    // Ordered by id, so that a simulation that is repeated does the same again.
    by_id: Mutex<BTreeMap<RunId, InHand>>,
}

/// A run that has a task.
struct InHand {
    tenant: Tenant,
    /// The run's present activation, if one is under way.
    live: Option<Weak<Live>>,
    /// True if an answer or a signal came while the activation was beginning or ending.
    again: bool,
    /// How often in a row a transaction of the run was rolled back for a reason that may pass.
    rolled_back: u32,
}

impl InHand {
    fn live(&self) -> Option<Arc<Live>> {
        self.live.as_ref()?.upgrade()
    }
}

impl Runs {
    fn by_id(&self) -> MutexGuard<'_, BTreeMap<RunId, InHand>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a run that is to be given a task. Returns false if it has one: that task handles what has come.
    pub(super) fn enter(&self, run: &Run) -> bool {
        let mut runs = self.by_id();
        if let Some(ending) = runs.get_mut(&run.id) {
            ending.again = true;
            return false;
        }
        let tenant = run.tenant.clone();
        runs.insert(run.id, InHand { tenant, live: None, again: false, rolled_back: 0 });
        true
    }

    /// Removes a run that has no task any more. Returns true if something came for it that its task has not handled.
    pub(super) fn leave(&self, id: RunId) -> bool {
        self.by_id().remove(&id).is_some_and(|run| run.again)
    }

    /// Counts a transaction of the run that was rolled back for a reason that may pass, and returns how many there were
    /// in a row.
    pub(super) fn rolled_back(&self, id: RunId) -> u32 {
        self.by_id().get_mut(&id).map_or(u32::MAX, |run| {
            run.rolled_back += 1;
            run.rolled_back
        })
    }

    /// Notes that a transaction of the run has come to its recorded end: the count begins anew.
    pub(super) fn transaction_ended(&self, id: RunId) {
        if let Some(run) = self.by_id().get_mut(&id) {
            run.rolled_back = 0;
        }
    }

    pub(super) fn has(&self, id: RunId) -> bool {
        self.by_id().contains_key(&id)
    }

    /// True if the run has a task here, and is this tenant's.
    pub(super) fn has_of(&self, tenant: &Tenant, id: RunId) -> bool {
        self.by_id().get(&id).is_some_and(|run| run.tenant == *tenant)
    }

    /// The runs that have a task, each with its tenant.
    pub(super) fn in_hand(&self) -> Vec<(Tenant, RunId)> {
        self.by_id().iter().map(|(id, run)| (run.tenant.clone(), *id)).collect()
    }

    pub(super) fn ids(&self) -> HashSet<RunId> {
        self.by_id().keys().copied().collect()
    }

    /// The activations that are under way.
    pub(super) fn lives(&self) -> Vec<Arc<Live>> {
        self.by_id().values().filter_map(InHand::live).collect()
    }

    /// The present activation of a run.
    pub(super) fn live(&self, id: RunId) -> Option<Arc<Live>> {
        self.by_id().get(&id)?.live()
    }

    /// Starts a run over from its records. Returns false if the run has no task.
    pub(super) fn bounce(&self, id: RunId) -> bool {
        let mut runs = self.by_id();
        let Some(run) = runs.get_mut(&id) else { return false };
        run.again = true;
        if let Some(live) = run.live() {
            live.request_stop(Stop::Bounce);
        }
        true
    }

    /// Hands a signal to a run, or lets its next activation read the signal. Returns false if the run has no task.
    pub(super) fn deliver(&self, signal: Signal) -> bool {
        let mut runs = self.by_id();
        let Some(run) = runs.get_mut(&signal.run) else { return false };
        run.again |= !run.live().is_some_and(|live| live.deliver(signal));
        true
    }

    /// The due runs that have no task, and the number of those that have one. A run with a task has parked at
    /// this very moment: its task handles it on its way out.
    pub(super) fn asleep(&self, due: Vec<Run>) -> (Vec<Run>, usize) {
        let mut runs = self.by_id();
        let (mut asleep, mut ending) = (Vec::new(), 0);
        for run in due {
            match runs.get_mut(&run.id) {
                None => asleep.push(run),
                Some(in_hand) => {
                    in_hand.again = true;
                    ending += 1;
                }
            }
        }
        (asleep, ending)
    }

    /// Ends all activations where they are durable.
    pub(super) fn stop_all(&self) {
        for live in self.lives() {
            live.request_stop(closed(&live));
        }
    }

    /// Makes an activation findable, for as long as the guard lives.
    pub(super) fn list(&self, live: &Arc<Live>) -> Listed<'_> {
        if let Some(run) = self.by_id().get_mut(&live.id) {
            run.live = Some(Arc::downgrade(live));
            if std::mem::take(&mut run.again) {
                // The answer is in the records that this activation has yet to read, or has just read too early.
                live.request_stop(Stop::Bounce);
            }
        }
        // An activation that began while the engine shut down was not there to be stopped with the others.
        if live.core.is_closing() {
            live.request_stop(closed(live));
        }
        Listed { runs: self, id: live.id }
    }
}

fn closed(live: &Live) -> Stop {
    Stop::Failed(ExecError::Closed { key: live.id.to_string() })
}

/// The guard of an activation that can be found: see [`Runs::list`].
pub(super) struct Listed<'a> {
    runs: &'a Runs,
    id: RunId,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.runs.by_id().get_mut(&self.id) {
            run.live = None;
        }
    }
}
