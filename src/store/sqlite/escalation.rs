//! Table `escalation`: open questions, and their answers.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert};
use super::{Columns, StoreError, failure, next_sound, record, run};
use crate::clock::Timestamp;
use crate::id::{EscalationId, RecordId, RunId, Tenant};
use crate::store::{Change, Escalation, EscalationKind, columns};

/// Without an answer a new question; with one, or with one that waits, it may only fall on a question that is still open: the
/// first answer stands. Otherwise the question becomes NULL, which aborts, as a fenced worker's does.
static UPSERT: Insert = Insert {
    head: "INSERT INTO escalation (tenant, id, record, run, kind, question, opened_at, answer, waiting) \
           SELECT column1, column2, column3, column4, column5, \
           (SELECT column6 FROM worker WHERE worker.fence = column10 AND worker.ended_at IS NULL), column7, column8, column9",
    columns: 10,
    tail: "ON CONFLICT (tenant, id) DO UPDATE SET answer = excluded.answer, waiting = excluded.waiting, \
           question = CASE WHEN escalation.answer IS NULL AND (excluded.answer IS NOT NULL OR excluded.waiting IS NOT NULL) \
           THEN excluded.question END",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> =
        changes.iter().flat_map(|c| c.escalations.iter().map(|escalation| (escalation, c.fence))).collect();
    batch.insert(&UPSERT, &rows, |(escalation, writer), row| {
        row.value(escalation.tenant.text())
            .value(escalation.id.0)
            .value(escalation.record.map(|id| id.0))
            .value(escalation.run.map(|id| id.0))
            .value(escalation.kind.code())
            .value(escalation.question.clone())
            .value(escalation.opened_at.0)
            .value(columns::of_answer(escalation.answer.as_ref()))
            .value(columns::of_answer(escalation.waiting.as_ref()))
            .value(writer.map(|fence| fence.0));
    });
}

fn read(row: &SqliteRow) -> Result<Escalation, StoreError> {
    let mut c = Columns::of("escalation", row);
    Ok(Escalation {
        id: EscalationId(c.take()?),
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        record: c.take::<Option<i64>>()?.map(RecordId),
        run: c.take::<Option<i64>>()?.map(RunId),
        kind: c.parse(EscalationKind::from_code)?,
        question: c.take()?,
        opened_at: Timestamp(c.take()?),
        answer: c.parse_some(|text: String| serde_json::from_str(&text).ok())?,
        waiting: c.parse_some(|text: String| serde_json::from_str(&text).ok())?,
    })
}

const FIND: &str = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
                    WHERE tenant = ? AND id = ?";

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: EscalationId,
) -> Result<Option<Escalation>, StoreError> {
    let query = sqlx::query(FIND).bind(tenant.text()).bind(id.0);
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn open(
    pool: &SqlitePool,
    tenant: &Tenant,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let page = |after: i64| {
        // Left to itself the planner takes the primary key, and reads every question that was ever answered.
        sqlx::query(
            "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation INDEXED BY escalation_open \
             WHERE tenant = ? AND answer IS NULL AND id > ? ORDER BY id LIMIT ?",
        )
        .bind(tenant.text())
        .bind(after)
        .bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

pub(super) async fn about(
    pool: &SqlitePool,
    tenant: &Tenant,
    run: RunId,
) -> Result<Vec<Escalation>, StoreError> {
    sqlx::query(
        "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation INDEXED BY escalation_run \
         WHERE tenant = ? AND run = ? AND answer IS NULL ORDER BY id",
    )
    .bind(tenant.text())
    .bind(run.0)
    .fetch_all(pool)
    .await
    .map_err(|e| failure(&e))?
    .iter()
    .map(read)
    .collect()
}

/// What was ever asked about a record.
pub(super) async fn of(
    pool: &SqlitePool,
    tenant: &Tenant,
    record: RecordId,
) -> Result<Vec<Escalation>, StoreError> {
    sqlx::query(
        "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation INDEXED BY escalation_record \
         WHERE tenant = ? AND record = ? ORDER BY id",
    )
    .bind(tenant.text())
    .bind(record.0)
    .fetch_all(pool)
    .await
    .map_err(|e| failure(&e))?
    .iter()
    .map(read)
    .collect()
}

pub(super) async fn unknown_workflow(
    pool: &SqlitePool,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
               WHERE kind = 7 AND answer IS NULL AND id > ? ORDER BY id LIMIT ?";
    open_of_all(pool, sql, after, limit).await
}

pub(super) async fn duplicated(
    pool: &SqlitePool,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
               WHERE kind = 2 AND answer IS NULL AND id > ? ORDER BY id LIMIT ?";
    open_of_all(pool, sql, after, limit).await
}

/// Open questions of one kind and of all tenants. The kind stands in the statement, as it stands in the kind's partial index.
async fn open_of_all(
    pool: &SqlitePool,
    sql: &'static str,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    next_sound(pool, after.0, |after: i64| sqlx::query(sql).bind(after).bind(limit), read).await
}

/// Opens what follows from late answers, once all else of the change is written. A question that is there stands.
pub(super) async fn open_late(connection: &mut SqliteConnection, change: &Change) -> Result<(), sqlx::Error> {
    const OPEN: &str = "INSERT INTO escalation (tenant, id, record, run, kind, question, opened_at) \
                        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    let Some((tenant, id)) = change.compared() else { return Ok(()) };
    let Some(record) = record::sound_at(connection, tenant, id).await? else { return Ok(()) };
    let is_left = match record.awaited_by() {
        Some(run) => run::is_over(connection, tenant, run).await?,
        None => false,
    };
    for evidence in record::sound_evidence(connection, tenant, id).await? {
        let Some(question) = change.late_question(&record, is_left, &evidence) else { continue };
        let opening = sqlx::query(OPEN)
            .bind(question.tenant.text())
            .bind(question.id.0)
            .bind(question.record.map(|id| id.0))
            .bind(question.run.map(|id| id.0))
            .bind(question.kind.code())
            .bind(question.question)
            .bind(question.opened_at.0);
        opening.execute(&mut *connection).await?;
        let open_again = sqlx::query("UPDATE worker SET settled = 0 WHERE fence = ?").bind(evidence.fence.0);
        open_again.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    escalation: &Escalation,
) -> Result<bool, sqlx::Error> {
    let row = sqlx::query(FIND)
        .bind(escalation.tenant.text())
        .bind(escalation.id.0)
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *escalation)))
}
