//! Table `run`, and a run's whole history.

use std::sync::LazyLock;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Either, Executor as _, SqlitePool};

use super::statement::{Batch, Insert, Values};
use super::{Columns, StoreError, failure, row, signal, step};
use crate::id::{Fence, RecordId, RunId, Tenant};
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;
use crate::store::row::Readable as _;
use crate::store::{Change, History, PastCall, PastUse, Run, Turns};

/// By the same rule as `record`: revision 1 inserts, any other moves on by exactly one.
static UPSERT: Insert = Insert {
    head: "INSERT INTO run (id, tenant, workflow, version, key, parent, input, input_hash, state, wake_at, waits_on, outcome, \
           fence, revision, deaths, created_at, updated_at, unsettled, number) \
           SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, \
           column12, column13, (SELECT column14 FROM worker WHERE worker.fence = column20 AND worker.ended_at IS NULL), \
           column15, column16, column17, column18, column19",
    columns: 20,
    tail: "ON CONFLICT (id) DO UPDATE SET version = excluded.version, state = excluded.state, wake_at = excluded.wake_at, \
           waits_on = excluded.waits_on, outcome = excluded.outcome, fence = excluded.fence, \
           revision = CASE WHEN run.revision = excluded.revision - 1 AND run.tenant = excluded.tenant \
           THEN excluded.revision END, \
           deaths = excluded.deaths, updated_at = excluded.updated_at, unsettled = excluded.unsettled",
};

/// The same for one that has been in a loop or a queue, or has gone on as new.
static UPSERT_WHOLE: Insert = Insert {
    head: "INSERT INTO run (id, tenant, workflow, version, key, parent, input, input_hash, state, wake_at, waits_on, outcome, \
           fence, revision, deaths, created_at, updated_at, unsettled, number, base, turn, queue, queue_key, priority, admitted_at) \
           SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, \
           column12, column13, (SELECT column14 FROM worker WHERE worker.fence = column20 AND worker.ended_at IS NULL), \
           column15, column16, column17, column18, column19, column21, column22, column23, column24, column25, column26",
    columns: 26,
    tail: "ON CONFLICT (id) DO UPDATE SET version = excluded.version, state = excluded.state, wake_at = excluded.wake_at, \
           waits_on = excluded.waits_on, outcome = excluded.outcome, fence = excluded.fence, \
           revision = CASE WHEN run.revision = excluded.revision - 1 AND run.tenant = excluded.tenant \
           THEN excluded.revision END, \
           deaths = excluded.deaths, updated_at = excluded.updated_at, unsettled = excluded.unsettled, \
           base = excluded.base, turn = excluded.turn, admitted_at = excluded.admitted_at",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows = changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.fence)));
    let (usual, whole): (Vec<_>, Vec<_>) = rows.partition(|(run, _)| run.is_usual());
    batch.insert(&UPSERT, &usual, bind);
    batch.insert(&UPSERT_WHOLE, &whole, |(run, writer), row| {
        bind(&(run, *writer), row);
        let queue = run.queue.as_deref();
        row.value(i64::from(run.base))
            .value(i64::from(run.turn))
            .value(queue.map(|queue| queue.name.text()))
            .value(queue.and_then(|queue| queue.key.clone()))
            .value(queue.map(|queue| i64::from(queue.priority)))
            .value(queue.and_then(|queue| queue.admitted_at).map(|at| at.0));
    });
}

fn bind((run, writer): &(&Run, Option<Fence>), row: &mut Values<'_>) {
    let (wake_at, waits_on, outcome) = run.state.columns();
    row.value(run.id.0)
        .value(run.tenant.text())
        .value(run.workflow.text())
        .value(i64::from(run.version))
        .value(run.key.clone())
        .value(run.parent.map(|parent| parent.0))
        .value(run.input.column())
        .value(run.input_hash.column())
        .value(run.state.code())
        .value(wake_at)
        .value(waits_on)
        .value(outcome)
        .value(run.fence.0)
        .value(i64::from(run.revision))
        .value(i64::from(run.deaths))
        .value(run.created_at.0)
        .value(run.updated_at.0)
        .value(i64::from(run.unsettled))
        .value(run.number.0)
        .value(writer.map(|fence| fence.0));
}

/// Only what resume needs of a record, and the response only of those that have one.
const CALLS: &str = "SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
    FROM record WHERE run = ?2 AND turn = ?3 AND tenant = ?1 \
    UNION ALL SELECT id, key, operation, turn, step, request_hash, attempts, CASE WHEN status = 2 THEN outcome END \
    FROM record WHERE run = ?2 AND turn BETWEEN ?4 AND ?5 AND turn <> ?3 AND tenant = ?1";

const USES: &str = "SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.id = u.record \
    AND r.tenant = u.tenant WHERE u.tenant = ?1 AND u.run = ?2 AND u.turn = ?3 \
    UNION ALL SELECT r.id, r.key, r.operation, u.turn, u.step FROM use u JOIN record r ON r.id = u.record \
    AND r.tenant = u.tenant WHERE u.tenant = ?1 AND u.run = ?2 AND u.turn BETWEEN ?4 AND ?5 AND u.turn <> ?3";

/// Four queries, whatever the number of steps, as one text: between us and the driver's thread, each text costs a
/// wake-up in both directions, and most runs that wake have recorded little.
static HISTORY: LazyLock<String> = LazyLock::new(|| [step::OF_RUN, CALLS, USES, &signal::PENDING].join("; "));

pub(super) async fn history(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: RunId,
    turns: Turns,
) -> Result<History, StoreError> {
    let query = sqlx::query(HISTORY.as_str())
        .bind(tenant.text())
        .bind(id.0)
        .bind(i64::from(turns.base))
        .bind(i64::from(turns.first))
        .bind(i64::from(turns.last));
    let mut answers = pool.fetch_many(query);
    let (mut history, mut of) = (History::default(), 0);
    while let Some(answer) = answers.try_next().await.map_err(|e| failure(&e))? {
        match (of, answer) {
            (_, Either::Left(_end)) => of += 1,
            (0, Either::Right(row)) => history.steps.push(step::past(&row)?),
            (1, Either::Right(row)) => history.calls.push(call(&row)?),
            (2, Either::Right(row)) => history.uses.push(used(&row)?),
            (_, Either::Right(row)) => history.signals.push(row::read(&row)?),
        }
    }
    Ok(history)
}

fn call(row: &SqliteRow) -> Result<PastCall, StoreError> {
    let mut c = Columns::of("record", row);
    Ok(PastCall {
        record: RecordId(c.take()?),
        key: OperationKey::stored(c.take::<&str>()?),
        operation: c.take()?,
        turn: c.take()?,
        step: c.take::<Option<String>>()?.unwrap_or_default(),
        request_hash: c.parse(|bytes: &[u8]| RequestHash::from_column(bytes))?,
        attempts: c.take()?,
        response: c.parse_some(Stored::from_column)?,
    })
}

fn used(row: &SqliteRow) -> Result<PastUse, StoreError> {
    let mut c = Columns::of("use", row);
    Ok(PastUse {
        record: RecordId(c.take()?),
        key: OperationKey::stored(c.take::<&str>()?),
        operation: c.take()?,
        turn: c.take()?,
        step: c.take()?,
    })
}

/// The run has ended, as the transaction that is under way sees it.
pub(super) async fn is_over(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    id: RunId,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query("SELECT 1 FROM run WHERE id = ? AND tenant = ? AND state IN (3, 4)");
    let row = query.bind(id.0).bind(tenant.text()).fetch_optional(connection).await?;
    Ok(row.is_some())
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(connection: &mut SqliteConnection, run: &Run) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(AssertSqlSafe(Run::TABLE.select("WHERE id = $1"))).bind(run.id.0);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| row::read::<Run>(&row).is_ok_and(|stored| stored == *run)))
}
