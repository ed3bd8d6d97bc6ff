//! What a run has recorded, found by identity and not by position (DESIGN 4.1).

use std::collections::{HashMap, HashSet};

use crate::id::RecordId;
use crate::store::{History, PastCall, PastStep, PastUse, Signal, StepKind};

/// Identity inside a run: kind, name and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) id: String,
}

/// What is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Step,
    Timer,
    Drawn,
    Select,
    Transaction,
    /// The receipt of a signal.
    Signal,
    /// A signal sent to another run.
    Sent,
    /// A child that was begun.
    Child,
    /// A call of a tool. Its id is its key, or its ordinal if the tool has none.
    Call,
    /// What gives several others a common name. It records nothing itself.
    #[cfg_attr(not(feature = "agent"), allow(dead_code, reason = "agents are such"))]
    Scope,
}

impl Kind {
    /// The kind of checkpoint that its outcome is. A call's is its record; only a failure is a checkpoint.
    pub(super) const fn checkpoint(self) -> StepKind {
        match self {
            Self::Step | Self::Scope => StepKind::Step,
            Self::Timer => StepKind::Timer,
            Self::Drawn => StepKind::Drawn,
            Self::Select => StepKind::Select,
            Self::Transaction => StepKind::Transaction,
            Self::Signal => StepKind::Signal,
            Self::Sent => StepKind::Sent,
            Self::Child => StepKind::Child,
            Self::Call => StepKind::CallFailed,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Drawn => "drawn",
            Self::Select => "select",
            Self::Transaction => "transaction",
            Self::Signal => "signal",
            Self::Sent => "sent signal",
            Self::Child => "child",
            Self::Call => "call",
            Self::Scope => "scope",
        }
    }
}

impl Identity {
    /// The name of the mark that its dropped future left.
    pub(super) fn abandoned_name(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} #{}", self.kind.name(), self.name, self.id)
    }
}

/// The index over a run's history, and what has been asked for.
#[derive(Debug, Default)]
pub(super) struct Replay {
    steps: HashMap<StepKind, HashMap<String, HashMap<String, PastStep>>>,
    calls: HashMap<String, PastCall>,
    uses: HashMap<String, PastUse>,
    kept: HashSet<String>,
    asked: HashSet<RecordId>,
    signals: Vec<Signal>,
}

/// What is recorded of a call.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    /// Its record, owned by this run.
    Own(PastCall),
    /// It was answered from another's record.
    Use,
}

impl Replay {
    pub(super) fn of(history: History) -> Self {
        let mut replay = Self { signals: history.signals, ..Self::default() };
        for step in history.steps {
            if step.kind == StepKind::Kept {
                replay.kept.insert(step.id);
                continue;
            }
            let names = replay.steps.entry(step.kind).or_default();
            names.entry(step.name.clone()).or_default().insert(step.id.clone(), step);
        }
        replay.calls = history.calls.into_iter().map(|call| (call.key.as_str().to_owned(), call)).collect();
        replay.uses = history.uses.into_iter().map(|used| (used.key.as_str().to_owned(), used)).collect();
        replay
    }

    /// What was said to the run, and it has not received.
    pub(super) fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty() && self.uses.is_empty()
    }

    /// The checkpoint of this identity.
    pub(super) fn step(&self, identity: &Identity) -> Option<&PastStep> {
        self.find(identity.kind.checkpoint(), &identity.name, &identity.id)
    }

    /// Its future was dropped while it was pending.
    pub(super) fn is_abandoned(&self, identity: &Identity) -> bool {
        // Most runs have no such mark, and need not build its name.
        self.steps.contains_key(&StepKind::Abandoned)
            && self.find(StepKind::Abandoned, &identity.abandoned_name(), &identity.id).is_some()
    }

    fn find(&self, kind: StepKind, name: &str, id: &str) -> Option<&PastStep> {
        self.steps.get(&kind)?.get(name)?.get(id)
    }

    /// What is recorded under a key, which counts as asked for from now on.
    pub(super) fn call(&mut self, key: &str) -> Option<Recorded> {
        if let Some(call) = self.calls.get(key) {
            self.asked.insert(call.record);
            return Some(Recorded::Own(call.clone()));
        }
        self.uses.contains_key(key).then_some(Recorded::Use)
    }

    /// Recorded operations that nothing has asked for, and nobody decided to keep.
    pub(super) fn unasked(&self) -> Vec<&PastCall> {
        let mut unasked: Vec<_> = self
            .calls
            .values()
            .filter(|call| {
                !self.asked.contains(&call.record) && !self.kept.contains(&call.record.to_string())
            })
            .collect();
        unasked.sort_by_key(|call| call.record);
        unasked
    }
}
