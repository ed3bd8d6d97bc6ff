//! The signals that runs left unreceived when they parked here: the runs wait for others, and these wake them no more.
//!
//! This is only a memory, and may be lost: a run that it does not know is woken once too often. It never hides a signal
//! that a run waits for. It holds for one revision of the run's row, and that row is as the activation left it when it
//! wanted none of these signals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::{Fence, RunId};
use crate::store::{Run, Signal};

/// The number of signals that are remembered, of all runs together. Those of the last run are remembered in any case.
const REMEMBERED: usize = 100_000;

/// The names and ids of signals.
type Names = BTreeSet<(String, String)>;

/// By run, the worker and the revision of its row, and the signals.
type ByRun = BTreeMap<RunId, (Fence, u32, Arc<Names>)>;

/// The unreceived signals of parked runs.
#[derive(Default)]
pub(super) struct Unwanted(Mutex<Known>);

#[derive(Default)]
struct Known {
    runs: ByRun,
    /// The number of signals of these runs.
    signals: usize,
}

impl Unwanted {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the signals that the run leaves unreceived in this row, in which it waits.
    pub(super) fn note(&self, run: &Run, signals: Names) {
        let mut known = self.known();
        if let Some((.., former)) = known.runs.remove(&run.id) {
            known.signals -= former.len();
        }
        if signals.is_empty() {
            return;
        }
        // No more than is needed: each run that is forgotten here is woken once more.
        while known.signals + signals.len() > REMEMBERED
            && let Some((_, (.., oldest))) = known.runs.pop_first()
        {
            known.signals -= oldest.len();
        }
        known.signals += signals.len();
        known.runs.insert(run.id, (run.fence, run.revision, Arc::new(signals)));
    }

    /// The signals that the run has left unreceived in this row.
    pub(super) fn of(&self, run: &Run) -> Option<Arc<Names>> {
        let known = self.known();
        let (fence, revision, signals) = known.runs.get(&run.id)?;
        ((*fence, *revision) == (run.fence, run.revision)).then(|| signals.clone())
    }
}

/// True if the signal is one of this run that it has not left unreceived. A command that the run is to obey is never
/// left: it is for whatever a run waits for.
pub(super) fn is_news(run: &Run, signal: &Signal, left: &Names) -> bool {
    signal.run == run.id
        && signal.tenant == run.tenant
        && !left.contains(&(signal.name.clone(), signal.id.clone()))
}
