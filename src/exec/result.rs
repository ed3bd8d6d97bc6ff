//! The result in an answer "it happened, with this result" is read as the tool's output before the answer counts. The
//! first result wins, so one that does not fit would be given to the workflow for ever.
//!
//! Only a process that knows the tool can read the result. An answer that is given elsewhere waits beside its question,
//! and a worker that knows the tool takes the answer up together with the looks beside questions.

use serde_json::Value;

use super::asked;
use super::core::Core;
use super::escalate::{self, beside};
use super::outcome::{ExecError, admitted, failed};
use crate::ledger::{Event, LookupOffer, Reason, Record, apply};
use crate::payload::{Payload, PayloadError};
use crate::store::{Answer, Change, Question, QuestionKind, Refusal, Verdict};

/// The check of a result that a person has given.
pub(super) enum Fit {
    /// The tool's callers can read the result.
    Fits,
    /// The tool's callers cannot read the result, for this reason.
    Misfit(String),
    /// The tool is not registered here.
    Unknown,
}

/// Reads a result as the output of the record's tool.
pub(super) async fn fit(core: &Core, record: &Record, result: &Value) -> Result<Fit, ExecError> {
    let payload = Payload::of(result)?.within(&core.limits)?;
    let name = record.operation.as_str();
    let Some(tool) = core.registry.known(name) else {
        let declared = core.declaration(record).await.map_err(|source| failed(&record.key, source))?;
        return Ok(if declared.any_output { Fit::Fits } else { Fit::Unknown });
    };
    Ok(match tool.check_output(&payload) {
        Ok(()) => Fit::Fits,
        Err(PayloadError::Mismatch { expected, reason }) => Fit::Misfit(format!(
            "the result does not fit `{expected}`, which the tool {name:?} returns: {reason}"
        )),
        Err(error) => Fit::Misfit(error.to_string()),
    })
}

/// True if an answer that it did not happen waits for a lookup that only another process can make: this one is a
/// client, or does not know the tool. A question that was opened because nobody knew the tool asks a person in place of
/// a lookup: the answer counts at once.
pub(super) async fn takes_lookup(
    core: &Core,
    record: &Record,
    kind: QuestionKind,
) -> Result<bool, ExecError> {
    let is_known = core.registry.known(record.operation.as_str()).is_some();
    let is_toolless = !is_known && kind != QuestionKind::UnknownTool;
    if !core.is_client() && !is_toolless {
        return Ok(false);
    }
    let contract = core.contract_of(record).await.map_err(|source| failed(&record.key, source))?;
    Ok(contract.lookup != LookupOffer::None)
}

/// Makes the answer wait until a worker that knows the tool takes it up. `None` if a row has changed meanwhile.
///
/// # Crash
/// The answer and the look by which it is taken up are one transaction.
pub(super) async fn wait(
    core: &Core,
    record: &Record,
    mut asked: Question,
    answer: Answer,
) -> Result<Option<Question>, ExecError> {
    let (reason, words) = match answer.resolution.result() {
        Some(_) => (
            Reason::Asked,
            format!(
                "waits: {} says that it happened. That takes effect when a worker that knows the tool {:?} has read the result.",
                answer.by,
                record.operation.as_str()
            ),
        ),
        None => (
            Reason::Unanswered,
            format!(
                "{} The process that took the answer does not know the tool {:?}: a worker that knows it makes the lookup. Until \
                 there is one, the answer waits.",
                asked::waits_for_lookup(&answer),
                record.operation.as_str()
            ),
        ),
    };
    let look = escalate::due_now(core, record, reason).await?;
    (asked.question, asked.waiting) = (beside(&asked.question, &words), Some(answer));
    let written = write(core, record, &asked, core.change(None).look(look.clone())).await;
    // Noted also if the write has failed, because the row may be there all the same.
    if let Some(at) = look.due_at {
        core.agenda.note(at);
    }
    Ok(written?.then_some(asked))
}

/// Takes up an answer that waits to be read. Unless this settles the question, the look beside it is due again.
pub(super) async fn take_up(
    core: &Core,
    record: &Record,
    asked: Question,
    answer: Answer,
) -> Result<(), ExecError> {
    let Some(result) = answer.resolution.result() else { return Ok(()) };
    match fit(core, record, result).await? {
        Fit::Fits => asked::counts(core, record, asked, answer).await?,
        Fit::Unknown => {}
        Fit::Misfit(why) => {
            // Why is in the question: it may show a part of the result.
            log_record!(warn, record, question = %asked.id, by = answer.by, "answer does not fit the tool's output");
            let open = set_aside(asked, answer, why);
            write(core, record, &open, core.change(None)).await?;
        }
    }
    Ok(())
}

/// The question with the reason why an answer does not count. The question stays open.
fn set_aside(mut asked: Question, answer: Answer, why: String) -> Question {
    let words = format!("does not count: {} says that it happened, and {why}. Answer again.", answer.by);
    asked.question = beside(&asked.question, &words);
    asked.waiting = Some(Answer { misfit: Some(why), ..answer });
    asked
}

/// Writes a question that stays open. False if another answer was faster and the record has changed: then nothing is
/// written.
async fn write(core: &Core, record: &Record, asked: &Question, change: Change) -> Result<bool, ExecError> {
    let Ok(next) = apply(record, Event::AnswerWaits, core.fence, core.now()) else { return Ok(false) };
    match core.group.commit_one(change.record(next).escalation(asked.clone())).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(false),
        verdict => admitted(&record.key, verdict).map(|()| true),
    }
}
