//! Events that are to be published.

use super::Aggregate;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Stored;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader, Session, named},
    super::row::{Readable, Take},
    super::table::{Law, Table, number, text},
};

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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for OutboxEvent {
    const TABLE: &'static Table = &Table {
        name: "outbox",
        key: &["tenant", "aggregate", "seq"],
        with: &[],
        law: Law::Own,
        columns: &[
            text("tenant"),
            text("id"),
            text("aggregate"),
            number("seq"),
            text("kind"),
            text("payload"),
            number("created_at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            id: values.text()?,
            aggregate: values.text()?,
            seq: values.number()?,
            kind: values.text()?,
            payload: values.parsed_text(Stored::from_column)?,
            created_at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl OutboxEvent {
    pub(super) const FIND: &str = "WHERE tenant = $1 AND id = $2";

    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Self>, StoreError> {
        on.row(Self::FIND, &[tenant.into(), id.into()]).await
    }

    /// It says the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let said = |e: &Self| (e.aggregate.clone(), e.kind.clone(), e.payload.clone());
        said(self) == said(other)
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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Due {
    pub(super) async fn until<D: Reader>(
        on: &Queries<D>,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        // PostgreSQL goes by aggregate: a join could be planned as a scan of all that was ever published.
        let pending = D::either(
            "outbox_aggregate a CROSS JOIN outbox o ON o.tenant = a.tenant AND o.aggregate = a.name AND o.seq > a.published \
             AND o.seq <= a.published + $2 WHERE a.published < a.last AND a.escalation IS NULL AND a.due_at <= $1",
            "(SELECT * FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at <= $1 \
             ORDER BY due_at, tenant, name LIMIT $2) a, LATERAL (SELECT * FROM outbox WHERE tenant = a.tenant \
             AND aggregate = a.name AND seq > a.published ORDER BY seq LIMIT $2) o",
        );
        let sql = format!(
            "SELECT a.tenant, a.name, a.last, a.published, a.tries, a.refusals, a.due_at, a.escalation, a.revision, \
             o.tenant, o.id, o.aggregate, o.seq, o.kind, o.payload, o.created_at FROM {pending} \
             ORDER BY a.due_at, a.tenant, a.name, o.seq LIMIT $2"
        );
        let rows = on.fetch(sql, &[until.0.into(), limit.into()]).await?;
        // An aggregate, and one of its events behind it.
        let both = |row| {
            let mut values = D::values("outbox", row);
            let aggregate = Aggregate::take(&mut values)?;
            Ok((aggregate, OutboxEvent::take(&mut values)))
        };
        Ok(by_aggregate(rows.iter().map(both)))
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Published {
    pub(super) async fn since<D: Reader>(
        on: &Queries<D>,
        after: Timestamp,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let published = D::either(
            "outbox o CROSS JOIN outbox_aggregate a ON a.tenant = o.tenant AND a.name = o.aggregate",
            "outbox o, LATERAL (SELECT published FROM outbox_aggregate WHERE tenant = o.tenant AND name = o.aggregate) a",
        );
        let sql = format!(
            "SELECT o.tenant, o.aggregate, o.seq, o.created_at FROM {published} WHERE o.created_at >= $1 \
             AND o.seq <= a.published ORDER BY o.created_at, o.tenant, o.aggregate, o.seq LIMIT $2"
        );
        let read = |row| {
            let mut c = D::values("outbox", row);
            Ok(Self { tenant: c.tenant()?, aggregate: c.text()?, seq: c.number()?, created_at: c.time()? })
        };
        Ok(on.fetch(sql, &[after.0.into(), limit.into()]).await?.iter().map(read).filter_map(named).collect())
    }

    /// Published events go, up to this one. What is not published stays, whoever says so.
    pub(super) async fn forget<S: Session>(&self, session: &mut S) -> Result<(), sqlx::Error> {
        let least = S::either("min", "least");
        let sql = format!(
            "DELETE FROM outbox WHERE tenant = $1 AND aggregate = $2 AND seq <= {least}($3, \
             (SELECT published FROM outbox_aggregate WHERE tenant = $1 AND name = $2))"
        );
        let place = [(&self.tenant).into(), self.aggregate.as_str().into(), self.seq.into()];
        session.finds(&sql, &place).await.map(drop)
    }
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
