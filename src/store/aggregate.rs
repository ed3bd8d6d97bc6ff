//! Aggregates: how far their events are published.

use super::cell::table;
use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};

/// How far the events of an aggregate are published. It is there from its first event on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name.
    pub name: String,
    /// The place of its last event. What stands here when it is written does not count.
    pub last: i64,
    /// All events up to this place are published, or were dropped by somebody.
    pub published: i64,
    /// How often the one behind that was tried in vain.
    pub tries: u32,
    /// How often it was refused, which is not the fault of the way there.
    pub refusals: u32,
    /// It is not tried before.
    pub due_at: Timestamp,
    /// It is set aside: all behind it wait for the answer to this question.
    pub escalation: Option<QuestionId>,
    /// Of what is written about publishing: 1 from its first event on. An event that is added does not change it.
    pub revision: u32,
}

impl Aggregate {
    /// Something of it is to be published, and nobody need answer a question first.
    pub const fn is_pending(&self) -> bool {
        self.published < self.last && self.escalation.is_none()
    }

    /// As a store keeps it that knows this one's change by its revision: without what added events change.
    pub(super) fn same_change(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.published, a.tries, a.refusals, a.escalation, a.revision);
        of(self) == of(other)
    }
}

table! { Aggregate in "outbox_aggregate", Own by (tenant, name) {
    tenant, name, last, published, tries, refusals, due_at, escalation, revision
} }
