//! The rows of the outbox: events, and how far those of each aggregate are published.

use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
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
    pub escalation: Option<EscalationId>,
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

/// What is to be published of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Its next events, at least one.
    pub events: Vec<OutboxEvent>,
}

/// Rows as aggregate by aggregate. Behind a damaged one nothing of its aggregate may be published.
pub(super) fn by_aggregate<E: std::fmt::Display>(
    rows: impl Iterator<Item = Result<(Aggregate, Result<OutboxEvent, E>), E>>,
) -> Vec<Due> {
    let mut all: Vec<Due> = Vec::new();
    let mut damaged = None;
    let report = |error: &E| tracing::error!(%error, "an event holds back its aggregate");
    for row in rows {
        let Ok((aggregate, event)) = row.inspect_err(report) else { continue };
        let place = (aggregate.tenant.clone(), aggregate.name.clone());
        if damaged.as_ref() == Some(&place) {
            continue;
        }
        match (event.inspect_err(report), all.last_mut()) {
            (Err(_), _) => damaged = Some(place),
            (Ok(event), Some(last)) if last.aggregate == aggregate => last.events.push(event),
            (Ok(event), _) => all.push(Due { aggregate, events: vec![event] }),
        }
    }
    all
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

/// Events as a batch adds them to one aggregate: so many, at this instant.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) struct Added<'c> {
    pub(super) tenant: &'c Tenant,
    pub(super) aggregate: &'c str,
    pub(super) events: i64,
    pub(super) at: Timestamp,
}

/// The events of some changes, each with how many of its aggregate come behind it among these; and the aggregates, in the
/// order of their names: two workers that add to the same ones must lock them in one order.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn added<'c>(
    changes: &[&'c super::Change],
) -> (Vec<Added<'c>>, Vec<(&'c OutboxEvent, i64, &'c super::Change)>) {
    use std::collections::BTreeMap;
    let mut aggregates = BTreeMap::new();
    let mut events: Vec<_> = Vec::new();
    for change in changes.iter().rev() {
        for event in change.events.iter().rev() {
            let place = (event.tenant.as_str(), event.aggregate.as_str());
            let added = aggregates.entry(place).or_insert(Added {
                tenant: &event.tenant,
                aggregate: &event.aggregate,
                events: 0,
                at: event.created_at,
            });
            events.push((event, added.events, *change));
            added.events += 1;
            added.at = event.created_at; // in the end that of the first one
        }
    }
    events.reverse();
    (aggregates.into_values().collect(), events)
}
