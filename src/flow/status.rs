//! Runs as their callers see them: plain values that can be shown, and written as JSON.

use std::fmt;

use serde::Serialize;

use super::failure::Failure;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant, some_text, text};
use crate::payload::Payload;
use crate::store::{self, InQueue, Run, WaitsOn};

/// The status of a run. It is written as JSON with times in RFC 3339, or shown as one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunStatus {
    /// The name of the run.
    #[serde(serialize_with = "text")]
    pub id: RunId,
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The name of the workflow.
    pub workflow: String,
    /// The version of the workflow that the run was started with, or went on with.
    pub version: u32,
    /// The business key that the run was started under.
    pub key: Option<String>,
    /// The run that began this run as its child.
    #[serde(serialize_with = "some_text")]
    pub parent: Option<RunId>,
    /// The state of the run.
    #[serde(flatten)]
    pub state: RunState,
    /// The queue of the run, and its place there.
    pub queue: Option<QueuePlace>,
    /// The number of the present turn of a loop, or of the next one.
    pub turn: u32,
    /// The number of times that a process died while it carried the run out, since the run last got further.
    pub recovery_attempts: u32,
    /// The deadline: the run is cancelled at this instant if it has not ended (UTC).
    #[serde(serialize_with = "some_text")]
    pub deadline: Option<Timestamp>,
    /// The instant at which the run was started (UTC).
    #[serde(serialize_with = "text")]
    pub started_at: Timestamp,
    /// The instant of the last change of the run (UTC).
    #[serde(serialize_with = "text")]
    pub updated_at: Timestamp,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// The run waits for its turn in a queue.
    Queued,
    /// A worker carries the run out.
    Active,
    /// The run waits as a row: for an instant, an answer or a signal.
    Waiting {
        /// The instant at which the run goes on without an answer or a signal (UTC).
        #[serde(serialize_with = "some_text")]
        until: Option<Timestamp>,
        /// True if the answer to an open question wakes the run.
        answer: bool,
        /// True if a signal wakes the run, also the end of a child.
        signal: bool,
    },
    /// The run ended well. [`RunHandle::result`](super::RunHandle::result) reads its result.
    Succeeded,
    /// The run ended with an error.
    Failed {
        /// The error.
        failure: Failure,
    },
    /// The run ended and its retention is over: its input, history and result are deleted.
    Expired {
        /// True if the run ended well.
        succeeded: bool,
    },
    /// The run was stopped with an open question about itself. The answer makes it go on or ends it.
    Blocked {
        /// The reason, in words.
        reason: String,
    },
}

impl RunState {
    /// The names of all states.
    pub const NAMES: [&str; 7] = ["queued", "active", "waiting", "succeeded", "failed", "expired", "blocked"];

    /// The state in a word, as JSON and the SQL views have it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Active => "active",
            Self::Waiting { .. } => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Expired { .. } => "expired",
            Self::Blocked { .. } => "blocked",
        }
    }

    /// True if the run has ended and changes no more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed { .. } | Self::Expired { .. })
    }
}

/// The place of a run in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueuePlace {
    /// The name of the queue.
    pub name: String,
    /// The queue key under which the run is counted, beside its tenant.
    pub key: Option<String>,
    /// The priority: among the runs of a tenant, a higher one begins first.
    pub priority: i32,
    /// The instant since which the run has a place (UTC). `None` while it waits for its turn, or has released its place.
    #[serde(serialize_with = "some_text")]
    pub admitted_at: Option<Timestamp>,
}

impl From<Run> for RunStatus {
    fn from(row: Run) -> Self {
        Self {
            id: row.id,
            tenant: row.tenant,
            workflow: row.workflow.to_string(),
            version: row.version,
            key: row.key,
            parent: row.parent,
            state: row.state.into(),
            queue: row.queue.map(|queue| QueuePlace::from(*queue)),
            turn: row.turn,
            recovery_attempts: row.deaths,
            deadline: row.deadline,
            started_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl From<InQueue> for QueuePlace {
    fn from(InQueue { name, key, priority, admitted_at }: InQueue) -> Self {
        Self { name: name.to_string(), key, priority, admitted_at }
    }
}

impl From<store::RunState> for RunState {
    fn from(state: store::RunState) -> Self {
        match state {
            store::RunState::Queued => Self::Queued,
            store::RunState::Active => Self::Active,
            store::RunState::Waiting { until, on: WaitsOn { answer, signal } } => {
                Self::Waiting { until, answer, signal }
            }
            store::RunState::Succeeded { .. } => Self::Succeeded,
            store::RunState::Failed { failure } => Self::Failed { failure: Failure::recorded(&failure) },
            store::RunState::Expired { succeeded, .. } => Self::Expired { succeeded },
            store::RunState::Blocked { failure } => Self::Blocked { reason: reason(&failure) },
        }
    }
}

/// The reason for which a run was blocked, in words.
pub(super) fn reason(failure: &Payload) -> String {
    let failure = failure.value().unwrap_or_default();
    failure["message"].as_str().unwrap_or_default().to_owned()
}

impl Failure {
    /// A failure as a row holds it. One that cannot be read becomes a failure that says so.
    pub(super) fn recorded(payload: &Payload) -> Self {
        payload.decode().unwrap_or_else(Self::from)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} version {}", self.id, self.workflow, self.version)?;
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        write!(f, ": {}", self.state)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Waiting { until, answer, signal } => {
                let on = match (answer, signal) {
                    (true, true) => " for an answer or a signal",
                    (true, false) => " for an answer",
                    (false, true) => " for a signal",
                    (false, false) => "",
                };
                f.write_str(on)?;
                until.map_or(Ok(()), |until| write!(f, " until {until}"))
            }
            Self::Failed { failure } => write!(f, ": {}", failure.message),
            Self::Blocked { reason } => write!(f, ": {reason}"),
            _ => Ok(()),
        }
    }
}
