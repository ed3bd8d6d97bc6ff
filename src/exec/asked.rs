//! Lookups beside an open question about a call of unknown outcome. They are made until one has an answer, and before
//! the answer "it did not happen" takes effect.
//!
//! A look only finds out if the provider has an answer. If so, the question is withdrawn, and the call is reconciled by
//! its run or by a background task.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::decided::decided;
use super::declared::{Bound, Settling};
use super::escalate;
use super::hand_over::withdraw;
use super::lookup::{self, Glance, Shown};
use super::operation::{LONG_WAIT, Operation};
use super::outcome::{ExecError, admitted, failed};
use super::recorded::recorded;
use super::result;
use super::unfinished;
use crate::id::QuestionId;
use crate::ledger::{Contract, Event, Look, LookupOffer, Reason, Record, apply};
use crate::store::{Answer, Change, Question, Refusal, Store as _, Verdict};

/// An operation with an open question that can be looked up.
pub(super) struct Lookable {
    op: Operation,
    bound: Bound,
}

impl Lookable {
    fn contract(&self) -> &Contract {
        self.bound.contract(&self.op)
    }

    /// Takes the answer "it did not happen" to the question. The answer waits for the lookup, which is made at once.
    /// `None` if a row has changed meanwhile.
    ///
    /// # Crash
    /// The answer and the look that it waits for are one transaction. After a crash the next worker makes the look.
    pub(super) async fn deny(
        &self,
        core: &Arc<Core>,
        record: &Record,
        mut asked: Question,
        answer: Answer,
    ) -> Result<Option<Question>, ExecError> {
        let Ok(record) = apply(record, Event::AnswerWaits, core.fence, core.now()) else { return Ok(None) };
        let look = self.at_once(core, &record, escalate::to_come(core, &record).await?);
        asked.question = escalate::beside(&asked.question, &waits_for_lookup(&answer));
        asked.waiting = Some(answer);
        let change = core.change(None).record(record.clone()).escalation(asked.clone());
        let change = change.look(look.clone());
        Made { core, lookable: self, record: &record, look, asked }.at_once(change).await
    }

    /// Makes the look now, because a person asked for it. `None` if a row has changed meanwhile.
    pub(super) async fn look_now(
        &self,
        core: &Arc<Core>,
        record: &Record,
        asked: Question,
    ) -> Result<Option<Question>, ExecError> {
        let there = escalate::to_come(core, record).await?;
        if there.is_none() {
            if let Some(answer) = asked.waits().cloned() {
                return self.deny(core, record, asked, answer).await; // the look that the answer waits for was given up
            }
            let look = self.at_once(core, record, None);
            let made = Made { core, lookable: self, record, look, asked };
            made.look_up(Some(LONG_WAIT)).await?;
            return Ok(Some(made.asked));
        }
        let look = self.at_once(core, record, there);
        let change = core.change(None).look(look.clone());
        Made { core, lookable: self, record, look, asked }.at_once(change).await
    }

    /// The row of a look that is made now, postponed like one that was due. If it has no answer, the pauses begin
    /// again.
    fn at_once(&self, core: &Core, record: &Record, there: Option<Look>) -> Look {
        let unanswered = || Look::beside_question(record, Reason::Unanswered, core.now());
        let there =
            there.map_or_else(|| Look { revision: 0, ..unanswered() }, |look| Look { tries: 0, ..look });
        there.taken_up(self.contract(), core.now())
    }
}

/// Makes the look due now, for a worker that knows the tool: this process is a client and knows none. `None` if a row has
/// changed meanwhile.
///
/// # Crash
/// The look is durable when this returns. The worker makes it, whichever process dies.
pub(super) async fn leave_to_a_worker(
    core: &Core,
    record: &Record,
    asked: Question,
) -> Result<Option<Question>, ExecError> {
    let look = escalate::due_now(core, record, Reason::Unanswered).await?;
    match core.group.commit_one(core.change(None).look(look)).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(None),
        verdict => admitted(&record.key, verdict).map(|()| Some(asked)),
    }
}

/// The operation of a record with an open question, if the operation can be looked up.
pub(super) async fn lookable(core: &Arc<Core>, record: &Record) -> Result<Option<Lookable>, ExecError> {
    let Ok(op) = recorded(core, record).await? else { return Ok(None) };
    let bound = core.bound(&op, record).await?;
    Ok(escalate::can_look(&op, &bound).then_some(Lookable { op, bound }))
}

/// One look beside an open question.
struct Made<'a> {
    core: &'a Arc<Core>,
    lookable: &'a Lookable,
    record: &'a Record,
    look: Look,
    asked: Question,
}

/// Makes a look that is due and was postponed. Returns the look's next row, if the caller has to write it.
pub(super) async fn follow(
    core: &Arc<Core>,
    look: &Look,
    record: &Record,
) -> Result<Option<Look>, ExecError> {
    let asked = match record.escalation {
        Some(question) => find(core, record, question).await?,
        None => None,
    };
    let Some(asked) = asked else { return Ok(Some(look.done())) };
    if let Some(answer) = asked.to_be_read().cloned() {
        return result::take_up(core, record, asked, answer).await.map(|()| None);
    }
    if unfinished::is_completed(core, record, &asked).await? {
        return Ok(None);
    }
    match lookable(core, record).await? {
        Some(lookable) => {
            Made { core, lookable: &lookable, record, look: look.clone(), asked }.look_up(None).await
        }
        None => {
            let contract = core.contract_of(record).await.map_err(|source| failed(&record.key, source))?;
            if let Some(answer) = asked.waits().filter(|_| contract.lookup == LookupOffer::None).cloned() {
                // The process that took the answer did not know that the tool has no lookup to wait for.
                return counts(core, record, asked, answer).await.map(|()| None);
            }
            next(core, record, &asked, Glance { look, contract: &contract, shown: Shown::Unanswered }).await
        }
    }
}

/// Lets an answer that has waited count.
pub(super) async fn counts(
    core: &Core,
    record: &Record,
    asked: Question,
    answer: Answer,
) -> Result<(), ExecError> {
    if let Some(answered) = decided(core, asked, record, answer, None).await? {
        core.tell_answered(answered).await;
    }
    Ok(())
}

/// The next row of a look that has settled nothing.
async fn next(
    core: &Arc<Core>,
    record: &Record,
    asked: &Question,
    seen: Glance<'_>,
) -> Result<Option<Look>, ExecError> {
    match seen.look.reason {
        Reason::Pending => unfinished::follow(core, record, asked, seen).await,
        _ => Ok(given_up(seen.contract, record, seen.look)),
    }
}

impl Made<'_> {
    /// Makes the look once the change with the postponed look is durable.
    async fn at_once(self, change: Change) -> Result<Option<Question>, ExecError> {
        let core = self.core;
        let written = core.group.commit_one(change).await;
        if let Ok(Verdict::Refused(Refusal::Stale)) = written {
            return Ok(None);
        }
        note(core, &self.look); // also if the write has failed, because the row may be there all the same
        admitted(&self.record.key, written)?;
        if let Some(next) = self.look_up(Some(LONG_WAIT)).await? {
            match core.group.commit_one(core.change(None).look(next.clone())).await {
                Ok(Verdict::Refused(Refusal::Stale)) => {} // another worker has looked
                verdict => admitted(&self.record.key, verdict)?,
            }
            note(core, &next);
        }
        Ok(Some(self.asked))
    }

    /// Looks, and acts on the result. Returns the next look, unless that is the one that is already postponed.
    async fn look_up(&self, patience: Option<Duration>) -> Result<Option<Look>, ExecError> {
        let Self { core, lookable, record, look, asked } = self;
        if let Some(answer) = asked.to_be_read().cloned() {
            return result::take_up(core, record, asked.clone(), answer).await.map(|()| None);
        }
        let Lookable { op, bound } = lookable;
        let shown = lookup::show(Settling { core, op, bound }, record, patience).await?;
        log_call!(debug, op, question = %asked.id, shown = shown.name(), "question looked up");
        match (shown, asked.waits().cloned()) {
            (Shown::Fate, _) => withdraw(core, op, record, asked.clone()).await.map(|()| None),
            (Shown::Nothing, Some(answer)) => {
                let left = unsettled(core, lookable.contract(), record, asked.id).await?;
                if !left.is_zero() {
                    return Ok(Some(look.too_early(left, core.now())));
                }
                counts(core, record, asked.clone(), answer).await.map(|()| None)
            }
            (Shown::Nothing, None) if bound.lookup_in_scope && look.reason == Reason::Unanswered => {
                withdraw(core, op, record, asked.clone()).await.map(|()| None)
            }
            _ => next(core, record, asked, Glance { look, contract: lookable.contract(), shown }).await,
        }
    }
}

fn note(core: &Core, look: &Look) {
    if let Some(at) = look.due_at {
        core.agenda.note(at);
    }
}

/// Ends the looks if the last one had no answer either: no further look is made without a person.
fn given_up(contract: &Contract, record: &Record, look: &Look) -> Option<Look> {
    let is_last = look.is_last_try(contract);
    if is_last {
        log_record!(
            warn,
            record,
            question = record.escalation.map(tracing::field::display),
            "lookups given up, question stays open"
        );
    }
    is_last.then(|| look.done())
}

/// The rest of the settle time, counted from the last instant at which something may have been sent under the record.
async fn unsettled(
    core: &Core,
    contract: &Contract,
    record: &Record,
    asked: QuestionId,
) -> Result<Duration, ExecError> {
    let is_anothers = core.is_anothers(record.fence).await.map_err(|source| failed(&record.key, source))?;
    let since = if record.fence == core.fence || is_anothers {
        core.quiet.since(asked, core.clock.boot())
    } else {
        core.cut(record.fence)
    };
    Ok(lookup::unsettled(core, contract, since))
}

async fn find(core: &Core, record: &Record, id: QuestionId) -> Result<Option<Question>, ExecError> {
    let found = core.group.escalation_find(&record.tenant, id).await;
    Ok(found.map_err(|source| failed(&record.key, source))?.filter(|asked| asked.answer.is_none()))
}

/// The sentence in a question about an answer that waits for a lookup.
pub(super) fn waits_for_lookup(answer: &Answer) -> String {
    let because = answer.because.as_ref().map(|because| format!(" ({because})")).unwrap_or_default();
    format!(
        "waits: {by} says that it did not happen{because}. That takes effect when the provider's lookup has answered and shows \
         nothing, and when a request can no longer be under way. The lookup is made again until then; `look_now` makes it at once, \
         `send_without_looking` sends without it.",
        by = answer.by,
    )
}
