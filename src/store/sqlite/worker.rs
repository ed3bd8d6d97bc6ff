//! Table `worker`: who may write.

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnection;

use super::{Columns, StoreError, failure};
use crate::clock::Timestamp;
use crate::id::{Fence, Tenant};
use crate::store::ask::Queries;
use crate::store::run::reads;
use crate::store::{Aggregate, Document, LEDGER_ID, LEDGER_KIND, Pulse, Worker, WorkerChange, queued};

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
            sqlx::query("INSERT INTO worker (name, enrolled_at, lease_until, version) VALUES (?, ?, ?, ?)")
                .bind(name.clone())
                .bind(at.0)
                .bind(lease_until.map(|until| until.0))
                .bind(Worker::VERSION)
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

/// For a store of one worker nobody asks this but tests and tools: two queries are as good as one.
pub(super) async fn pulse(pool: &Queries<SqlitePool>) -> Result<Pulse, StoreError> {
    let time = sqlx::query("SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)");
    let time = time.fetch_one(&**pool).await.map_err(|e| failure(&e))?;
    let restored = Document::find(pool, &Tenant::ledger(), LEDGER_KIND, LEDGER_ID).await?;
    Ok(Pulse {
        time: Timestamp(Columns::of("clock", &time).take()?),
        workers: Worker::open(pool).await?,
        next_due: reads::next_due(pool, Timestamp::MIN).await?,
        queued: !queued::waiting(pool).await?.is_empty(),
        unpublished: Aggregate::is_any_pending(pool).await?,
        restored: restored.is_some_and(|row| row.open),
    })
}
