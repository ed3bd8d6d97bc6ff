//! The outbox: events that are to be published.

use super::Aggregate;
use super::cell::table;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Stored;

/// An event that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEvent {
    /// The tenant that owns the event.
    pub tenant: Tenant,
    /// The id of the event, for ever: an event with the same id is not a second one.
    pub id: String,
    /// The aggregate that the event is about. The events of one aggregate are published in their order.
    pub aggregate: String,
    /// The position of the event in its aggregate, from 1 and without gaps, in the order of the commits. The store
    /// assigns it: the value in a change is ignored.
    pub seq: i64,
    /// The kind of the event.
    pub kind: String,
    /// The content of the event.
    pub payload: Stored,
    /// The instant at which the event was written.
    pub created_at: Timestamp,
}

table! { OutboxEvent in "outbox", Own by (tenant, aggregate, seq) {
    tenant, id, aggregate, seq, kind, payload, created_at
} }

/// The events of one aggregate that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The aggregate of the events.
    pub aggregate: Aggregate,
    /// The next events of the aggregate, up to one that cannot be read: none if that is the first one.
    pub events: Vec<OutboxEvent>,
}

/// A published event, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The tenant that owns the event.
    pub tenant: Tenant,
    /// The aggregate that the event was about.
    pub aggregate: String,
    /// The position of the event in its aggregate.
    pub seq: i64,
    /// The instant at which the event was written.
    pub created_at: Timestamp,
}
