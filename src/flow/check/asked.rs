//! The notes of an activation in a check. It notes what the code asks for, and stops where the engine would do
//! something new.

use std::sync::{Mutex, PoisonError};

use super::report::{Changed, ReplayEntry, ReplayReport};
use crate::flow::identity::{Identity, Kind};

/// The notes that a check takes of one run.
#[derive(Debug)]
pub(crate) struct Check {
    run_new_steps: bool,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    anew: Vec<ReplayEntry>,
    adopted: Vec<ReplayEntry>,
    /// True if a branch stopped where the engine would have gone on by itself.
    stopped_short: bool,
    pub(super) changed: Vec<Changed>,
    pub(super) unsettled: Vec<String>,
}

impl Check {
    pub(crate) fn new(run_new_steps: bool) -> Self {
        Self { run_new_steps, notes: Mutex::default() }
    }

    pub(super) fn note<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes something that the run has not recorded.
    pub(crate) fn is_new(&self, identity: &Identity) {
        let entry = ReplayEntry::of(identity);
        self.note(|notes| {
            if !notes.anew.contains(&entry) {
                notes.anew.push(entry);
            }
        });
    }

    /// Notes something that the engine would record before it goes on. Returns true if the check goes on, too: the
    /// result of a timer, a select or a patch is known; the result of a step is known only if its closure may run.
    pub(crate) fn goes_on(&self, identity: &Identity) -> bool {
        self.is_new(identity);
        let goes_on = match identity.kind {
            Kind::Timer | Kind::Select | Kind::Patch => true,
            Kind::Step | Kind::Drawn => self.run_new_steps,
            _ => false,
        };
        self.note(|notes| notes.stopped_short |= !goes_on);
        goes_on
    }

    /// Notes a step that the run has recorded with another input, and whose present result is the same.
    pub(crate) fn adopts(&self, identity: &Identity) {
        self.note(|notes| notes.adopted.push(ReplayEntry::of(identity)));
    }

    pub(super) fn has_stopped_short(&self) -> bool {
        self.note(|notes| notes.stopped_short)
    }

    pub(super) fn add_to(&self, report: &mut ReplayReport) {
        self.note(|notes| {
            report.anew.append(&mut notes.anew);
            report.adopted.append(&mut notes.adopted);
            report.changed.append(&mut notes.changed);
            report.unsettled.append(&mut notes.unsettled);
        });
    }
}
