//! The signals that runs left unreceived when they parked here: the runs wait for others, and these wake them no more.
//!
//! This is only a memory, and may be lost: a run that it does not know is woken once too often. It never hides a signal
//! that a run waits for. It holds for one revision of the run's row, and that row is as the activation left it when it
//! wanted none of these signals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::command::is_command;
use crate::id::{Fence, RunId};
use crate::store::{Run, Signal};

/// The number of runs that are remembered.
const REMEMBERED: usize = 10_000;

/// The names and ids of signals.
type Names = BTreeSet<(String, String)>;

/// By run, the worker and the revision of its row, and the signals.
type ByRun = BTreeMap<RunId, (Fence, u32, Arc<Names>)>;

/// The unreceived signals of parked runs.
#[derive(Default)]
pub(super) struct Unwanted(Mutex<ByRun>);

impl Unwanted {
    fn by_run(&self) -> MutexGuard<'_, ByRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the signals that the run leaves unreceived in this row, in which it waits.
    pub(super) fn note(&self, run: &Run, signals: Names) {
        let mut runs = self.by_run();
        if signals.is_empty() {
            runs.remove(&run.id);
            return;
        }
        if runs.len() >= REMEMBERED {
            runs.clear();
        }
        runs.insert(run.id, (run.fence, run.revision, Arc::new(signals)));
    }

    /// The signals that the run has left unreceived in this row.
    pub(super) fn of(&self, run: &Run) -> Option<Arc<Names>> {
        let runs = self.by_run();
        let (fence, revision, signals) = runs.get(&run.id)?;
        ((*fence, *revision) == (run.fence, run.revision)).then(|| signals.clone())
    }
}

/// True if the signal is one of this run that it has not left unreceived. A command is for whatever a run waits for.
pub(super) fn is_news(run: &Run, signal: &Signal, left: &Names) -> bool {
    signal.run == run.id
        && signal.tenant == run.tenant
        && (is_command(signal) || !left.contains(&(signal.name.clone(), signal.id.clone())))
}
