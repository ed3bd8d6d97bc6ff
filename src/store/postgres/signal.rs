//! Table `signal`: what was said to runs.

use super::StoreError;
use super::pool::Pool;
use crate::id::{RunId, Tenant};
use crate::store::Signal;
use crate::store::sql::ask::Reader as _;

pub(super) async fn pending(pool: &Pool, runs: &[(Tenant, RunId)]) -> Result<Vec<Signal>, StoreError> {
    let (tenants, ids): (Vec<_>, Vec<_>) = runs.iter().map(|(tenant, run)| (tenant.as_str(), run.0)).unzip();
    let query = || {
        // By run, not as a join, which could be planned as a scan of all that is pending.
        sqlx::query(
            "SELECT s.tenant, s.run, s.name, s.id, s.place, s.body, s.at, s.received FROM unnest($1::text[], $2::bigint[]) \
             AS asked (tenant, run), LATERAL (SELECT * FROM signal WHERE tenant = asked.tenant AND run = asked.run \
             AND NOT received) s ORDER BY s.run, s.place, s.name, s.id",
        )
        .bind(&tenants)
        .bind(&ids)
    };
    pool.all(query).await?.iter().map(Pool::read).collect()
}
