//! Workers: their enrolment, renewal and end, and their right to write.

use super::ask::Session;
use crate::id::Fence;
use crate::store::row::Given;
use crate::store::table::Kind;
use crate::store::{Change, Refusal, Worker, WorkerChange};

/// Writes a change of a worker. Workers come and go rarely, so each change is a statement of its own, inside the
/// savepoint of the change. Returns the refusal if no row is in the expected state.
///
/// Where several transactions write at once, a worker that ends another one takes that worker's row FOR UPDATE first:
/// it waits for the batches of the ended worker that are under way. A heartbeat takes a weaker lock and never waits
/// for them.
pub(in crate::store) async fn write<S: Session>(
    session: &mut S,
    change: &WorkerChange,
    by: Option<Fence>,
) -> Result<Option<Refusal>, sqlx::Error> {
    let by = by.map_or(Given::Null(Kind::Number), |fence| fence.0.into());
    let written = match change {
        WorkerChange::Enrol { name, at, lease_until } => {
            let until = lease_until.map_or(Given::Null(Kind::Number), |until| until.0.into());
            let row = [name.as_str().into(), at.0.into(), until, Worker::VERSION.into()];
            session.finds(enrolling::<S>(), &row).await?
        }
        WorkerChange::Attach { name, at } => {
            let row = [name.as_str().into(), at.0.into(), Worker::VERSION.into()];
            session.finds(attaching::<S>(), &row).await?
        }
        WorkerChange::Renew { until } => {
            let sql = "UPDATE worker SET lease_until = $1 WHERE fence = $2 RETURNING fence";
            session.finds(sql, &[until.0.into(), by]).await?
        }
        WorkerChange::End { fence, at } => {
            let held = S::either("", " FOR UPDATE");
            let sql = format!(
                "UPDATE worker SET ended_at = $1 WHERE fence = (SELECT fence FROM worker WHERE fence = $2 \
                 AND ended_at IS NULL AND lease_until < $1{held}) RETURNING fence"
            );
            session.finds(&sql, &[at.0.into(), fence.0.into()]).await?
        }
        WorkerChange::Settle { fence } => {
            let sql =
                "UPDATE worker SET settled = true WHERE fence = $1 AND ended_at IS NOT NULL RETURNING fence";
            session.finds(sql, &[fence.0.into()]).await?
        }
        WorkerChange::FenceOthers { at } => {
            let held = S::either("", " ORDER BY fence FOR UPDATE");
            let sql = format!(
                "UPDATE worker SET ended_at = $1 WHERE ended_at IS NULL AND fence IN (SELECT fence FROM worker \
                 WHERE ended_at IS NULL AND NOT settled AND fence IS DISTINCT FROM $2{held})"
            );
            session.finds(&sql, &[at.0.into(), by]).await?
        }
        WorkerChange::Publish => {
            // Another live publisher has the only place in the index. Two workers that ask at once wait for one
            // another there, and the index itself refuses the later one: the refusal only means that it was later.
            let sql = "UPDATE worker SET publishes = true WHERE fence = $1 AND NOT EXISTS (SELECT 1 FROM worker \
                       WHERE publishes AND ended_at IS NULL AND fence <> $1) RETURNING fence";
            session.finds(sql, &[by]).await?
        }
        WorkerChange::Retire { at } => {
            let held = S::either("", " FOR UPDATE");
            let sql = format!(
                "UPDATE worker SET ended_at = $1, retired = true WHERE fence = (SELECT fence FROM worker \
                 WHERE fence = $2 AND ended_at IS NULL{held})"
            );
            session.finds(&sql, &[at.0.into(), by]).await?
        }
    };
    Ok(match change {
        _ if written => None,
        WorkerChange::Enrol { .. } | WorkerChange::Attach { .. } | WorkerChange::Publish => {
            Some(Refusal::Exists)
        }
        WorkerChange::End { .. } | WorkerChange::Settle { .. } => Some(Refusal::Stale),
        WorkerChange::Renew { .. } | WorkerChange::FenceOthers { .. } | WorkerChange::Retire { .. } => None,
    })
}

/// The statement that enrols a worker. A fence is never given twice, not even after its row is deleted: in SQLite by
/// AUTOINCREMENT, in PostgreSQL from the table that holds the last fence.
fn enrolling<S: Session>() -> &'static str {
    S::either(
        "INSERT INTO worker (name, enrolled_at, lease_until, version) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (name) DO NOTHING RETURNING fence",
        "WITH next AS (UPDATE fence SET last = last + 1 WHERE id = 1 RETURNING last) \
         INSERT INTO worker (fence, name, enrolled_at, lease_until, retired, settled, version) \
         SELECT last, $1, $2, $3, false, false, $4 FROM next ON CONFLICT (name) DO NOTHING RETURNING fence",
    )
}

fn attaching<S: Session>() -> &'static str {
    S::either(
        "INSERT INTO worker (name, enrolled_at, settled, version) VALUES ($1, $2, true, $3) \
         ON CONFLICT (name) DO NOTHING RETURNING fence",
        "WITH next AS (UPDATE fence SET last = last + 1 WHERE id = 1 RETURNING last) \
         INSERT INTO worker (fence, name, enrolled_at, retired, settled, version) \
         SELECT last, $1, $2, false, true, $3 FROM next ON CONFLICT (name) DO NOTHING RETURNING fence",
    )
}

/// True if the worker may still write. No other worker ends it before this transaction does.
pub(in crate::store) async fn is_alive<S: Session>(
    session: &mut S,
    fence: Fence,
) -> Result<bool, sqlx::Error> {
    let sql = S::either(
        "SELECT 1 FROM worker WHERE fence = $1 AND ended_at IS NULL",
        "SELECT 1 FROM worker WHERE fence = $1 AND ended_at IS NULL FOR KEY SHARE",
    );
    session.finds(sql, &[fence.0.into()]).await
}

/// The refusal of a change whose worker may not write, or that nobody writes.
pub(in crate::store) async fn refusal<S: Session>(
    session: &mut S,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    Ok(match change.fence {
        Some(fence) if !is_alive(session, fence).await? => Some(Refusal::Fenced),
        _ => change.unwritten(),
    })
}

/// True if the worker may still write, read without a lock.
#[cfg(feature = "postgres")]
pub(in crate::store) async fn may_write<S: Session>(
    session: &mut S,
    fence: Fence,
) -> Result<bool, sqlx::Error> {
    session.finds("SELECT 1 FROM worker WHERE fence = $1 AND ended_at IS NULL", &[fence.0.into()]).await
}
