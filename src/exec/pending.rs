//! Calls that their providers have accepted and finish by themselves. Each waits as a row, and is looked up when the provider wants it,
//! until it is finished or its longest time is over.

use std::sync::Arc;
use std::time::Duration;

use super::asked::withdraw;
use super::compare::compare;
use super::completion;
use super::core::Core;
use super::declared::Settling;
use super::escalate::{self, can_look};
use super::lookup::Shown;
use super::outcome::{ExecError, admitted, failed};
use crate::id::EscalationId;
use crate::ledger::resolve::Why;
use crate::ledger::{Contract, Event, Look, Record, apply};
use crate::store::{Escalation, EscalationKind, Refusal, Store as _, Verdict};
use crate::tool::ToolError;

/// The pause before the first lookup, where the provider names none.
pub(super) const PAUSE: Duration = Duration::from_mins(1);

/// What a provider says of a call that it finishes by itself.
pub(super) struct Accepted {
    pub(super) external_ref: Option<String>,
    pub(super) look_again: Duration,
}

impl Accepted {
    /// As an attempt comes back with it.
    pub(super) fn of(error: &ToolError) -> Option<Self> {
        let external_ref = error.accepted.as_ref()?.external_ref.clone();
        Some(Self { external_ref, look_again: error.retry_after.unwrap_or(PAUSE) })
    }
}

/// Lets the call wait. `None` if the record has changed meanwhile, or if the call is completed already: decide anew.
///
/// # Crash
/// The provider's id, the record's mark and the look are one transaction. Before it, the call is ambiguous like any other.
pub(super) async fn accept(
    settling: Settling<'_>,
    record: &Record,
    Accepted { external_ref, look_again }: Accepted,
) -> Result<Option<EscalationId>, ExecError> {
    let Settling { core, op, bound } = settling;
    let contract = settling.contract();
    let waiting = escalate::pending(core, record, external_ref.as_deref());
    let id = waiting.id;
    let naming = completion::naming(core, record, external_ref.as_deref()).await?;
    let event = Event::Accept { escalation: id, external_ref };
    let Ok(next) = apply(record, event, core.fence, core.now()) else { return Ok(None) };
    // Without a lookup, the only look is the one at the end of the longest time.
    let pause = if can_look(op, bound) { look_again } else { contract.completion_time() };
    let look = Look::while_pending(&next, pause, contract, core.now());
    tracing::info!(tenant = %op.tenant, key = %op.key, external_ref = ?next.external_ref, "accepted by its provider");
    let mut change = core.change(op.lane).record(next.clone()).escalation(waiting.clone()).look(look);
    change.documents.extend(naming);
    // Should this worker have been taken over, its answer may tell of a second effect.
    compare(core, &mut change, contract.class, Box::default());
    escalate::open(core, op, id, change).await?;
    if completion::of(core, &next).await?.is_none() {
        return Ok(Some(id));
    }
    escalate::withdraw(core, op, &next, waiting).await?;
    Ok(None)
}

/// What becomes of the look at a call that is not finished, as far as this look has shown.
pub(super) async fn follow(
    core: &Arc<Core>,
    record: &Record,
    asked: &Escalation,
    look: &Look,
    (contract, shown): (&Contract, Shown),
) -> Result<Option<Look>, ExecError> {
    let now = core.now();
    match shown {
        _ if look.is_overdue(contract, now) && asked.waits().is_none() => {
            overdue(core, record, asked, look).await.map(|()| None)
        }
        Shown::Pending(look_again) => Ok(Some(look.still_pending(look_again, contract, now))),
        _ => Ok(None), // it is due again
    }
}

/// Settles a call with what was handed over about it, if anything was. Whether it was.
pub(super) async fn is_completed(
    core: &Arc<Core>,
    record: &Record,
    asked: &Escalation,
) -> Result<bool, ExecError> {
    if completion::of(core, record).await?.is_none() {
        return Ok(false);
    }
    let Ok(op) = super::recorded::recorded(core, record).await? else { return Ok(false) };
    withdraw(core, &op, record, asked.clone()).await.map(|()| true)
}

/// The longest time is over: a person is asked, and the call is looked up beside the question.
///
/// # Crash
/// The end of the wait, the question and the look beside it are one transaction.
async fn overdue(
    core: &Arc<Core>,
    record: &Record,
    waited: &Escalation,
    look: &Look,
) -> Result<(), ExecError> {
    let (why, class) = (Why::NeverFinished.question(), record.class.name());
    let called = record.external_ref.as_ref().map(|id| format!(" It is {id} there.")).unwrap_or_default();
    let question = format!("{} ({class}, attempt {}): {why}{called}", record.key, record.attempts);
    let question = escalate::about(core, record, EscalationKind::Ambiguous, question);
    let event = Event::Overdue { escalation: question.id };
    let Ok(next) = apply(record, event, core.fence, core.now()) else { return Ok(()) };
    tracing::warn!(tenant = %record.tenant, key = %record.key, escalation = %question.id, "not finished in time");
    let ended = escalate::withdrawn(core, waited.clone());
    let look = look.asked(core.now());
    let due_at = look.due_at;
    let change = core.change(None).record(next).escalation(ended.clone()).escalation(question).look(look);
    let written = core.group.commit_one(change).await;
    if let Some(at) = due_at {
        core.agenda.note(at); // also if the write has failed: it may be there all the same
    }
    match written {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(()), // it was completed or answered meanwhile
        written => {
            admitted(&record.key, written)?;
            core.quiet.forget(ended.id);
            core.tell_answered(ended).await;
            Ok(())
        }
    }
}

/// The row by which a record waits, if its provider is to finish the call.
pub(super) async fn is_pending(core: &Core, record: &Record, id: EscalationId) -> Result<bool, ExecError> {
    let found = core.group.escalation_find(&record.tenant, id).await;
    let found = found.map_err(|source| failed(&record.key, source))?;
    Ok(found.is_some_and(|found| found.kind == EscalationKind::Pending))
}
