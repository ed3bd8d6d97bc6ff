//! Runs.

mod columns;

use crate::clock::Timestamp;
use crate::id::{Fence, Name, RunId, RunNumber, Tenant};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::Turns;

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
    /// When it is cancelled if it has not ended by then.
    pub deadline: Option<Timestamp>,
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

/// How many runs of a queue wait and how many have a place, of all tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// The queue.
    pub queue: String,
    /// Runs that wait for their turn.
    pub queued: u64,
    /// Runs that have a place.
    pub running: u64,
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
    /// It ended, and its time is over: nothing is left of what it was given, did and returned.
    Expired {
        /// It ended well.
        succeeded: bool,
        /// The digest of its outcome, by the tenant's own key.
        outcome: String,
    },
    /// It was stopped with an open escalation: diverged, damaged, quarantined, of an unknown workflow.
    Blocked {
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
            Self::Succeeded { .. } | Self::Expired { succeeded: true, .. } => 3,
            Self::Failed { .. } | Self::Expired { succeeded: false, .. } => 4,
            Self::Blocked { .. } => 5,
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
            Self::Expired { .. } => "expired",
            Self::Blocked { .. } => "blocked",
        }
    }

    /// Only a tombstone is left of it.
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Expired { .. })
    }

    /// It has ended and changes no more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. } | Self::Expired { .. })
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
