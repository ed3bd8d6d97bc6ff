//! What an activation in a check does differently: it notes where it would go on by itself, and stops there.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::identity::{Identity, Kind};
use super::super::live::{Live, Open};
use super::report::{Anew, Changed, ReplayReport};
use crate::exec::{Answer, Operation};
use crate::ledger::Decision;
use crate::store::Store as _;

/// The notes of a check.
#[derive(Debug)]
pub(crate) struct Check {
    run_new_steps: bool,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    anew: Vec<Anew>,
    changed: Vec<Changed>,
    unsettled: Vec<String>,
}

impl Check {
    pub(crate) fn new(run_new_steps: bool) -> Self {
        Self { run_new_steps, notes: Mutex::default() }
    }

    fn note(&self, note: impl FnOnce(&mut Notes)) {
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

/// A recorded call whose outcome this run has not got: answered from its record if that has it by now, and noted if the
/// engine would have to do something about it.
pub(crate) async fn undecided(live: &Arc<Live>, check: &Check, open: Open, op: &Operation) -> Answer {
    let core = &live.engine.core;
    let record = core.group.record_find(&live.tenant, &op.key).await;
    let Ok(Some(record)) = record else { return check.held(&open.identity).await };
    match op.decide(core, Some(&record)).await {
        Ok(Decision::Duplicate { response }) => {
            if let Ok(response) = core.load(&live.tenant, &response).await {
                open.close();
                return Answer::replayed(response, record.id);
            }
        }
        Ok(Decision::Conflict) => check.note(|notes| {
            let why = format!(
                "{}: the same key was asked for with another request (then {:?}, now {:?})",
                op.key, record.request_hash, op.hash
            );
            notes.changed.push(Changed { what: open.identity.to_string(), why });
        }),
        Ok(Decision::Retry { .. } | Decision::New) => return check.held(&open.identity).await,
        _ => check.note(|notes| notes.unsettled.push(op.key.to_string())),
    }
    pending().await
}
