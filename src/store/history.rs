//! The history of a run, as resume needs it.

use super::signal::Signal;
use super::step::PastStep;
use crate::id::RecordId;
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;

/// The history of a run, read in few queries instead of one for each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The checkpoints of the run.
    pub steps: Vec<PastStep>,
    /// The operations that the run owns.
    pub calls: Vec<PastCall>,
    /// The operations of other runs that answered this run.
    pub uses: Vec<PastUse>,
    /// The signals that the run has not received, in the order in which it will receive them.
    pub signals: Vec<Signal>,
}

/// The place in a run's history behind which a page of it begins. A history is in the order of its turns; in a turn are first the
/// checkpoints, by kind, name and id, then the calls by their keys, then the uses by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "api", feature = "unstable-core")),
    allow(dead_code, reason = "a history is read page by page for the API")
)]
pub enum HistoryPlace {
    /// The place before everything.
    Start,
    /// The end of a turn.
    Turn(u32),
    /// A checkpoint.
    Step {
        /// The number of the turn.
        turn: u32,
        /// The code of the kind.
        kind: i64,
        /// The name of the checkpoint.
        name: String,
        /// The id among the checkpoints of that name.
        id: String,
    },
    /// An operation that the run owns.
    Call {
        /// The number of the turn.
        turn: u32,
        /// The key of the operation.
        key: String,
    },
    /// An operation of another run that answered this one.
    Use {
        /// The number of the turn.
        turn: u32,
        /// The key of the operation.
        key: String,
    },
}

impl HistoryPlace {
    /// The turn, kind, name and id behind which the checkpoints of the page are.
    pub(in crate::store) fn step(&self) -> (i64, i64, &str, &str) {
        match self {
            Self::Start => (0, i64::MIN, "", ""),
            Self::Step { turn, kind, name, id } => (i64::from(*turn), *kind, name, id),
            Self::Turn(turn) | Self::Call { turn, .. } | Self::Use { turn, .. } => {
                (i64::from(*turn), i64::MAX, "", "")
            }
        }
    }

    /// The turn and the key behind which the calls of the page are. No key is empty.
    pub(in crate::store) fn call(&self) -> (i64, &str) {
        match self {
            Self::Start => (0, ""),
            Self::Step { turn, .. } => (i64::from(*turn), ""),
            Self::Call { turn, key } => (i64::from(*turn), key),
            Self::Turn(turn) | Self::Use { turn, .. } => (i64::from(*turn) + 1, ""),
        }
    }

    /// The turn and the key behind which the uses of the page are.
    pub(in crate::store) fn used(&self) -> (i64, &str) {
        match self {
            Self::Start => (0, ""),
            Self::Step { turn, .. } | Self::Call { turn, .. } => (i64::from(*turn), ""),
            Self::Use { turn, key } => (i64::from(*turn), key),
            Self::Turn(turn) => (i64::from(*turn) + 1, ""),
        }
    }
}

/// An operation that the run owns, as resume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// The id of the record.
    pub record: RecordId,
    /// The key of the operation.
    pub key: OperationKey,
    /// The name of the tool.
    pub operation: String,
    /// The turn in which the operation was first requested.
    pub turn: u32,
    /// The id of the call in the run.
    pub step: String,
    /// The hash of the input that the key is bound to.
    pub request_hash: RequestHash,
    /// The number of attempts.
    pub attempts: u32,
    /// The cost of the answered attempt, if it reported one.
    pub cost: Option<u64>,
    /// The result, if the operation is committed.
    pub response: Option<Stored>,
}

/// An operation of another run that answered this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastUse {
    /// The id of the record.
    pub record: RecordId,
    /// The key of the operation.
    pub key: OperationKey,
    /// The name of the tool.
    pub operation: String,
    /// The turn in which this run was first answered.
    pub turn: u32,
    /// The id of the call in this run.
    pub step: String,
}
