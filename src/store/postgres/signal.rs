//! Table `signal`: what was said to runs.

use super::StoreError;
use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN};
use crate::id::{RunId, Tenant};
use crate::store::ask::Reader as _;
use crate::store::row::{Put as _, Row as _};
use crate::store::table::{number, text};
use crate::store::{Change, Signal};

/// One that its run has received. By way of a row that is never inserted, with a place below zero: see `row`.
pub(super) static RECEIVE: Insert = Insert {
    name: "signal_received",
    table: "signal",
    columns: &[text("tenant"), number("run"), text("name"), text("id")],
    constants: &[("place", "-1"), ("body", "''"), ("at", "0"), ("received", "true")],
    tail: "ON CONFLICT (tenant, run, name, id) DO UPDATE SET received = true WHERE NOT signal.received",
    holds: Some("place >= 0"),
    ..PLAIN
};

pub(super) fn write_received(changes: &[&Change], batch: &mut Batch) {
    let mut received: Vec<_> = changes.iter().filter_map(|change| change.received.as_deref()).collect();
    received.sort_by(|one, other| one.key().cmp(&other.key()));
    batch.insert(&RECEIVE, &received, |signal, row| {
        row.text(signal.tenant.as_str()).number(signal.run.0).text(&signal.name).text(&signal.id);
    });
}

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
