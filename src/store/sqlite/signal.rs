//! Table `signal`: what was said to runs.

use std::sync::LazyLock;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::statement::{Batch, Insert};
use super::{StoreError, failure, row};
use crate::id::{RunId, Tenant};
use crate::store::row::Readable as _;
use crate::store::{Change, Signal};

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
    row::SIGNAL.write(changes.iter().filter_map(|c| Some((c.signal.as_deref()?, c.fence))), batch);
    let received: Vec<_> = changes.iter().filter_map(|c| Some((c.received.as_deref()?, c.fence))).collect();
    batch.insert(&RECEIVE, &received, |(signal, writer), row| {
        row.value(signal.tenant.text())
            .value(signal.run.0)
            .value(signal.name.clone())
            .value(signal.id.clone())
            .value(writer.map(|fence| fence.0));
    });
}

/// What was said to a run and it has not received, in the order in which it will. The arguments begin with the tenant.
pub(super) static PENDING: LazyLock<String> = LazyLock::new(|| {
    Signal::TABLE.select(
        "INDEXED BY signal_pending WHERE tenant = ?1 AND run = ?2 AND NOT received ORDER BY place, name, id",
    )
});

pub(super) async fn pending(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    run: RunId,
) -> Result<Vec<Signal>, StoreError> {
    let query = sqlx::query(AssertSqlSafe(PENDING.as_str())).bind(tenant.text()).bind(run.0);
    query.fetch_all(connection).await.map_err(|e| failure(&e))?.iter().map(row::read).collect()
}
