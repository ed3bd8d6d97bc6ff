//! Records whose time is over, and what is left of them.

use std::sync::LazyLock;

use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use super::commit::admit;
use super::open::open_aside;
use super::{Sqlite, StoreError, failure};
use crate::id::Tenant;
use crate::payload::PayloadDigest;
use crate::store::sql::retention::AT_REST_IN_SQLITE;
use crate::store::{Change, Retired, Verdict, record};

const KEEP: &str = "UPDATE record SET revision = revision + 1, kept_until = ?4 \
                    WHERE id = ?1 AND tenant = ?2 AND revision = ?3";

static TOMBSTONE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE record SET revision = revision + 1, status = ?4, outcome = ?5, request = ?6, request_hash = ?7, \
         compensation = NULL, step = NULL, call_id = NULL, external_ref = NULL, not_before = NULL, approval = NULL, scopes = NULL, \
         kept_until = NULL WHERE id = ?1 AND tenant = ?2 AND revision = ?3 AND {AT_REST_IN_SQLITE}"
    )
});

static FORGET: LazyLock<String> = LazyLock::new(|| {
    format!("DELETE FROM record WHERE id = ?1 AND tenant = ?2 AND revision = ?3 AND {AT_REST_IN_SQLITE}")
});

/// What goes with what is said in a record; and with the record.
static BELONGING: [&str; 3] = [
    "DELETE FROM evidence WHERE tenant = ?1 AND record = ?2",
    "DELETE FROM escalation INDEXED BY escalation_record WHERE tenant = ?1 AND record = ?2",
    "DELETE FROM use WHERE tenant = ?1 AND record = ?2",
];

/// One use less of a payload; with the last one it goes.
const RELEASE: [&str; 2] = [
    "UPDATE payload SET uses = uses - 1 WHERE tenant = ?1 AND digest = ?2",
    "DELETE FROM payload WHERE tenant = ?1 AND digest = ?2 AND uses <= 0",
];

/// For the test that explains them.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    [KEEP, &TOMBSTONE, &FORGET].into_iter().chain(BELONGING).chain(RELEASE)
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
        Some(_) => TOMBSTONE.as_str(),
        None => FORGET.as_str(),
    };
    let (tenant, id) = (retired.tenant.text(), retired.id.0);
    let query = sqlx::query(sql).bind(id).bind(tenant.clone()).bind(i64::from(retired.revision));
    let query = match left {
        Some(left) if retired.is_kept() => query.bind(left.kept_until.map(|at| at.0)),
        Some(left) => {
            let (status, outcome, _) = record::columns(&left.state);
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
        release(connection, &retired.tenant, *digest).await?;
    }
    Ok(())
}

async fn release(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    digest: PayloadDigest,
) -> Result<(), sqlx::Error> {
    for sql in RELEASE {
        let query = sqlx::query(sql).bind(tenant.text()).bind(digest.0.to_vec());
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
