//! Lists of runs: the filter, the cursor behind which a page begins, and a page.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Run, RunState};
use crate::clock::Timestamp;
use crate::id::{IdError, RunId};

/// The state of a run without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStateName {
    /// The run waits for its turn in a queue.
    Queued = 0,
    /// A worker carries the run out.
    Active = 1,
    /// The run waits as a row.
    Waiting = 2,
    /// The run ended well.
    Succeeded = 3,
    /// The run ended with an error.
    Failed = 4,
    /// The run was stopped with an open question about itself.
    Blocked = 5,
    /// The run ended, and its retention is over.
    Expired = 6,
}

impl RunStateName {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Active,
        Self::Waiting,
        Self::Succeeded,
        Self::Failed,
        Self::Blocked,
        Self::Expired,
    ];

    /// The code of the state in the index of runs.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) const fn code(self) -> i64 {
        self as i64
    }

    /// The name, as JSON has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Expired => "expired",
        }
    }
}

impl From<&RunState> for RunStateName {
    fn from(state: &RunState) -> Self {
        match state {
            RunState::Queued => Self::Queued,
            RunState::Active => Self::Active,
            RunState::Waiting { .. } => Self::Waiting,
            RunState::Succeeded { .. } => Self::Succeeded,
            RunState::Failed { .. } => Self::Failed,
            RunState::Blocked { .. } => Self::Blocked,
            RunState::Expired { .. } => Self::Expired,
        }
    }
}

impl fmt::Display for RunStateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RunStateName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let form = "queued, active, waiting, succeeded, failed, blocked or expired";
        let unknown = || malformed("state of a run", text, form);
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(unknown)
    }
}

impl Serialize for RunStateName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for RunStateName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn malformed(what: &'static str, text: &str, form: &'static str) -> IdError {
    IdError::Malformed { what, text: text.chars().take(40).collect(), form }
}

/// The runs of a tenant that a list has, and their order: all runs, the first to be started first, unless it says otherwise.
///
/// Each condition alone or with a state is served by an index. A list by the beginning of a start key is in the order of the
/// keys; further conditions are then checked run by run, a few hundred for each page. So they are in a list by a label.
///
/// ```
/// use counterfoil::flow::{RunFilter, RunStateName};
///
/// let stuck = RunFilter::new().state(RunStateName::Blocked).workflow("order").newest_first();
/// # let _ = stuck;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RunFilter {
    pub(crate) state: Option<RunStateName>,
    pub(crate) workflow: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) label: Option<(String, String)>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) before: Option<Timestamp>,
    pub(crate) newest_first: bool,
}

impl RunFilter {
    /// All runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only runs in this state.
    pub fn state(self, state: RunStateName) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Only runs of this workflow.
    pub fn workflow(self, name: impl Into<String>) -> Self {
        Self { workflow: Some(name.into()), ..self }
    }

    /// Only runs that have this [label](crate::flow::StartRun::label). With it a list is in the order of the starts, also by the
    /// beginning of a key.
    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { label: Some((name.into(), value.into())), ..self }
    }

    /// True if the list is in the order of the start keys.
    pub(super) const fn is_by_key(&self) -> bool {
        self.key.is_some() && self.label.is_none()
    }

    /// Only runs whose start key begins so, in the order of their keys.
    pub fn key(self, beginning: impl Into<String>) -> Self {
        Self { key: Some(beginning.into()), ..self }
    }

    /// Only runs that were started at this instant or later.
    pub fn since(self, start: Timestamp) -> Self {
        Self { since: Some(start), ..self }
    }

    /// Only runs that were started before this instant.
    pub fn before(self, start: Timestamp) -> Self {
        Self { before: Some(start), ..self }
    }

    /// The last run to be started comes first. A list by start keys stays in the order of the keys.
    pub fn newest_first(self) -> Self {
        Self { newest_first: true, ..self }
    }

    /// The order of two places in the list.
    pub(super) fn order(&self, one: &RunCursor, other: &RunCursor) -> Ordering {
        let order = (&one.by, one.id).cmp(&(&other.by, other.id));
        if self.newest_first && !self.is_by_key() { order.reverse() } else { order }
    }

    /// True if the list has this run, if the run has the label.
    pub(super) fn takes(&self, run: &Run) -> bool {
        self.state.is_none_or(|state| RunStateName::from(&run.state) == state)
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow.as_str() == workflow)
            && self.key.as_ref().is_none_or(|key| run.key.as_ref().is_some_and(|own| own.starts_with(key)))
            && self.since.is_none_or(|since| run.created_at >= since)
            && self.before.is_none_or(|before| run.created_at < before)
    }
}

/// A place in a list of runs: that of the last run of a page. It means nothing outside of its tenant's list, so a forged cursor is only
/// another place in the list of the caller.
///
/// ```
/// use counterfoil::flow::RunCursor;
///
/// let cursor: RunCursor = "run-1a2b~1793923200000001".parse()?;
/// assert_eq!(cursor.to_string(), "run-1a2b~1793923200000001");
/// assert!("run-1a2b".parse::<RunCursor>().is_err());
/// # Ok::<(), counterfoil::id::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunCursor {
    pub(super) id: RunId,
    pub(super) by: Order,
}

/// What a list is ordered by, before the id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Order {
    Start(Timestamp),
    Key(String),
}

impl RunCursor {
    /// The place of a run in the list with this filter.
    pub(crate) fn of(filter: &RunFilter, id: RunId, start: Timestamp, key: Option<&str>) -> Self {
        let by = if filter.is_by_key() {
            Order::Key(key.unwrap_or_default().to_owned())
        } else {
            Order::Start(start)
        };
        Self { id, by }
    }

    /// The place of a row in the list with this filter.
    pub(super) fn at(filter: &RunFilter, run: &Run) -> Self {
        Self::of(filter, run.id, run.created_at, run.key.as_deref())
    }

    /// Refuses a cursor of a list in another order.
    pub(crate) fn fits(&self, filter: &RunFilter) -> Result<(), IdError> {
        match (&self.by, filter.is_by_key()) {
            (Order::Start(_), false) | (Order::Key(_), true) => Ok(()),
            _ => Err(malformed("cursor of this list", &self.to_string(), "that of its page before")),
        }
    }
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Order::Start(at) => write!(f, "{}~{}", self.id, at.0),
            Order::Key(key) => write!(f, "{}={key}", self.id),
        }
    }
}

impl FromStr for RunCursor {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let unknown = || malformed("cursor", text, "run-1a2b~1793923200000001 or run-1a2b=order/7");
        let end = text.find(['~', '=']).ok_or_else(unknown)?;
        let (id, rest) = (text[..end].parse()?, &text[end + 1..]);
        let by = if text[end..].starts_with('=') {
            let is_key = !rest.contains('\0'); // PostgreSQL takes no such text
            Order::Key(is_key.then(|| rest.to_owned()).ok_or_else(unknown)?)
        } else {
            Order::Start(Timestamp(rest.parse().map_err(|_| unknown())?))
        };
        Ok(Self { id, by })
    }
}

impl Serialize for RunCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunCursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A page of a list of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunPage<R> {
    /// The runs.
    pub runs: Vec<R>,
    /// The cursor of the next page; `None` on the last one. A page may have few runs, or none, and a next page.
    pub next: Option<RunCursor>,
}

impl<R> RunPage<R> {
    /// The page with each run in another form.
    pub(crate) fn map<V>(self, view: impl FnMut(R) -> V) -> RunPage<V> {
        RunPage { runs: self.runs.into_iter().map(view).collect(), next: self.next }
    }
}
