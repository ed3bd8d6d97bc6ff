//! Uses: runs that were answered from records that they do not own.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RecordId, RunId, Tenant};

/// The use of a record by a run that does not own it; another run owns the record, or no run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedEffect {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The id of the record that answered.
    pub record: RecordId,
    /// The run that was answered.
    pub run: RunId,
    /// The turn in which the run was first answered.
    pub turn: u32,
    /// The id of the call in the run.
    pub step: String,
    /// The instant of the first answer.
    pub at: Timestamp,
}

// The same use again adds nothing.
table! { SharedEffect in "use", Keep by (tenant, run, turn, record) {
    tenant, run, record, turn, step, at
} }

impl Row for SharedEffect {}
