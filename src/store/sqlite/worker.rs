//! Table `worker`: who may write.

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnection;

use super::{Columns, StoreError, failure};
use crate::clock::Timestamp;
use crate::id::Fence;
use crate::store::{Worker, WorkerChange};

/// Workers come and go rarely: each change is a statement of its own, inside the change's savepoint.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    change: &WorkerChange,
    by: Option<Fence>,
) -> Result<(), sqlx::Error> {
    let query = match change {
        WorkerChange::Enrol { name, at } => {
            // AUTOINCREMENT: a fence is never given twice, not even after its row is gone.
            sqlx::query("INSERT INTO worker (name, enrolled_at) VALUES (?, ?)").bind(name.clone()).bind(at.0)
        }
        WorkerChange::FenceOthers { at } => {
            sqlx::query("UPDATE worker SET ended_at = ? WHERE ended_at IS NULL AND fence IS NOT ?")
                .bind(at.0)
                .bind(by.map(|fence| fence.0))
        }
        WorkerChange::Retire { at } => {
            sqlx::query("UPDATE worker SET ended_at = ? WHERE ended_at IS NULL AND fence = ?")
                .bind(at.0)
                .bind(by.map(|fence| fence.0))
        }
    };
    query.execute(connection).await.map(drop)
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

pub(super) async fn find(pool: &SqlitePool, name: &str) -> Result<Option<Worker>, StoreError> {
    let row = sqlx::query("SELECT fence, name, enrolled_at, ended_at FROM worker WHERE name = ?")
        .bind(name.to_owned())
        .fetch_optional(pool)
        .await
        .map_err(|e| failure(&e))?;
    row.map(|row| {
        let mut c = Columns::of("worker", &row);
        Ok(Worker {
            fence: Fence(c.take()?),
            name: c.take()?,
            enrolled_at: Timestamp(c.take()?),
            ended_at: c.take::<Option<i64>>()?.map(Timestamp),
        })
    })
    .transpose()
}
