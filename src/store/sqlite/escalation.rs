//! Table `escalation`: open questions, and their answers.

use super::statement::{Batch, Insert};
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
