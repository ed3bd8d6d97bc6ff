//! Table `run`, and a run's whole history.

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN, Values};
use super::{Columns, StoreError, row, signal, step};
use crate::id::{RecordId, RunId, Tenant};
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;
use crate::store::row::{Put as _, Readable as _};
use crate::store::table::{bytes, flag, number, text};
use crate::store::{Change, History, PastCall, PastUse, Run, Turns};

/// By the same rule as `record`: revision 1 inserts, any other moves on by exactly one.
pub(super) static INSERT: Insert = Insert {
    name: "run_new",
    table: "run",
    columns: &[
        number("id"),
        text("tenant"),
        text("workflow"),
        number("version"),
        text("key"),
        number("parent"),
        text("input"),
        bytes("input_hash"),
        number("created_at"),
        number("number"),
        number("state"),
        number("wake_at"),
        number("waits_on"),
        text("outcome"),
        number("fence"),
        number("revision"),
        number("deaths"),
        number("updated_at"),
        flag("unsettled"),
    ],
    ..PLAIN
};

/// The same for one that has been in a loop or a queue, or has gone on as new.
pub(super) static INSERT_WHOLE: Insert = Insert {
    name: "run_new_whole",
    columns: &[
        number("id"),
        text("tenant"),
        text("workflow"),
        number("version"),
        text("key"),
        number("parent"),
        text("input"),
        bytes("input_hash"),
        number("created_at"),
        number("number"),
        number("state"),
        number("wake_at"),
        number("waits_on"),
        text("outcome"),
        number("fence"),
        number("revision"),
        number("deaths"),
        number("updated_at"),
        flag("unsettled"),
        number("base"),
        number("turn"),
        text("queue"),
        text("queue_key"),
        number("priority"),
        number("admitted_at"),
    ],
    ..INSERT
};

/// By way of a row that is never inserted, with its revision's sign turned: see `record`.
pub(super) static MOVE: Insert = Insert {
    name: "run_moved",
    table: "run",
    columns: &[
        number("id"),
        text("tenant"),
        number("version"),
        number("state"),
        number("wake_at"),
        number("waits_on"),
        text("outcome"),
        number("fence"),
        number("revision"),
        number("deaths"),
        number("updated_at"),
        flag("unsettled"),
    ],
    constants: &[
        ("workflow", "''"),
        ("input", "''"),
        ("input_hash", "''"),
        ("created_at", "0"),
        ("number", "0"),
    ],
    tail: "ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, state = excluded.state, \
           wake_at = excluded.wake_at, waits_on = excluded.waits_on, outcome = excluded.outcome, \
           fence = excluded.fence, revision = -excluded.revision, \
           deaths = excluded.deaths, updated_at = excluded.updated_at, unsettled = excluded.unsettled \
           WHERE run.revision = -excluded.revision - 1",
    holds: Some("revision > 0"),
    ..PLAIN
};

/// The same for one that has been in a loop or a queue, or has gone on as new.
pub(super) static MOVE_WHOLE: Insert = Insert {
    name: "run_moved_whole",
    columns: &[
        number("id"),
        text("tenant"),
        number("version"),
        number("state"),
        number("wake_at"),
        number("waits_on"),
        text("outcome"),
        number("fence"),
        number("revision"),
        number("deaths"),
        number("updated_at"),
        flag("unsettled"),
        number("base"),
        number("turn"),
        number("admitted_at"),
    ],
    tail: "ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, state = excluded.state, wake_at = excluded.wake_at, waits_on = excluded.waits_on, \
           outcome = excluded.outcome, fence = excluded.fence, revision = -excluded.revision, \
           deaths = excluded.deaths, updated_at = excluded.updated_at, unsettled = excluded.unsettled, \
           base = excluded.base, turn = excluded.turn, admitted_at = excluded.admitted_at \
           WHERE run.revision = -excluded.revision - 1",
    ..MOVE
};

/// New ones by their start keys, and then the others by their places: so any two workers lock them in one order.
pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows = changes.iter().filter_map(|change| change.run.as_deref());
    let (mut new, mut old): (Vec<_>, Vec<_>) = rows.partition(|run| run.revision == 1);
    new.sort_by_key(|run| (run.tenant.as_str(), run.workflow.as_str(), &run.key, run.id));
    old.sort_by_key(|run| (run.tenant.as_str(), run.id));
    let (usual, whole): (Vec<_>, Vec<_>) = new.into_iter().partition(|run| run.is_usual());
    batch.insert(&INSERT, &usual, |run, row| bind_new(run, row));
    batch.insert(&INSERT_WHOLE, &whole, |run, row| {
        bind_new(run, row);
        let queue = run.queue.as_deref();
        row.number(i64::from(run.base))
            .number(i64::from(run.turn))
            .some_text(queue.map(|queue| queue.name.as_str()))
            .some_text(queue.and_then(|queue| queue.key.as_deref()))
            .some_number(queue.map(|queue| i64::from(queue.priority)));
        bind_admitted(run, row);
    });
    let (usual, whole): (Vec<_>, Vec<_>) = old.into_iter().partition(|run| run.is_usual());
    batch.insert(&MOVE, &usual, |run, row| {
        bind_place(run, row);
        bind_state(run, -i64::from(run.revision), row);
    });
    batch.insert(&MOVE_WHOLE, &whole, |run, row| {
        bind_place(run, row);
        bind_state(run, -i64::from(run.revision), row);
        row.number(i64::from(run.base)).number(i64::from(run.turn));
        bind_admitted(run, row);
    });
}

fn bind_admitted(run: &Run, row: &mut Values<'_>) {
    row.some_number(run.queue.as_ref().and_then(|queue| queue.admitted_at).map(|at| at.0));
}

fn bind_new(run: &Run, row: &mut Values<'_>) {
    row.number(run.id.0)
        .text(run.tenant.as_str())
        .text(run.workflow.as_str())
        .number(i64::from(run.version))
        .some_text(run.key.as_deref())
        .some_number(run.parent.map(|parent| parent.0))
        .text(&run.input.column())
        .bytes(&run.input_hash.column())
        .number(run.created_at.0)
        .number(run.number.0);
    bind_state(run, i64::from(run.revision), row);
}

fn bind_place(run: &Run, row: &mut Values<'_>) {
    row.number(run.id.0).text(run.tenant.as_str()).number(i64::from(run.version));
}

fn bind_state(run: &Run, revision: i64, row: &mut Values<'_>) {
    let (wake_at, waits_on, outcome) = run.state.columns();
    row.number(run.state.code())
        .some_number(wake_at)
        .number(waits_on)
        .some_text(outcome.as_deref())
        .number(run.fence.0)
        .number(revision)
        .number(i64::from(run.deaths))
        .number(run.updated_at.0)
        .flag(run.unsettled);
}

/// Takes over what can be had: rows that another worker is writing at this moment are passed over instead of waited
/// for, so that workers that wake for the same runs neither queue up nor deadlock. Gives the places of those taken.
/// The rows are found by their primary key, one by one: joins by hash and merge are off on this connection.
pub(super) const CLAIM: &str = "WITH w AS (SELECT fence FROM worker WHERE fence = $1 AND ended_at IS NULL FOR KEY SHARE), \
    u AS (SELECT * FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
    $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::boolean[], $14::bigint[], $15::bigint[], $16::bigint[]) \
    AS u (id, tenant, version, state, wake_at, waits_on, outcome, fence, revision, deaths, updated_at, unsettled, base, turn, \
    admitted_at)), \
    c AS (SELECT r.tenant, r.id FROM u CROSS JOIN w JOIN run r ON r.tenant = u.tenant AND r.id = u.id \
    WHERE r.revision = u.revision - 1 FOR UPDATE OF r SKIP LOCKED) \
    UPDATE run SET version = u.version, state = u.state, wake_at = u.wake_at, waits_on = u.waits_on, outcome = u.outcome, \
    fence = u.fence, revision = u.revision, deaths = u.deaths, updated_at = u.updated_at, unsettled = u.unsettled, \
    base = u.base, turn = u.turn, admitted_at = u.admitted_at FROM u JOIN c ON c.tenant = u.tenant AND c.id = u.id \
    WHERE run.tenant = c.tenant AND run.id = c.id RETURNING run.tenant, run.id";

/// The arguments of [`CLAIM`] after the first are the columns of this, which is no statement.
pub(super) static CLAIMED: Insert =
    Insert { name: "claimed", constants: &[], tail: "", holds: None, ..MOVE_WHOLE };

/// Adds the runs to be taken over.
pub(super) fn write_claims(runs: &[&Run], batch: &mut Batch) {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| (run.tenant.as_str(), run.id));
    batch.insert(&CLAIMED, &runs, |run, row| {
        bind_place(run, row);
        bind_state(run, i64::from(run.revision), row);
        row.number(i64::from(run.base)).number(i64::from(run.turn));
        bind_admitted(run, row);
    });
}

/// Four queries, whatever the number of steps.
pub(super) async fn history(
    pool: &Pool,
    tenant: &Tenant,
    id: RunId,
    turns: Turns,
) -> Result<History, StoreError> {
    Ok(History {
        steps: step::of_run(pool, tenant, id, turns).await?,
        calls: calls(pool, tenant, id, turns).await?,
        uses: uses(pool, tenant, id, turns).await?,
        signals: signal::pending(pool, &[(tenant.clone(), id)]).await?,
    })
}

/// Only what resume needs of a record, and the response only of those that have one.
async fn calls(pool: &Pool, tenant: &Tenant, id: RunId, turns: Turns) -> Result<Vec<PastCall>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
             FROM record WHERE tenant = $1 AND run = $2 AND turn = $3 \
             UNION ALL SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
             FROM record WHERE tenant = $1 AND run = $2 AND turn BETWEEN $4 AND $5 AND turn <> $3",
        )
        .bind(tenant.as_str())
        .bind(id.0)
        .bind(i64::from(turns.base))
        .bind(i64::from(turns.first))
        .bind(i64::from(turns.last))
    };
    pool.all(query)
        .await?
        .iter()
        .map(|row| {
            let mut c = Columns::of("record", row);
            Ok(PastCall {
                record: RecordId(c.take()?),
                key: c.parse_text(|text| Some(OperationKey::stored(text)))?,
                operation: c.text()?,
                turn: c.count()?,
                step: c.some_text()?.unwrap_or_default(),
                request_hash: c.parse(|bytes: &[u8]| RequestHash::from_column(bytes))?,
                attempts: c.count()?,
                response: c.parse_some_text(Stored::from_column)?,
            })
        })
        .collect()
}

async fn uses(pool: &Pool, tenant: &Tenant, id: RunId, turns: Turns) -> Result<Vec<PastUse>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.tenant = u.tenant \
             AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 AND u.turn = $3 \
             UNION ALL SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r \
             ON r.tenant = u.tenant AND r.id = u.record WHERE u.tenant = $1 AND u.run = $2 \
             AND u.turn BETWEEN $4 AND $5 AND u.turn <> $3",
        )
        .bind(tenant.as_str())
        .bind(id.0)
        .bind(i64::from(turns.base))
        .bind(i64::from(turns.first))
        .bind(i64::from(turns.last))
    };
    pool.all(query)
        .await?
        .iter()
        .map(|row| {
            let mut c = Columns::of("use", row);
            Ok(PastUse {
                record: RecordId(c.take()?),
                key: c.parse_text(|text| Some(OperationKey::stored(text)))?,
                operation: c.text()?,
                turn: c.count()?,
                step: c.text()?,
            })
        })
        .collect()
}

/// Another run has its start key, and none its place.
pub(super) async fn is_taken(connection: &mut PgConnection, run: &Run) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM run WHERE tenant = $1 AND workflow = $2 AND key = $3 \
         AND NOT EXISTS (SELECT 1 FROM run o WHERE o.tenant = $1 AND o.id = $4)",
    )
    .bind(run.tenant.as_str())
    .bind(run.workflow.as_str())
    .bind(run.key.as_deref().map(|key| super::escaped(key).into_owned()))
    .bind(run.id.0)
    .persistent(false)
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}

/// The run has ended, as the transaction that is under way sees it.
pub(super) async fn is_over(
    connection: &mut PgConnection,
    tenant: &Tenant,
    id: RunId,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query("SELECT 1 FROM run WHERE tenant = $1 AND id = $2 AND state IN (3, 4)");
    let query = query.bind(tenant.as_str()).bind(id.0).persistent(false);
    Ok(query.fetch_optional(connection).await?.is_some())
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(connection: &mut PgConnection, run: &Run) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(AssertSqlSafe(Run::TABLE.select("WHERE tenant = $1 AND id = $2")));
    let row =
        query.persistent(false).bind(run.tenant.as_str()).bind(run.id.0).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| row::read::<Run>(&row).is_ok_and(|stored| stored == *run)))
}
