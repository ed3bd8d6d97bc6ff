//! Runs, as the store keeps them.

mod columns;

use crate::clock::Timestamp;
use crate::id::{Fence, Name, RunId, RunNumber, Tenant};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::Turns;
use crate::trace::TraceContext;

/// A run: one execution of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The id of the run: its position and its name.
    pub id: RunId,
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The random number that the run drew when it began. A fork has the number of its origin. A child that is begun
    /// again has the number of the run that was begun in its place before.
    pub number: RunNumber,
    /// The name of the workflow.
    pub workflow: Name,
    /// The version of the workflow when the run was started.
    pub version: u32,
    /// The start key, unique per tenant and workflow.
    pub key: Option<String>,
    /// The parent run, which began this run and waits for it, or takes it down with itself. `None` for a run that
    /// stands alone.
    pub parent: Option<RunId>,
    /// The input of the run.
    pub input: Stored,
    /// The hash of the input that the start key is bound to.
    pub input_hash: RequestHash,
    /// The state of the run.
    pub state: RunState,
    /// The queue that the run was put into.
    pub queue: Option<Box<InQueue>>,
    /// The fence of the worker that carries the run out.
    pub fence: Fence,
    /// The number of changes of this row.
    pub revision: u32,
    /// The number of times that a process died while it carried this run out, since the last progress of the run.
    pub deaths: u32,
    /// True if the run, or one of its turns, has ended while calls that it had dropped were still under way.
    pub unsettled: bool,
    /// The number under which the present input began: steps outside of loops are recorded under it. It is 0 until
    /// the run has gone on as new.
    pub base: u32,
    /// The number of the present turn of a loop, or of the next one. Steps in a loop are recorded under it.
    pub turn: u32,
    /// The deadline: the instant at which the run is cancelled if it has not ended.
    pub deadline: Option<Timestamp>,
    /// The caller's place in its trace, within which the run is a span. `None`: the run has a trace of its own.
    pub traceparent: Option<TraceContext>,
    /// The instant at which the run was started.
    pub created_at: Timestamp,
    /// The instant of the last change of this row.
    pub updated_at: Timestamp,
}

impl Run {
    /// The span of the run: in the trace of its caller, or the first one of a trace of its own. Every process derives the same one.
    pub(crate) fn trace(&self) -> TraceContext {
        let parts = [self.tenant.as_str().as_bytes(), &self.number.0.to_be_bytes(), &self.id.0.to_be_bytes()];
        let own = TraceContext::first(&parts);
        self.traceparent.map_or(own, |caller| TraceContext { span: own.span, ..caller })
    }

    /// The instant at which the timer of the waiting run is due.
    pub(in crate::store) fn wake_at(&self) -> Option<Timestamp> {
        if let RunState::Waiting { until, .. } = self.state { until } else { None }
    }
}

/// The queue of a run, and the place of the run in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InQueue {
    /// The name of the queue.
    pub name: Name,
    /// The queue key under which the run is counted, beside its tenant.
    pub key: Option<String>,
    /// The priority: among the runs of a tenant, a higher one begins first.
    pub priority: i32,
    /// The instant since which the run has a place; `None` while it waits for its turn, or has released its place.
    pub admitted_at: Option<Timestamp>,
}

/// The load of a queue: the number of runs that wait and that have a place, over all tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// The name of the queue.
    pub queue: String,
    /// The number of runs that wait for their turn.
    pub queued: u64,
    /// The number of runs that have a place.
    pub running: u64,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run waits in its queue for its turn, and no worker carries it out.
    Queued,
    /// A worker carries the run out.
    Active,
    /// The run waits as a row and holds no memory.
    Waiting {
        /// The instant at which the run goes on; `None` if only `on` can wake it.
        until: Option<Timestamp>,
        /// The events that wake the run beside its timer.
        on: WaitsOn,
    },
    /// The run ended well.
    Succeeded {
        /// The result of the run.
        output: Stored,
    },
    /// The function of the workflow returned an error.
    Failed {
        /// The error, as JSON.
        failure: Payload,
    },
    /// The run ended and its retention is over: its input, history and result are deleted.
    Expired {
        /// True if the run ended well.
        succeeded: bool,
        /// The digest of the run's outcome, by the tenant's own key.
        outcome: String,
    },
    /// The run was stopped with an open question: diverged, damaged, quarantined, or of an unknown workflow.
    Blocked {
        /// The reason, as JSON.
        failure: Payload,
    },
}

/// The events that wake a waiting run, beside its timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitsOn {
    /// True if the answer to an open question of the run wakes it.
    pub answer: bool,
    /// True if a signal wakes the run: from outside, or from a child that has ended.
    pub signal: bool,
}

impl WaitsOn {
    /// Only the timer wakes the run.
    pub const NOTHING: Self = Self { answer: false, signal: false };
    /// An answer wakes the run.
    pub const ANSWER: Self = Self { answer: true, signal: false };
    /// A signal wakes the run.
    pub const SIGNAL: Self = Self { answer: false, signal: true };

    /// The events of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { answer: self.answer || other.answer, signal: self.signal || other.signal }
    }

    /// The code that rows hold.
    pub(crate) const fn code(self) -> i64 {
        self.answer as i64 | (self.signal as i64) << 1
    }

    /// Reads a code back.
    pub(crate) const fn from_code(code: i64) -> Option<Self> {
        match code {
            0..4 => Some(Self { answer: code & 1 != 0, signal: code & 2 != 0 }),
            _ => None,
        }
    }
}

impl RunState {
    /// The code that rows hold. Never reuse a code.
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

    /// The name of the state in tables and messages.
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

    /// True if only a tombstone is left of the run.
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Expired { .. })
    }

    /// True if the run has ended and changes no more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. } | Self::Expired { .. })
    }
}

impl Run {
    /// The turn in which the run was begun by its parent, or the parent's base. Read from the key, because checkpoints
    /// may be pruned: `sql/retention` reads it in the same way.
    pub(crate) fn begun_in(&self) -> u32 {
        let turn = || self.key.as_deref()?.split('/').nth(3)?.strip_prefix("~turn:")?.parse().ok();
        turn().unwrap_or(0)
    }

    /// True if the run is in a queue and has no place there: it must not be carried out before it is admitted.
    pub(crate) fn lacks_place(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.admitted_at.is_none())
    }

    /// The next row of a run that waits for an answer: the run is due at once. `None` if it waits for none, or is due
    /// anyway.
    pub(crate) fn due_with_answer(&self, fence: Fence, now: Timestamp) -> Option<Self> {
        let RunState::Waiting { until, on } = self.state else { return None };
        let state = RunState::Waiting { until: Some(now), on };
        let due = || Self { state, fence, revision: self.revision + 1, updated_at: now, ..self.clone() };
        (on.answer && until.is_none_or(|until| until > now)).then(due)
    }

    /// Releases the place of the run in its queue.
    pub(crate) fn give_place_free(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.admitted_at = None;
        }
    }

    /// The turns whose history a resume needs: the steps outside of loops, and those of the present turn.
    pub const fn present(&self) -> Turns {
        Turns { base: self.base, first: self.turn, last: self.turn }
    }
}
