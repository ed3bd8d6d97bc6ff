//! What a run has recorded, as resume needs it.

use super::signal::Signal;
use super::step::PastStep;
use crate::id::RecordId;
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {super::StoreError, super::row::Take};

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

/// Its checkpoints. The arguments of each of these are the tenant, the run, and three numbers of [turns](super::Turns).
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) const STEPS: &str = "SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 AND turn = $3 \
     UNION ALL SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 \
     AND turn BETWEEN $4 AND $5 AND turn <> $3";

/// Only what resume needs of a record, and the response only of those that have one.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) const CALLS: &str = "SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
     FROM record WHERE tenant = $1 AND run = $2 AND turn = $3 \
     UNION ALL SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
     FROM record WHERE tenant = $1 AND run = $2 AND turn BETWEEN $4 AND $5 AND turn <> $3";

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) const USES: &str = "SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.tenant = u.tenant \
     AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 AND u.turn = $3 \
     UNION ALL SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.tenant = u.tenant \
     AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 AND u.turn BETWEEN $4 AND $5 AND u.turn <> $3";

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl PastCall {
    pub(super) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            record: RecordId(values.number()?),
            key: values.parsed_text(|text| Some(OperationKey::stored(text)))?,
            operation: values.text()?,
            turn: values.count()?,
            step: values.some_text()?.unwrap_or_default(),
            request_hash: values.hash()?,
            attempts: values.count()?,
            response: values.some_parsed_text(Stored::from_column)?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl PastUse {
    pub(super) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            record: RecordId(values.number()?),
            key: values.parsed_text(|text| Some(OperationKey::stored(text)))?,
            operation: values.text()?,
            turn: values.count()?,
            step: values.text()?,
        })
    }
}
