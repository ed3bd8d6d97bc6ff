//! Table `worker`: who may write.

use sqlx::postgres::PgConnection;

use super::pool::Pool;
use super::{Columns, StoreError};
use crate::clock::Timestamp;
use crate::id::{Fence, Tenant};
use crate::store::row::Take as _;
use crate::store::{LEDGER_ID, LEDGER_KIND, Pulse, Refusal, Worker, WorkerChange};

/// Workers come and go rarely: each change is a statement of its own, inside the change's savepoint. Returns how many
/// rows it wrote.
///
/// Whoever ends a worker takes its row FOR UPDATE first: that waits for the batches of that worker which are under
/// way, and a heartbeat, which takes no more than it must, never waits for them.
pub(super) async fn write(
    connection: &mut PgConnection,
    change: &WorkerChange,
    by: Option<Fence>,
) -> Result<u64, sqlx::Error> {
    let by = by.map(|fence| fence.0);
    let query = match change {
        WorkerChange::Enrol { name, at, lease_until } => sqlx::query(
            // From the table of the last fence: one is never given twice, not even after its row is gone.
            "WITH next AS (UPDATE fence SET last = last + 1 WHERE id = 1 RETURNING last) \
             INSERT INTO worker (fence, name, enrolled_at, lease_until, retired, settled, version) \
             SELECT last, $1, $2, $3, false, false, $4 FROM next ON CONFLICT (name) DO NOTHING",
        )
        .bind(super::escaped(name).into_owned())
        .bind(at.0)
        .bind(lease_until.map(|until| until.0))
        .bind(Worker::VERSION),
        WorkerChange::Renew { until } => {
            sqlx::query("UPDATE worker SET lease_until = $1 WHERE fence = $2").bind(until.0).bind(by)
        }
        WorkerChange::End { fence, at } => sqlx::query(
            "UPDATE worker SET ended_at = $1 WHERE fence = (SELECT fence FROM worker WHERE fence = $2 \
             AND ended_at IS NULL AND lease_until < $1 FOR UPDATE)",
        )
        .bind(at.0)
        .bind(fence.0),
        WorkerChange::Settle { fence } => {
            sqlx::query("UPDATE worker SET settled = true WHERE fence = $1 AND ended_at IS NOT NULL")
                .bind(fence.0)
        }
        WorkerChange::FenceOthers { at } => sqlx::query(
            "UPDATE worker SET ended_at = $1 WHERE ended_at IS NULL AND fence IN (SELECT fence FROM worker \
             WHERE ended_at IS NULL AND NOT settled AND fence IS DISTINCT FROM $2 ORDER BY fence FOR UPDATE)",
        )
        .bind(at.0)
        .bind(by),
        // Another one that is alive has the only place in the index. Two that ask at once wait there for one another, and
        // the later one is refused by the index itself: which says no more than that it was later.
        WorkerChange::Publish => sqlx::query(
            "UPDATE worker SET publishes = true WHERE fence = $1 AND NOT EXISTS (SELECT FROM worker \
             WHERE publishes AND ended_at IS NULL AND fence <> $1)",
        )
        .bind(by),
        WorkerChange::Retire { at } => sqlx::query(
            "UPDATE worker SET ended_at = $1, retired = true WHERE fence = (SELECT fence FROM worker \
             WHERE fence = $2 AND ended_at IS NULL FOR UPDATE)",
        )
        .bind(at.0)
        .bind(by),
    };
    query.execute(connection).await.map(|done| done.rows_affected())
}

/// Why a change that wrote no row is refused; nothing if it is none the worse for it.
pub(super) const fn refusal(change: &WorkerChange) -> Option<Refusal> {
    match change {
        WorkerChange::Enrol { .. } | WorkerChange::Publish => Some(Refusal::Exists),
        WorkerChange::End { .. } | WorkerChange::Settle { .. } => Some(Refusal::Stale),
        WorkerChange::Renew { .. } | WorkerChange::FenceOthers { .. } | WorkerChange::Retire { .. } => None,
    }
}

/// A heartbeat by itself: it goes past the connection that writes, so that a long batch does not cost the lease. False
/// if the worker has ended.
pub(super) async fn renew(pool: &Pool, fence: Fence, until: Timestamp) -> Result<bool, StoreError> {
    let query = || {
        sqlx::query("UPDATE worker SET lease_until = $1 WHERE fence = $2 AND ended_at IS NULL")
            .bind(until.0)
            .bind(fence.0)
    };
    pool.execute(query).await.map(|rows| rows > 0)
}

/// The worker may still write, and nobody ends it before this transaction does.
pub(super) async fn is_alive(connection: &mut PgConnection, fence: Fence) -> Result<bool, sqlx::Error> {
    sqlx::query("SELECT 1 FROM worker WHERE fence = $1 AND ended_at IS NULL FOR KEY SHARE")
        .bind(fence.0)
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
}

/// The worker may still write, as far as one can see.
pub(super) async fn may_write(connection: &mut PgConnection, fence: Fence) -> Result<bool, sqlx::Error> {
    sqlx::query("SELECT 1 FROM worker WHERE fence = $1 AND ended_at IS NULL")
        .bind(fence.0)
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
}

/// One query, for an idle worker asks this and nothing else: a row per worker, each with the time and what is due.
/// Where there is no worker yet, one row of nobody.
pub(super) async fn pulse(pool: &Pool) -> Result<Pulse, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT p.time, p.due, p.queued, p.unpublished, p.restored, w.fence, w.name, w.enrolled_at, w.lease_until, w.ended_at, w.retired, w.settled, \
             w.publishes, w.version FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time, \
             least((SELECT min(wake_at) FROM run WHERE wake_at IS NOT NULL), \
             (SELECT min(due_at) FROM queue WHERE due_at IS NOT NULL), \
             (SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL), \
             (SELECT min(due_at) FROM look)) AS due, \
             (SELECT queue FROM run WHERE state = 0 ORDER BY queue LIMIT 1) IS NOT NULL AS queued, \
             EXISTS (SELECT FROM outbox_aggregate WHERE published < last AND escalation IS NULL) AS unpublished, \
             EXISTS (SELECT FROM document WHERE open AND tenant = $1 AND kind = $2 AND id = $3) AS restored) p \
             LEFT JOIN worker w ON NOT w.settled ORDER BY w.fence",
        )
        .bind(Tenant::ledger().to_string())
        .bind(LEDGER_KIND)
        .bind(LEDGER_ID)
    };
    let rows = pool.all(query).await?;
    let mut pulse = Pulse {
        time: Timestamp::MIN,
        workers: Vec::new(),
        next_due: None,
        queued: false,
        unpublished: false,
        restored: false,
    };
    for row in &rows {
        let mut values = Columns::of("pulse", row);
        pulse.time = values.time()?;
        pulse.next_due = values.some_time()?;
        pulse.queued = values.flag()?;
        pulse.unpublished = values.flag()?;
        pulse.restored = values.flag()?;
        if let Some(fence) = values.some_number()? {
            pulse.workers.push(Worker::with(Fence(fence), &mut values)?);
        }
    }
    Ok(pulse)
}
