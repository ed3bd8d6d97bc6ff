//! Table `worker`: who may write.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Columns, StoreError, failure, outbox, queue};
use crate::clock::Timestamp;
use crate::id::{Fence, Tenant};
use crate::store::run::reads;
use crate::store::{Document, LEDGER_ID, LEDGER_KIND, Pulse, Worker, WorkerChange};

/// Workers come and go rarely: each change is a statement of its own, inside the change's savepoint. One that is not
/// as it should be for the change is an error: no such row.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    change: &WorkerChange,
    by: Option<Fence>,
) -> Result<(), sqlx::Error> {
    let query = match change {
        WorkerChange::Enrol { name, at, lease_until } => {
            // AUTOINCREMENT: a fence is never given twice, not even after its row is gone.
            sqlx::query("INSERT INTO worker (name, enrolled_at, lease_until) VALUES (?, ?, ?)")
                .bind(name.clone())
                .bind(at.0)
                .bind(lease_until.map(|until| until.0))
        }
        WorkerChange::Renew { until } => sqlx::query("UPDATE worker SET lease_until = ? WHERE fence = ?")
            .bind(until.0)
            .bind(by.map(|fence| fence.0)),
        WorkerChange::End { fence, at } => sqlx::query(
            "UPDATE worker SET ended_at = ?1 WHERE fence = ?2 AND ended_at IS NULL AND lease_until < ?1",
        )
        .bind(at.0)
        .bind(fence.0),
        WorkerChange::Settle { fence } => {
            sqlx::query("UPDATE worker SET settled = 1 WHERE fence = ? AND ended_at IS NOT NULL")
                .bind(fence.0)
        }
        WorkerChange::FenceOthers { at } => {
            sqlx::query("UPDATE worker SET ended_at = ? WHERE ended_at IS NULL AND fence IS NOT ?")
                .bind(at.0)
                .bind(by.map(|fence| fence.0))
        }
        // Another one that is alive has the only place in the index.
        WorkerChange::Publish => {
            sqlx::query("UPDATE worker SET publishes = 1 WHERE fence = ?").bind(by.map(|fence| fence.0))
        }
        WorkerChange::Retire { at } => {
            sqlx::query("UPDATE worker SET ended_at = ?, retired = 1 WHERE ended_at IS NULL AND fence = ?")
                .bind(at.0)
                .bind(by.map(|fence| fence.0))
        }
    };
    let written = query.execute(connection).await?.rows_affected();
    match change {
        WorkerChange::End { .. } | WorkerChange::Settle { .. } if written == 0 => {
            Err(sqlx::Error::RowNotFound)
        }
        _ => Ok(()),
    }
}

/// The worker may still write.
pub(super) async fn is_alive(connection: &mut SqliteConnection, fence: Fence) -> Result<bool, sqlx::Error> {
    sqlx::query("SELECT 1 FROM worker WHERE fence = ? AND ended_at IS NULL")
        .bind(fence.0)
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
}

/// A worker of this name enrolled at this very instant and is alive: its answer was lost.
pub(super) async fn is_enrolled(
    connection: &mut SqliteConnection,
    name: &str,
    at: Timestamp,
) -> Result<bool, sqlx::Error> {
    sqlx::query("SELECT 1 FROM worker WHERE name = ? AND enrolled_at = ? AND ended_at IS NULL")
        .bind(name.to_owned())
        .bind(at.0)
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
}

/// The worker was ended at this very instant: the answer was lost.
pub(super) async fn is_ended(
    connection: &mut SqliteConnection,
    fence: Fence,
    at: Timestamp,
) -> Result<bool, sqlx::Error> {
    sqlx::query("SELECT 1 FROM worker WHERE fence = ? AND ended_at = ?")
        .bind(fence.0)
        .bind(at.0)
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT fence, name, enrolled_at, lease_until, ended_at, retired, settled, publishes FROM worker ",
            $tail
        )
    };
}

fn read(row: &SqliteRow) -> Result<Worker, StoreError> {
    let mut c = Columns::of("worker", row);
    Ok(Worker {
        fence: Fence(c.take()?),
        name: c.take()?,
        enrolled_at: Timestamp(c.take()?),
        lease_until: c.take::<Option<i64>>()?.map(Timestamp),
        ended_at: c.take::<Option<i64>>()?.map(Timestamp),
        retired: c.take()?,
        settled: c.take()?,
        publishes: c.take()?,
    })
}

pub(super) async fn find(pool: &SqlitePool, name: &str) -> Result<Option<Worker>, StoreError> {
    let query = sqlx::query(select!("WHERE name = ?")).bind(name.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn at(pool: &SqlitePool, fence: Fence) -> Result<Option<Worker>, StoreError> {
    let query = sqlx::query(select!("WHERE fence = ?")).bind(fence.0);
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

/// For a store of one worker nobody asks this but tests and tools: two queries are as good as one.
pub(super) async fn pulse(pool: &SqlitePool) -> Result<Pulse, StoreError> {
    let time = sqlx::query("SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)");
    let time = time.fetch_one(pool).await.map_err(|e| failure(&e))?;
    let workers = sqlx::query(select!("WHERE NOT settled ORDER BY fence"));
    let workers = workers.fetch_all(pool).await.map_err(|e| failure(&e))?;
    let restored = Document::find(pool, &Tenant::ledger(), LEDGER_KIND, LEDGER_ID).await?;
    Ok(Pulse {
        time: Timestamp(Columns::of("clock", &time).take()?),
        workers: workers.iter().map(read).collect::<Result<_, _>>()?,
        next_due: reads::next_due(pool, Timestamp::MIN).await?,
        queued: !queue::waiting(pool).await?.is_empty(),
        unpublished: outbox::is_pending(pool).await?,
        restored: restored.is_some_and(|row| row.open),
    })
}
