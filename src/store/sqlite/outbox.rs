//! Tables `outbox` and `outbox_aggregate`: events, and how far they are published.

use sqlx::sqlite::SqliteConnection;

use super::statement::{Batch, Insert};
use super::{StoreError, failure};
use crate::payload::Payload;
use crate::store::ask::Session as _;
use crate::store::outbox::added;
#[cfg(feature = "sim")]
use crate::store::row::Readable as _;
use crate::store::{Change, OutboxEvent, payload};

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
    let place = [(&event.tenant).into(), event.id.as_str().into()];
    if connection.finds("SELECT 1 FROM outbox WHERE tenant = $1 AND id = $2", &place).await? {
        let stored: Option<OutboxEvent> = connection.row(OutboxEvent::FIND, &place).await?;
        return Ok(stored.is_some_and(|stored| stored.is_same(event)));
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
    let sql = sqlx::AssertSqlSafe(OutboxEvent::TABLE.select("ORDER BY rowid"));
    let rows = sqlx::query(sql).fetch_all(&mut *connection).await.map_err(|e| failure(&e))?;
    let events = rows.iter().map(super::row::read).collect::<Result<_, _>>()?;
    let empty = sqlx::raw_sql("DELETE FROM outbox; DELETE FROM outbox_aggregate").execute(connection).await;
    empty.map(|_| events).map_err(|e| failure(&e))
}
