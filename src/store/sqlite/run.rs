//! Table `run`, and a run's whole history.

use std::sync::LazyLock;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Either, Executor as _, SqlitePool};

use super::statement::{Batch, Insert, Values};
use super::{Columns, StoreError, failure, next_sound, signal, sound, step};
use crate::clock::Timestamp;
use crate::id::{Fence, Name, RecordId, RunId, RunNumber, Tenant};
use crate::ledger::{OperationKey, RequestHash};
use crate::payload::Stored;
use crate::store::{
    COMMAND, Change, EscalationKind, History, PastCall, PastUse, Run, RunState, Turns, columns,
};

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
    let (usual, whole): (Vec<_>, Vec<_>) = rows.partition(|(run, _)| columns::is_usual_run(run));
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
    let (wake_at, waits_on, outcome) = columns::of_run(&run.state);
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

pub(super) fn read(row: &SqliteRow) -> Result<Run, StoreError> {
    let mut c = Columns::of("run", row);
    let mut run = Run {
        id: RunId(c.take()?),
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        workflow: c.parse(|text: String| Name::new(text).ok())?,
        version: c.take()?,
        key: c.take()?,
        parent: c.take::<Option<i64>>()?.map(RunId),
        input: c.parse(Stored::from_column)?,
        input_hash: c.parse(|bytes: &[u8]| RequestHash::from_column(bytes))?,
        number: RunNumber(0),
        state: RunState::Active, // its columns follow
        queue: None,
        fence: Fence(0),
        revision: 0,
        deaths: 0,
        unsettled: false,
        base: 0,
        turn: 0,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    let code: i64 = c.take()?;
    let until: Option<i64> = c.take()?;
    let waits_on: i64 = c.take()?;
    let outcome: Option<String> = c.take()?;
    run.state = columns::run_state(code, until, waits_on, outcome)
        .ok_or_else(|| c.damaged(format!("state {code} does not fit its outcome")))?;
    run.fence = Fence(c.take()?);
    run.revision = c.take()?;
    run.deaths = c.take()?;
    run.created_at = Timestamp(c.take()?);
    run.updated_at = Timestamp(c.take()?);
    run.unsettled = c.take()?;
    run.number = RunNumber(c.take()?);
    run.base = c.take()?;
    run.turn = c.take()?;
    run.queue =
        columns::in_queue(c.take()?, c.take()?, c.take()?, c.take()?).map_err(|detail| c.damaged(detail))?;
    Ok(run)
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT id, tenant, workflow, version, key, parent, input, input_hash, state, wake_at, waits_on, outcome, \
             fence, revision, deaths, created_at, updated_at, unsettled, number, base, turn, queue, queue_key, priority, admitted_at FROM run ",
            $tail
        )
    };
}

pub(super) async fn find(pool: &SqlitePool, tenant: &Tenant, id: RunId) -> Result<Option<Run>, StoreError> {
    one(sqlx::query(select!("WHERE id = ? AND tenant = ?"))
        .bind(id.0)
        .bind(tenant.text())
        .fetch_optional(pool)
        .await)
}

pub(super) async fn keyed(
    pool: &SqlitePool,
    tenant: &Tenant,
    workflow: &str,
    key: &str,
) -> Result<Option<Run>, StoreError> {
    let query = sqlx::query(select!("WHERE tenant = ? AND workflow = ? AND key = ?"));
    one(query.bind(tenant.text()).bind(workflow.to_owned()).bind(key.to_owned()).fetch_optional(pool).await)
}

pub(super) async fn orphans(pool: &SqlitePool, after: RunId, limit: u32) -> Result<Vec<Run>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!(
            "WHERE state = 1 AND id > ? AND fence IN (SELECT fence FROM worker WHERE ended_at IS NOT NULL) \
             ORDER BY id LIMIT ?"
        ));
        query.bind(after).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

pub(super) async fn answered(pool: &SqlitePool, after: RunId, limit: u32) -> Result<Vec<Run>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!(
            "WHERE waits_on IN (1, 3) AND id > ? AND NOT EXISTS (SELECT 1 FROM escalation e \
             INDEXED BY escalation_run WHERE e.tenant = run.tenant AND e.run = run.id AND e.answer IS NULL \
             AND e.kind IN (?, ?, ?)) ORDER BY id LIMIT ?"
        ));
        let [asked, gone, undo] = EscalationKind::PARKING.map(EscalationKind::code);
        query.bind(after).bind(asked).bind(gone).bind(undo).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

/// Found by the signals that nobody has received, which are few.
pub(super) async fn signalled(pool: &SqlitePool, after: RunId, limit: u32) -> Result<Vec<Run>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!(
            "WHERE id IN (SELECT s.run FROM signal s INDEXED BY signal_pending WHERE NOT s.received) \
             AND EXISTS (SELECT 1 FROM signal s INDEXED BY signal_pending WHERE s.tenant = run.tenant \
             AND s.run = run.id AND NOT s.received AND (waits_on IN (2, 3) OR substr(s.name, 1, 2) = ?)) \
             AND state IN (0, 2) AND id > ? ORDER BY id LIMIT ?"
        ));
        query.bind(COMMAND).bind(after).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

pub(super) async fn children(
    pool: &SqlitePool,
    tenant: &Tenant,
    parent: RunId,
    after: RunId,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!("WHERE tenant = ? AND parent = ? AND id > ? ORDER BY id LIMIT ?"));
        query.bind(tenant.text()).bind(parent.0).bind(after).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

pub(super) async fn due(pool: &SqlitePool, until: Timestamp, limit: u32) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(select!("WHERE wake_at <= ? ORDER BY wake_at LIMIT ?"));
    let rows = query.bind(until.0).bind(limit).fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, read))
}

pub(super) async fn next_due(pool: &SqlitePool, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT min(at) FROM (SELECT min(wake_at) AS at FROM run WHERE wake_at > ?1 \
               UNION ALL SELECT min(due_at) FROM queue WHERE due_at > ?1 \
               UNION ALL SELECT min(next_at) FROM schedule WHERE next_at > ?1 \
               UNION ALL SELECT min(due_at) FROM look WHERE due_at > ?1)";
    let row = sqlx::query(sql).bind(after.0).fetch_one(pool).await.map_err(|e| failure(&e))?;
    Ok(Columns::of("due", &row).take::<Option<i64>>()?.map(Timestamp))
}

pub(super) async fn admitted(
    pool: &SqlitePool,
    queue: &str,
    fence: Fence,
    since: Timestamp,
) -> Result<Vec<Run>, StoreError> {
    let query = sqlx::query(select!(
        "WHERE queue = ? AND admitted_at >= ? AND state IN (1, 2) AND fence = ? AND state = 1 \
         ORDER BY admitted_at, tenant, id"
    ));
    let query = query.bind(queue.to_owned()).bind(since.0).bind(fence.0);
    let rows = query.fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, read))
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &Tenant,
    after: RunId,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!("WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"));
        query.bind(tenant.text()).bind(after).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

fn one(row: Result<Option<SqliteRow>, sqlx::Error>) -> Result<Option<Run>, StoreError> {
    row.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
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
static HISTORY: LazyLock<String> = LazyLock::new(|| [step::OF_RUN, CALLS, USES, signal::PENDING].join("; "));

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
            (_, Either::Right(row)) => history.signals.push(signal::read(&row)?),
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
    let row = sqlx::query(select!("WHERE id = ?")).bind(run.id.0).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *run)))
}
