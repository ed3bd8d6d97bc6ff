//! The state that a worker polls.

use sqlx::SqlitePool;

use super::{Columns, StoreError, failure};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::store::sql::ask::Queries;
use crate::store::{ClusterStatus, LEDGER_ID, LEDGER_KIND};

/// Reads the state. For a store of one worker, only tests and tools call this: two queries are as good as one.
pub(super) async fn pulse(pool: &Queries<SqlitePool>) -> Result<ClusterStatus, StoreError> {
    let time = sqlx::query("SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)");
    let time = time.fetch_one(&**pool).await.map_err(|e| failure(&e))?;
    let restored = pool.document_find(&Tenant::ledger(), LEDGER_KIND, LEDGER_ID).await?;
    Ok(ClusterStatus {
        time: Timestamp(Columns::of("clock", &time).take()?),
        workers: pool.worker_open().await?,
        next_due: pool.next_due(Timestamp::MIN).await?,
        queued: !pool.queue_waiting().await?.is_empty(),
        resumable: !pool.run_signalled(RunId(i64::MIN), 1).await?.is_empty()
            || !pool.run_answered(RunId(i64::MIN), 1).await?.is_empty(),
        unpublished: pool.outbox_is_pending().await?,
        restored: restored.is_some_and(|row| row.open),
    })
}
