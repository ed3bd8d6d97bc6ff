//! Table `escalation`: open questions, and their answers.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::statement::{Batch, Insert};
use super::{Columns, StoreError, escaped, next_sound, record, run};
use crate::clock::Timestamp;
use crate::id::{EscalationId, RecordId, RunId, Tenant};
use crate::store::row::Put as _;
use crate::store::table::{number, text};
use crate::store::{Change, Escalation, EscalationKind, columns};

/// A new question.
pub(super) static INSERT: Insert = Insert {
    name: "question_new",
    table: "escalation",
    columns: &[
        text("tenant"),
        number("id"),
        number("record"),
        number("run"),
        number("kind"),
        text("question"),
        number("opened_at"),
    ],
    constants: &[],
    tail: "ON CONFLICT DO NOTHING",
    holds: Some("true"),
};

/// An answer, or one that waits, may only fall on a question that is still open: the first one stands. By way of a row that is
/// never inserted, with its kind's sign turned: see `record`.
pub(super) static ANSWER: Insert = Insert {
    name: "question_answered",
    table: "escalation",
    columns: &[text("tenant"), number("id"), text("question"), text("answer"), text("waiting")],
    constants: &[("kind", "-1"), ("opened_at", "0")],
    tail: "ON CONFLICT (tenant, id) DO UPDATE SET answer = excluded.answer, waiting = excluded.waiting, \
           question = excluded.question WHERE escalation.answer IS NULL",
    holds: Some("kind > 0"),
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().flat_map(|change| &change.escalations).collect();
    rows.sort_by_key(|escalation| (escalation.tenant.as_str(), escalation.id));
    let (new, old): (Vec<_>, Vec<_>) = rows.into_iter().partition(|escalation| escalation.is_new());
    batch.insert(&INSERT, &new, |escalation, row| {
        row.text(escalation.tenant.as_str())
            .number(escalation.id.0)
            .some_number(escalation.record.map(|id| id.0))
            .some_number(escalation.run.map(|id| id.0))
            .number(escalation.kind.code())
            .text(&escalation.question)
            .number(escalation.opened_at.0);
    });
    batch.insert(&ANSWER, &old, |escalation, row| {
        row.text(escalation.tenant.as_str())
            .number(escalation.id.0)
            .text(&escalation.question)
            .some_text(columns::of_answer(escalation.answer.as_ref()).as_deref())
            .some_text(columns::of_answer(escalation.waiting.as_ref()).as_deref());
    });
}

fn read(row: &PgRow) -> Result<Escalation, StoreError> {
    let mut c = Columns::of("escalation", row);
    Ok(Escalation {
        id: EscalationId(c.take()?),
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        record: c.take::<Option<i64>>()?.map(RecordId),
        run: c.take::<Option<i64>>()?.map(RunId),
        kind: c.parse(EscalationKind::from_code)?,
        question: c.text()?,
        opened_at: Timestamp(c.take()?),
        answer: c.parse_some_text(|text| serde_json::from_str(text).ok())?,
        waiting: c.parse_some_text(|text| serde_json::from_str(text).ok())?,
    })
}

const FIND: &str = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
                    WHERE tenant = $1 AND id = $2";

pub(super) async fn find(
    pool: &Pool,
    tenant: &Tenant,
    id: EscalationId,
) -> Result<Option<Escalation>, StoreError> {
    let query = || sqlx::query(FIND).bind(tenant.as_str()).bind(id.0);
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn open(
    pool: &Pool,
    tenant: &Tenant,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let page = |after: i64| {
        sqlx::query(
            "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
             WHERE tenant = $1 AND answer IS NULL AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(tenant.as_str().to_owned())
        .bind(after)
        .bind(i64::from(limit))
    };
    next_sound(pool, after.0, page, read).await
}

pub(super) async fn about(pool: &Pool, tenant: &Tenant, run: RunId) -> Result<Vec<Escalation>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
             WHERE tenant = $1 AND run = $2 AND answer IS NULL ORDER BY id",
        )
        .bind(tenant.as_str())
        .bind(run.0)
    };
    pool.all(query).await?.iter().map(read).collect()
}

/// What was ever asked about a record.
pub(super) async fn of(
    pool: &Pool,
    tenant: &Tenant,
    record: RecordId,
) -> Result<Vec<Escalation>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
             WHERE tenant = $1 AND record = $2",
        )
        .bind(tenant.as_str())
        .bind(record.0)
    };
    let mut all: Vec<_> = pool.all(query).await?.iter().map(read).collect::<Result<_, _>>()?;
    all.sort_by_key(|question: &Escalation| question.id); // they are few, and the server would sort them, too
    Ok(all)
}

pub(super) async fn unknown_workflow(
    pool: &Pool,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
               WHERE kind = 7 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
    open_of_all(pool, sql, after, limit).await
}

pub(super) async fn duplicated(
    pool: &Pool,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = "SELECT id, tenant, record, run, kind, question, opened_at, answer, waiting FROM escalation \
               WHERE kind = 2 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
    open_of_all(pool, sql, after, limit).await
}

/// Open questions of one kind and of all tenants. The kind stands in the statement, as it stands in the kind's partial index.
async fn open_of_all(
    pool: &Pool,
    sql: &'static str,
    after: EscalationId,
    limit: u32,
) -> Result<Vec<Escalation>, StoreError> {
    next_sound(pool, after.0, |after: i64| sqlx::query(sql).bind(after).bind(i64::from(limit)), read).await
}

/// Opens what follows from late answers, once all else of the change is written. A question that is there stands.
///
/// The record is held meanwhile: of a late answer and a seal that are written at the same time, one transaction waits for
/// the other here or at the seal's own update, and then sees what that one wrote, for each reads in a statement after it.
pub(super) async fn open_late(connection: &mut PgConnection, change: &Change) -> Result<(), sqlx::Error> {
    let Some((tenant, id)) = change.compared() else { return Ok(()) };
    let Some(record) = record::held_at(connection, tenant, id).await? else { return Ok(()) };
    let is_left = match record.awaited_by() {
        Some(run) => run::is_over(connection, tenant, run).await?,
        None => false,
    };
    for evidence in record::sound_evidence(connection, tenant, id).await? {
        let Some(question) = change.late_question(&record, is_left, &evidence) else { continue };
        let opening = sqlx::query(
            "INSERT INTO escalation (tenant, id, record, run, kind, question, opened_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        )
        .bind(question.tenant.as_str())
        .bind(question.id.0)
        .bind(question.record.map(|id| id.0))
        .bind(question.run.map(|id| id.0))
        .bind(question.kind.code())
        .bind(escaped(&question.question).into_owned())
        .bind(question.opened_at.0);
        opening.persistent(false).execute(&mut *connection).await?;
        let open_again = sqlx::query("UPDATE worker SET settled = false WHERE fence = $1 AND settled");
        open_again.bind(evidence.fence.0).persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut PgConnection,
    escalation: &Escalation,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(FIND).bind(escalation.tenant.as_str()).bind(escalation.id.0);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *escalation)))
}
