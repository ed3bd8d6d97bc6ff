//! Table `signal`: what was said to runs.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert};
use super::{Columns, StoreError, failure};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Stored;
use crate::store::{Change, Signal};

/// A new one. A fenced worker gets a NULL run, which the primary key refuses.
static INSERT: Insert = Insert {
    head: "INSERT INTO signal (tenant, run, name, id, place, body, at, received) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column8 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, 0",
    columns: 8,
    tail: "",
};

/// One that its run has received. If there is none, or it was received before, its place becomes NULL or a trigger
/// objects, which aborts.
static RECEIVE: Insert = Insert {
    head: "INSERT INTO signal (tenant, run, name, id, place, body, at, received) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column5 AND worker.ended_at IS NULL), \
           column3, column4, 0, '', 0, 1",
    columns: 5,
    tail: "ON CONFLICT (tenant, run, name, id) DO UPDATE SET received = 1, \
           place = CASE WHEN NOT signal.received THEN signal.place END",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let new: Vec<_> = changes.iter().filter_map(|c| Some((c.signal.as_deref()?, c.fence))).collect();
    batch.insert(&INSERT, &new, |(signal, writer), row| {
        row.value(signal.tenant.text())
            .value(signal.run.0)
            .value(signal.name.clone())
            .value(signal.id.clone())
            .value(signal.place)
            .value(signal.body.column())
            .value(signal.at.0)
            .value(writer.map(|fence| fence.0));
    });
    let received: Vec<_> = changes.iter().filter_map(|c| Some((c.received.as_deref()?, c.fence))).collect();
    batch.insert(&RECEIVE, &received, |(signal, writer), row| {
        row.value(signal.tenant.text())
            .value(signal.run.0)
            .value(signal.name.clone())
            .value(signal.id.clone())
            .value(writer.map(|fence| fence.0));
    });
}

pub(super) fn read(row: &SqliteRow) -> Result<Signal, StoreError> {
    let mut c = Columns::of("signal", row);
    Ok(Signal {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        run: RunId(c.take()?),
        name: c.take()?,
        id: c.take()?,
        place: c.take()?,
        body: c.parse(Stored::from_column)?,
        at: Timestamp(c.take()?),
    })
}

const FIND: &str = "SELECT tenant, run, name, id, place, body, at, received FROM signal \
                    WHERE tenant = ? AND run = ? AND name = ? AND id = ?";

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<Signal>, StoreError> {
    row(pool, tenant, run, name, id).await?.as_ref().map(read).transpose()
}

pub(super) async fn unreceived(
    pool: &SqlitePool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<Signal>, StoreError> {
    use sqlx::Row as _;
    let Some(row) = row(pool, tenant, run, name, id).await? else { return Ok(None) };
    let received: bool = row.try_get("received").map_err(|e| failure(&e))?;
    if received { Ok(None) } else { read(&row).map(Some) }
}

async fn row(
    pool: &SqlitePool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<SqliteRow>, StoreError> {
    let query = sqlx::query(FIND).bind(tenant.text()).bind(run.0).bind(name.to_owned()).bind(id.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))
}

/// One step to the end of the index, however many are pending.
const LAST: &str = "SELECT place FROM signal INDEXED BY signal_pending \
                    WHERE tenant = ? AND run = ? AND NOT received ORDER BY place DESC LIMIT 1";

pub(super) async fn last(pool: &SqlitePool, tenant: &Tenant, run: RunId) -> Result<Option<i64>, StoreError> {
    let query = sqlx::query_scalar(LAST).bind(tenant.text()).bind(run.0);
    query.fetch_optional(pool).await.map_err(|e| failure(&e))
}

/// What was said to a run and it has not received, in the order in which it will. The arguments begin with the tenant.
pub(super) const PENDING: &str = "SELECT tenant, run, name, id, place, body, at FROM signal INDEXED BY signal_pending \
     WHERE tenant = ?1 AND run = ?2 AND NOT received ORDER BY place, name, id";

pub(super) async fn pending(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    run: RunId,
) -> Result<Vec<Signal>, StoreError> {
    let query = sqlx::query(PENDING).bind(tenant.text()).bind(run.0);
    query.fetch_all(connection).await.map_err(|e| failure(&e))?.iter().map(read).collect()
}

/// The same signal: it was written before, and its answer was lost.
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    signal: &Signal,
) -> Result<bool, sqlx::Error> {
    Ok(at(connection, signal).await?.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *signal)))
}

/// It is received.
pub(super) async fn is_received(
    connection: &mut SqliteConnection,
    signal: &Signal,
) -> Result<bool, sqlx::Error> {
    use sqlx::Row as _;
    at(connection, signal).await?.map_or(Ok(false), |row| row.try_get("received"))
}

async fn at(connection: &mut SqliteConnection, signal: &Signal) -> Result<Option<SqliteRow>, sqlx::Error> {
    sqlx::query(FIND)
        .bind(signal.tenant.text())
        .bind(signal.run.0)
        .bind(signal.name.clone())
        .bind(signal.id.clone())
        .fetch_optional(connection)
        .await
}
