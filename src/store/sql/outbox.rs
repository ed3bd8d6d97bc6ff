//! The outbox: its reads, the rows that a batch adds, and the rows that are deleted.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::ask::Session;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::store::{Aggregate, Change, Due, OutboxEvent, Published};

/// Groups rows by aggregate. Behind a damaged event no further event of its aggregate may be published.
pub(super) fn by_aggregate<E: Display>(
    rows: impl Iterator<Item = Result<(Aggregate, Result<OutboxEvent, E>), E>>,
) -> Vec<Due> {
    let mut all: Vec<Due> = Vec::new();
    let mut damaged = None;
    let report = |error: &E| tracing::error!(%error, "event damaged, its aggregate is held back");
    for row in rows {
        let Ok((aggregate, event)) = row.inspect_err(report) else { continue };
        let place = (aggregate.tenant.clone(), aggregate.name.clone());
        if damaged.as_ref() == Some(&place) {
            continue;
        }
        match (event.inspect_err(report), all.last_mut()) {
            (Err(_), Some(last)) if last.aggregate == aggregate => damaged = Some(place),
            // The aggregate is named all the same: the publisher holds it back, and goes on with the others.
            (Err(_), _) => {
                damaged = Some(place);
                all.push(Due { aggregate, events: Vec::new() });
            }
            (Ok(event), Some(last)) if last.aggregate == aggregate => last.events.push(event),
            (Ok(event), _) => all.push(Due { aggregate, events: vec![event] }),
        }
    }
    all
}

impl OutboxEvent {
    /// True if both events have the same content.
    pub(in crate::store) fn is_same(&self, other: &Self) -> bool {
        let said = |e: &Self| (e.aggregate.clone(), e.kind.clone(), e.payload.clone());
        said(self) == said(other)
    }
}

impl Published {
    /// Deletes published events up to this one. Events that are not published stay, whatever the change says.
    pub(in crate::store) async fn forget<S: Session>(&self, session: &mut S) -> Result<(), sqlx::Error> {
        let least = S::either("min", "least");
        let sql = format!(
            "DELETE FROM outbox WHERE tenant = $1 AND aggregate = $2 AND seq <= {least}($3, \
             (SELECT published FROM outbox_aggregate WHERE tenant = $1 AND name = $2))"
        );
        let place = [(&self.tenant).into(), self.aggregate.as_str().into(), self.seq.into()];
        session.finds(&sql, &place).await.map(drop)
    }
}

/// The events that a batch adds to one aggregate: their number, and the instant of the first one.
pub(in crate::store) struct Added<'c> {
    pub(in crate::store) tenant: &'c Tenant,
    pub(in crate::store) aggregate: &'c str,
    pub(in crate::store) events: i64,
    pub(in crate::store) at: Timestamp,
}

/// The events of some changes, each with the number of later events of its aggregate among them; and the aggregates,
/// in the order of their names: two workers that add to the same aggregates must lock them in one order.
pub(in crate::store) fn added<'c>(
    changes: &[&'c Change],
) -> (Vec<Added<'c>>, Vec<(&'c OutboxEvent, i64, &'c Change)>) {
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
            added.at = event.created_at; // in the end the instant of the first event
        }
    }
    events.reverse();
    (aggregates.into_values().collect(), events)
}
