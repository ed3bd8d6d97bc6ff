//! Tables `outbox` and `outbox_aggregate`: events, and how far they are published.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN};
use super::{Columns, StoreError, escaped, failure, payload, sound};
use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::outbox::{added, by_aggregate};
use crate::store::row::Put as _;
use crate::store::table::{number, text};
use crate::store::{Aggregate, Change, Due, OutboxEvent, Published};

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
pub(super) static INSERT: Insert = Insert {
    name: "outbox_new",
    table: "outbox",
    columns: &[
        text("tenant"),
        text("id"),
        text("aggregate"),
        number("seq"),
        text("kind"),
        text("payload"),
        number("created_at"),
    ],
    ..PLAIN
};

/// What the publisher has found out. By way of a row that is never inserted, with a last place below zero: see `record`.
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

/// Published events go, up to this one. What is not published stays, whoever says so.
pub(super) async fn forget(connection: &mut PgConnection, event: &Published) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM outbox WHERE tenant = $1 AND aggregate = $2 AND seq <= least($3, \
         (SELECT published FROM outbox_aggregate WHERE tenant = $1 AND name = $2))",
    )
    .bind(event.tenant.as_str())
    .bind(escaped(&event.aggregate).into_owned())
    .bind(event.seq)
    .persistent(false)
    .execute(connection)
    .await
    .map(drop)
}

/// All queries read the same columns.
macro_rules! event {
    ($tail:literal) => {
        concat!("SELECT o.tenant, o.id, o.aggregate, o.seq, o.kind, o.payload, o.created_at FROM ", $tail)
    };
}

macro_rules! aggregate {
    ($tail:literal) => {
        concat!(
            "SELECT tenant, name, last, published, tries, refusals, due_at, escalation, revision \
             FROM outbox_aggregate ",
            $tail
        )
    };
}

fn read(row: &PgRow) -> Result<OutboxEvent, StoreError> {
    event(&mut Columns::of("outbox", row))
}

fn event(c: &mut Columns<'_>) -> Result<OutboxEvent, StoreError> {
    Ok(OutboxEvent {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        id: c.text()?,
        aggregate: c.text()?,
        seq: c.take()?,
        kind: c.text()?,
        payload: c.parse_text(Stored::from_column)?,
        created_at: Timestamp(c.take()?),
    })
}

fn read_aggregate(row: &PgRow) -> Result<Aggregate, StoreError> {
    aggregate_of(&mut Columns::of("outbox_aggregate", row))
}

fn aggregate_of(c: &mut Columns<'_>) -> Result<Aggregate, StoreError> {
    Ok(Aggregate {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        name: c.text()?,
        last: c.take()?,
        published: c.take()?,
        tries: c.count()?,
        refusals: c.count()?,
        due_at: Timestamp(c.take()?),
        escalation: c.take::<Option<i64>>()?.map(EscalationId),
        revision: c.count()?,
    })
}

/// An aggregate, and one of its events behind it.
fn read_both(row: &PgRow) -> Result<(Aggregate, Result<OutboxEvent, StoreError>), StoreError> {
    let mut c = Columns::of("outbox", row);
    let aggregate = aggregate_of(&mut c)?;
    Ok((aggregate, event(&mut c)))
}

pub(super) async fn due(pool: &Pool, until: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
    let query = || {
        // By aggregate, not as a join, which could be planned as a scan of all that was ever published.
        sqlx::query(
            "SELECT a.tenant, a.name, a.last, a.published, a.tries, a.refusals, a.due_at, a.escalation, a.revision, \
             o.tenant, o.id, o.aggregate, o.seq, o.kind, o.payload, o.created_at FROM \
             (SELECT * FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at <= $1 \
             ORDER BY due_at, tenant, name LIMIT $2) a, LATERAL (SELECT * FROM outbox WHERE tenant = a.tenant \
             AND aggregate = a.name AND seq > a.published ORDER BY seq LIMIT $2) o \
             ORDER BY a.due_at, a.tenant, a.name, o.seq LIMIT $2",
        )
        .bind(until.0)
        .bind(i64::from(limit))
    };
    Ok(by_aggregate(pool.all(query).await?.iter().map(read_both)))
}

pub(super) async fn next(pool: &Pool, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT min(due_at) FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at > $1",
        )
        .bind(after.0)
    };
    let Some(row) = pool.optional(query).await? else { return Ok(None) };
    Ok(Columns::of("outbox_aggregate", &row).take::<Option<i64>>()?.map(Timestamp))
}

pub(super) async fn published(
    pool: &Pool,
    after: Timestamp,
    limit: u32,
) -> Result<Vec<Published>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT o.tenant, o.aggregate, o.seq, o.created_at FROM outbox o, LATERAL (SELECT published \
             FROM outbox_aggregate WHERE tenant = o.tenant AND name = o.aggregate) a WHERE o.created_at >= $1 \
             AND o.seq <= a.published ORDER BY o.created_at, o.tenant, o.aggregate, o.seq LIMIT $2",
        )
        .bind(after.0)
        .bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, |row| {
        let mut c = Columns::of("outbox", row);
        Ok(Published {
            tenant: c.parse_text(|text| Tenant::new(text).ok())?,
            aggregate: c.text()?,
            seq: c.take()?,
            created_at: Timestamp(c.take()?),
        })
    }))
}

const FIND: &str = event!("outbox o WHERE o.tenant = $1 AND o.id = $2");
const AGGREGATE: &str = aggregate!("WHERE tenant = $1 AND name = $2");

pub(super) async fn find(pool: &Pool, tenant: &Tenant, id: &str) -> Result<Option<OutboxEvent>, StoreError> {
    let query = || sqlx::query(FIND).bind(tenant.as_str()).bind(escaped(id).into_owned());
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn aggregate(
    pool: &Pool,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Aggregate>, StoreError> {
    let query = || sqlx::query(AGGREGATE).bind(tenant.as_str()).bind(escaped(name).into_owned());
    pool.optional(query).await?.as_ref().map(read_aggregate).transpose()
}

pub(super) async fn set_aside(
    pool: &Pool,
    tenant: &Tenant,
    question: EscalationId,
) -> Result<Option<Aggregate>, StoreError> {
    let query = || {
        sqlx::query(aggregate!("WHERE tenant = $1 AND escalation = $2"))
            .bind(tenant.as_str())
            .bind(question.0)
    };
    pool.optional(query).await?.as_ref().map(read_aggregate).transpose()
}

/// The same event, wherever it was placed: it was written before, and its answer was lost.
pub(super) async fn is_written(
    connection: &mut PgConnection,
    event: &OutboxEvent,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(FIND).persistent(false).bind(event.tenant.as_str());
    let row = query.bind(escaped(&event.id).into_owned()).fetch_optional(connection).await?;
    Ok(row
        .is_some_and(|row| read(&row).is_ok_and(|stored| OutboxEvent { seq: event.seq, ..stored } == *event)))
}

/// The aggregate stands as this change would have left it.
pub(super) async fn is_marked(connection: &mut PgConnection, mark: &Aggregate) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(AGGREGATE).persistent(false).bind(mark.tenant.as_str());
    let row = query.bind(escaped(&mark.name).into_owned()).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read_aggregate(&row).is_ok_and(|stored| stored.same_change(mark))))
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
    let find = sqlx::query(FIND).bind(event.tenant.as_str()).bind(escaped(&event.id).into_owned());
    let stored = find.fetch_optional(connection).await?;
    let said = |e: &OutboxEvent| (e.aggregate.clone(), e.kind.clone(), e.payload.clone());
    Ok(stored.is_some_and(|row| read(&row).is_ok_and(|stored| said(&stored) == said(event))))
}
