//! The records of a run, found by identity and not by position.

use std::collections::{HashMap, HashSet};

use super::again::{Again, Unstable};
use super::child::lineage::PLACE;
use super::command::TOLD;
use super::identity::{Identity, Kind};
use crate::clock::Timestamp;
use crate::id::RecordId;
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;
use crate::store::{CANCEL, COMMAND, History, PastCall, PastStep, PastUse, Signal, StepKind};

/// The name of the checkpoint which says that a recorded call answers the same request under any key.
pub(super) const UNSTABLE_KEY: &str = "unstable key";

/// The index over the part of a run's history that a resume needs, with notes of what the code has asked for.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The records of everything outside of loops, and of the present turn.
    turns: HashMap<u32, PastTurn>,
    kept: HashSet<String>,
    /// The records that answer the same request under any key, because their keys were not stable.
    unstable: HashSet<String>,
    asked: HashSet<RecordId>,
    asked_uses: HashSet<OperationKey>,
    signals: Vec<Signal>,
    recorded_at: Option<Timestamp>,
    /// The marks of the run, if it was begun again.
    pub(super) again: Again,
}

/// The records of one turn.
#[derive(Debug, Default)]
struct PastTurn {
    steps: HashMap<StepKind, HashMap<String, HashMap<String, Checkpoint>>>,
    calls: HashMap<OperationKey, PastCall>,
    uses: HashMap<OperationKey, PastUse>,
}

/// A checkpoint, and whether the code has asked for it.
#[derive(Debug)]
struct Checkpoint {
    step: PastStep,
    is_asked: bool,
}

/// The record of a call.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    /// A record of this run's own: its request, and its response if that is known.
    Own { record: RecordId, request_hash: RequestHash, response: Option<Stored> },
    /// A record of another run, which answered the call.
    SharedEffect,
}

impl PastTurn {
    fn ask(&mut self, Identity { kind, name, id, .. }: &Identity) {
        let steps = self.steps.get_mut(&kind.checkpoint());
        if let Some(past) = steps.and_then(|steps| steps.get_mut(name)?.get_mut(id)) {
            past.is_asked = true;
        }
    }
}

impl Replay {
    pub(super) fn of(history: History, again: Again) -> Self {
        let kept = again.kept().map(|record| record.to_string()).collect();
        let mut replay = Self { signals: history.signals, kept, again, ..Self::default() };
        for step in history.steps {
            replay.recorded_at = replay.recorded_at.max(Some(step.at));
            if step.kind == StepKind::Kept {
                let marked = if step.name == UNSTABLE_KEY { &mut replay.unstable } else { &mut replay.kept };
                marked.insert(step.id);
                continue;
            }
            let Some(id) = replay.again.standing(&step) else { continue };
            let names = replay.turn(step.turn).steps.entry(step.kind).or_default();
            names.entry(step.name.clone()).or_default().insert(id, Checkpoint { step, is_asked: false });
        }
        if let Some(first) = history.calls.first() {
            replay.turn(first.turn).calls.reserve(history.calls.len()); // nearly always they are all of one turn
        }
        for call in history.calls {
            replay.turn(call.turn).calls.insert(call.key.clone(), call);
        }
        for used in history.uses {
            replay.turn(used.turn).uses.insert(used.key.clone(), used);
        }
        replay
    }

    /// The instant of the last checkpoint (UTC).
    pub(super) const fn recorded_at(&self) -> Option<Timestamp> {
        self.recorded_at
    }

    /// Takes the signals that the run has not received.
    pub(super) fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    fn turn(&mut self, turn: u32) -> &mut PastTurn {
        self.turns.entry(turn).or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Forgets the records of a turn that is over, and returns its calls. The code asks for none of them again.
    pub(super) fn forget(&mut self, turn: u32) -> Vec<PastCall> {
        let calls: Vec<_> =
            self.turns.remove(&turn).into_iter().flat_map(|past| past.calls.into_values()).collect();
        for call in &calls {
            self.asked.remove(&call.record);
        }
        calls
    }

    /// The input with which the run went on as new.
    pub(super) fn input(&self, base: u32) -> Option<&PastStep> {
        let inputs = self.turns.get(&base)?.steps.get(&StepKind::Input)?;
        inputs.values().flat_map(HashMap::values).map(|input| &input.step).next()
    }

    /// The checkpoints of this name that were made while the run was undone, each with the id that it was made with:
    /// the id of its row may be marked as that of a run which was begun again.
    pub(super) fn undoing(&self, base: u32, name: &str) -> Vec<PastStep> {
        let Some(steps) = self.turns.get(&base).and_then(|turn| turn.steps.get(&StepKind::Undoing)) else {
            return Vec::new();
        };
        let named = steps.get(name).into_iter().flatten();
        named.map(|(id, past)| PastStep { id: id.clone(), ..past.step.clone() }).collect()
    }

    /// The last command to cancel the run that the run received in a turn, or under an earlier input.
    pub(super) fn told(&self, base: u32) -> Option<&Stored> {
        let received = self.turns.get(&base)?.steps.get(&StepKind::Signal)?.get(CANCEL)?;
        let told = received.values().map(|past| &past.step).filter(|step| step.id.starts_with(TOLD));
        told.max_by_key(|step| step.at)?.value.as_ref()
    }

    /// True if the run has received a command to cancel it, in the part of its history that is read.
    pub(super) fn has_received_cancel(&self) -> bool {
        let mut signals = self.turns.values().filter_map(|turn| turn.steps.get(&StepKind::Signal));
        signals.any(|names| names.contains_key(CANCEL))
    }

    /// The loop that a turn belongs to, by its name and id.
    pub(super) fn owner(&self, turn: u32) -> Option<(&str, &str)> {
        let marks = self.turns.get(&turn)?.steps.get(&StepKind::Turns)?;
        let mut marks = marks.values().flat_map(HashMap::values).map(|mark| &mark.step);
        marks.next().map(|mark| (mark.name.as_str(), mark.id.as_str()))
    }

    /// The checkpoint of this identity.
    pub(super) fn step(&self, identity: &Identity) -> Option<&PastStep> {
        self.find(identity.turn, identity.kind.checkpoint(), &identity.name, &identity.id)
    }

    /// The error that the run's code was given in place of a result of this identity.
    pub(super) fn failure(&self, identity: &Identity) -> Option<&PastStep> {
        // Most runs have no failure, and need not build its name.
        self.turns.get(&identity.turn)?.steps.get(&StepKind::CallFailed)?;
        self.step(&identity.failed())
    }

    /// True if the future of this identity was dropped while it was pending.
    pub(super) fn is_abandoned(&self, identity: &Identity) -> bool {
        // Most runs have no such mark, and need not build its name.
        let Some(turn) = self.turns.get(&identity.turn) else { return false };
        turn.steps.contains_key(&StepKind::Abandoned)
            && self
                .find(identity.turn, StepKind::Abandoned, &identity.abandoned_name(), &identity.id)
                .is_some()
    }

    fn find(&self, turn: u32, kind: StepKind, name: &str, id: &str) -> Option<&PastStep> {
        Some(&self.turns.get(&turn)?.steps.get(&kind)?.get(name)?.get(id)?.step)
    }

    /// True if the step was recorded with another input, and this input was found to give the same result.
    pub(super) fn has_adopted(&self, step: &Identity, input: RequestHash) -> bool {
        let Identity { turn, name, .. } = step;
        self.find(*turn, StepKind::Adopted, name, &step.adopted_id(input)).is_some()
    }

    /// The record under a key, which counts as asked for from now on.
    pub(super) fn call(&mut self, key: &OperationKey) -> Option<Recorded> {
        if let Some(call) = self.turns.values().find_map(|turn| turn.calls.get(key)) {
            self.asked.insert(call.record);
            let PastCall { record, request_hash, response, .. } = call;
            let response = response.clone();
            return Some(Recorded::Own { record: *record, request_hash: *request_hash, response });
        }
        let is_used = self.turns.values().any(|turn| turn.uses.contains_key(key));
        if is_used || self.again.unstable().any(|past| past.key == key.as_str()) {
            self.asked_uses.insert(key.clone());
        }
        is_used.then_some(Recorded::SharedEffect)
    }

    /// The key of the recorded call that answers this call of the code although its key is another one: a person was
    /// asked about the recorded call's unstable key, and the run goes on. `None` if there is no such recorded call, or
    /// if the code has asked for it.
    pub(super) fn stable_key(
        &self,
        key: &OperationKey,
        tool: &str,
        request: RequestHash,
    ) -> Option<OperationKey> {
        let is_recorded = |turn: &PastTurn| turn.calls.contains_key(key) || turn.uses.contains_key(key);
        let has_none = self.unstable.is_empty() && self.again.unstable().next().is_none();
        if has_none || self.turns.values().any(is_recorded) {
            return None;
        }
        let calls = self.turns.values().flat_map(|turn| turn.calls.values());
        let answers = |call: &&PastCall| {
            let record = call.record.to_string();
            let is_same = call.operation == tool && call.request_hash == request;
            is_same
                && self.unstable.contains(&record)
                && !self.kept.contains(&record)
                && !self.asked.contains(&call.record)
        };
        let own = calls.filter(answers).min_by_key(|call| call.record).map(|call| call.key.clone());
        own.or_else(|| self.stable_key_of_origin(tool, request))
    }

    /// The same for a call of the run from which this one was begun.
    fn stable_key_of_origin(&self, tool: &str, request: RequestHash) -> Option<OperationKey> {
        let answers =
            |past: &&Unstable| past.answers(tool, request) && !self.kept.contains(&past.record.to_string());
        let calls = self.again.unstable().filter(answers).map(|past| {
            let key = OperationKey::stored(past.key.as_str());
            (past.record, key)
        });
        calls.filter(|(_, key)| !self.asked_uses.contains(key)).min().map(|(_, key)| key)
    }

    /// Notes that the code asks for this checkpoint: for its result, or for the error in its place.
    pub(super) fn ask(&mut self, identity: &Identity) {
        let Some(past) = self.turns.get_mut(&identity.turn) else { return };
        past.ask(identity);
        if past.steps.contains_key(&StepKind::CallFailed) {
            past.ask(&identity.failed());
        }
    }

    /// Notes that the code asks for these checkpoints of a turn: those whose names begin so, of whatever kind, and whose ids are
    /// meant.
    pub(super) fn ask_each(&mut self, turn: u32, beginning: &str, is_meant: impl Fn(&str) -> bool) {
        let Some(past) = self.turns.get_mut(&turn) else { return };
        let named = past.steps.values_mut().flatten().filter(|(name, _)| name.starts_with(beginning));
        for (id, checkpoint) in named.flat_map(|(_, ids)| ids.iter_mut()) {
            checkpoint.is_asked |= is_meant(id);
        }
    }

    /// Children, sent signals and emitted events that the code has not asked for, and that nobody decided to keep: of
    /// one turn, or of all.
    pub(super) fn unasked_deeds(&self, turn: Option<u32>) -> Vec<Identity> {
        let mut unasked = Vec::new();
        for (number, past) in self.turns.iter().filter(|(number, _)| turn.is_none_or(|turn| turn == **number))
        {
            for kind in [Kind::Child, Kind::Sent, Kind::Emitted] {
                let steps = past.steps.get(&kind.checkpoint()).into_iter().flatten();
                unasked.extend(steps.flat_map(|(name, ids)| {
                    ids.iter().filter(|(_, deed)| !deed.is_asked).map(|(id, _)| {
                        let (name, id) = (name.clone(), id.clone());
                        Identity { turn: *number, kind, name, id }
                    })
                }));
            }
        }
        unasked.retain(|deed| !self.kept.contains(&deed.kept_id()));
        unasked.sort_by_key(Identity::kept_id);
        unasked
    }

    /// Recorded operations that the code has not asked for, and that nobody decided to keep: of one turn, or of all.
    pub(super) fn unasked(&self, turn: Option<u32>) -> Vec<&PastCall> {
        let turns = self.turns.iter().filter(|(number, _)| turn.is_none_or(|turn| turn == **number));
        let mut unasked: Vec<_> = turns
            .flat_map(|(_, past)| past.calls.values())
            .filter(|call| {
                !self.asked.contains(&call.record) && !self.kept.contains(&call.record.to_string())
            })
            .collect();
        unasked.sort_by_key(|call| call.record);
        unasked
    }

    /// Operations of other runs whose records answered this run, and that the code has not asked for.
    pub(super) fn unasked_uses(&self) -> impl Iterator<Item = &PastUse> {
        let uses = self.turns.values().flat_map(|past| past.uses.values());
        uses.filter(|used| !self.asked_uses.contains(&used.key))
    }

    /// True if the run has recorded something that its code has not asked for yet, even if a person decided to keep it.
    /// The answer to another patch does not count: the code asks for it only as long as it has that patch.
    pub(super) fn is_behind(&self) -> bool {
        let mut calls = self.turns.values().flat_map(|past| past.calls.values());
        calls.any(|call| !self.asked.contains(&call.record))
            || self.unasked_uses().next().is_some()
            || self.unasked_checkpoints().iter().any(|step| step.kind != Kind::Patch)
    }

    /// The checkpoints with a name that the code has not asked for, in the order of their times.
    pub(super) fn unasked_checkpoints(&self) -> Vec<Identity> {
        let mut checkpoints = Vec::new();
        for (turn, past) in &self.turns {
            for (kind, names) in &past.steps {
                let Some(kind) = Kind::of_checkpoint(*kind) else { continue };
                for (name, ids) in names {
                    checkpoints.extend(ids.iter().filter(|(_, past)| !past.is_asked).map(|(id, past)| {
                        (past.step.at, Identity { turn: *turn, kind, name: name.clone(), id: id.clone() })
                    }));
                }
            }
        }
        // The engine recorded these for itself: the order of a child's end, and the commands that the run received.
        checkpoints.retain(|(_, past)| !past.id.ends_with(PLACE) && !past.name.starts_with(COMMAND));
        checkpoints.sort_by_key(|(at, _)| *at);
        checkpoints.into_iter().map(|(_, identity)| identity).collect()
    }
}
