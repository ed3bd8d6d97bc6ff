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
