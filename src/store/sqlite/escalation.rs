//! Table `escalation`: open questions, and their answers.

use sqlx::sqlite::SqliteConnection;

use super::statement::{Batch, Insert};
use super::{record, run};
use crate::store::Change;
use crate::store::row::Row as _;

/// Without an answer a new question; with one, or with one that waits, it may only fall on a question that is still open: the
/// first answer stands. Otherwise the question becomes NULL, which aborts, as a fenced worker's does.
static UPSERT: Insert = Insert {
    head: "INSERT INTO escalation (id, tenant, record, run, kind, question, opened_at, answer, waiting) \
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
        escalation.put(row);
        row.value(writer.map(|fence| fence.0));
    });
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
