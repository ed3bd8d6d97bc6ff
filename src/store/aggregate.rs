//! Aggregates: the positions up to which their events are published.

use super::cell::table;
use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};

/// The publication state of an aggregate. The row exists from the first event of the aggregate on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The tenant that owns the aggregate.
    pub tenant: Tenant,
    /// The name of the aggregate.
    pub name: String,
    /// The position of the last event. The value in a change is ignored.
    pub last: i64,
    /// The position up to which all events are published, or were dropped by a person.
    pub published: i64,
    /// The number of failed attempts to publish the next event.
    pub tries: u32,
    /// The number of refusals of the next event by the sink, which are not the fault of the connection.
    pub refusals: u32,
    /// The earliest instant of the next attempt.
    pub due_at: Timestamp,
    /// The open question, if the aggregate is set aside: all its later events wait for the answer.
    pub escalation: Option<QuestionId>,
    /// The revision of the publication state: 1 from the first event on. An added event does not change the revision.
    pub revision: u32,
}

impl Aggregate {
    /// True if events are to be published and no question must be answered first.
    pub const fn is_pending(&self) -> bool {
        self.published < self.last && self.escalation.is_none()
    }

    /// True if both rows hold the same change, apart from the fields that added events change. A store knows the
    /// change by its revision.
    pub(super) fn same_change(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.published, a.tries, a.refusals, a.escalation, a.revision);
        of(self) == of(other)
    }
}

table! { Aggregate in "outbox_aggregate", Own by (tenant, name) {
    tenant, name, last, published, tries, refusals, due_at, escalation, revision
} }
