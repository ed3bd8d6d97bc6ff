//! What a run has recorded, as resume needs it.

use super::signal::Signal;
use super::step::PastStep;
use crate::id::RecordId;
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;

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
    /// What the attempt that was answered cost, if it said so.
    pub cost: Option<u64>,
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
