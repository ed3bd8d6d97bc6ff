//! Events that are to be published.

use super::Aggregate;
use super::cell::table;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Stored;

/// An event that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEvent {
    /// Whose it is.
    pub tenant: Tenant,
    /// Which event it is, for ever: the same one again is not a second one.
    pub id: String,
    /// What it is about. The events of one aggregate are published in their order.
    pub aggregate: String,
    /// Its place among those of its aggregate, from 1 and without gaps, in the order of their commits. Given by the store:
    /// what stands here when it is written does not count.
    pub seq: i64,
    /// What happened.
    pub kind: String,
    /// What there is to say about it.
    pub payload: Stored,
    /// When it was written.
    pub created_at: Timestamp,
}

table! { OutboxEvent in "outbox", Own by (tenant, aggregate, seq) {
    tenant, id, aggregate, seq, kind, payload, created_at
} }

/// What is to be published of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Its next events, at least one.
    pub events: Vec<OutboxEvent>,
}

/// A published event, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whose it is.
    pub tenant: Tenant,
    /// What it was about.
    pub aggregate: String,
    /// Its place there.
    pub seq: i64,
    /// When it was written.
    pub created_at: Timestamp,
}
