//! Tables `outbox` and `outbox_aggregate`: events, and how far they are published.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert};
use super::{Columns, StoreError, failure, payload, sound};
use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::outbox::{added, by_aggregate};
use crate::store::{Aggregate, Change, Due, OutboxEvent, Published};

/// So many more events of an aggregate. One that nothing was pending of is due from now on; otherwise it keeps its turn.
static MORE: Insert = Insert {
    head: "INSERT INTO outbox_aggregate (tenant, name, last, published, tries, refusals, due_at, revision) \
           SELECT column1, column2, column3, 0, 0, 0, column4, 1",
    columns: 4,
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET last = outbox_aggregate.last + excluded.last, \
           due_at = CASE WHEN published < outbox_aggregate.last THEN due_at ELSE excluded.due_at END",
};

/// The events themselves, placed from the end of what their aggregate has by now. A fenced worker gets a NULL id.
static INSERT: Insert = Insert {
    head: "INSERT INTO outbox (tenant, id, aggregate, seq, kind, payload, created_at) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column8 AND worker.ended_at IS NULL), \
           column3, (SELECT last - column4 FROM outbox_aggregate WHERE tenant = column1 AND name = column3), column5, \
           column6, column7",
    columns: 8,
    tail: "",
};

/// What the publisher has found out. A fenced worker gets a NULL name and a revision that does not follow becomes NULL,
/// which aborts; where there is no aggregate, a trigger objects.
static MARK: Insert = Insert {
    head: "INSERT INTO outbox_aggregate (tenant, name, published, tries, refusals, due_at, escalation, revision, last) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column9 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, column8, 0",
    columns: 9,
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET published = excluded.published, tries = excluded.tries, \
           refusals = excluded.refusals, due_at = excluded.due_at, escalation = excluded.escalation, \
           revision = CASE WHEN outbox_aggregate.revision = excluded.revision - 1 THEN excluded.revision END",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let (aggregates, events) = added(changes);
    batch.insert(&MORE, &aggregates, |more, row| {
        row.value(more.tenant.text()).value(more.aggregate.to_owned()).value(more.events).value(more.at.0);
    });
    batch.insert(&INSERT, &events, |(event, behind, change), row| {
        row.value(event.tenant.text())
            .value(event.id.clone())
            .value(event.aggregate.clone())
            .value(*behind)
            .value(event.kind.clone())
            .value(event.payload.column())
            .value(event.created_at.0)
            .value(change.fence.map(|fence| fence.0));
    });
    let marks: Vec<_> =
        changes.iter().flat_map(|c| c.aggregates.iter().map(|mark| (mark, c.fence))).collect();
    batch.insert(&MARK, &marks, |(mark, writer), row| {
        row.value(mark.tenant.text())
            .value(mark.name.clone())
            .value(mark.published)
            .value(i64::from(mark.tries))
            .value(i64::from(mark.refusals))
            .value(mark.due_at.0)
            .value(mark.escalation.map(|id| id.0))
            .value(i64::from(mark.revision))
            .value(writer.map(|fence| fence.0));
    });
}

/// Published events go, up to this one. What is not published stays, whoever says so.
pub(super) async fn forget(connection: &mut SqliteConnection, event: &Published) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM outbox WHERE tenant = ?1 AND aggregate = ?2 AND seq <= min(?3, \
         (SELECT published FROM outbox_aggregate WHERE tenant = ?1 AND name = ?2))",
    )
    .bind(event.tenant.text())
    .bind(event.aggregate.clone())
    .bind(event.seq)
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

fn read(row: &SqliteRow) -> Result<OutboxEvent, StoreError> {
    event(&mut Columns::of("outbox", row))
}

fn event(c: &mut Columns<'_>) -> Result<OutboxEvent, StoreError> {
    Ok(OutboxEvent {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        id: c.take()?,
        aggregate: c.take()?,
        seq: c.take()?,
        kind: c.take()?,
        payload: c.parse(Stored::from_column)?,
        created_at: Timestamp(c.take()?),
    })
}

fn read_aggregate(row: &SqliteRow) -> Result<Aggregate, StoreError> {
    aggregate_of(&mut Columns::of("outbox_aggregate", row))
}

fn aggregate_of(c: &mut Columns<'_>) -> Result<Aggregate, StoreError> {
    Ok(Aggregate {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        name: c.take()?,
        last: c.take()?,
        published: c.take()?,
        tries: c.take()?,
        refusals: c.take()?,
        due_at: Timestamp(c.take()?),
        escalation: c.take::<Option<i64>>()?.map(EscalationId),
        revision: c.take()?,
    })
}

/// An aggregate, and one of its events behind it.
fn read_both(row: &SqliteRow) -> Result<(Aggregate, Result<OutboxEvent, StoreError>), StoreError> {
    let mut c = Columns::of("outbox", row);
    let aggregate = aggregate_of(&mut c)?;
    Ok((aggregate, event(&mut c)))
}

pub(super) async fn due(pool: &SqlitePool, until: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
    let query = sqlx::query(
        "SELECT a.tenant, a.name, a.last, a.published, a.tries, a.refusals, a.due_at, a.escalation, a.revision, \
         o.tenant, o.id, o.aggregate, o.seq, o.kind, o.payload, o.created_at FROM outbox_aggregate a \
         CROSS JOIN outbox o ON o.tenant = a.tenant AND o.aggregate = a.name AND o.seq > a.published \
         AND o.seq <= a.published + ?2 WHERE a.published < a.last AND a.escalation IS NULL AND a.due_at <= ?1 \
         ORDER BY a.due_at, a.tenant, a.name, o.seq LIMIT ?2",
    );
    let rows = query.bind(until.0).bind(i64::from(limit)).fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(by_aggregate(rows.iter().map(read_both)))
}

pub(super) async fn next(pool: &SqlitePool, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let query = sqlx::query(
        "SELECT min(due_at) FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at > ?",
    );
    let row = query.bind(after.0).fetch_one(pool).await.map_err(|e| failure(&e))?;
    Ok(Columns::of("outbox_aggregate", &row).take::<Option<i64>>()?.map(Timestamp))
}

pub(super) async fn published(
    pool: &SqlitePool,
    after: Timestamp,
    limit: u32,
) -> Result<Vec<Published>, StoreError> {
    let query = sqlx::query(
        "SELECT o.tenant, o.aggregate, o.seq, o.created_at FROM outbox o CROSS JOIN outbox_aggregate a \
         ON a.tenant = o.tenant AND a.name = o.aggregate WHERE o.created_at >= ? AND o.seq <= a.published \
         ORDER BY o.created_at, o.tenant, o.aggregate, o.seq LIMIT ?",
    );
    let rows = query.bind(after.0).bind(limit).fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, |row| {
        let mut c = Columns::of("outbox", row);
        Ok(Published {
            tenant: c.parse(|text: String| Tenant::new(text).ok())?,
            aggregate: c.take()?,
            seq: c.take()?,
            created_at: Timestamp(c.take()?),
        })
    }))
}

const FIND: &str = event!("outbox o WHERE o.tenant = ? AND o.id = ?");
const AGGREGATE: &str = aggregate!("WHERE tenant = ? AND name = ?");

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<OutboxEvent>, StoreError> {
    let query = sqlx::query(FIND).bind(tenant.text()).bind(id.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn aggregate(
    pool: &SqlitePool,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Aggregate>, StoreError> {
    let query = sqlx::query(AGGREGATE).bind(tenant.text()).bind(name.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read_aggregate).transpose()
}

pub(super) async fn set_aside(
    pool: &SqlitePool,
    tenant: &Tenant,
    question: EscalationId,
) -> Result<Option<Aggregate>, StoreError> {
    let query = sqlx::query(aggregate!("WHERE tenant = ? AND escalation = ?")).bind(tenant.text());
    let row = query.bind(question.0).fetch_optional(pool).await.map_err(|e| failure(&e))?;
    row.as_ref().map(read_aggregate).transpose()
}

/// Something is pending.
pub(super) async fn is_pending(pool: &SqlitePool) -> Result<bool, StoreError> {
    let query =
        sqlx::query("SELECT 1 FROM outbox_aggregate WHERE published < last AND escalation IS NULL LIMIT 1");
    Ok(query.fetch_optional(pool).await.map_err(|e| failure(&e))?.is_some())
}

/// The same event, wherever it was placed: it was written before, and its answer was lost.
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    event: &OutboxEvent,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(FIND).bind(event.tenant.text()).bind(event.id.clone());
    let row = query.fetch_optional(connection).await?;
    Ok(row
        .is_some_and(|row| read(&row).is_ok_and(|stored| OutboxEvent { seq: event.seq, ..stored } == *event)))
}

/// The aggregate stands as this change would have left it.
pub(super) async fn is_marked(
    connection: &mut SqliteConnection,
    mark: &Aggregate,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(AGGREGATE).bind(mark.tenant.text()).bind(mark.name.clone());
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read_aggregate(&row).is_ok_and(|stored| stored.same_change(mark))))
}

/// Adds an event inside a transaction of the user's own; the database tells when. False if another event has its id.
pub(crate) async fn add_event(
    connection: &mut SqliteConnection,
    event: &OutboxEvent,
    large: Option<&Payload>,
) -> Result<bool, StoreError> {
    add(connection, event, large).await.map_err(|e| failure(&e))
}

async fn add(
    connection: &mut SqliteConnection,
    event: &OutboxEvent,
    large: Option<&Payload>,
) -> Result<bool, sqlx::Error> {
    let find = sqlx::query(FIND).bind(event.tenant.text()).bind(event.id.clone());
    if let Some(row) = find.fetch_optional(&mut *connection).await? {
        return Ok(read(&row).is_ok_and(|stored| is_same(&stored, event)));
    }
    if let Some(payload) = large {
        payload::add(connection, &event.tenant, payload).await?;
    }
    sqlx::query(
        "INSERT INTO outbox_aggregate (tenant, name, last, published, tries, refusals, due_at, revision) \
         VALUES (?, ?, 1, 0, 0, 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1) \
         ON CONFLICT (tenant, name) DO UPDATE SET last = last + 1, \
         due_at = CASE WHEN published < last THEN due_at ELSE excluded.due_at END",
    )
    .bind(event.tenant.text())
    .bind(event.aggregate.clone())
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO outbox (tenant, id, aggregate, seq, kind, payload, created_at) VALUES (?1, ?2, ?3, \
         (SELECT last FROM outbox_aggregate WHERE tenant = ?1 AND name = ?3), ?4, ?5, \
         CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
    )
    .bind(event.tenant.text())
    .bind(event.id.clone())
    .bind(event.aggregate.clone())
    .bind(event.kind.clone())
    .bind(event.payload.column())
    .execute(connection)
    .await
    .map(|_| true)
}

fn is_same(stored: &OutboxEvent, event: &OutboxEvent) -> bool {
    let said = |e: &OutboxEvent| (e.aggregate.clone(), e.kind.clone(), e.payload.clone());
    said(stored) == said(event)
}

/// Empty tables of an outbox and an inbox for a simulation, whose disk keeps the real outbox.
#[cfg(feature = "sim")]
pub(crate) async fn simulate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    const BEFORE: &str = "CREATE TABLE worker (fence INTEGER PRIMARY KEY, ended_at INTEGER); \
                          CREATE TABLE payload (tenant TEXT, digest BLOB, body TEXT);";
    let wanted = super::open::MIGRATIONS.iter().filter(|(_, name, _)| ["outbox", "inbox"].contains(name));
    let sql = [BEFORE].into_iter().chain(wanted.map(|(.., sql)| *sql)).collect::<String>();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(|e| failure(&e))
}

/// Takes the events out that a closure has added there, in their order.
#[cfg(feature = "sim")]
pub(crate) async fn take_events(connection: &mut SqliteConnection) -> Result<Vec<OutboxEvent>, StoreError> {
    let rows = sqlx::query(event!("outbox o ORDER BY rowid")).fetch_all(&mut *connection).await;
    let events = rows.map_err(|e| failure(&e))?.iter().map(read).collect::<Result<_, _>>()?;
    let empty = sqlx::raw_sql("DELETE FROM outbox; DELETE FROM outbox_aggregate").execute(connection).await;
    empty.map(|_| events).map_err(|e| failure(&e))
}
