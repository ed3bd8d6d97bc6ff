//! The identity of each thing that a run does: its turn, kind, name and id. Pure.

use sha2::{Digest as _, Sha256};

use crate::ledger::{Key, RequestHash, escaped};
use crate::payload::hex;
use crate::store::{PastStep, StepKind};

/// The identity of something inside a run: turn, kind, name and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// The number of the turn; outside of loops the run's base.
    pub(super) turn: u32,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) id: String,
}

/// The kind of thing that is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Step,
    Timer,
    Drawn,
    /// The answer whether the run takes a part of the code that was added later.
    Patch,
    Select,
    Transaction,
    /// The receipt of a signal.
    Signal,
    /// A signal sent to another run.
    Sent,
    /// An event that was emitted.
    Emitted,
    /// A value that was published.
    Published,
    /// A child that was begun.
    Child,
    /// A call of a tool. Its id is its key, or its ordinal if the call has no key.
    Call,
    /// A guard's action, which writes rows of the guard's own.
    Guard,
    /// A loop of turns.
    Turns,
    /// A scope, which gives several others a common name. It records nothing itself.
    #[cfg_attr(not(feature = "agent"), allow(dead_code, reason = "agents are such"))]
    Scope,
}

impl Kind {
    /// The kind of checkpoint that holds its outcome. The outcome of a call is its record; only its failure is a
    /// checkpoint.
    pub(super) const fn checkpoint(self) -> StepKind {
        match self {
            Self::Step | Self::Scope => StepKind::Step,
            Self::Timer => StepKind::Timer,
            Self::Drawn => StepKind::Drawn,
            Self::Patch => StepKind::Patch,
            Self::Select => StepKind::Select,
            Self::Transaction => StepKind::Transaction,
            Self::Signal => StepKind::Signal,
            Self::Sent => StepKind::Sent,
            Self::Emitted => StepKind::Emitted,
            Self::Published => StepKind::Published,
            Self::Child => StepKind::Child,
            Self::Call => StepKind::CallFailed,
            Self::Guard => StepKind::Guard,
            Self::Turns => StepKind::Turns,
        }
    }

    /// The kind of thing that such a checkpoint belongs to. `None` if the run's code does not ask for such things.
    pub(super) const fn of_checkpoint(kind: StepKind) -> Option<Self> {
        Some(match kind {
            StepKind::Step => Self::Step,
            StepKind::Timer => Self::Timer,
            StepKind::Drawn => Self::Drawn,
            StepKind::Patch => Self::Patch,
            StepKind::Select => Self::Select,
            StepKind::Transaction => Self::Transaction,
            StepKind::Signal => Self::Signal,
            StepKind::Sent => Self::Sent,
            StepKind::Emitted => Self::Emitted,
            StepKind::Published => Self::Published,
            StepKind::Child => Self::Child,
            StepKind::CallFailed => Self::Call,
            StepKind::Guard => Self::Guard,
            StepKind::Turns => Self::Turns,
            StepKind::Abandoned
            | StepKind::Kept
            | StepKind::Input
            | StepKind::Again
            | StepKind::Undoing
            | StepKind::Adopted => return None,
        })
    }

    /// True for a child, a sent signal or an emitted event.
    pub(super) const fn is_deed(self) -> bool {
        matches!(self, Self::Child | Self::Sent | Self::Emitted)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Drawn => "drawn",
            Self::Patch => "patch",
            Self::Select => "select",
            Self::Transaction => "transaction",
            Self::Signal => "signal",
            Self::Sent => "sent signal",
            Self::Emitted => "event",
            Self::Published => "published value",
            Self::Child => "child",
            Self::Call => "call",
            Self::Guard => "guard",
            Self::Turns => "turns",
            Self::Scope => "scope",
        }
    }
}

/// The text before the number of a call that is not the first under its key. No part of a key can hold this text.
const NTH: &str = ":~nth:";
/// The text before the name of the agent that proposes a call. No part of a key can hold this text.
const OF: &str = ":~of:";
/// The greatest length of an id in bytes that leaves room for the number of a call.
const ROOM: usize = Key::MAX_BYTES - 24;

/// A name as it is written in a [place](Identity::place), whose first `/` ends the name.
fn in_place(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

impl Identity {
    /// The id that a use without an id gets from its ordinal. No use with an id has it.
    pub(super) fn generated(nth: u64) -> String {
        format!("~{nth}")
    }

    /// The stored id of a use whose id is given.
    pub(super) fn given(id: String) -> String {
        if id.starts_with('~') { format!("~{id}") } else { id }
    }

    /// The id of the calls under a key that this agent proposes, or that the run's code makes. An agent counts its own
    /// calls: agents run beside each other, and which of them comes first to a key depends on how long their models take.
    pub(super) fn under_key(key: &str, agent: Option<&str>) -> String {
        let Some(agent) = agent else { return key.to_owned() };
        let id = format!("{key}{OF}{}", escaped(agent));
        if id.len() <= ROOM {
            return id;
        }
        format!("~long:{}{OF}{}", hex(&Sha256::digest(key)), hex(&Sha256::digest(agent)))
    }

    /// The id of the nth call [under a key](Self::under_key): the first one has no number.
    pub(super) fn of_call(under_key: String, nth: u32) -> String {
        if nth == 1 { under_key } else { format!("{under_key}{NTH}{nth}") }
    }

    /// Which call under its key it is: what the id has behind the key. Empty for the first one of the run's code, and for
    /// anything that is no call with a key.
    pub(super) fn showing(&self) -> &str {
        self.id.find(OF).or_else(|| self.id.find(NTH)).map_or("", |at| &self.id[at..])
    }

    /// True if a person who says `asked` may mean the use with this id: by the id that the code gives, by the ordinal
    /// of a use without one, or by the key of a call.
    pub(super) fn is_called(id: &str, asked: &str) -> bool {
        let is_key_of_agents_call = || id.split_once(OF).is_some_and(|(key, _)| key == asked);
        id == asked || is_key_of_agents_call() || id.strip_prefix('~') == Some(asked) || id == escaped(asked)
    }

    /// The ordinal of a use without an id, or the given id.
    pub(super) fn nth(&self) -> &str {
        self.id.strip_prefix('~').unwrap_or(&self.id)
    }

    /// The id, distinct from the ids of other turns. For uses outside of the run's own history.
    pub(super) fn in_turn(&self) -> String {
        if self.turn == 0 { self.id.clone() } else { format!("~turn:{}/{}", self.turn, self.id) }
    }

    /// The name and the id. The first `/` ends the name.
    pub(super) fn place(&self) -> String {
        format!("{}/{}", in_place(&self.name), self.in_turn())
    }

    /// The child that was begun, the signal that was sent or the event that was emitted, if the checkpoint is of that
    /// kind.
    pub(super) fn of_deed(step: &PastStep) -> Option<Self> {
        let kind = Kind::of_checkpoint(step.kind).filter(|kind| kind.is_deed())?;
        Some(Self { turn: step.turn, kind, name: step.name.clone(), id: step.id.clone() })
    }

    /// The id of the mark that this is kept although nothing asks for it.
    pub(super) fn kept_id(&self) -> String {
        format!("~{}/{}", self.kind.name(), self.place())
    }

    /// The identity of a checkpoint that is recorded anew each time the run goes on after it was blocked.
    pub(super) fn after_blocks(&self, times: usize) -> Self {
        let id = if times == 0 { self.id.clone() } else { format!("{}:~blocked:{times}", self.id) };
        Self { id, ..self.clone() }
    }

    /// The identity of the error that the run's code was given in place of a result.
    pub(super) fn failed(&self) -> Self {
        match self.kind {
            Kind::Call => self.clone(),
            kind => {
                Self { kind: Kind::Call, name: format!("~{}/{}", kind.name(), self.name), ..self.clone() }
            }
        }
    }

    /// The name of the failed thing, by the name of its failure. `None` if the thing is a call.
    pub(super) fn of_failed(name: &str) -> Option<&str> {
        Some(name.strip_prefix('~')?.split_once('/')?.1)
    }

    /// The kind and the name of the failed thing, if this is the identity of an error in place of a result, and not of
    /// a call's.
    pub(super) fn failed_as(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix('~').filter(|_| self.kind == Kind::Call)?.split_once('/')
    }

    /// The id of the mark that this input gives a step its recorded result.
    pub(super) fn adopted_id(&self, input: RequestHash) -> String {
        format!("{}:~adopted:{input:?}", self.id)
    }

    /// The name of the mark that the dropped future of this left.
    pub(super) fn abandoned_name(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, name) = (self.kind.name(), &self.name);
        match self.id.strip_prefix('~') {
            Some(nth) => write!(f, "{kind} {name:?} #{nth}"),
            None => write!(f, "{kind} {name:?} with id {:?}", self.id),
        }
    }
}
