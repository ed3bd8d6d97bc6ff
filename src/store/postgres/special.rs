//! Statements that are not derived from the declaration of their table.

use super::statement::{Insert, PLAIN};
use crate::store::cell::Declared as _;
use crate::store::sql::write::Own;
use crate::store::table::{bytes, number, text};
use crate::store::{OutboxEvent, Question};

static PAYLOAD: Insert = Insert {
    name: "payloads",
    table: "payload",
    columns: &[text("tenant"), bytes("digest"), text("body"), number("uses")],
    tail: "ON CONFLICT (tenant, digest) DO UPDATE SET uses = payload.uses + excluded.uses",
    holds: None,
    ..PLAIN
};

static KEY: Insert = Insert {
    name: "tenants",
    table: "tenant",
    columns: &[text("tenant"), bytes("digest_key")],
    holds: None,
    ..PLAIN
};

/// Deletes checkpoints. The statement does not see checkpoints that it inserts itself: `waves` makes sure that there
/// are none.
static PRUNE: Insert = Insert {
    name: "steps_pruned",
    table: "step",
    columns: &[text("tenant"), number("run"), number("base"), number("last")],
    tail: "step.tenant = gone.tenant AND step.run = gone.run AND step.turn > gone.base \
           AND step.turn <= gone.last",
    holds: None,
    deletes: true,
    ..PLAIN
};

/// Drops contacts. A contact is never written and dropped by one statement.
static DROP: Insert = Insert {
    name: "contacts_dropped",
    table: "contact",
    columns: &[text("tenant"), number("record"), number("id")],
    tail: "contact.tenant = gone.tenant AND contact.record = gone.record AND contact.id = gone.id",
    holds: None,
    deletes: true,
    ..PLAIN
};

pub(super) static QUESTION: Insert =
    Insert { name: "question_new", table: "escalation", columns: Question::TABLE.columns, ..PLAIN };

/// Answers a question through a row that is never inserted, with the sign of its kind inverted: see `row`.
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

/// Marks a signal as received through a row that is never inserted, with a position below zero: see `row`.
static RECEIVED: Insert = Insert {
    name: "signal_received",
    table: "signal",
    columns: &[text("tenant"), number("run"), text("name"), text("id")],
    constants: &[("place", "-1"), ("body", "''"), ("at", "0"), ("received", "true")],
    tail: "ON CONFLICT (tenant, run, name, id) DO UPDATE SET received = true WHERE NOT signal.received",
    holds: Some("place >= 0"),
    ..PLAIN
};

/// Adds to the number of events of an aggregate. Its row is locked from here to the end of the transaction: a later
/// writer waits, and gets later positions.
pub(super) static MORE: Insert = Insert {
    name: "outbox_more",
    table: "outbox_aggregate",
    columns: &[text("tenant"), text("name"), number("last"), number("due_at")],
    constants: &[("published", "0"), ("tries", "0"), ("refusals", "0"), ("revision", "1")],
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET last = outbox_aggregate.last + excluded.last, \
           due_at = CASE WHEN outbox_aggregate.published < outbox_aggregate.last THEN outbox_aggregate.due_at \
           ELSE excluded.due_at END",
    ..PLAIN
};

/// Adds events at the positions that the statement has computed for their aggregates: see `statement`.
pub(super) static EVENT: Insert =
    Insert { name: "outbox_new", table: "outbox", columns: OutboxEvent::TABLE.columns, ..PLAIN };

/// Writes the publication state through a row that is never inserted, with a last position below zero: see `row`.
static MARK: Insert = Insert {
    name: "outbox_marked",
    table: "outbox_aggregate",
    columns: &[
        text("tenant"),
        text("name"),
        number("published"),
        number("tries"),
        number("refusals"),
        number("due_at"),
        number("escalation"),
        number("revision"),
    ],
    constants: &[("last", "-1")],
    tail: "ON CONFLICT (tenant, name) DO UPDATE SET published = excluded.published, tries = excluded.tries, \
           refusals = excluded.refusals, due_at = excluded.due_at, escalation = excluded.escalation, \
           revision = excluded.revision WHERE outbox_aggregate.revision = excluded.revision - 1",
    holds: Some("last >= 0"),
    ..PLAIN
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
