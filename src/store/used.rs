//! Uses: runs that were answered from records which they do not own.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RecordId, RunId, Tenant};

/// A run that was answered from a record which another run (or nobody's run) owns (SAGA-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedEffect {
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

// The same use again says nothing new.
table! { SharedEffect in "use", Keep by (tenant, run, turn, record) {
    tenant, run, record, turn, step, at
} }

impl Row for SharedEffect {}
