//! Table `escalation`: open questions, and their answers.

use super::statement::{Batch, Insert, PLAIN};
use crate::store::row::{Put as _, Readable as _, Row as _};
use crate::store::table::{number, text};
use crate::store::{Answer, Change, Escalation};

/// A new question.
pub(super) static INSERT: Insert =
    Insert { name: "question_new", table: "escalation", columns: Escalation::TABLE.columns, ..PLAIN };

/// An answer, or one that waits, may only fall on a question that is still open: the first one stands. By way of a row that is
/// never inserted, with its kind's sign turned: see `row`.
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
