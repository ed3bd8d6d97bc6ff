//! The rows beside the record: runs, steps, uses, escalations, evidence, workers.

use crate::clock::Timestamp;
use crate::id::{Fence, Name, RecordId, RunId, RunNumber, Tenant};
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::{Payload, Stored};

/// One execution of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its place and its name.
    pub id: RunId,
    /// Whose it is.
    pub tenant: Tenant,
    /// The number that it drew when it began. A fork has the number of its origin, and a child that is begun again that of the run
    /// that was begun in its place before.
    pub number: RunNumber,
    /// The workflow's name.
    pub workflow: Name,
    /// The workflow's version when it was started.
    pub version: u32,
    /// The start key, unique per tenant and workflow.
    pub key: Option<String>,
    /// The run that began it and waits for it, or is to take it down with itself. Absent for one that stands alone.
    pub parent: Option<RunId>,
    /// The input.
    pub input: Stored,
    /// What the start key is bound to.
    pub input_hash: RequestHash,
    /// Where it stands.
    pub state: RunState,
    /// The queue that it was put into.
    pub queue: Option<Box<InQueue>>,
    /// The worker that has it.
    pub fence: Fence,
    /// Counts the changes of this row.
    pub revision: u32,
    /// How often a process died while it had this run, since the run last got anywhere.
    pub deaths: u32,
    /// It, or one of its turns, is over, and calls that it had dropped were still under way.
    pub unsettled: bool,
    /// The number under which its present input began: what it does outside of loops is recorded under it. Not 0 only
    /// once the run has gone on as new.
    pub base: u32,
    /// The number of its present turn: a loop's, or the next one to be. What it does in a loop is recorded under it.
    pub turn: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When this row last changed.
    pub updated_at: Timestamp,
}

/// A run's queue, and its place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InQueue {
    /// The queue.
    pub name: Name,
    /// What it is counted under beside its tenant.
    pub key: Option<String>,
    /// Among the runs of its tenant a higher one begins first.
    pub priority: i32,
    /// Since when it has a place; none while it waits for its turn, or has given its place free.
    pub admitted_at: Option<Timestamp>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It waits in its queue for its turn, and nobody carries it out.
    Queued,
    /// A worker has it.
    Active,
    /// It waits for this instant, and holds no memory.
    Waiting {
        /// When it is to go on; absent if only what it waits on can wake it.
        until: Option<Timestamp>,
        /// What else wakes it.
        on: WaitsOn,
    },
    /// It ended well.
    Succeeded {
        /// The result.
        output: Stored,
    },
    /// Its function returned an error.
    Failed {
        /// The error, as JSON.
        failure: Payload,
    },
    /// It was stopped with an open escalation: diverged, damaged, quarantined, of an unknown workflow.
    Halted {
        /// Why, as JSON.
        failure: Payload,
    },
}

/// What wakes a waiting run, beside its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitsOn {
    /// The answer to an open question of its own.
    pub answer: bool,
    /// A signal: from outside, or from a child that has ended.
    pub signal: bool,
}

impl WaitsOn {
    /// Only its time.
    pub const NOTHING: Self = Self { answer: false, signal: false };
    /// An answer.
    pub const ANSWER: Self = Self { answer: true, signal: false };
    /// A signal.
    pub const SIGNAL: Self = Self { answer: false, signal: true };

    /// What either waits on.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { answer: self.answer || other.answer, signal: self.signal || other.signal }
    }

    /// The number that rows hold.
    pub(crate) const fn code(self) -> i64 {
        self.answer as i64 | (self.signal as i64) << 1
    }

    /// Reads the number back.
    pub(crate) const fn from_code(code: i64) -> Option<Self> {
        match code {
            0..4 => Some(Self { answer: code & 1 != 0, signal: code & 2 != 0 }),
            _ => None,
        }
    }
}

impl RunState {
    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(&self) -> i64 {
        match self {
            Self::Queued => 0,
            Self::Active => 1,
            Self::Waiting { .. } => 2,
            Self::Succeeded { .. } => 3,
            Self::Failed { .. } => 4,
            Self::Halted { .. } => 5,
        }
    }

    /// The name used in tables and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Active => "active",
            Self::Waiting { .. } => "waiting",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Halted { .. } => "halted",
        }
    }

    /// It has ended and changes no more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. })
    }
}

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
    /// The turn, or the run's [base](Run::base).
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

/// Something that was said to a run: from outside, by another run, or by a child that has ended. It is kept until the run
/// receives it, and after that so that the same one again is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Whose it is.
    pub tenant: Tenant,
    /// The run it is for.
    pub run: RunId,
    /// What it is about. The run waits for it under this name.
    pub name: String,
    /// Which one: the same again is not a second one.
    pub id: String,
    /// Where it stands among those that the run has not received: each sender's are received in the order in which they
    /// were sent.
    pub place: i64,
    /// What is said.
    pub body: Stored,
    /// When.
    pub at: Timestamp,
}

/// Signals whose names begin so are commands: they wake their run whatever it waits for.
pub const COMMAND: &str = "~!";

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

impl Run {
    /// It is in a queue and has no place there: it must not be carried out before it is admitted.
    pub(crate) fn lacks_place(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.admitted_at.is_none())
    }

    /// It gives its place in its queue free.
    pub(crate) fn give_place_free(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.admitted_at = None;
        }
    }

    /// What a resume needs: what was done outside of loops, and in the present turn.
    pub const fn present(&self) -> Turns {
        Turns { base: self.base, first: self.turn, last: self.turn }
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
