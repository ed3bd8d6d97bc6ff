//! The rows beside records and runs: steps, uses, evidence, workers, and what a run's history is made of.

use super::signal::Signal;
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, RunId, Tenant};
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::{Payload, Stored};

/// What a run's checkpoint is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepKind {
    /// A closure's result.
    Step,
    /// The instant at which a timer is due.
    Timer,
    /// A time, an id or a number drawn for the run.
    Drawn,
    /// The winner of a select.
    Select,
    /// The changes of a closure in the ledger's own database.
    Transaction,
    /// A failure that a call showed to the run.
    CallFailed,
    /// A pending future that the run's code dropped.
    Abandoned,
    /// A recorded effect that the run no longer asks for, and that somebody decided to keep.
    Kept,
    /// A signal that the run received.
    Signal,
    /// A child that the run began.
    Child,
    /// A signal that the run sent.
    Sent,
    /// Of a loop: in a turn the state that the turn began with, outside the result of the whole loop.
    Turns,
    /// The input with which the run went on as new.
    Input,
    /// How the run was begun again: by whom, why, and what of its past does not count.
    Again,
    /// What a guard answered when it wrote rows of its own: a memory.
    Guard,
    /// An event that the run emitted.
    Emitted,
    /// The run has failed, and what it did is being undone: with what it failed.
    Undoing,
}

impl StepKind {
    /// All, for reading back.
    pub const ALL: [Self; 17] = [
        Self::Step,
        Self::Timer,
        Self::Drawn,
        Self::Select,
        Self::Transaction,
        Self::CallFailed,
        Self::Abandoned,
        Self::Kept,
        Self::Signal,
        Self::Child,
        Self::Sent,
        Self::Turns,
        Self::Input,
        Self::Again,
        Self::Guard,
        Self::Emitted,
        Self::Undoing,
    ];

    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Step => 1,
            Self::Timer => 2,
            Self::Drawn => 3,
            Self::Select => 4,
            Self::Transaction => 5,
            Self::CallFailed => 6,
            Self::Abandoned => 7,
            Self::Kept => 8,
            Self::Signal => 9,
            Self::Child => 10,
            Self::Sent => 11,
            Self::Turns => 12,
            Self::Input => 13,
            Self::Again => 14,
            Self::Guard => 15,
            Self::Emitted => 16,
            Self::Undoing => 17,
        }
    }

    /// The run's code asks for it, by its name.
    pub(crate) const fn is_asked_for(self) -> bool {
        !matches!(self, Self::Abandoned | Self::Kept | Self::Input | Self::Again | Self::Undoing)
    }

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A run's checkpoint. Its identity inside the run is turn, kind, name and id; nothing depends on positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose it is.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The turn, or the run's [base](super::Run::base).
    pub turn: u32,
    /// What it is a checkpoint of.
    pub kind: StepKind,
    /// Its name.
    pub name: String,
    /// Which of that name: given, or an ordinal.
    pub id: String,
    /// What its input was bound to.
    pub input_hash: Option<RequestHash>,
    /// What was recorded. Absent only in a transaction that was ended from inside (DESIGN 4.6).
    pub value: Option<Stored>,
    /// When.
    pub at: Timestamp,
}

/// A run that was answered from a record which another run (or nobody's run) owns (SAGA-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Whose it is.
    pub tenant: Tenant,
    /// The record that answered.
    pub record: RecordId,
    /// The run that was answered.
    pub run: RunId,
    /// The turn in which it was answered first.
    pub turn: u32,
    /// The id of its call.
    pub step: String,
    /// When.
    pub at: Timestamp,
}

/// What a fenced worker learned too late. Appended, never a change of the record (REC-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Whose it is.
    pub tenant: Tenant,
    /// The record it is about.
    pub record: RecordId,
    /// The worker that learned it.
    pub fence: Fence,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// The response.
    pub response: Payload,
    /// The provider's id.
    pub external_ref: Option<String>,
    /// When it was learned.
    pub at: Timestamp,
}

/// One engine process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number.
    pub fence: Fence,
    /// Its name, with a random part: a process that restarts under the same pid is another worker.
    pub name: String,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// Until when it is alive, by the store's clock, if it has a lease.
    pub lease_until: Option<Timestamp>,
    /// Since when its writes are void.
    pub ended_at: Option<Timestamp>,
    /// It ended in order: it was not killed by what it left.
    pub retired: bool,
    /// Nothing of it is left to be taken over.
    pub settled: bool,
    /// It publishes what is in the outbox.
    pub publishes: bool,
}

/// What a worker that shares its store looks at from time to time, read in one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// What time it is by the store's clock, which alone measures leases.
    pub time: Timestamp,
    /// The workers that have not ended, and those that have and are not yet settled, in the order of their fences.
    pub workers: Vec<Worker>,
    /// The earliest instant that any waiting run, schedule, queue or confirming lookup waits for.
    pub next_due: Option<Timestamp>,
    /// Some run waits in a queue.
    pub queued: bool,
    /// Some event waits to be published.
    pub unpublished: bool,
    /// The ledger is taken for older than the world.
    pub restored: bool,
}

/// Whose history is read: what was recorded under one number, and under a range of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// This one.
    pub base: u32,
    /// And from this one on.
    pub first: u32,
    /// Up to this one.
    pub last: u32,
}

impl Turns {
    /// Whatever the run has done.
    pub const ALL: Self = Self { base: 0, first: 0, last: u32::MAX };

    /// All from `first` to `last`.
    pub const fn between(first: u32, last: u32) -> Self {
        Self { base: first, first, last }
    }

    /// What was recorded under this number is among it.
    pub const fn contains(&self, turn: u32) -> bool {
        turn == self.base || (self.first <= turn && turn <= self.last)
    }
}

/// What a run has recorded, read in few queries and not one per step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Its checkpoints.
    pub steps: Vec<PastStep>,
    /// The operations it owns.
    pub calls: Vec<PastCall>,
    /// The operations of others that answered it.
    pub uses: Vec<PastUse>,
    /// The signals that it has not received, in the order in which it is to receive them.
    pub signals: Vec<Signal>,
}

/// A checkpoint as resume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStep {
    /// The turn.
    pub turn: u32,
    /// What it is a checkpoint of.
    pub kind: StepKind,
    /// Its name.
    pub name: String,
    /// Which of that name.
    pub id: String,
    /// What its input was bound to.
    pub input_hash: Option<RequestHash>,
    /// What was recorded.
    pub value: Option<Stored>,
    /// When: of two checkpoints of a run the later one has the later instant.
    pub at: Timestamp,
}

/// An operation as resume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// Its record.
    pub record: RecordId,
    /// Its key.
    pub key: OperationKey,
    /// The tool.
    pub operation: String,
    /// The turn in which it was asked for first.
    pub turn: u32,
    /// The id of the call in the run.
    pub step: String,
    /// What the key is bound to.
    pub request_hash: RequestHash,
    /// How often it was attempted.
    pub attempts: u32,
    /// The result, if it is committed.
    pub response: Option<Stored>,
}

/// An operation of another run that answered this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastUse {
    /// Its record.
    pub record: RecordId,
    /// Its key.
    pub key: OperationKey,
    /// The tool.
    pub operation: String,
    /// The turn in which it was answered first.
    pub turn: u32,
    /// The id of the call in this run.
    pub step: String,
}
