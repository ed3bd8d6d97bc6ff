//! Records whose time is over, and what is left of them.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Executor as _, Postgres, Row as _};

use super::connect::within;
use super::pool::Trouble;
use super::{Postgres as Store, StoreError, failure};
use crate::id::Tenant;
use crate::ledger::Record;
use crate::payload::PayloadDigest;
use crate::store::sql::retention::AT_REST_IN_POSTGRES;
use crate::store::sql::worker;
use crate::store::{Change, Refusal, Retired, Verdict, record};

const KEEP: &str = "UPDATE record SET revision = n.revision + 1, kept_until = n.kept_until \
    FROM (SELECT unnest($1::text[]) AS tenant, unnest($2::bigint[]) AS id, unnest($3::bigint[]) AS revision, \
    unnest($4::bigint[]) AS kept_until) n \
    WHERE record.tenant = n.tenant AND record.id = n.id AND record.revision = n.revision";

static TOMBSTONE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH gone AS (UPDATE record SET revision = n.revision + 1, status = n.status, outcome = n.outcome, \
     request = n.request, request_hash = n.request_hash, compensation = NULL, step = NULL, call_id = NULL, \
     external_ref = NULL, not_before = NULL, approval = NULL, scopes = NULL, kept_until = NULL \
     FROM (SELECT unnest($1::text[]) AS tenant, unnest($2::bigint[]) AS id, unnest($3::bigint[]) AS revision, \
     unnest($4::bigint[]) AS status, unnest($5::text[]) AS outcome, unnest($6::text[]) AS request, \
     unnest($7::bytea[]) AS request_hash) n \
     WHERE record.tenant = n.tenant AND record.id = n.id AND record.revision = n.revision AND {AT_REST_IN_POSTGRES} \
     RETURNING record.tenant, record.id), \
     evidence AS (DELETE FROM evidence e USING gone WHERE e.tenant = gone.tenant AND e.record = gone.id), \
     questions AS (DELETE FROM escalation e USING gone WHERE e.tenant = gone.tenant AND e.record = gone.id) \
     SELECT id FROM gone"
    )
});

static FORGET: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH gone AS (DELETE FROM record USING (SELECT unnest($1::text[]) AS tenant, unnest($2::bigint[]) AS id, \
     unnest($3::bigint[]) AS revision) n \
     WHERE record.tenant = n.tenant AND record.id = n.id AND record.revision = n.revision AND {AT_REST_IN_POSTGRES} \
     RETURNING record.tenant, record.id), \
     evidence AS (DELETE FROM evidence e USING gone WHERE e.tenant = gone.tenant AND e.record = gone.id), \
     uses AS (DELETE FROM use u USING gone WHERE u.tenant = gone.tenant AND u.record = gone.id), \
     questions AS (DELETE FROM escalation e USING gone WHERE e.tenant = gone.tenant AND e.record = gone.id) \
     SELECT id FROM gone"
    )
});

/// One use less of each payload, which may stand there several times; with the last one it goes.
const RELEASE: [&str; 2] = [
    "UPDATE payload p SET uses = p.uses - n.uses FROM (SELECT tenant, digest, count(*) AS uses \
     FROM (SELECT unnest($1::text[]) AS tenant, unnest($2::bytea[]) AS digest) u GROUP BY tenant, digest) n \
     WHERE p.tenant = n.tenant AND p.digest = n.digest",
    "DELETE FROM payload p USING (SELECT unnest($1::text[]) AS tenant, unnest($2::bytea[]) AS digest) n \
     WHERE p.tenant = n.tenant AND p.digest = n.digest AND p.uses <= 0",
];

/// For the test that explains them.
pub(super) fn statements() -> impl Iterator<Item = String> {
    [KEEP, &TOMBSTONE, &FORGET].into_iter().chain(RELEASE).map(ToOwned::to_owned)
}

/// Beside what is written otherwise, and without waiting for the disk: what a crash takes back is retired again.
pub(super) async fn commit(store: &Store, change: &Change) -> Result<Verdict, StoreError> {
    let options = &store.connector.options;
    let mut lent = store.readers.lend().await.map_err(|trouble| trouble.error)?;
    // Each statement by itself is limited by the server. What failed halfway is not given back.
    for part in change.retired.chunk_by(|one, next| !options.distributed || one.tenant == next.tenant) {
        let written = within(options.answer_timeout * 8, write(&mut lent.connection, change, part)).await;
        match written.ok_or_else(|| Trouble::late(options.answer_timeout * 8).error)? {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Refused(Refusal::Fenced)),
            Err(error) => return Err(failure(&error)),
        }
    }
    lent.give_back();
    Ok(Verdict::Admitted)
}

async fn write(
    connection: &mut PgConnection,
    change: &Change,
    retired: &[Retired],
) -> Result<bool, sqlx::Error> {
    connection.execute("BEGIN; SET LOCAL synchronous_commit = off").await?;
    let alive = match change.fence {
        Some(fence) => worker::is_alive(connection, fence).await?,
        None => false,
    };
    if alive {
        retire(connection, retired).await?;
        connection.execute("COMMIT").await?;
    }
    Ok(alive)
}

/// Looks once more whether anybody rests on them: since they were listed, a run may have been answered from one. (One that is
/// answered from it in this very moment is told so when it is replayed.)
pub(super) async fn retire(connection: &mut PgConnection, retired: &[Retired]) -> Result<(), sqlx::Error> {
    let (kept, over): (Vec<_>, Vec<_>) = retired.iter().partition(|retired| retired.is_kept());
    let (left, gone): (Vec<_>, Vec<_>) = over.into_iter().partition(|retired| retired.left.is_some());
    if !kept.is_empty() {
        let until: Vec<_> = records(&kept).map(|record| record.kept_until.map(|at| at.0)).collect();
        places(KEEP, &kept).bind(until).execute(&mut *connection).await?;
    }
    if !left.is_empty() {
        let (mut status, mut outcomes) = (Vec::new(), Vec::new());
        for record in records(&left) {
            let (code, outcome, _) = record::columns(&record.state);
            status.push(code);
            outcomes.push(outcome.map(|outcome| outcome.to_string()));
        }
        let requests: Vec<_> = records(&left).map(|record| record.request.column().to_string()).collect();
        let hashes: Vec<_> = records(&left).map(|record| record.request_hash.column()).collect();
        let query = places(&TOMBSTONE, &left).bind(status).bind(outcomes).bind(requests).bind(hashes);
        release(connection, &left, query).await?;
    }
    if !gone.is_empty() {
        release(connection, &gone, places(&FORGET, &gone)).await?;
    }
    Ok(())
}

/// Retires them, and the payloads of those that were.
async fn release(
    connection: &mut PgConnection,
    retired: &[&Retired],
    retire: Query<'static, Postgres, PgArguments>,
) -> Result<(), sqlx::Error> {
    let rows = retire.fetch_all(&mut *connection).await?;
    let ids: HashSet<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let gone = retired.iter().filter(|retired| ids.contains(&retired.id.0));
    let uses: Vec<_> = gone.flat_map(|r| r.payloads.iter().map(|digest| (&r.tenant, *digest))).collect();
    if uses.is_empty() { Ok(()) } else { release_payloads(connection, &uses).await }
}

fn records<'a>(retired: &'a [&'a Retired]) -> impl Iterator<Item = &'a Record> {
    retired.iter().filter_map(|retired| retired.left.as_deref())
}

fn places(sql: &'static str, retired: &[&Retired]) -> Query<'static, Postgres, PgArguments> {
    let tenants: Vec<_> = retired.iter().map(|retired| retired.tenant.as_str().to_owned()).collect();
    let ids: Vec<_> = retired.iter().map(|retired| retired.id.0).collect();
    let revisions: Vec<_> = retired.iter().map(|retired| i64::from(retired.revision)).collect();
    sqlx::query(sql).bind(tenants).bind(ids).bind(revisions).persistent(false)
}

async fn release_payloads(
    connection: &mut PgConnection,
    uses: &[(&Tenant, PayloadDigest)],
) -> Result<(), sqlx::Error> {
    for sql in RELEASE {
        let tenants: Vec<_> = uses.iter().map(|(tenant, _)| tenant.as_str().to_owned()).collect();
        let digests: Vec<_> = uses.iter().map(|(_, digest)| digest.0.to_vec()).collect();
        let query = sqlx::query(sql).bind(tenants).bind(digests).persistent(false);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
