//! The dispatch of an attempt: the permit is used up, and the tool is called.

use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::approval::approved;
use super::attempt::{Ambiguous, Ended, Permit};
use super::contact;
use super::core::Core;
use super::declared::Settling;
use super::needs::{needs, withheld};
use super::noting::Note;
use super::operation::Operation;
use super::outcome::{ExecError, Outcome, admitted, failed};
use super::pending::{self, Accepted};
use super::seal::{committed, fail, refuse};
use super::throttle::health;
use super::tool_code;
use super::traced;
use crate::clock::{Boot, Timestamp};
use crate::ledger::{ContractClass, ErrorKind, Need, Record, RetryDecision, State};
use crate::payload::Payload;
use crate::store::{PAUSES, Refusal, Store as _, Verdict};
use crate::tool::{Done, ToolError};

/// Carries the attempt out.
///
/// # Crash
/// Before the call: nothing happened, but the record says that the call may have happened. During and after the call,
/// until the seal is durable: the call may have happened. In both cases the next worker asks the provider.
///
/// The permit is boxed, and its parts are dropped before the call as soon as possible: the future of each call holds
/// all of them, and has to stay below the 1,032 bytes up to which glibc allocates from its thread's own cache.
pub(super) async fn dispatch(
    core: &Arc<Core>,
    op: &Operation,
    permit: Box<Permit>,
) -> Result<Ended, ExecError> {
    // The approval may have been withdrawn while the intent was being written.
    let may_go = approved(core, op, Some(&permit.record)).await.map(drop).map_err(Box::new);
    // A worker that was stopped, or could not reach its store, may have been taken over meanwhile. The record stays
    // `started`, and the worker that took over asks the provider.
    core.hold_lease().await.map_err(|why| why.of(&op.key))?;
    // Directly before the call, after everything that waits: each need is checked in one place.
    let now = core.now();
    let (lapsed, cut_off) = {
        let needs = needs(core, op, &permit);
        (needs.lapsed(now), needs.cut_off())
    };
    let Permit { record, unsettled, pass, bound, .. } = *permit;
    if may_go.is_ok()
        && let Some(need) = lapsed
    {
        // Boxed because this case is rare: every call would reserve its memory.
        return Box::pin(withheld(Settling { core, op, bound: &bound }, record, need, unsettled)).await;
    }
    let (record, began, result) = match may_go {
        Ok(()) => {
            let sent = send(Settling { core, op, bound: &bound }, record, now, cut_off).await;
            if let Some(passed) = pass {
                passed.tell(health(&sent.2), core.clock.boot());
            }
            sent
        }
        Err(refused) => {
            let (kind, message) = match refused.lacking_approval() {
                Some(error) => (ErrorKind::ApprovalMissing, error.to_string()),
                // The approval could not be read: nothing was sent, and the attempt may be made again.
                None => (ErrorKind::Unreachable, refused.to_string()),
            };
            (record, now, Err(ToolError::new(kind, message)))
        }
    };
    if record.is_unwritten() {
        // Boxed because most calls have a record: each would reserve the memory for it.
        return Box::pin(first_written(Settling { core, op, bound: &bound }, record, result)).await;
    }
    match result {
        Ok(done) if matches!(record.state, State::Committed { .. }) => {
            Ok(Ended::Committed(Outcome::first(core, done.output.response(&core.limits), &record), None))
        }
        Ok(done) => {
            if record.attempts > 1 {
                op.keep_contact(contact::answered(core, &record, began, &done));
            }
            committed(Settling { core, op, bound: &bound }, &record, done).await
        }
        // Boxed because this case is rare: every call would reserve its memory.
        Err(error) => {
            let settling = Settling { core, op, bound: &bound };
            op.keep_contact(contact::erred(settling, &record, began, &error));
            Box::pin(failed_attempt(settling, record, error, unsettled)).await
        }
    }
}

/// Writes the outcome of a call that was sent without a durable record.
///
/// # Race
/// Another worker may have carried the call out at the same time. The first result that is written counts, so an answer
/// for several callers waits until it is written.
async fn first_written(
    settling: Settling<'_>,
    record: Box<Record>,
    result: Result<Done<Payload>, ToolError>,
) -> Result<Ended, ExecError> {
    let key = &settling.op.key;
    let ended = match result {
        Ok(done) => committed(settling, &record, done).await,
        Err(error) if settling.effect().leaves_mark() => match begun(settling, record).await? {
            Some(record) => failed_attempt(settling, record, error, None).await,
            None => Ok(Ended::Changed),
        },
        Err(error) => failed_attempt(settling, record, error, None).await,
    };
    match ended {
        Ok(Ended::Committed(answer, Some(ticket))) if settling.op.is_shared() => {
            match ticket.durable().await {
                Ok(Verdict::Refused(Refusal::Exists)) => Ok(Ended::Changed),
                verdict => admitted(key, verdict).map(|()| Ended::Committed(answer, None)),
            }
        }
        Err(ExecError::Refused { refusal: Refusal::Exists, .. }) => Ok(Ended::Changed),
        ended => ended,
    }
}

/// Records that a call without a durable record was begun and may have happened. Under this record the call is
/// repeated, or a person is asked. `None` if another caller was first.
async fn begun(
    Settling { core, op, .. }: Settling<'_>,
    record: Box<Record>,
) -> Result<Option<Box<Record>>, ExecError> {
    let record = Box::new(Record { revision: 1, ..*record });
    match core.group.commit_one(op.writes(core, record.clone())).await {
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
        verdict => admitted(&op.key, verdict).map(|()| Some(record)),
    }
}

/// Calls the tool, for at most the time of an attempt, and only while the attempt has what it needs. Returns the record,
/// the beginning of the attempt, and the result.
async fn send(
    settling: Settling<'_>,
    record: Box<Record>,
    now: Timestamp,
    needed: Option<(Timestamp, Need)>,
) -> (Box<Record>, Timestamp, Result<Done<Payload>, ToolError>) {
    let Settling { core, op, .. } = settling;
    let timeout = || op.tool.spec().retry.attempt_timeout;
    // The sleep ends when the timeout is over, or when a need of the attempt has lapsed.
    let limit = |left: Duration, now: Timestamp| {
        core.clock.sleep(needed.map_or(left, |(at, _)| left.min(now.until(at))))
    };
    let (note, call) = Note::begun(settling, record, now, needed.map(|(at, _)| at));
    log_call!(debug, op, attempt = call.attempt(), "call dispatched");
    let result = {
        // The tool's code may panic before its first wait, too.
        let begun = catch_unwind(AssertUnwindSafe(|| op.tool.call(&call)));
        let calling = begun.unwrap_or_else(|_| Box::pin(async { Err(ToolError::panicked()) }));
        let mut calling = pin!(AssertUnwindSafe(calling).catch_unwind());
        let mut limited = limit(timeout(), now);
        let mut since = core.clock.boot();
        let cut_off = |why: &dyn std::fmt::Display| {
            Err(ToolError::new(ErrorKind::TimeoutDuringEffect, format!("cut off: {why}")))
        };
        loop {
            let ended = poll_fn(|cx| {
                // A process that was stopped over this instant does not let the tool's code go on, because it might
                // send only now.
                if let Some((_, need)) = needed.filter(|(at, _)| *at <= core.now()) {
                    return Poll::Ready(Some(cut_off(&need.words())));
                }
                if let Poll::Ready(result) = calling.as_mut().poll(cx) {
                    return Poll::Ready(Some(result.unwrap_or_else(|_| Err(ToolError::panicked()))));
                }
                limited.as_mut().poll(cx).map(|()| None)
            });
            // Boxed because this case is rare: every call would reserve its memory.
            match ended.await {
                Some(result) => break result,
                // The tool has said that it goes on.
                None if let Some(left) = note.left() => {
                    (since, limited) = (core.clock.boot(), limit(left, core.now()));
                }
                None if Box::pin(woke_fenced(core, since, timeout())).await => {
                    (since, limited) = (core.clock.boot(), core.clock.sleep(timeout()));
                }
                None => break cut_off(&format_args!("after {:?}", timeout())),
            }
        }
    };
    let (record, began) = note.end();
    note_end(core, op, (record.attempts, began), &result);
    traced::ended(core, op, (record.attempts, began), &result);
    (record, began, result)
}

/// Logs and counts the end of an attempt: its number, and its beginning.
fn note_end(
    core: &Core,
    op: &Operation,
    (attempt, began): (u32, Timestamp),
    result: &Result<Done<Payload>, ToolError>,
) {
    if let Err(error) = result {
        log_call!(debug, op, attempt, %error, "attempt failed");
    }
    let nth = if attempt > 1 { "again" } else { "first" };
    let shown = result.as_ref().map_or_else(|error| error.kind.name(), |_| "answered");
    count!(core.meter, ATTEMPTS of &op.tenant, op.name(), nth, shown);
    observe!(began.until(core.now()).as_secs_f64(); core.meter, ATTEMPT_SECONDS of &op.tenant, op.name(), nth);
    if let Ok(Done { cost: Some(cost), .. }) = result {
        count!(by *cost; core.meter, ATTEMPT_COST of &op.tenant, op.name(), nth);
    }
}

/// True if this process was stopped while it was about to send, for longer than an attempt may last, and was taken
/// over. Its send cannot be prevented any more, but its answer tells if the send had an effect: so the answer is waited
/// for.
async fn woke_fenced(core: &Core, since: Boot, limit: Duration) -> bool {
    let stood_still = since.until(core.clock.boot()) > limit * 3 / 2;
    stood_still
        && matches!(core.group.worker_at(core.fence).await, Ok(Some(worker)) if worker.ended_at.is_some())
}

/// Refreshes the tool's credential before its one further attempt, within the time of an attempt.
async fn refresh(core: &Core, op: &Operation) {
    let within = op.tool.spec().retry.attempt_timeout;
    let refreshed = tool_code::run(core, within, "it took too long", || op.tool.refresh()).await;
    if let Some(Err(error)) = refreshed {
        log_call!(warn, op, %error, "credential refresh failed");
    }
}

/// The end of an attempt that returned an error. A failed attempt says nothing about an earlier attempt of unknown
/// outcome: while there is one, the operation is not failed but ambiguous.
async fn failed_attempt(
    settling: Settling<'_>,
    record: Box<Record>,
    error: ToolError,
    unsettled: Option<Boot>,
) -> Result<Ended, ExecError> {
    if error.kind == ErrorKind::Unauthorized && record.tries() == 1 {
        refresh(settling.core, settling.op).await;
    }
    let effect = settling.effect();
    // A repeatable call is requested once more instead: the call is its own lookup.
    if let Some(accepted) = Accepted::of(&error).filter(|_| !effect.repeatable()) {
        let waits = pending::accept(settling, &record, accepted).await?;
        return Ok(waits.map_or(Ended::Changed, Ended::Pending));
    }
    let class = settling.contract().class;
    let nothing_happened = error.kind.is_without_effect(effect, class);
    let decision = error.kind.decision(effect, class);
    let hopeless = nothing_happened && decision != RetryDecision::Retry;
    // An earlier attempt may have been answered while this one was under way. A failure over that proof would be untrue,
    // and the next attempt a second effect.
    let may_be_proven = nothing_happened && record.attempts > 1;
    // Boxed because this case is rare: every call would reserve its memory.
    let is_proven = may_be_proven && Box::pin(answered_late(settling.core, &record)).await?;
    if nothing_happened && !record.in_doubt && !is_proven {
        return fail(settling, &record, error).await;
    }
    if hopeless && !is_proven && error.replayed && class == ContractClass::ReplaysKey {
        // The answer holds for the earlier attempt as well, whose answer the provider replays.
        return refuse(settling, &record, error).await.map(Ended::Failed);
    }
    let earlier = unsettled.filter(|_| nothing_happened);
    let cut = earlier.unwrap_or_else(|| settling.core.clock.boot());
    Ok(Ended::Ambiguous(Ambiguous {
        refused_as_duplicate: error.kind == ErrorKind::Duplicate,
        hopeless,
        retry_after: error.retry_after,
        ..Ambiguous::new(record, cut)
    }))
}

/// True if a late answer proves that an earlier attempt had its effect.
///
/// The read is tried as often as the write that follows it: without its answer a certain failure is not recorded, and the
/// next worker takes the attempt for one of unknown outcome.
async fn answered_late(core: &Core, record: &Record) -> Result<bool, ExecError> {
    let mut pauses = PAUSES.iter();
    loop {
        let error = match core.group.record_evidence(&record.tenant, record.id).await {
            Ok(evidence) => return Ok(evidence.iter().any(|late| late.tells_more(record))),
            Err(error) => error,
        };
        let Some(pause) = pauses.next().filter(|_| error.is_transient()) else {
            return Err(failed(&record.key, error));
        };
        core.clock.sleep(*pause).await;
    }
}
