//! Statements that are not derived from the declaration of their table. The fence of the writer comes behind the
//! other columns, where a statement checks the right to write: a fenced writer gets a NULL, which aborts, and so does
//! a row that does not follow the stored one (see `statement`).

use super::statement::Insert;
use crate::store::sql::write::Own;

static PAYLOAD: Insert = Insert {
    head: "INSERT INTO payload (tenant, digest, body, uses) SELECT column1, column2, column3, column4",
    columns: 4,
    tail: "ON CONFLICT DO UPDATE SET uses = uses + excluded.uses",
};

static KEY: Insert = Insert {
    head: "INSERT INTO tenant (tenant, digest_key) SELECT column1, column2",
    columns: 2,
    tail: "ON CONFLICT DO NOTHING",
};

static PRUNE: Insert = Insert {
    head: "DELETE FROM step WHERE (tenant, run, turn, kind, name, id) IN (SELECT s.tenant, s.run, s.turn, s.kind, \
           s.name, s.id FROM (SELECT *",
    columns: 4,
    tail: ") v CROSS JOIN step s WHERE s.tenant = v.column1 AND s.run = v.column2 AND s.turn > v.column3 \
           AND s.turn <= v.column4)",
};

static DROP: Insert = Insert {
    head: "DELETE FROM contact WHERE (tenant, record, id) IN (SELECT column1, column2, column3",
    columns: 3,
    tail: ")",
};

/// Adds questions and answers: if an answer is not allowed, the question becomes NULL.
pub(super) static QUESTION: Insert = Insert {
    head: "INSERT INTO escalation (id, tenant, record, run, kind, question, opened_at, answer, waiting) \
           SELECT column1, column2, column3, column4, column5, \
           (SELECT column6 FROM worker WHERE worker.fence = column10 AND worker.ended_at IS NULL), column7, column8, column9",
    columns: 10,
    tail: "ON CONFLICT (tenant, id) DO UPDATE SET answer = excluded.answer, waiting = excluded.waiting, \
           question = CASE WHEN escalation.answer IS NULL AND (excluded.answer IS NOT NULL OR excluded.waiting IS NOT NULL) \
           THEN excluded.question END",
};

/// Marks a signal as received. If there is none, or it was received before, its position becomes NULL or a trigger
/// objects.
static RECEIVED: Insert = Insert {
    head: "INSERT INTO signal (tenant, run, name, id, place, body, at, received) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column5 AND worker.ended_at IS NULL), \
           column3, column4, 0, '', 0, 1",
    columns: 5,
    tail: "ON CONFLICT (tenant, run, name, id) DO UPDATE SET received = 1, \
           place = CASE WHEN NOT signal.received THEN signal.place END",
};

static MORE: Insert = Insert {
    head: "INSERT INTO outbox_aggregate (tenant, name, last, published, tries, refusals, due_at, revision) \
           SELECT column1, column2, column3, 0, 0, 0, column4, 1",
    columns: 4,
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET last = outbox_aggregate.last + excluded.last, \
           due_at = CASE WHEN published < outbox_aggregate.last THEN due_at ELSE excluded.due_at END",
};

static EVENT: Insert = Insert {
    head: "INSERT INTO outbox (tenant, id, aggregate, seq, kind, payload, created_at) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column8 AND worker.ended_at IS NULL), \
           column3, (SELECT last - column4 FROM outbox_aggregate WHERE tenant = column1 AND name = column3), column5, \
           column6, column7",
    columns: 8,
    tail: "",
};

/// Writes the publication state. If there is no aggregate, a trigger objects.
static MARK: Insert = Insert {
    head: "INSERT INTO outbox_aggregate (tenant, name, published, tries, refusals, due_at, escalation, revision, last) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column9 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, column8, 0",
    columns: 9,
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET published = excluded.published, tries = excluded.tries, \
           refusals = excluded.refusals, due_at = excluded.due_at, escalation = excluded.escalation, \
           revision = CASE WHEN outbox_aggregate.revision = excluded.revision - 1 THEN excluded.revision END",
};

pub(super) fn insert(own: Own) -> &'static Insert {
    match own {
        Own::Payload => &PAYLOAD,
        Own::Key => &KEY,
        Own::Prune => &PRUNE,
        Own::Drop => &DROP,
        Own::Received => &RECEIVED,
        Own::More => &MORE,
        Own::Event => &EVENT,
        Own::Mark => &MARK,
    }
}
