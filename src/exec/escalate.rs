//! Open questions: opened where nobody can know, listed until they are answered (invariant 8).

use std::fmt::Write as _;

use super::core::Core;
use super::declared::Bound;
use super::operation::Operation;
use super::outcome::{ExecError, admitted, failed};
use super::surplus;
use crate::id::QuestionId;
use crate::ledger::resolve::Why;
use crate::ledger::{Event, Found, Look, LookupOffer, Reason, Record, State, apply};
use crate::store::{
    Answer, Change, Question, QuestionKind, Refusal, Resolution, SharedEffect, Store as _, Verdict,
};

/// What stands in a question before the words about an answer that has not taken effect.
const BESIDE: &str = "\nAn answer ";

/// Opens the question what became of a call, with what its lookup shows of others. `None` if the record has changed meanwhile.
///
/// # Crash
/// The question, the record's mark, and the look that is made beside the question are one transaction.
pub(super) async fn park(
    core: &Core,
    op: &Operation,
    record: &Record,
    why: Why,
    shown: Option<&str>,
) -> Result<Option<QuestionId>, ExecError> {
    let spec = op.tool.spec();
    let (kind, asked) = match &op.gone {
        Some(gone) => (QuestionKind::UnknownTool, gone.question(spec.name.as_str())),
        None => (QuestionKind::Ambiguous, why.question().to_owned()),
    };
    let class = record.class.name();
    let mut question = format!("{} ({class}, attempt {}): {asked}", op.key, record.attempts);
    if let Some(shown) = shown {
        let _ = write!(question, " The lookup shows: {shown}.");
    }
    let bound = core.bound(op, record).await?;
    let changes = bound.changes(core, op).filter(|_| op.gone.is_none());
    if let Some(changes) = changes {
        let _ = write!(question, " Since it went out, its tool has changed what it declares: {changes}.");
    }
    let escalation = about(core, record, kind, question);
    let id = escalation.id;
    let Ok(parked) = apply(record, Event::Park { escalation: id }, core.fence, core.now()) else {
        return Ok(None);
    };
    tracing::warn!(tenant = %op.tenant, key = %op.key, escalation = %id, ?why, gone = ?op.gone, "question asked");
    let look = reason(op, &bound, why).map(|reason| Look::beside_question(&parked, reason, core.now()));
    let mut change = core.change(op.lane).record(parked).escalation(escalation);
    change.look = look.map(Box::new);
    open(core, op, id, change).await.map(|()| Some(id))
}

/// Writes that a record waits from now on, by this row, and the look that is made meanwhile.
pub(super) async fn open(
    core: &Core,
    op: &Operation,
    row: QuestionId,
    change: Change,
) -> Result<(), ExecError> {
    let due_at = change.look.as_ref().and_then(|look| look.due_at);
    core.quiet.since(row, core.clock.boot());
    let written = core.commit(&op.key, change).await;
    // Also if it has failed: it may be there all the same.
    if let Some(at) = due_at {
        core.agenda.note(at);
    }
    written
}

/// The row by which a call waits that its provider has accepted and finishes by itself. It is no question.
pub(super) fn pending(core: &Core, record: &Record, external_ref: Option<&str>) -> Question {
    let named = external_ref.map(|id| format!(" as {id}")).unwrap_or_default();
    let question = format!(
        "{} ({}, attempt {}): the provider has accepted the call{named}, and finishes it by itself.",
        record.key,
        record.class.name(),
        record.attempts
    );
    about(core, record, QuestionKind::Pending, question)
}

/// The question that is opened when a provider finishes a call that was settled as not done.
pub(super) fn finished_late(core: &Core, record: &Record, external_ref: &str) -> Question {
    let question = format!(
        "{} is recorded as {}, and its provider says now that it has finished the call ({external_ref}). Its effect stands. \
         What about it?",
        record.key,
        record.state.name()
    );
    let asked = about(core, record, QuestionKind::Duplicated, question);
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %asked.id, external_ref, "finished late");
    asked
}

/// Withdraws a question that there is another way to answer by now. That it was answered meanwhile, or that the
/// record has changed, is no error: whoever asks reads it again. Whether it was withdrawn.
///
/// # Crash
/// The withdrawal, the record without its mark, and that no look is made beside the question are one transaction.
pub(super) async fn withdraw(
    core: &Core,
    op: &Operation,
    record: &Record,
    asked: Question,
) -> Result<bool, ExecError> {
    let look = to_come(core, record).await?;
    let Ok(record) = apply(record, Event::Unpark, core.fence, core.now()) else { return Ok(false) };
    tracing::info!(tenant = %op.tenant, key = %op.key, escalation = %asked.id, "withdrawn");
    let mut change = core.change(None).record(record).escalation(withdrawn(core, asked));
    change.look = look.map(|look| Box::new(look.done()));
    match core.group.commit_one(change).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(false),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

/// A question that is void, to be written with what made it so.
pub(crate) fn withdrawn(core: &Core, mut asked: Question) -> Question {
    asked.answer = Some(by_engine(core, Resolution::Withdrawn));
    asked
}

fn by_engine(core: &Core, resolution: Resolution) -> Answer {
    Answer { by: Answer::ENGINE.into(), resolution, because: None, misfit: None, at: core.now() }
}

/// The question with words about an answer that has not taken effect, in place of those about an earlier one.
pub(super) fn beside(question: &str, words: &str) -> String {
    let asked = question.split_once(BESIDE).map_or(question, |(asked, _)| asked);
    format!("{asked}{BESIDE}{words}")
}

/// The question that is opened when the world holds more than one effect. Counted, listed, never settled in
/// silence.
pub(super) fn duplicated<T>(core: &Core, op: &Operation, record: &Record, effects: &[Found<T>]) -> Question {
    let times = match effects.len() {
        0 | 1 => "more than once".to_owned(),
        several => format!("{several} times"),
    };
    let ids = surplus::ids(effects);
    let ids = if ids.is_empty() { "the lookup names none of them".to_owned() } else { ids.join(", ") };
    let question = format!("{} happened {times} ({ids}). The first is kept. What about the others?", op.key);
    let asked = about(core, record, QuestionKind::Duplicated, question);
    tracing::error!(tenant = %op.tenant, key = %op.key, escalation = %asked.id, count = effects.len(), "duplicated");
    asked
}

/// The question that is opened when an effect arrives after it was undone.
pub(super) fn late(core: &Core, record: &Record, external_ref: &str) -> Question {
    let question = format!(
        "{} was undone, and its first request has arrived after that ({external_ref}). It stands. What about it?",
        record.key
    );
    let asked = about(core, record, QuestionKind::Duplicated, question);
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %asked.id, external_ref, "late effect");
    asked
}

/// A question that the engine's own deeds have answered.
pub(super) fn settled(core: &Core, mut asked: Question, how: serde_json::Value) -> Question {
    asked.answer = Some(by_engine(core, Resolution::Undone(how)));
    asked
}

/// Asks a person whether there is a second effect: the confirming lookup has had no answer for too long.
///
/// # Crash
/// The question, and that the lookup is no longer due, are one transaction.
pub(super) async fn unconfirmed(core: &Core, record: &Record, given_up: Look) -> Result<(), ExecError> {
    let question = format!(
        "{} ({}) happened and is committed. An earlier request for it, of unknown outcome, may have arrived as \
         well; the lookup that would tell does not answer, and is not made again. Look by hand whether it \
         happened twice, and answer `keep` when that is dealt with.",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Unconfirmed, question);
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %asked.id, "not confirmed");
    core.commit(&record.key, core.change(None).look(given_up).escalation(asked)).await
}

/// Asks what became of an effect that is recorded as done and that the lookup does not show.
///
/// # Crash
/// The question, and that the lookup is no longer due, are one transaction.
pub(super) async fn missing(core: &Core, record: &Record, done: Look) -> Result<(), ExecError> {
    let question = format!(
        "{} ({}) is recorded as done, and the provider's lookup does not show it: it was asked twice. \
         Is it there all the same, or is it to be sent again? The record keeps answering under this key.",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Missing, question);
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %asked.id, "recorded as done, and missing");
    core.commit(&record.key, core.change(None).look(done).escalation(asked)).await
}

/// A person has been asked whether it is missing, or happened more than once.
pub(super) async fn was_asked(core: &Core, record: &Record) -> Result<bool, ExecError> {
    let asked = core.group.escalation_of(&record.tenant, record.id).await;
    let asked = asked.map_err(|source| failed(&record.key, source))?;
    let same = |q: &Question| matches!(q.kind, QuestionKind::Missing | QuestionKind::Duplicated);
    Ok(asked.iter().any(same))
}

/// Why a record is looked up beside the question; nothing if it cannot be.
fn reason(op: &Operation, bound: &Bound, why: Why) -> Option<Reason> {
    can_look(op, bound).then_some(match why {
        Why::LookupUnanswered | Why::OtherScope => Reason::Unanswered,
        _ => Reason::Asked,
    })
}

pub(super) fn can_look(op: &Operation, bound: &Bound) -> bool {
    op.gone.is_none() && bound.contract(op).lookup != LookupOffer::None && bound.effect(op).leaves_mark()
}

/// The look at a record that is to come.
pub(super) async fn to_come(core: &Core, record: &Record) -> Result<Option<Look>, ExecError> {
    let look = core.group.look_find(&record.tenant, record.id).await;
    look.map_err(|source| failed(&record.key, source))
}

/// A question about a record, under a new number.
pub(super) fn about(core: &Core, record: &Record, kind: QuestionKind, question: String) -> Question {
    Question {
        id: QuestionId(core.ids.next()),
        tenant: record.tenant.clone(),
        record: Some(record.id),
        run: record.owner.run,
        kind,
        question,
        opened_at: core.now(),
        waiting: None,
        answer: None,
    }
}

/// A run that is answered from, or waits for, a record which it does not own leaves a use.
pub(crate) async fn note_use(core: &Core, op: &Operation, record: crate::id::RecordId) {
    if let Some(run) = op.owner.run {
        let mut change = core.change(op.lane);
        change.used = Some(Box::new(SharedEffect {
            tenant: op.tenant.clone(),
            record,
            run,
            turn: op.owner.turn,
            step: op.owner.step.as_deref().unwrap_or_default().to_owned(),
            at: core.now(),
        }));
        drop(core.group.submit_with_room(change).await); // the run's next write comes behind it
    }
}

/// Lists a committed effect as an open question: its run failed, ended without asking for it, or diverged.
pub(crate) fn orphaned(core: &Core, record: &Record, why: &str) -> Question {
    let state = match &record.state {
        State::Started => "may have happened",
        _ => "happened",
    };
    left(core, record, &format!("{state}, and {why}"))
}

/// Lists what an effect has left in the world.
pub(crate) fn left(core: &Core, record: &Record, what: &str) -> Question {
    let question = format!("{} ({}) {what}. Keep it, or undo it by hand?", record.key, record.class.name());
    about(core, record, QuestionKind::Orphaned, question)
}

/// Asks whether an effect may be undone.
pub(crate) fn may_undo(core: &Core, record: &Record) -> Question {
    let question = format!(
        "{} ({}) happened, and its run did not end well. Undo it, keep it, or was it undone by hand?",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Compensation, question);
    tracing::warn!(tenant = %record.tenant, key = %record.key, escalation = %asked.id, "may it be undone?");
    asked
}
