//! The heartbeat of a worker, and the state that it polls.

use std::sync::LazyLock;

use super::pool::Pool;
use super::{Columns, StoreError};
use crate::clock::Timestamp;
use crate::id::{Fence, Tenant};
use crate::store::cell::Declared as _;
use crate::store::row::Take as _;
use crate::store::sql::reads::UNENDED;
use crate::store::{COMMAND, ClusterStatus, LEDGER_ID, LEDGER_KIND, QuestionKind, Worker};

/// Renews a lease. The heartbeat does not use the writer's connection, so that a long batch does not cost the lease.
/// False if the worker has ended.
pub(super) async fn renew(pool: &Pool, fence: Fence, until: Timestamp) -> Result<bool, StoreError> {
    let query = || {
        sqlx::query("UPDATE worker SET lease_until = $1 WHERE fence = $2 AND ended_at IS NULL")
            .bind(until.0)
            .bind(fence.0)
    };
    pool.execute(query).await.map(|rows| rows > 0)
}

/// A query for one row per worker, each with the time and the next due instant. If there is no worker yet, one row
/// without a worker. `resumable` begins with the unreceived signals, which are few, and not with the waiting runs.
static PULSE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT p.time, p.due, p.queued, p.resumable, p.unpublished, p.restored, w.fence IS NOT NULL, w.fence, w.name, w.enrolled_at, w.lease_until, w.ended_at, w.retired, w.settled, \
         w.publishes, w.version FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time, \
         least((SELECT min(wake_at) FROM run WHERE wake_at IS NOT NULL), \
         (SELECT deadline FROM run WHERE deadline IS NOT NULL AND {UNENDED} ORDER BY deadline LIMIT 1), \
         (SELECT min(due_at) FROM queue WHERE due_at IS NOT NULL), \
         (SELECT min(next_at) FROM schedule WHERE next_at IS NOT NULL), \
         (SELECT min(due_at) FROM look)) AS due, \
         (SELECT queue FROM run WHERE state = 0 ORDER BY queue LIMIT 1) IS NOT NULL AS queued, \
         EXISTS (SELECT FROM signal s WHERE NOT s.received AND (SELECT a.state IN (0, 2) \
         AND (a.waits_on IN (2, 3) OR substr(s.name, 1, 2) = $4) FROM run a WHERE a.tenant = s.tenant AND a.id = s.run)) \
         OR EXISTS (SELECT FROM run a WHERE a.waits_on IN (1, 3) AND NOT EXISTS (SELECT FROM escalation e \
         WHERE e.tenant = a.tenant AND e.run = a.id AND e.answer IS NULL AND e.kind IN ($5, $6, $7, $8)) \
         AND NOT EXISTS (SELECT FROM use o JOIN record r ON r.tenant = o.tenant AND r.id = o.record \
         WHERE o.tenant = a.tenant AND o.run = a.id AND r.escalation IS NOT NULL)) AS resumable, \
         EXISTS (SELECT FROM outbox_aggregate WHERE published < last AND escalation IS NULL) AS unpublished, \
         EXISTS (SELECT FROM document WHERE open AND tenant = $1 AND kind = $2 AND id = $3) AS restored) p \
         LEFT JOIN worker w ON NOT w.settled ORDER BY w.fence"
    )
});

/// Reads the state in one query, because an idle worker asks nothing else.
pub(super) async fn pulse(pool: &Pool) -> Result<ClusterStatus, StoreError> {
    let query = || {
        let ledger =
            sqlx::query(PULSE.as_str()).bind(Tenant::ledger().to_string()).bind(LEDGER_KIND).bind(LEDGER_ID);
        QuestionKind::PARKING.into_iter().fold(ledger.bind(COMMAND), |query, kind| query.bind(kind.code()))
    };
    let rows = pool.all(query).await?;
    let mut pulse = ClusterStatus {
        time: Timestamp::MIN,
        workers: Vec::new(),
        next_due: None,
        queued: false,
        resumable: false,
        unpublished: false,
        restored: false,
    };
    for row in &rows {
        let mut values = Columns::of("pulse", row);
        (pulse.time, pulse.next_due) = (values.cell()?, values.cell()?);
        (pulse.queued, pulse.resumable) = (values.cell()?, values.cell()?);
        (pulse.unpublished, pulse.restored) = (values.cell()?, values.cell()?);
        if values.cell()? {
            pulse.workers.push(Worker::take(&mut values)?);
        }
    }
    Ok(pulse)
}
