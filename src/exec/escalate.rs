//! Open questions: opened if the engine cannot find out by itself, and listed until they are answered.

use std::fmt::Write as _;
use std::time::Duration;

use super::core::Core;
use super::declared::Bound;
use super::operation::Operation;
use super::outcome::{ExecError, admitted, failed};
use super::surplus;
use crate::id::QuestionId;
use crate::ledger::resolve::Why;
use crate::ledger::{ErrorKind, Event, Found, Look, LookupOffer, Reason, Record, State, apply};
use crate::store::{
    Answer, Change, Contact, Question, QuestionKind, Refusal, Resolution, SharedEffect, Store as _, Verdict,
};

/// The text in a question before the words about an answer that has not taken effect.
const BESIDE: &str = "\nAn answer ";

/// The reason why the outcome of a call is asked for.
pub(super) struct Doubt<'a> {
    pub(super) why: Why,
    /// The effects of other requests that the lookup shows, in words.
    pub(super) shown: Option<&'a str>,
}

impl From<Why> for Doubt<'_> {
    fn from(why: Why) -> Self {
        Self { why, shown: None }
    }
}

/// Opens the question about the outcome of a call. `None` if the record has changed meanwhile.
///
/// # Crash
/// The question, the record's mark, and the look beside the question are one transaction.
pub(super) async fn park(
    core: &Core,
    op: &Operation,
    record: &Record,
    Doubt { why, shown }: Doubt<'_>,
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
    log_call!(debug, op, question = %id, why = ?why, "call asked about");
    let look = reason(op, &bound, why).map(|reason| Look::beside_question(&parked, reason, core.now()));
    let mut change = core.change(op.lane).record(parked).escalation(escalation);
    change.look = look.map(Box::new);
    open(core, op, id, change).await.map(|()| Some(id))
}

/// Writes that a record waits from now on by this row, together with the look that is made meanwhile.
pub(super) async fn open(
    core: &Core,
    op: &Operation,
    row: QuestionId,
    change: Change,
) -> Result<(), ExecError> {
    let due_at = change.look.as_ref().and_then(|look| look.due_at);
    core.quiet.since(row, core.clock.boot());
    let written = core.commit(&op.key, change).await;
    // Noted also if the write has failed, because the row may be there all the same.
    if let Some(at) = due_at {
        core.agenda.note(at);
    }
    written
}

/// The row of a call that its provider has accepted and finishes by itself. The row is no question to a person.
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

/// The question about a call that was settled as not done and that its provider has finished after that.
pub(super) fn finished_late(core: &Core, record: &Record, external_ref: &str) -> Question {
    let question = format!(
        "{} is recorded as {}, and its provider says now that it has finished the call ({external_ref}). Its effect stands. \
         What about it?",
        record.key,
        record.state.name()
    );
    let asked = about(core, record, QuestionKind::Duplicated, question);
    log_record!(error, record, question = %asked.id, external_ref, "call finished after it was settled");
    asked
}

/// The question about a call that is recorded as done and that its provider says has failed.
pub(super) fn failed_late(
    core: &Core,
    record: &Record,
    external_ref: &str,
    kind: ErrorKind,
    message: &str,
) -> Question {
    let question = format!(
        "{} ({}) is recorded as done, and its provider says now that it has failed ({external_ref}; {}: {}). Is it there \
         all the same, or is it to be sent again? The record keeps answering under this key.",
        record.key,
        record.class.name(),
        kind.name(),
        Contact::cut(message)
    );
    let asked = about(core, record, QuestionKind::Missing, question);
    log_record!(error, record, question = %asked.id, external_ref, "call failed after it was recorded as done");
    asked
}

/// Withdraws a question that a lookup or an answer of the provider can settle by now. True if it was withdrawn. False,
/// and no error, if the question was answered meanwhile or the record has changed: the caller reads them again.
///
/// # Crash
/// The withdrawal, the record without its mark, and the end of the looks beside the question are one transaction. If
/// this worker dies after it, another one takes the record over.
pub(super) async fn withdraw(
    core: &Core,
    op: &Operation,
    record: &Record,
    asked: Question,
) -> Result<bool, ExecError> {
    let look = to_come(core, record).await?;
    let is_anothers = core.is_anothers(record.fence).await.map_err(|source| failed(&op.key, source))?;
    let Ok(record) = apply(record, Event::Unpark, core.fence, core.now()) else { return Ok(false) };
    // No worker takes over a record of a living worker. So the record becomes this worker's, which settles the call.
    let fence = if is_anothers { core.fence } else { record.fence };
    let record = Record { fence, ..record };
    let mut change = core.change(None).record(record).escalation(withdrawn(core, asked));
    change.look = look.map(|look| Box::new(look.done()));
    match core.group.commit_one(change).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(false),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

/// The question with the answer that it is void, to be written together with the reason.
pub(crate) fn withdrawn(core: &Core, mut asked: Question) -> Question {
    asked.answer = Some(by_engine(core, Resolution::Withdrawn));
    asked
}

fn by_engine(core: &Core, resolution: Resolution) -> Answer {
    Answer { by: Answer::ENGINE.into(), resolution, because: None, misfit: None, at: core.now() }
}

/// The question's text with words about an answer that has not taken effect. They replace those about an earlier
/// answer.
pub(super) fn beside(question: &str, words: &str) -> String {
    let asked = question.split_once(BESIDE).map_or(question, |(asked, _)| asked);
    format!("{asked}{BESIDE}{words}")
}

/// The question about an operation with more than one effect in the world. It is always opened, so that duplicates are
/// counted and listed.
pub(super) fn duplicated<T>(core: &Core, op: &Operation, record: &Record, effects: &[Found<T>]) -> Question {
    let times = match effects.len() {
        0 | 1 => "more than once".to_owned(),
        several => format!("{several} times"),
    };
    let ids = surplus::ids(effects);
    let ids = if ids.is_empty() { "the lookup names none of them".to_owned() } else { ids.join(", ") };
    let question = format!("{} happened {times} ({ids}). The first is kept. What about the others?", op.key);
    let asked = about(core, record, QuestionKind::Duplicated, question);
    log_call!(error, op, question = %asked.id, effects = effects.len(), "effect duplicated");
    asked
}

/// The question about an effect that arrives after it was undone.
pub(super) fn late(core: &Core, record: &Record, external_ref: &str) -> Question {
    let question = format!(
        "{} was undone, and its first request has arrived after that ({external_ref}). It stands. What about it?",
        record.key
    );
    let asked = about(core, record, QuestionKind::Duplicated, question);
    log_record!(error, record, question = %asked.id, external_ref, "effect arrived after its undoing");
    asked
}

/// The question with the engine's own answer that it has settled the matter.
pub(super) fn settled(core: &Core, mut asked: Question, how: serde_json::Value) -> Question {
    asked.answer = Some(by_engine(core, Resolution::Undone(how)));
    asked
}

/// Asks a person about a possible second effect, because the confirming lookup has had no answer for too long.
///
/// # Crash
/// The question and the end of the lookups are one transaction.
pub(super) async fn unconfirmed(core: &Core, record: &Record, given_up: Look) -> Result<(), ExecError> {
    let question = format!(
        "{} ({}) happened and is committed. An earlier request for it, of unknown outcome, may have arrived as \
         well; the lookup that would tell does not answer, and is not made again. Look by hand whether it \
         happened twice, and answer `keep` when that is dealt with.",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Unconfirmed, question);
    log_record!(error, record, question = %asked.id, "effect unconfirmed, lookup does not answer");
    core.commit(&record.key, core.change(None).look(given_up).escalation(asked)).await
}

/// Asks a person about an effect that is recorded as done and that the lookup does not show.
///
/// # Crash
/// The question and the end of the lookups are one transaction.
pub(super) async fn missing(core: &Core, record: &Record, done: Look) -> Result<(), ExecError> {
    let question = format!(
        "{} ({}) is recorded as done, and the provider's lookup does not show it: it was asked twice. \
         Is it there all the same, or is it to be sent again? The record keeps answering under this key.",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Missing, question);
    log_record!(error, record, question = %asked.id, "effect missing, lookup found nothing");
    core.commit(&record.key, core.change(None).look(done).escalation(asked)).await
}

/// True if a person was asked about this record's effect, as missing or as duplicated.
pub(super) async fn was_asked(core: &Core, record: &Record) -> Result<bool, ExecError> {
    let asked = core.group.escalation_of(&record.tenant, record.id).await;
    let asked = asked.map_err(|source| failed(&record.key, source))?;
    let same = |q: &Question| matches!(q.kind, QuestionKind::Missing | QuestionKind::Duplicated);
    Ok(asked.iter().any(same))
}

/// The reason for looking a record up beside its question. `None` if the record cannot be looked up.
fn reason(op: &Operation, bound: &Bound, why: Why) -> Option<Reason> {
    can_look(op, bound).then_some(match why {
        Why::LookupUnanswered | Why::OtherScope => Reason::Unanswered,
        _ => Reason::Asked,
    })
}

pub(super) fn can_look(op: &Operation, bound: &Bound) -> bool {
    op.gone.is_none() && bound.contract(op).lookup != LookupOffer::None && bound.effect(op).leaves_mark()
}

/// The next look at a record, if there will be one.
pub(super) async fn to_come(core: &Core, record: &Record) -> Result<Option<Look>, ExecError> {
    let look = core.group.look_find(&record.tenant, record.id).await;
    look.map_err(|source| failed(&record.key, source))
}

/// The next look at a record, due now: the one that will be made in any case, or a new one for this reason.
pub(super) async fn due_now(core: &Core, record: &Record, reason: Reason) -> Result<Look, ExecError> {
    Ok(match to_come(core, record).await? {
        Some(look) => look.too_early(Duration::ZERO, core.now()),
        None => Look::for_answer(record, reason, core.now()),
    })
}

/// A new question about a record, with a new id.
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

/// Notes that the run was answered from, or waits for, a record that it does not own.
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
        drop(core.group.submit_with_room(change).await); // the run's next write comes after it
    }
}

/// The question about a committed effect whose run failed, ended without requesting it, or diverged.
pub(crate) fn orphaned(core: &Core, record: &Record, why: &str) -> Question {
    let state = match &record.state {
        State::Started => "may have happened",
        _ => "happened",
    };
    left(core, record, &format!("{state}, and {why}"))
}

/// The question about an effect that is left in the world.
pub(crate) fn left(core: &Core, record: &Record, what: &str) -> Question {
    let question = format!("{} ({}) {what}. Keep it, or undo it by hand?", record.key, record.class.name());
    about(core, record, QuestionKind::Orphaned, question)
}

/// The question that asks a person to allow that an effect is undone.
pub(crate) fn may_undo(core: &Core, record: &Record) -> Question {
    let question = format!(
        "{} ({}) happened, and its run did not end well. Undo it, keep it, or was it undone by hand?",
        record.key,
        record.class.name()
    );
    let asked = about(core, record, QuestionKind::Compensation, question);
    log_record!(warn, record, question = %asked.id, "compensation awaits approval");
    asked
}
