//! One attempt: the permit that makes invariant 1 hold, the dispatch, and the seal.

use std::future::{Future as _, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::agenda::NoteWhenDropped;
use super::approval::approved;
use super::core::{Core, admitted, failed, refused};
use super::declared::Bound;
use super::late::{self, LookWhenDropped};
use super::needs::{needs, withheld};
use super::noting::Note;
use super::operation::Operation;
use super::outcome::{Answer, ExecError};
use super::throttle::Pass;
use crate::clock::{Boot, Timestamp};
use crate::id::{DeclarationId, Fence, RecordId};
use crate::ledger::{
    Basis, ErrorKind, Event, Health, Illegal, Look, LookupOffer, Need, Reason, Record, RecordedFailure,
    RetryDecision, State, apply,
};
use crate::payload::Payload;
use crate::store::{Document, Escalation, Held, Refusal, Store as _, Ticket, Verdict};
use crate::tool::{Done, ToolError};

/// The right to touch the world once. Made only when a `started` record is durable, and taken by value.
#[must_use]
pub(super) struct Permit {
    record: Box<Record>,
    /// What became of an earlier attempt is not known; its sender ceased to send at this instant.
    unsettled: Option<Boot>,
    /// What it has passed to get here.
    pub(super) pass: Pass,
    /// From when the age of the key counts: from the first send under it if nothing but the key prevents a duplicate, else from
    /// this attempt's own beginning.
    pub(super) key_since: Timestamp,
    /// By what it is settled.
    pub(super) bound: Bound,
}

/// How an attempt ended.
pub(super) enum Ended {
    /// It happened. The seal is on its way to the disk, unless it is there already.
    Committed(Answer, Option<Ticket>),
    /// For certain it did not happen.
    Failed(Box<Record>),
    /// Nobody knows yet.
    Ambiguous(Ambiguous),
}

/// A call of unknown outcome.
pub(super) struct Ambiguous {
    pub(super) record: Box<Record>,
    /// When its sender ceased to send, on the boot clock.
    pub(super) cut: Boot,
    /// The provider refused the key as known.
    pub(super) refused_as_duplicate: bool,
    /// The provider would not take it again as it is.
    pub(super) hopeless: bool,
    /// How long the provider wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl Ambiguous {
    /// An attempt whose sender ceased to send at this instant, and of which no more is known.
    pub(super) const fn new(record: Box<Record>, cut: Boot) -> Self {
        Self { record, cut, refused_as_duplicate: false, hopeless: false, retry_after: None }
    }
}

/// What became of the intent to call.
pub(super) enum Begun {
    /// It is durable.
    Durable(Permit),
    /// Somebody else was first.
    Exists,
    /// The run's activation has ended: nothing is recorded.
    TooLate,
}

/// Makes the first `started` record durable.
///
/// # Crash
/// Before: nothing happened. After: the call is ambiguous, until it is sealed.
pub(super) async fn begin(core: &Core, op: &Operation, pass: Pass) -> Result<Begun, ExecError> {
    let bound = core.declare(op).await?;
    core.group.room().await;
    let used = may_dispatch(core, op).await?;
    // Nothing waits between this and the queue. So the record is queued ahead of the end of its run, whose row then says that
    // a call may outlive it, or not at all: a record that comes later would be found by nobody after a crash.
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let (record, ticket) = first(core, op, bound.id, used);
    let permit = Permit { key_since: record.created_at, record, unsettled: None, pass, bound };
    Ok(permit.durable(op, ticket).await?.map_or(Begun::Exists, Begun::Durable))
}

/// Makes a record durable of an operation that this ledger has not sent and whose fate it does not know: a ledger that is lost may
/// have sent it, by a worker that has ceased to by `cut`. `None` if somebody else was first.
///
/// # Crash
/// Before: nothing happened. After: it is ambiguous, like any other.
pub(super) async fn unknown(
    core: &Core,
    op: &Operation,
    found: Option<&Record>,
    cut: Boot,
) -> Result<Option<Ambiguous>, ExecError> {
    let declaration = core.declare(op).await?.id;
    core.group.room().await;
    // What the lost ledger has sent may arrive yet: whatever a look shows now, it is looked at again.
    let in_doubt = op.tool.spec().effect.leaves_mark();
    let (record, ticket) = {
        let (record, large) = match found {
            None => {
                let (record, large) = unwritten(core, op, declaration);
                (Record { attempts: 0, in_doubt, ..record }, large)
            }
            Some(found) => {
                let event = Event::Again { fence: core.fence, basis: Basis::Answer, declaration };
                let Ok(record) = apply(found, event, core.fence, core.now()) else { return Ok(None) };
                (Record { in_doubt, ..record }, None)
            }
        };
        let mut change = core.change(op.lane).record(record.clone());
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        (record, core.group.submit(change))
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists | Refusal::Stale)) if op.lane.is_none() => Ok(None),
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
        verdict => admitted(&op.key, verdict).map(|()| Some(Ambiguous::new(Box::new(record), cut))),
    }
}

/// Records what was done before this ledger was: nothing is sent, and it is not done again.
///
/// # Crash
/// Before: nothing is known of it. After: it is committed.
pub(super) async fn import(
    core: &Core,
    op: &Operation,
    output: Payload,
    external_ref: Option<String>,
) -> Result<(), ExecError> {
    let (record, large) = unwritten(core, op, core.declare(op).await?.id);
    let (response, large_response) = core.storable(output);
    let state = State::Committed { response };
    let record = Record { attempts: 0, basis: Basis::Decision, state, external_ref, ..record };
    let mut change = core.change(None).record(record);
    let payloads = large.into_iter().chain(large_response);
    change.payloads.extend(payloads.map(|payload| (op.tenant.clone(), payload)));
    core.commit(&op.key, change).await
}

/// Records that nothing was sent, and until when it waits if it does. Whether nothing was recorded of it before.
///
/// # Crash
/// Before: nothing happened. After: it has failed, or waits for its next attempt, like any other.
pub(super) async fn unsent(
    core: &Core,
    op: &Operation,
    failure: RecordedFailure,
    not_before: Option<Timestamp>,
) -> Result<bool, ExecError> {
    let declaration = core.declare(op).await?.id;
    core.group.room().await;
    let ticket = {
        let (record, large) = unwritten(core, op, declaration);
        let state = State::Failed { failure };
        let mut change = core.change(op.lane).record(Record { attempts: 0, state, not_before, ..record });
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        core.group.submit(change)
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(false),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

/// Records that it did not happen and is not tried again. `None` if the record was not as it was found.
pub(super) async fn give_up(
    core: &Core,
    op: &Operation,
    record: &Record,
    failure: RecordedFailure,
) -> Result<Option<Box<Record>>, ExecError> {
    let event = Event::Fail { failure, not_before: None };
    let Ok(record) = apply(record, event, core.fence, core.now()).map(Box::new) else { return Ok(None) };
    core.commit(&op.key, core.change(op.lane).record(record.clone())).await.map(|()| Some(record))
}

/// Queues the first `started` record. Not in the future that waits for it, which would hold all of this.
fn first(
    core: &Core,
    op: &Operation,
    declaration: DeclarationId,
    used: Option<Document>,
) -> (Box<Record>, Ticket) {
    let (record, large) = unwritten(core, op, declaration);
    let record = Box::new(record);
    let mut change = core.change(op.lane).record(record.clone());
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    change.documents.extend(used);
    (record, core.group.submit(change))
}

/// The first record of an operation, and the payload row that it needs if its request is large.
pub(super) fn unwritten(
    core: &Core,
    op: &Operation,
    declaration: DeclarationId,
) -> (Record, Option<Payload>) {
    let now = core.now();
    let spec = op.tool.spec();
    core.begun.notify_one();
    if spec.effect.leaves_mark() {
        core.raise_count();
    }
    let (request, large) = op.stored_request(core);
    let record = Record {
        id: RecordId(core.ids.next()),
        tenant: op.tenant.clone(),
        key: op.key.clone(),
        operation: spec.name.clone(),
        class: spec.effect,
        request,
        request_hash: op.hash,
        declaration,
        owner: op.owner.clone(),
        fence: core.fence,
        revision: 1,
        attempts: 1,
        spent: 0,
        state: State::Started,
        basis: Basis::Answer,
        in_doubt: false,
        external_ref: None,
        escalation: None,
        not_before: None,
        kept_until: spec.retention.until(now),
        created_at: now,
        updated_at: now,
    };
    (record, large)
}

/// Makes another attempt of a known operation durable, with what its answer will rest on: a crash must not
/// forget that. `None` if the record has changed meanwhile.
pub(super) async fn again(
    core: &Core,
    op: &Operation,
    record: &Record,
    basis: Basis,
    unsettled: Option<Boot>,
    pass: Pass,
) -> Result<Option<Permit>, ExecError> {
    let bound =
        if record.state == State::Started { core.bound(op, record).await? } else { core.declare(op).await? };
    core.group.room().await;
    let used = may_dispatch(core, op).await?;
    let (now, event) = (core.now(), Event::Again { fence: core.fence, basis, declaration: bound.id });
    let Ok(mut record) = apply(record, event, core.fence, now).map(Box::new) else { return Ok(None) };
    if bound.contract(op).sealed_with_effect {
        record.in_doubt = false; // of the attempt before it, nothing happened
    }
    let mut change = core.change(op.lane).record(record.clone());
    change.documents.extend(used);
    let ticket = core.group.submit(change);
    let key_since = if basis == Basis::Declaration { record.created_at } else { now };
    Permit { record, unsettled, pass, key_since, bound }.durable(op, ticket).await
}

/// What is to be written with the attempt: that its approval is used up, where it is for one effect.
async fn may_dispatch(core: &Core, op: &Operation) -> Result<Option<Document>, ExecError> {
    if core.is_closing() {
        return Err(ExecError::Closed { key: op.key.to_string() });
    }
    approved(core, op).await
}

impl Permit {
    /// The permit, once its `started` record is durable. `None` if the record has changed meanwhile.
    async fn durable(mut self, op: &Operation, started: Ticket) -> Result<Option<Self>, ExecError> {
        match started.durable().await {
            Ok(Verdict::Admitted) => {
                if let Some(passed) = &mut self.pass {
                    passed.is_spent();
                }
                Ok(Some(self))
            }
            Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
            // In a lane a stale write stops the run; alone, it only means to decide anew.
            Ok(Verdict::Refused(Refusal::Stale)) if op.lane.is_none() => Ok(None),
            Ok(Verdict::Refused(refusal)) => Err(refused(&op.key, refusal)),
            Err(source) => Err(failed(&op.key, source)),
        }
    }
}

/// Carries the attempt out.
///
/// # Crash
/// Before the call: nothing happened, but the record says that it may have. During and after it, until the
/// seal is durable: it may have happened. Either way the next one asks the world.
///
/// The permit is boxed, and what is not needed any more is let go before the call: the future of each call holds it all, and
/// has to stay below the 1,032 bytes up to which glibc allocates from its thread's own cache.
pub(super) async fn dispatch(
    core: &Arc<Core>,
    op: &Operation,
    permit: Box<Permit>,
) -> Result<Ended, ExecError> {
    // Between the intent's way to the disk and this line the approval may have been withdrawn.
    let may_go = approved(core, op).await.map(drop).map_err(Box::new);
    // A worker that was stopped, or could not reach its store, may have been taken over meanwhile. The record stays `started`,
    // and whoever took over asks the world.
    core.hold_lease().await.map_err(|why| why.of(&op.key))?;
    // Directly before the call, behind everything that waits: each need is looked at in one place.
    let now = core.now();
    let (lapsed, cut_off) = {
        let needs = needs(core, op, &permit);
        (needs.lapsed(now), needs.cut_off())
    };
    let Permit { record, unsettled, pass, bound, .. } = *permit;
    if may_go.is_ok()
        && let Some(need) = lapsed
    {
        // Boxed because it is rare: every call would have to carry the room for it.
        return Box::pin(withheld(core, op, &bound, record, need, unsettled)).await;
    }
    let (record, result) = match may_go {
        Ok(()) => {
            let (record, result) = send(core, op, &bound, record, now, cut_off).await;
            if let Some(passed) = pass {
                passed.tell(health(&result), core.clock.boot());
            }
            (record, result)
        }
        Err(refused) => {
            let (kind, message) = match *refused {
                ExecError::Approval(error) => (ErrorKind::ApprovalMissing, error.to_string()),
                // It could not be read: nothing was sent, and it may be tried again.
                error => (ErrorKind::Unreachable, error.to_string()),
            };
            (record, Err(ToolError::new(kind, message)))
        }
    };
    match result {
        Ok(done) if matches!(record.state, State::Committed { .. }) => {
            Ok(Ended::Committed(Answer::first(done.output, &record), None))
        }
        Ok(done) => committed(core, op, &bound, &record, done).await,
        // Boxed because it is rare: every call would have to carry the room for it.
        Err(error) => Box::pin(failed_attempt(core, op, &bound, record, error, unsettled)).await,
    }
}

/// What an answer says about the provider.
pub(super) fn health<T>(result: &Result<T, ToolError>) -> Health {
    result.as_ref().map_or_else(|error| error.kind.health(), |_| Health::Well)
}

/// Calls the tool, for as long as an attempt may last and has what it needs.
async fn send(
    core: &Arc<Core>,
    op: &Operation,
    bound: &Bound,
    record: Box<Record>,
    now: Timestamp,
    needed: Option<(Timestamp, Need)>,
) -> (Box<Record>, Result<Done<Payload>, ToolError>) {
    let timeout = op.tool.spec().retry.attempt_timeout;
    let until = needed.map_or(now.after(timeout), |(at, _)| at.min(now.after(timeout)));
    let (note, call) = Note::begun(core, op, bound, record, until);
    tracing::debug!(tenant = %op.tenant, key = %op.key, attempt = call.attempt(), "dispatching");
    let result = {
        let mut calling = pin!(AssertUnwindSafe(op.tool.call(&call)).catch_unwind());
        let mut limit = core.clock.sleep(needed.map_or(timeout, |_| now.until(until)));
        let mut since = core.clock.boot();
        let cut_off = |why: &dyn std::fmt::Display| {
            Err(ToolError::new(ErrorKind::TimeoutDuringEffect, format!("cut off: {why}")))
        };
        loop {
            let ended = poll_fn(|cx| {
                // A process that was stopped over the instant does not let the tool's code go on: it might send only now.
                if let Some((_, need)) = needed.filter(|(at, _)| *at <= core.now()) {
                    return Poll::Ready(Some(cut_off(&need.words())));
                }
                if let Poll::Ready(result) = calling.as_mut().poll(cx) {
                    return Poll::Ready(Some(result.unwrap_or_else(|_| {
                        Err(ToolError::new(ErrorKind::Panic, "the tool's code panicked"))
                    })));
                }
                limit.as_mut().poll(cx).map(|()| None)
            });
            // Boxed because it is rare: every call would have to carry the room for it.
            match ended.await {
                Some(result) => break result,
                None if Box::pin(woke_fenced(core, since, timeout)).await => {
                    (since, limit) = (core.clock.boot(), core.clock.sleep(timeout));
                }
                None => break cut_off(&format_args!("after {timeout:?}")),
            }
        }
    };
    let record = note.end();
    if let Err(error) = &result {
        tracing::info!(tenant = %op.tenant, key = %op.key, attempt = record.attempts, %error, "attempt failed");
    }
    (record, result)
}

/// This process stood still while it was about to send, for longer than an attempt may last, and was taken over. What it
/// sends now cannot be prevented any more, but its answer tells whether it has an effect: it is waited for.
async fn woke_fenced(core: &Core, since: Boot, limit: Duration) -> bool {
    let stood_still = since.until(core.clock.boot()) > limit * 3 / 2;
    stood_still
        && matches!(core.group.worker_at(core.fence).await, Ok(Some(worker)) if worker.ended_at.is_some())
}

/// What follows from an attempt's error. That this attempt did nothing says nothing about an earlier one whose
/// outcome is unknown: as long as there is one, the operation is not failed but ambiguous.
async fn failed_attempt(
    core: &Core,
    op: &Operation,
    bound: &Bound,
    record: Box<Record>,
    error: ToolError,
    unsettled: Option<Boot>,
) -> Result<Ended, ExecError> {
    let effect = bound.effect(op);
    let decision = error.kind.decision(effect, bound.contract(op).class);
    // That the first one is still being worked on is no proof that it will not happen.
    let uncertain = error.kind == ErrorKind::InProgress && effect.leaves_mark();
    let nothing_happened = decision != RetryDecision::Reconcile && !uncertain;
    let hopeless = nothing_happened && decision != RetryDecision::Retry;
    if nothing_happened && !record.in_doubt {
        return fail(core, op, bound, &record, error).await;
    }
    let earlier = unsettled.filter(|_| nothing_happened);
    let cut = earlier.unwrap_or_else(|| core.clock.boot());
    Ok(Ended::Ambiguous(Ambiguous {
        refused_as_duplicate: error.kind == ErrorKind::Duplicate,
        hopeless,
        retry_after: error.retry_after,
        ..Ambiguous::new(record, cut)
    }))
}

async fn committed(
    core: &Core,
    op: &Operation,
    bound: &Bound,
    record: &Record,
    done: Done<Payload>,
) -> Result<Ended, ExecError> {
    core.group.room().await;
    let known = Known { external_ref: done.external_ref, ..Known::of(record.basis) };
    let (answer, ticket) = seal(core, op, bound, record, done.output, known)?;
    Ok(Ended::Committed(answer, Some(ticket)))
}

/// How it is known that it happened.
pub(super) struct Known {
    pub(super) basis: Basis,
    pub(super) external_ref: Option<String>,
    /// The question that is opened with it, if the world holds more than one.
    pub(super) duplicated: Option<Escalation>,
    /// The world holds more than one, and the confirming lookup is to undo what is beyond the first.
    pub(super) surplus: bool,
    /// The late answers on which it rests, by worker and attempt.
    pub(super) evidence: Box<[(Fence, u32)]>,
}

impl Known {
    /// It happened once, and no more is known.
    pub(super) fn of(basis: Basis) -> Self {
        Self { basis, external_ref: None, duplicated: None, surplus: false, evidence: Box::default() }
    }
}

/// Queues the outcome; whoever calls this has waited for room. Whoever lets it leave the engine waits for the
/// ticket first (invariant 2).
pub(super) fn seal(
    core: &Core,
    op: &Operation,
    bound: &Bound,
    record: &Record,
    response: Payload,
    known: Known,
) -> Result<(Answer, Ticket), ExecError> {
    let response = if response.as_str().len() > core.limits.max_bytes {
        // It happened, and that must be recorded; the whole of the answer cannot be.
        Payload::of(&serde_json::json!({"$truncated": {"bytes": response.as_str().len()}}))?
    } else {
        response
    };
    let (stored, large) = core.storable(response.clone());
    let Known { basis, external_ref, duplicated, surplus, evidence } = known;
    let contract = bound.contract(op);
    // A send followed one of unknown fate: did the first arrive after all, or will it yet? However it is known that
    // it happened: a lookup after a crash may have seen the second one before the first has arrived.
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
    let look = reason.map(|reason| Box::new(Look::first(&record, reason, contract, core.now())));
    let due_at = look.as_ref().and_then(|look| look.due_at);
    let answer = Answer::first(response, &record);
    let mut change = core.change(op.lane).record(record);
    let is_taken_over = late::compare(core, &mut change, contract.class, evidence);
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    change.escalations.extend(duplicated);
    change.look = look;
    let slot = op.take_slot();
    let note = due_at.map(|at| NoteWhenDropped { agenda: core.agenda.clone(), at });
    let held = if note.is_some() || is_taken_over {
        let look = is_taken_over.then(|| LookWhenDropped(core.late.clone()));
        Some(Box::new((slot, note, look)) as Held)
    } else {
        slot.map(|slot| Box::new(slot) as Held)
    };
    Ok((answer, core.group.submit_holding(change, held)))
}

/// Records that it did not happen, and when it goes again. Durable before anyone waits for that instant, so
/// that a crash during the wait neither loses nor shortens it.
pub(super) async fn fail(
    core: &Core,
    op: &Operation,
    bound: &Bound,
    record: &Record,
    error: ToolError,
) -> Result<Ended, ExecError> {
    let spec = op.tool.spec();
    let class = bound.contract(op).class;
    let may_retry = error.kind.decision(bound.effect(op), class) == RetryDecision::Retry;
    let delay = may_retry
        .then(|| spec.retry.next_delay(record.tries(), error.kind, error.retry_after, core.entropy.bits()))
        .flatten();
    let not_before = delay.map(|delay: Duration| core.now().after(delay));
    let failure =
        RecordedFailure { kind: error.kind, message: error.message, detail: serde_json::Value::Null };
    let event = Event::Fail { failure, not_before };
    let record = apply(record, event, core.fence, core.now()).map_err(|e| illegal(op, &e))?;
    let record = Box::new(record);
    let mut change = core.change(op.lane).record(record.clone());
    late::compare(core, &mut change, class, Box::default());
    admitted(&op.key, core.group.commit_one(change).await)?;
    Ok(Ended::Failed(record))
}

pub(super) fn illegal(op: &Operation, error: &Illegal) -> ExecError {
    tracing::warn!(tenant = %op.tenant, key = %op.key, %error, "the record has changed");
    refused(&op.key, if error.fenced { Refusal::Fenced } else { Refusal::Stale })
}
