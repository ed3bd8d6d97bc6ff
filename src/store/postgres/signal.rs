//! Table `signal`: what was said to runs.

use sqlx::postgres::PgConnection;

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN};
use super::{StoreError, escaped, row};
use crate::id::{RunId, Tenant};
use crate::store::row::{Put as _, Readable as _, Row as _};
use crate::store::table::{number, text};
use crate::store::{Change, Signal};

/// A new one.
pub(super) static INSERT: Insert =
    Insert { name: "signal_new", table: "signal", columns: Signal::TABLE.columns, ..PLAIN };

/// One that its run has received. By way of a row that is never inserted, with a place below zero: see `record`.
pub(super) static RECEIVE: Insert = Insert {
    name: "signal_received",
    table: "signal",
    columns: &[text("tenant"), number("run"), text("name"), text("id")],
    constants: &[("place", "-1"), ("body", "''"), ("at", "0"), ("received", "true")],
    tail: "ON CONFLICT (tenant, run, name, id) DO UPDATE SET received = true WHERE NOT signal.received",
    holds: Some("place >= 0"),
    ..PLAIN
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut new: Vec<_> = changes.iter().filter_map(|change| change.signal.as_deref()).collect();
    new.sort_by(|one, other| one.key().cmp(&other.key()));
    batch.insert(&INSERT, &new, |signal, row| signal.put(row));
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
    pool.all(query).await?.iter().map(row::read).collect()
}

/// It is received.
pub(super) async fn is_received(connection: &mut PgConnection, signal: &Signal) -> Result<bool, sqlx::Error> {
    let sql = "SELECT 1 FROM signal WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4 AND received";
    let query = sqlx::query(sql).persistent(false).bind(signal.tenant.as_str()).bind(signal.run.0);
    let query = query.bind(escaped(&signal.name)).bind(escaped(&signal.id));
    Ok(query.fetch_optional(connection).await?.is_some())
}
