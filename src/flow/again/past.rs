//! The recorded past of a run, and the part of it that is kept when the run is begun again from a point. Pure.
//!
//! The computations of the run from that point on are done again. Its effects in the world are kept: calls by their
//! records, transactions, signals that it sent and received, and children. Drawn values are kept as well, because keys
//! are made of them.

use std::collections::{HashMap, HashSet};

use super::mark::{Again, Place, Unstable};
use crate::clock::Timestamp;
use crate::flow::child::lineage::{begun, ended};
use crate::flow::identity::Identity;
use crate::flow::label::Label;
use crate::flow::replay::UNSTABLE_KEY;
use crate::id::RunId;
use crate::ledger::{OperationKey, Record, State};
use crate::store::{COMMAND, PastStep, Run, RunState, StepKind};

/// The past of a run since its present input began, without checkpoints that are void already.
pub(super) struct Past {
    /// The base of the run: the turn number of everything outside of loops.
    pub(super) base: u32,
    /// The checkpoints in the order of their times, with the ids that the run's code gives.
    pub(super) steps: Vec<PastStep>,
    pub(super) records: Vec<Record>,
    /// The children that the checkpoints name.
    pub(super) children: HashMap<RunId, Run>,
    /// The children that succeeded and were undone with the run.
    pub(super) undone: HashSet<RunId>,
    /// The records of children that failed or were undone, and of the children below them.
    pub(super) theirs: HashMap<RunId, Vec<Record>>,
}

impl Past {
    pub(super) fn of(base: u32, steps: Vec<PastStep>, again: &Again) -> Self {
        let standing = |step: PastStep| again.standing(&step).map(|id| PastStep { id, ..step });
        let mut steps: Vec<_> = steps.into_iter().filter_map(standing).collect();
        steps.sort_by_key(|step| step.at);
        let (records, children) = (Vec::new(), HashMap::new());
        Self { base, steps, records, children, undone: HashSet::new(), theirs: HashMap::new() }
    }

    /// The instant at which something with this label was recorded first, in the last turn that has it.
    pub(super) fn first(&self, label: &Label) -> Option<Timestamp> {
        let is = |name: &str, id: &str| {
            name == label.name && label.id.as_deref().is_none_or(|asked| Identity::is_called(id, asked))
        };
        let named = |step: &&PastStep| step.kind.is_asked_for() && is(failed_name(step), &step.id);
        // A loop is outside of its turns, although it records checkpoints in them.
        let turn = |step: &PastStep| if step.kind == StepKind::Turns { self.base } else { step.turn };
        let steps = self.steps.iter().filter(named).map(|step| (turn(step), step.at));
        let calls = self.records.iter().filter(|record| {
            let owner = &record.owner;
            is(record.operation.as_str(), owner.step.as_deref().unwrap_or_default())
        });
        let found: Vec<_> = steps.chain(calls.map(|record| (record.owner.turn, record.created_at))).collect();
        let turn = found.iter().map(|(turn, _)| *turn).max()?;
        found.into_iter().filter(|(of, _)| *of == turn).map(|(_, at)| at).min()
    }

    /// The instant of the last failure of a call or a child.
    pub(super) fn last_failure(&self) -> Option<Timestamp> {
        let failed = self.failed_children();
        let is_failure = |step: &&PastStep| {
            step.kind == StepKind::CallFailed || ended(step).is_some_and(|child| failed.contains(&child))
        };
        self.steps.iter().filter(is_failure).map(|step| step.at).max()
    }

    fn failed_children(&self) -> HashSet<RunId> {
        let failed = self.children.values().filter(|run| matches!(run.state, RunState::Failed { .. }));
        failed.map(|run| run.id).collect()
    }

    /// Splits the checkpoints into those that are kept and those that are void, if the run is begun again from this
    /// instant.
    pub(super) fn split(&self, from: Timestamp) -> (Vec<&PastStep>, Vec<&PastStep>) {
        // A child that failed from then on is begun anew, and so its end is waited for anew. A child whose end the run
        // has not received has failed later than everything else.
        let ends = |child| self.steps.iter().filter(move |step| ended(step) == Some(child));
        let begun_later = |child| self.steps.iter().any(|step| step.at >= from && begun(step) == Some(child));
        let mut anew = self.failed_children();
        anew.retain(|child| begun_later(*child) || ends(*child).all(|end| end.at >= from));
        // Of a child that was undone with this run nothing is left, whenever it ended.
        anew.extend(&self.undone);
        self.steps.iter().partition(|step| match step.kind {
            // A received command does not count again: the run has obeyed it.
            StepKind::Signal if step.name.starts_with(COMMAND) => false,
            StepKind::Step
            | StepKind::Timer
            | StepKind::Select
            | StepKind::CallFailed
            | StepKind::Abandoned
            | StepKind::Guard
            | StepKind::Turns
            | StepKind::Adopted
            | StepKind::Published => step.at < from,
            // The run goes on, so that nothing more of it is undone.
            StepKind::Undoing => false,
            StepKind::Child | StepKind::Signal => {
                begun(step).or_else(|| ended(step)).is_none_or(|child| !anew.contains(&child))
            }
            // The calls that are kept were made by the part of the code that a patch has chosen.
            StepKind::Drawn
            | StepKind::Patch
            | StepKind::Transaction
            | StepKind::Kept
            | StepKind::Sent
            | StepKind::Emitted
            | StepKind::Input
            | StepKind::Again => true,
        })
    }

    /// The present turn of a run with these checkpoints.
    pub(super) fn turn(&self, standing: &[&PastStep]) -> u32 {
        let turns = || standing.iter().filter(|step| step.kind == StepKind::Turns);
        let Some(last) = turns().filter(|mark| mark.turn != self.base).max_by_key(|mark| mark.turn) else {
            return self.base + 1;
        };
        let is_over =
            turns().any(|end| end.turn == self.base && (&end.name, &end.id) == (&last.name, &last.id));
        last.turn + u32::from(is_over)
    }

    /// The ids of records, children, signals and events from this instant on, as the check for divergence compares
    /// them.
    ///
    /// The clock of a shared store stands still while it is corrected. Then each checkpoint has an instant one microsecond
    /// behind the one before it, and the record of a later call has the instant at which the clock stands.
    pub(super) fn later(&self, from: Timestamp) -> Vec<String> {
        let ahead = i64::try_from(self.steps.len()).unwrap_or(i64::MAX);
        let stood = Timestamp(from.0.saturating_sub(ahead));
        let records = self.records.iter().filter(|record| record.created_at >= stood);
        let deeds = self.steps.iter().filter(|step| step.at >= from).filter_map(Identity::of_deed);
        records.map(|record| record.id.to_string()).chain(deeds.map(|deed| deed.kept_id())).collect()
    }

    /// The records that answer the same request under any key, because their keys were not stable.
    pub(super) fn unstable(&self) -> Vec<Unstable> {
        let is_mark = |step: &&PastStep| step.kind == StepKind::Kept && step.name == UNSTABLE_KEY;
        let marked: HashSet<_> = self.steps.iter().filter(is_mark).map(|step| step.id.as_str()).collect();
        let records = self.records.iter().filter(|record| marked.contains(record.id.to_string().as_str()));
        records.map(Unstable::of).collect()
    }

    /// The effects from this instant on that exist in the world, or may exist: of the run, and of the children that it
    /// begins again.
    pub(super) fn effects(&self, from: Timestamp) -> impl Iterator<Item = &Record> {
        let own = self.records.iter().filter(move |record| record.created_at >= from);
        let (_, void) = self.split(from);
        let again = void.into_iter().filter_map(begun).filter_map(|child| self.theirs.get(&child));
        own.chain(again.flatten()).filter(|record| {
            let stands = matches!(record.state, State::Started | State::Committed { .. });
            record.class.needs_owner() && stands
        })
    }

    /// The record with this key, of the run or of a child that it may begin again.
    pub(super) fn record(&self, key: &OperationKey) -> Option<&Record> {
        let mut all = self.records.iter().chain(self.theirs.values().flatten());
        all.find(|record| record.key == *key)
    }
}

/// The name of the failed thing, if the checkpoint records a failure and the thing is no call; else the checkpoint's
/// own.
fn failed_name(step: &PastStep) -> &str {
    let of = Some(&step.name).filter(|_| step.kind == StepKind::CallFailed);
    of.and_then(|name| Identity::of_failed(name)).unwrap_or(&step.name)
}

/// The place of a checkpoint.
pub(super) fn place(step: &PastStep) -> Place {
    (step.turn, step.kind.code(), step.name.clone(), step.id.clone())
}

/// The children that these checkpoints began, each with its place.
pub(super) fn children(steps: &[&PastStep]) -> Vec<(Place, RunId)> {
    steps.iter().filter_map(|step| Some((place(step), begun(step)?))).collect()
}
