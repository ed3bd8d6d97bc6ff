//! Table `signal`: what was said to runs.

use std::sync::LazyLock;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::{StoreError, failure, row};
use crate::id::{RunId, Tenant};
use crate::store::Signal;
use crate::store::cell::Declared as _;

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
