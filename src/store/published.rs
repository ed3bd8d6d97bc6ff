//! Published values: the state that a run shows to the outside.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Payload;

/// The last value that a run has published under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedValue {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The run that has published the value.
    pub run: RunId,
    /// The name of the value.
    pub name: String,
    /// The number of values that the run has published under this name.
    pub revision: u32,
    /// The value.
    pub value: Payload,
    /// The instant at which the value was published.
    pub at: Timestamp,
}

table! { PublishedValue in "published", Moves by (tenant, run, name) {
    tenant, run, name, revision, value, at
} }

impl Row for PublishedValue {}
