//! The end of an attempt, in writing: the seal with its consequences, or the failure.

use std::time::Duration;

use super::agenda::NoteWhenDropped;
use super::attempt::Ended;
use super::compare::{LookWhenDropped, compare};
use super::core::Core;
use super::declared::Settling;
use super::operation::Operation;
use super::outcome::{ExecError, Outcome, admitted, refused};
use crate::id::Fence;
use crate::ledger::{
    Basis, ErrorKind, Event, InvalidTransition, Look, LookupOffer, Reason, Record, RecordedFailure,
    RetryDecision, apply,
};
use crate::payload::{Payload, Response};
use crate::store::{Document, Held, Question, Refusal, Ticket};
use crate::tool::{Done, ToolError};

pub(super) async fn committed(
    settling: Settling<'_>,
    record: &Record,
    done: Done<Payload>,
) -> Result<Ended, ExecError> {
    settling.core.group.room().await;
    // The same answer may have been kept as evidence: a client of the guard repeats a seal whose answer was lost.
    let evidence: Box<[(Fence, u32)]> =
        if record.attempts > 1 { [(record.fence, record.attempts)].into() } else { Box::default() };
    let known =
        Known { external_ref: done.external_ref, cost: done.cost, evidence, ..Known::of(record.basis) };
    if let Some(cost) = done.cost {
        settling.op.settle_cost(cost);
    }
    let (outcome, ticket) = seal(settling, record, done.output.response(&settling.core.limits), known)?;
    Ok(Ended::Committed(outcome, Some(ticket)))
}

/// The proof that the call happened, and its consequences.
pub(super) struct Known {
    pub(super) basis: Basis,
    pub(super) external_ref: Option<String>,
    /// The cost of the attempt, if the tool reports it.
    pub(super) cost: Option<u64>,
    /// The question that is opened with the seal, if the world holds more than one effect.
    pub(super) duplicated: Option<Question>,
    /// True if the world holds more than one effect and the confirming lookup is to undo the surplus.
    pub(super) surplus: bool,
    /// The late answers on which the seal rests, by worker and attempt.
    pub(super) evidence: Box<[(Fence, u32)]>,
    /// The row of the completion on which the seal rests.
    pub(super) completion: Option<Document>,
}

impl Known {
    /// The proof of a call that happened once, and of which nothing else is known.
    pub(super) fn of(basis: Basis) -> Self {
        let evidence = Box::default();
        Self {
            basis,
            external_ref: None,
            cost: None,
            duplicated: None,
            surplus: false,
            evidence,
            completion: None,
        }
    }
}

/// Queues the seal. The caller has waited for room in the queue, and has to wait for the ticket before the outcome
/// leaves the engine.
pub(super) fn seal(
    settling: Settling<'_>,
    record: &Record,
    response: Response,
    known: Known,
) -> Result<(Outcome, Ticket), ExecError> {
    let Settling { core, op, .. } = settling;
    let (stored, large) = core.storable_response(response.clone());
    let Known { basis, external_ref, cost, duplicated, surplus, evidence, completion } = known;
    let contract = settling.contract();
    // A send followed one of unknown outcome, which may have arrived or may still arrive. The basis of the seal does
    // not matter: a lookup after a crash may have seen the second effect before the first arrived.
    let is_doubtful = record.in_doubt || record.basis == Basis::Denial;
    let reason = if surplus || is_doubtful && contract.lookup != LookupOffer::None && duplicated.is_none() {
        Some(Reason::Doubt)
    } else if duplicated.is_none() && contract.looks_for_copies(record.class) {
        Some(Reason::Doubled)
    } else {
        None
    };
    let event = Event::Commit { response: stored, external_ref, basis };
    let record = apply(record, event, core.fence, core.now()).map_err(|e| illegal(op, &e))?;
    let record = Record { cost, ..record };
    let look = reason.map(|reason| Box::new(Look::first(&record, reason, contract, core.now())));
    let due_at = look.as_ref().and_then(|look| look.due_at);
    let outcome = Outcome::first(core, response, &record);
    let mut change = op.writes(core, record);
    let is_compared = compare(core, &mut change, contract.class, evidence);
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    change.escalations.extend(duplicated);
    change.contacts.extend(op.take_contact());
    change.documents.extend(completion);
    change.look = look;
    let slot = op.take_slot();
    let note = due_at.map(|at| NoteWhenDropped { agenda: core.agenda.clone(), at });
    let held = if note.is_some() || is_compared {
        let look = is_compared.then(|| LookWhenDropped(core.late.clone()));
        Some(Box::new((slot, note, look)) as Held)
    } else {
        slot.map(|slot| Box::new(slot) as Held)
    };
    Ok((outcome, core.group.submit_holding(change, held)))
}

/// Records that the call did not happen, and the instant of the next attempt. The record is durable before anyone waits
/// for that instant, so that a crash during the wait neither loses nor shortens it.
pub(super) async fn fail(
    settling: Settling<'_>,
    record: &Record,
    error: ToolError,
) -> Result<Ended, ExecError> {
    let Settling { core, op, .. } = settling;
    let spec = op.tool.spec();
    let class = settling.contract().class;
    let may_retry = error.kind.decision(settling.effect(), class) == RetryDecision::Retry;
    let delay = may_retry
        .then(|| spec.retry.next_delay(record.tries(), error.kind, error.retry_after, core.entropy.bits()))
        .flatten();
    if may_retry && delay.is_none() {
        count!(core.meter, RETRIES_EXHAUSTED of &op.tenant, op.name());
    }
    let not_before = delay.map(|delay: Duration| core.now().after(delay));
    let event = Event::Fail { failure: failure(error.kind, error.message), not_before };
    write_failed(settling, record, event).await.map(Ended::Failed)
}

/// Records that the call did not happen, by any of its attempts.
pub(super) async fn refuse(
    settling: Settling<'_>,
    record: &Record,
    error: ToolError,
) -> Result<Box<Record>, ExecError> {
    let failure = failure(error.kind, error.message);
    log_call!(debug, settling.op, kind = failure.kind.name(), "call refused by its provider");
    write_failed(settling, record, Event::Refuse { failure }).await
}

const fn failure(kind: ErrorKind, message: String) -> RecordedFailure {
    RecordedFailure { kind, message, detail: serde_json::Value::Null }
}

async fn write_failed(
    settling: Settling<'_>,
    record: &Record,
    event: Event,
) -> Result<Box<Record>, ExecError> {
    let Settling { core, op, .. } = settling;
    let class = settling.contract().class;
    let record = apply(record, event, core.fence, core.now()).map_err(|e| illegal(op, &e))?;
    let record = Box::new(record);
    let mut change = op.writes(core, record.clone());
    // The record itself tells of its only attempt, unless there will be another one.
    let is_told = record.attempts == 1 && record.not_before.is_none();
    change.contacts.extend(op.take_contact().filter(|_| !is_told));
    let is_compared = compare(core, &mut change, class, Box::default());
    admitted(&op.key, core.group.commit_one(change).await)?;
    if is_compared {
        core.late.notify_one(); // the store may have opened a question
    }
    Ok(record)
}

pub(super) fn illegal(op: &Operation, error: &InvalidTransition) -> ExecError {
    log_call!(warn, op, %error, "record changed meanwhile, outcome not written");
    refused(&op.key, if error.fenced { Refusal::Fenced } else { Refusal::Stale })
}

/// Records that the call did not happen and is not tried again. `None` if the record has changed meanwhile.
pub(super) async fn give_up(
    core: &Core,
    op: &Operation,
    record: &Record,
    failure: RecordedFailure,
) -> Result<Option<Box<Record>>, ExecError> {
    let event = Event::Fail { failure, not_before: None };
    let Ok(record) = apply(record, event, core.fence, core.now()).map(Box::new) else { return Ok(None) };
    core.commit(&op.key, op.writes(core, record.clone())).await.map(|()| Some(record))
}
