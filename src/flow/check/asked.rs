//! What an activation in a check does differently: it notes where it would go on by itself, and stops there.

use std::future::pending;
use std::sync::{Mutex, PoisonError};

use super::report::{Anew, Changed, ReplayReport};
use crate::flow::identity::{Identity, Kind};

/// The notes of a check.
#[derive(Debug)]
pub(crate) struct Check {
    run_new_steps: bool,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    anew: Vec<Anew>,
    pub(super) changed: Vec<Changed>,
    pub(super) unsettled: Vec<String>,
}

impl Check {
    pub(crate) fn new(run_new_steps: bool) -> Self {
        Self { run_new_steps, notes: Mutex::default() }
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn anew(&self, identity: &Identity, held: bool) {
        let Identity { kind, name, id, .. } = identity;
        let anew = Anew { kind: kind.name().to_owned(), name: name.clone(), id: id.clone(), held };
        self.note(|notes| {
            if !notes.anew.contains(&anew) {
                notes.anew.push(anew);
            }
        });
    }

    /// A result that is not recorded is about to be: the engine would write it and go on.
    pub(crate) async fn unrecorded(&self, identity: &Identity) {
        self.anew(identity, false);
        if !(self.run_new_steps && matches!(identity.kind, Kind::Step | Kind::Drawn)) {
            pending::<()>().await;
        }
    }

    /// Something that may touch the world is about to begin: the engine would hold it back until it has seen what else is
    /// asked for.
    pub(crate) async fn held<T>(&self, identity: &Identity) -> T {
        self.anew(identity, true);
        pending().await
    }

    pub(super) fn add_to(&self, report: &mut ReplayReport) {
        self.note(|notes| {
            report.anew.append(&mut notes.anew);
            report.changed.append(&mut notes.changed);
            report.unsettled.append(&mut notes.unsettled);
        });
    }
}
