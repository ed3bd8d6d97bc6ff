//! Tables `outbox` and `outbox_aggregate`: events, and how far they are published.

use sqlx::postgres::PgConnection;

use super::statement::{Batch, Insert, PLAIN};
use super::{StoreError, escaped, failure};
use crate::payload::Payload;
use crate::store::ask::Session as _;
use crate::store::outbox::added;
use crate::store::row::{Put as _, Readable as _};
use crate::store::table::{number, text};
use crate::store::{Change, OutboxEvent, payload};

/// So many more events of an aggregate. Its row is locked from here to the end of the transaction: whoever adds to it next
/// waits, and is given later places. One that nothing was pending of is due from now on; otherwise it keeps its turn.
pub(super) static MORE: Insert = Insert {
    name: "outbox_more",
    table: "outbox_aggregate",
    columns: &[text("tenant"), text("name"), number("last"), number("due_at")],
    constants: &[("published", "0"), ("tries", "0"), ("refusals", "0"), ("revision", "1")],
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET last = outbox_aggregate.last + excluded.last, \
           due_at = CASE WHEN outbox_aggregate.published < outbox_aggregate.last THEN outbox_aggregate.due_at \
           ELSE excluded.due_at END",
    ..PLAIN
};

/// The events themselves: with `seq` comes how many of their aggregate are behind them, and they are placed from the end
/// of what [`MORE`] has made of it. See `statement`.
pub(super) static INSERT: Insert =
    Insert { name: "outbox_new", table: "outbox", columns: OutboxEvent::TABLE.columns, ..PLAIN };

/// What the publisher has found out. By way of a row that is never inserted, with a last place below zero: see `row`.
pub(super) static MARK: Insert = Insert {
    name: "outbox_marked",
    table: "outbox_aggregate",
    columns: &[
        text("tenant"),
        text("name"),
        number("published"),
        number("tries"),
        number("refusals"),
        number("due_at"),
        number("escalation"),
        number("revision"),
    ],
    constants: &[("last", "-1")],
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET published = excluded.published, tries = excluded.tries, \
           refusals = excluded.refusals, due_at = excluded.due_at, escalation = excluded.escalation, \
           revision = excluded.revision WHERE outbox_aggregate.revision = excluded.revision - 1",
    holds: Some("last >= 0"),
    ..PLAIN
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let (aggregates, mut events) = added(changes);
    batch.insert(&MORE, &aggregates, |more, row| {
        row.text(more.tenant.as_str()).text(more.aggregate).number(more.events).number(more.at.0);
    });
    events.sort_by_key(|(event, ..)| (event.tenant.as_str(), event.id.as_str()));
    batch.insert(&INSERT, &events, |(event, behind, _), row| {
        row.text(event.tenant.as_str())
            .text(&event.id)
            .text(&event.aggregate)
            .number(*behind)
            .text(&event.kind)
            .text(&event.payload.column())
            .number(event.created_at.0);
    });
    let mut marks: Vec<_> = changes.iter().flat_map(|change| &change.aggregates).collect();
    marks.sort_by_key(|mark| (mark.tenant.as_str(), mark.name.as_str()));
    batch.insert(&MARK, &marks, |mark, row| {
        row.text(mark.tenant.as_str())
            .text(&mark.name)
            .number(mark.published)
            .number(i64::from(mark.tries))
            .number(i64::from(mark.refusals))
            .number(mark.due_at.0)
            .some_number(mark.escalation.map(|id| id.0))
            .number(i64::from(mark.revision));
    });
}

/// Adds an event inside a transaction of the user's own; the database tells when. False if another event has its id.
pub(crate) async fn add_event(
    connection: &mut PgConnection,
    event: &OutboxEvent,
    large: Option<&Payload>,
) -> Result<bool, StoreError> {
    add(connection, event, large).await.map_err(|e| failure(&e))
}

async fn add(
    connection: &mut PgConnection,
    event: &OutboxEvent,
    large: Option<&Payload>,
) -> Result<bool, sqlx::Error> {
    if let Some(payload) = large {
        payload::add(connection, &event.tenant, payload).await?;
    }
    // Asked for by itself: on a distributed server, a write that calls it would be another one on each node.
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now: i64 = sqlx::query_scalar(now).fetch_one(&mut *connection).await?;
    // The aggregate's row is locked from here on. Should the event be there, its place is given back below.
    let placed = sqlx::query(
        "WITH more AS (INSERT INTO outbox_aggregate (tenant, name, last, published, tries, refusals, due_at, revision) \
         VALUES ($1, $3, 1, 0, 0, 0, $6, 1) \
         ON CONFLICT (tenant, name) DO UPDATE SET last = outbox_aggregate.last + 1, \
         due_at = CASE WHEN outbox_aggregate.published < outbox_aggregate.last THEN outbox_aggregate.due_at \
         ELSE excluded.due_at END RETURNING last) \
         INSERT INTO outbox (tenant, id, aggregate, seq, kind, payload, created_at) SELECT $1, $2, $3, last, $4, $5, $6 \
         FROM more ON CONFLICT DO NOTHING",
    )
    .bind(event.tenant.as_str())
    .bind(escaped(&event.id).into_owned())
    .bind(escaped(&event.aggregate).into_owned())
    .bind(escaped(&event.kind).into_owned())
    .bind(escaped(&event.payload.column()).into_owned())
    .bind(now)
    .execute(&mut *connection)
    .await?
    .rows_affected();
    if placed > 0 {
        return Ok(true);
    }
    sqlx::query("UPDATE outbox_aggregate SET last = last - 1 WHERE tenant = $1 AND name = $2")
        .bind(event.tenant.as_str())
        .bind(escaped(&event.aggregate).into_owned())
        .execute(&mut *connection)
        .await?;
    let place = [(&event.tenant).into(), event.id.as_str().into()];
    let stored: Option<OutboxEvent> = connection.row(OutboxEvent::FIND, &place).await?;
    Ok(stored.is_some_and(|stored| stored.is_same(event)))
}
