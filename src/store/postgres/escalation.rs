//! Table `escalation`: open questions, and their answers.

use sqlx::postgres::PgConnection;

use super::statement::{Batch, Insert, PLAIN};
use super::{escaped, record, run};
use crate::store::row::{Put as _, Readable as _, Row as _};
use crate::store::table::{number, text};
use crate::store::{Answer, Change, Escalation};

/// A new question.
pub(super) static INSERT: Insert =
    Insert { name: "question_new", table: "escalation", columns: Escalation::TABLE.columns, ..PLAIN };

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
    ..PLAIN
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().flat_map(|change| &change.escalations).collect();
    rows.sort_by_key(|escalation| (escalation.tenant.as_str(), escalation.id));
    let (new, old): (Vec<_>, Vec<_>) = rows.into_iter().partition(|escalation| escalation.is_new());
    batch.insert(&INSERT, &new, |escalation, row| escalation.put(row));
    batch.insert(&ANSWER, &old, |escalation, row| {
        row.text(escalation.tenant.as_str())
            .number(escalation.id.0)
            .text(&escalation.question)
            .some_text(escalation.answer.as_ref().map(Answer::column).as_deref())
            .some_text(escalation.waiting.as_ref().map(Answer::column).as_deref());
    });
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
