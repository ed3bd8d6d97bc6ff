//! Labels: a name and a value by which a run is listed and erased.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};

/// A label of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The name of the label, such as `customer`. A run has one label of a name.
    pub name: String,
    /// The value of the label, such as `c-7`.
    pub value: String,
    /// The instant at which the run was started, by which the runs with a label are listed.
    pub started_at: Timestamp,
}

table! { RunLabel in "run_label", Keep by (tenant, run, name) {
    tenant, run, name, value, started_at
} }

impl Row for RunLabel {}
