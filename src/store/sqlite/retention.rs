//! Records whose time is over, and what is left of them.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor as _, SqlitePool};

use super::commit::admit;
use super::open::open_aside;
use super::record::{read, select};
use super::{Sqlite, StoreError, failure, payload, sound};
use crate::clock::Timestamp;
use crate::ledger::Record;
use crate::store::{Change, Retired, Verdict, columns};

/// Nobody rests on it or asks about it. A run that is under way rests on all that it did since it last went on as new.
macro_rules! at_rest {
    () => {
        " AND status <> 1 AND escalation IS NULL AND NOT EXISTS (SELECT 1 FROM look l WHERE l.tenant = record.tenant AND l.record = record.id) \
         AND NOT EXISTS (SELECT 1 FROM escalation e INDEXED BY escalation_record \
         WHERE e.tenant = record.tenant AND e.record = record.id AND e.answer IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM run r WHERE r.tenant = record.tenant AND r.id = record.run \
         AND r.state NOT IN (3, 4) AND record.turn >= r.base) \
         AND NOT EXISTS (SELECT 1 FROM use rests CROSS JOIN run r ON r.id = rests.run WHERE rests.tenant = record.tenant \
         AND rests.record = record.id AND r.tenant = rests.tenant AND r.state NOT IN (3, 4) AND rests.turn >= r.base) "
    };
}

const EXPIRED: &str = concat!(
    select!("INDEXED BY record_kept WHERE kept_until BETWEEN ?1 AND ?2"),
    at_rest!(),
    "ORDER BY kept_until, id LIMIT ?3"
);

const EXPIRING: &str = "SELECT min(kept_until) FROM record WHERE kept_until > ?";

const KEEP: &str = "UPDATE record SET revision = revision + 1, kept_until = ?4 \
                    WHERE id = ?1 AND tenant = ?2 AND revision = ?3";

const TOMBSTONE: &str = concat!(
    "UPDATE record SET revision = revision + 1, status = ?4, outcome = ?5, request = ?6, request_hash = ?7, \
     compensation = NULL, step = NULL, call_id = NULL, external_ref = NULL, not_before = NULL, \
     kept_until = NULL WHERE id = ?1 AND tenant = ?2 AND revision = ?3",
    at_rest!()
);

const FORGET: &str =
    concat!("DELETE FROM record WHERE id = ?1 AND tenant = ?2 AND revision = ?3", at_rest!());

/// What goes with what is said in a record; and with the record.
static BELONGING: [&str; 3] = [
    "DELETE FROM evidence WHERE tenant = ?1 AND record = ?2",
    "DELETE FROM escalation INDEXED BY escalation_record WHERE tenant = ?1 AND record = ?2",
    "DELETE FROM use WHERE tenant = ?1 AND record = ?2",
];

/// For the test that explains them.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    [EXPIRED, EXPIRING, KEEP, TOMBSTONE, FORGET].into_iter().chain(BELONGING)
}

pub(super) async fn expired(
    pool: &SqlitePool,
    after: Timestamp,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let query = sqlx::query(EXPIRED).bind(after.0).bind(until.0).bind(limit);
    Ok(sound(&query.fetch_all(pool).await.map_err(|e| failure(&e))?, read))
}

pub(super) async fn expiring(pool: &SqlitePool, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let query = sqlx::query_scalar(EXPIRING).bind(after.0);
    let next: Option<i64> = query.fetch_one(pool).await.map_err(|e| failure(&e))?;
    Ok(next.map(Timestamp))
}

/// Beside what is written otherwise, and without waiting for the disk: what a crash takes back is retired again. Behind the
/// writer's lock all the same, for whoever finds the file locked comes again after a pause.
pub(super) async fn commit(store: &Sqlite, change: &Change) -> Result<Verdict, StoreError> {
    let mut writer = store.writer.lock().await;
    writer.as_mut().ok_or(StoreError::Closed)?.settle().await?;
    let mut aside = store.aside.lock().await;
    // Given back only in order: dropped halfway, it takes its transaction along.
    let mut connection = match aside.take() {
        Some(connection) => connection,
        None => open_aside(store).await?,
    };
    let retired = async {
        connection.execute("BEGIN IMMEDIATE").await?;
        let refusal = admit(&mut connection, change).await?;
        connection.execute("COMMIT").await?;
        Ok(refusal)
    };
    let refusal = retired.await.map_err(|e: sqlx::Error| failure(&e))?;
    *aside = Some(connection);
    Ok(refusal.map_or(Verdict::Admitted, Verdict::Refused))
}

/// Looks once more whether anybody rests on it: since it was listed, a run may have been answered from it.
pub(super) async fn retire(connection: &mut SqliteConnection, retired: &Retired) -> Result<(), sqlx::Error> {
    let left = retired.left.as_deref();
    let sql = match left {
        Some(_) if retired.is_kept() => KEEP,
        Some(_) => TOMBSTONE,
        None => FORGET,
    };
    let (tenant, id) = (retired.tenant.text(), retired.id.0);
    let query = sqlx::query(sql).bind(id).bind(tenant.clone()).bind(i64::from(retired.revision));
    let query = match left {
        Some(left) if retired.is_kept() => query.bind(left.kept_until.map(|at| at.0)),
        Some(left) => {
            let (status, outcome, _) = columns::of_record(&left.state);
            query.bind(status).bind(outcome).bind(left.request.column()).bind(left.request_hash.column())
        }
        None => query,
    };
    let is_retired = query.execute(&mut *connection).await?.rows_affected() > 0;
    let belonging = match left {
        _ if !is_retired || retired.is_kept() => 0,
        Some(_) => 2,
        None => 3,
    };
    for sql in BELONGING.into_iter().take(belonging) {
        sqlx::query(sql).bind(tenant.clone()).bind(id).execute(&mut *connection).await?;
    }
    for digest in retired.payloads.iter().filter(|_| is_retired) {
        payload::release(connection, &retired.tenant, *digest).await?;
    }
    Ok(())
}
