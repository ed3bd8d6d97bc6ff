//! Tables `outbox` and `outbox_aggregate`: events, and the positions up to which they are published.

use sqlx::sqlite::SqliteConnection;

use super::{StoreError, failure};
use crate::payload::Payload;
use crate::store::OutboxEvent;
#[cfg(feature = "sim")]
use crate::store::cell::Declared as _;
#[cfg(feature = "sim")]
use crate::store::migration::MIGRATIONS;
use crate::store::sql::ask::Session as _;
use crate::store::sql::{judge::EVENT, payload};

/// Adds an event inside a transaction of the user's own, with the time of the database. False if another event has
/// its id.
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
        let stored: Option<OutboxEvent> = connection.row(EVENT, &place).await?;
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

/// Creates empty tables of an outbox and an inbox for a simulation, whose disk keeps the real outbox.
#[cfg(feature = "sim")]
pub(crate) async fn simulate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    const BEFORE: &str = "CREATE TABLE worker (fence INTEGER PRIMARY KEY, ended_at INTEGER); \
                          CREATE TABLE payload (tenant TEXT, digest BLOB, body TEXT);";
    let wanted = MIGRATIONS.iter().filter(|migration| ["outbox", "inbox"].contains(&migration.name));
    let sql = [BEFORE].into_iter().chain(wanted.map(|migration| migration.sqlite)).collect::<String>();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop).map_err(|e| failure(&e))
}

/// Removes the events that a closure has added there, and returns them in their order.
#[cfg(feature = "sim")]
pub(crate) async fn take_events(connection: &mut SqliteConnection) -> Result<Vec<OutboxEvent>, StoreError> {
    let sql = sqlx::AssertSqlSafe(OutboxEvent::TABLE.select("ORDER BY rowid"));
    let rows = sqlx::query(sql).fetch_all(&mut *connection).await.map_err(|e| failure(&e))?;
    let events = rows.iter().map(super::row::read).collect::<Result<_, _>>()?;
    let empty = sqlx::raw_sql("DELETE FROM outbox; DELETE FROM outbox_aggregate").execute(connection).await;
    empty.map(|_| events).map_err(|e| failure(&e))
}
