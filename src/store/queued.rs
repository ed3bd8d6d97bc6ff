//! What waits in queues, and what has a place there.

use super::ask::{Queries, Reader};
use super::row::Take as _;
use super::{QueueLoad, StoreError};

/// The queues in which runs wait: one look into the index for each.
pub(super) async fn waiting<D: Reader>(on: &Queries<D>) -> Result<Vec<String>, StoreError> {
    // For `min`, PostgreSQL may read all of them.
    let sql = D::either(
        "WITH RECURSIVE q AS (SELECT min(queue) AS queue FROM run WHERE state = 0 \
         UNION ALL SELECT (SELECT min(queue) FROM run WHERE state = 0 AND queue > q.queue) \
         FROM q WHERE q.queue IS NOT NULL) SELECT queue FROM q WHERE queue IS NOT NULL",
        "WITH RECURSIVE q AS ((SELECT queue FROM run WHERE state = 0 ORDER BY queue LIMIT 1) \
         UNION ALL SELECT (SELECT queue FROM run WHERE state = 0 AND queue > q.queue ORDER BY queue LIMIT 1) \
         FROM q WHERE q.queue IS NOT NULL) SELECT queue FROM q WHERE queue IS NOT NULL",
    );
    on.fetch(sql.to_owned(), &[]).await?.iter().map(|row| D::values("run", row).text()).collect()
}

pub(super) async fn load<D: Reader>(on: &Queries<D>) -> Result<Vec<QueueLoad>, StoreError> {
    let sql = "SELECT queue, CAST(sum(queued) AS bigint), CAST(sum(running) AS bigint) FROM (SELECT queue, count(*) AS queued, \
               0 AS running FROM run WHERE queue IS NOT NULL AND state = 0 GROUP BY queue \
               UNION ALL SELECT queue, 0, count(*) FROM run WHERE queue IS NOT NULL AND admitted_at IS NOT NULL \
               AND state IN (1, 2) GROUP BY queue) q GROUP BY queue ORDER BY queue";
    let rows = on.fetch(sql.to_owned(), &[]).await?;
    let count = |number: i64| u64::try_from(number).ok();
    let read = |row| {
        let mut c = D::values("run", row);
        Ok(QueueLoad { queue: c.text()?, queued: c.parsed(count)?, running: c.parsed(count)? })
    };
    rows.iter().map(read).collect()
}
