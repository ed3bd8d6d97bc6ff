//! Table `signal`: what was said to runs.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN};
use super::{Columns, StoreError, escaped, failure};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Stored;
use crate::store::row::Put as _;
use crate::store::table::{number, text};
use crate::store::{Change, Signal};

/// A new one.
pub(super) static INSERT: Insert = Insert {
    name: "signal_new",
    table: "signal",
    columns: &[
        text("tenant"),
        number("run"),
        text("name"),
        text("id"),
        number("place"),
        text("body"),
        number("at"),
    ],
    constants: &[("received", "false")],
    ..PLAIN
};

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
    let place =
        |signal: &&Signal| (signal.tenant.clone(), signal.run, signal.name.clone(), signal.id.clone());
    let mut new: Vec<_> = changes.iter().filter_map(|change| change.signal.as_deref()).collect();
    new.sort_by_cached_key(place);
    batch.insert(&INSERT, &new, |signal, row| {
        row.text(signal.tenant.as_str())
            .number(signal.run.0)
            .text(&signal.name)
            .text(&signal.id)
            .number(signal.place)
            .text(&signal.body.column())
            .number(signal.at.0);
    });
    let mut received: Vec<_> = changes.iter().filter_map(|change| change.received.as_deref()).collect();
    received.sort_by_cached_key(place);
    batch.insert(&RECEIVE, &received, |signal, row| {
        row.text(signal.tenant.as_str()).number(signal.run.0).text(&signal.name).text(&signal.id);
    });
}

fn read(row: &PgRow) -> Result<Signal, StoreError> {
    let mut c = Columns::of("signal", row);
    Ok(Signal {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        run: RunId(c.take()?),
        name: c.text()?,
        id: c.text()?,
        place: c.take()?,
        body: c.parse_text(Stored::from_column)?,
        at: Timestamp(c.take()?),
    })
}

const FIND: &str = "SELECT tenant, run, name, id, place, body, at, received FROM signal \
                    WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4";

pub(super) async fn find(
    pool: &Pool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<Signal>, StoreError> {
    row(pool, tenant, run, name, id).await?.as_ref().map(read).transpose()
}

pub(super) async fn unreceived(
    pool: &Pool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<Signal>, StoreError> {
    use sqlx::Row as _;
    let Some(row) = row(pool, tenant, run, name, id).await? else { return Ok(None) };
    let received: bool = row.try_get("received").map_err(|e| failure(&e))?;
    if received { Ok(None) } else { read(&row).map(Some) }
}

async fn row(
    pool: &Pool,
    tenant: &Tenant,
    run: RunId,
    name: &str,
    id: &str,
) -> Result<Option<PgRow>, StoreError> {
    let query = || {
        let query = sqlx::query(FIND).bind(tenant.as_str()).bind(run.0);
        query.bind(escaped(name).into_owned()).bind(escaped(id).into_owned())
    };
    pool.optional(query).await
}

/// One step to the end of the index, however many are pending.
pub(super) async fn last(pool: &Pool, tenant: &Tenant, run: RunId) -> Result<Option<i64>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT place FROM signal WHERE tenant = $1 AND run = $2 AND NOT received ORDER BY place DESC LIMIT 1",
        )
            .bind(tenant.as_str())
            .bind(run.0)
    };
    let row = pool.optional(query).await?;
    row.map(|row| Columns::of("signal", &row).take()).transpose()
}

pub(super) async fn pending(pool: &Pool, runs: &[(Tenant, RunId)]) -> Result<Vec<Signal>, StoreError> {
    let (tenants, ids): (Vec<_>, Vec<_>) = runs.iter().map(|(tenant, run)| (tenant.as_str(), run.0)).unzip();
    let query = || {
        // By run, not as a join, which could be planned as a scan of all that is pending.
        sqlx::query(
            "SELECT s.tenant, s.run, s.name, s.id, s.place, s.body, s.at FROM unnest($1::text[], $2::bigint[]) \
             AS asked (tenant, run), LATERAL (SELECT * FROM signal WHERE tenant = asked.tenant AND run = asked.run \
             AND NOT received) s ORDER BY s.run, s.place, s.name, s.id",
        )
        .bind(&tenants)
        .bind(&ids)
    };
    pool.all(query).await?.iter().map(read).collect()
}

/// Another signal has its id.
pub(super) async fn is_taken(connection: &mut PgConnection, signal: &Signal) -> Result<bool, sqlx::Error> {
    Ok(at(connection, signal).await?.is_some())
}

/// The same signal: it was written before, and its answer was lost.
pub(super) async fn is_written(connection: &mut PgConnection, signal: &Signal) -> Result<bool, sqlx::Error> {
    Ok(at(connection, signal).await?.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *signal)))
}

/// It is received.
pub(super) async fn is_received(connection: &mut PgConnection, signal: &Signal) -> Result<bool, sqlx::Error> {
    use sqlx::Row as _;
    at(connection, signal).await?.map_or(Ok(false), |row| row.try_get("received"))
}

async fn at(connection: &mut PgConnection, signal: &Signal) -> Result<Option<PgRow>, sqlx::Error> {
    let query = sqlx::query(FIND).persistent(false).bind(signal.tenant.as_str()).bind(signal.run.0);
    query.bind(escaped(&signal.name)).bind(escaped(&signal.id)).fetch_optional(connection).await
}
