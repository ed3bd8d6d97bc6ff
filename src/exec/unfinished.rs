//! The look at a call that its provider has accepted and not finished.

use std::sync::Arc;

use super::completion;
use super::core::Core;
use super::escalate;
use super::hand_over::withdraw;
use super::lookup::{Glance, Shown};
use super::outcome::{ExecError, admitted, failed};
use super::recorded::recorded;
use crate::ledger::resolve::Why;
use crate::ledger::{Event, Look, Record, apply};
use crate::store::{Question, QuestionKind, Refusal, Verdict};

/// The next row of the look at an unfinished call.
pub(super) async fn follow(
    core: &Arc<Core>,
    record: &Record,
    asked: &Question,
    Glance { look, contract, shown }: Glance<'_>,
) -> Result<Option<Look>, ExecError> {
    let now = core.now();
    match shown {
        _ if look.is_overdue(contract, now) && asked.waits().is_none() => {
            overdue(core, record, asked, look).await.map(|()| None)
        }
        Shown::Pending(look_again) => Ok(Some(look.still_pending(look_again, contract, now))),
        _ => Ok(None), // the look is due again
    }
}

/// Settles a call by its completion, if one was handed over. True if it was.
pub(super) async fn is_completed(
    core: &Arc<Core>,
    record: &Record,
    asked: &Question,
) -> Result<bool, ExecError> {
    let contract = core.contract_of(record).await.map_err(|source| failed(&record.key, source))?;
    if completion::of(core, record, contract.class).await?.is_none() {
        return Ok(false);
    }
    let Ok(op) = recorded(core, record).await? else { return Ok(false) };
    withdraw(core, &op, record, asked.clone()).await.map(|()| true)
}

/// Ends the wait after its longest time: a person is asked, and the call is looked up beside the question.
///
/// # Crash
/// The end of the wait, the question and the look beside it are one transaction.
async fn overdue(core: &Arc<Core>, record: &Record, waited: &Question, look: &Look) -> Result<(), ExecError> {
    let (why, class) = (Why::NeverFinished.question(), record.class.name());
    let called = record.external_ref.as_ref().map(|id| format!(" It is {id} there.")).unwrap_or_default();
    let question = format!("{} ({class}, attempt {}): {why}{called}", record.key, record.attempts);
    let question = escalate::about(core, record, QuestionKind::Ambiguous, question);
    let event = Event::Overdue { escalation: question.id };
    let Ok(next) = apply(record, event, core.fence, core.now()) else { return Ok(()) };
    log_record!(warn, record, question = %question.id, "accepted call not finished in time");
    let ended = escalate::withdrawn(core, waited.clone());
    let look = look.asked(core.now());
    let due_at = look.due_at;
    let change = core.change(None).record(next).escalation(ended.clone()).escalation(question).look(look);
    let written = core.group.commit_one(change).await;
    if let Some(at) = due_at {
        core.agenda.note(at); // also if the write has failed: the row may be there
    }
    match written {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(()), // the call was completed or answered meanwhile
        written => {
            admitted(&record.key, written)?;
            core.quiet.forget(ended.id);
            core.tell_answered(ended).await;
            Ok(())
        }
    }
}
