//! Tables `outbox` and `outbox_aggregate`: events, and the positions up to which they are published.

use sqlx::postgres::PgConnection;

use super::{StoreError, escaped, failure};
use crate::payload::Payload;
use crate::store::OutboxEvent;
use crate::store::sql::ask::Session as _;
use crate::store::sql::{judge::EVENT, payload};

/// Adds an event inside a transaction of the user's own, with the time of the database. False if another event has
/// its id.
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
        // Before the row of the aggregate, as the engine's own writes lock these rows: another order would deadlock.
        payload::add(connection, &event.tenant, payload).await?;
    }
    // The time is a query of its own: on a distributed server, a write that calls the function would get another time
    // on each node.
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now: i64 = sqlx::query_scalar(now).fetch_one(&mut *connection).await?;
    // The row of the aggregate is locked from here on. If the event exists already, its position is given back below,
    // and so is the use of its payload.
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
    if let Some(payload) = large {
        payload::release(connection, &(&event.tenant).into(), payload.digest()).await?;
    }
    let place = [(&event.tenant).into(), event.id.as_str().into()];
    let stored: Option<OutboxEvent> = connection.row(EVENT, &place).await?;
    Ok(stored.is_some_and(|stored| stored.is_same(event)))
}
