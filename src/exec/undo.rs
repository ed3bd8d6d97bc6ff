//! Undoing an effect: an operation of its own, under a key derived from the forward one. After it the forward record is
//! marked as undone.

use std::sync::Arc;

use super::carry::{Expect, carry_out, look_only};
use super::core::Core;
use super::escalate;
use super::operation::{Asker, Operation, Requested};
use super::outcome::{ExecError, Outcome, admitted, failed, refused};
use super::recorded::trace_of;
use super::request::Wait;
use crate::id::{QuestionId, RunId};
use crate::ledger::{Due, Event, FinalState, Found, Owner, Record, State, UndoRequest, Undone, apply, due};
use crate::payload::Payload;
use crate::store::{Question, Refusal, RunState, Store as _, Verdict};
use crate::tool::{Undoing, stable_key};

/// The result of undoing an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Compensated {
    /// The effect is undone, now or before.
    Undone(Undone),
    /// There is nothing to undo: the effect did not happen, or leaves no mark.
    Nothing,
    /// The effect is not undone, for this reason: its tool cannot undo it, must not, or has failed; or other runs rest
    /// on it.
    Stands(String),
    /// Nobody can tell if the effect happened, or if it is undone. The question is open.
    Parked {
        /// The id of the question.
        question: QuestionId,
    },
}

/// Undoes an effect on request, once its outcome is known, if no other run rests on it.
pub(crate) async fn compensate(core: &Arc<Core>, mut record: Box<Record>) -> Result<Compensated, ExecError> {
    if record.state == State::Started && record.escalation.is_none() {
        look_only(core, &record).await?;
        record = again(core, &record).await?;
    }
    if let State::Compensated { compensation, .. } = &record.state {
        let undone = core.load(&record.tenant, compensation).await?;
        return Ok(Compensated::Undone(undone.decode().unwrap_or_else(|_| Undone::whole())));
    }
    let family = record.owner.run.as_slice();
    match due_for(core, &record, family, true).await? {
        Due::Nothing => Ok(Compensated::Nothing),
        Due::Settle(question) => Ok(Compensated::Parked { question }),
        Due::Leave(why) => Ok(Compensated::Stands(why)),
        Due::Undo | Due::Ask => undo(core, &record, family).await,
    }
}

/// Decides about an effect that a run wants undone. `family`: that run, and the children whose effects it undoes with
/// its own. `allowed`: true if a person has said that the effect may be undone.
pub(crate) async fn due_for(
    core: &Core,
    record: &Record,
    family: &[RunId],
    allowed: bool,
) -> Result<Due, ExecError> {
    let policy = core.registry.policy_of(record.operation.as_str());
    let sharers = &sharers(core, record, family).await?;
    Ok(due(record, UndoRequest { family, policy, sharers, allowed }))
}

/// Undoes a committed effect, and marks its record.
///
/// # Crash
/// The compensation has a record. The next process is answered from it, or finds its outcome, and then marks the
/// forward record.
pub(crate) async fn undo(
    core: &Arc<Core>,
    record: &Record,
    family: &[RunId],
) -> Result<Compensated, ExecError> {
    let came = carry_through(core, record, None).await?;
    if let Compensated::Undone(undone) = &came {
        mark(core, record, undone, family).await?;
    }
    Ok(came)
}

/// Undoes the surplus effects of an operation that happened more than once. Returns the effects that are left, in
/// words.
pub(super) async fn undo_surplus(
    core: &Arc<Core>,
    record: &Record,
    surplus: &[Found<Payload>],
) -> Result<Vec<String>, ExecError> {
    let mut left = Vec::new();
    for effect in surplus {
        let why = match carry_through(core, record, Some(effect)).await? {
            Compensated::Undone(undone) => undone.rest().map(ToOwned::to_owned),
            Compensated::Nothing => None,
            Compensated::Stands(why) => Some(why),
            Compensated::Parked { question } => Some(format!("whether it is undone is asked in {question}")),
        };
        let id = effect.external_ref.as_deref().unwrap_or("without an id");
        left.extend(why.map(|why| format!("{id}: {why}")));
    }
    Ok(left)
}

/// Carries the compensation out, of the whole effect or of one surplus effect.
async fn carry_through(
    core: &Arc<Core>,
    record: &Record,
    surplus: Option<&Found<Payload>>,
) -> Result<Compensated, ExecError> {
    let Some(op) = compensation(core, record, surplus).await? else {
        return Ok(Compensated::Stands("its tool cannot undo it".to_owned()));
    };
    let op = Arc::new(op);
    log_record!(
        debug,
        record,
        external_ref = surplus.and_then(|effect| effect.external_ref.as_deref()),
        "undoing started"
    );
    loop {
        let answered = carry_out(core, op.clone(), Expect::Anything, Wait::ForOutcome).await?;
        if let Some(ticket) = answered.ticket {
            admitted(&op.key, ticket.durable().await)?;
        }
        return Ok(match answered.outcome {
            // A person may have answered the compensation's question with a result of their own.
            Outcome::Done(answer) => Compensated::Undone(match answer.decode() {
                Ok(undone) => undone,
                Err(_) => Undone::whole().detail(answer.response.value()?),
            }),
            Outcome::NeedsDecision { question } | Outcome::Pending { question } => {
                Compensated::Parked { question }
            }
            Outcome::Deferred { until } => {
                core.clock.sleep(core.now().until(until)).await;
                continue;
            }
            Outcome::InProgress => continue,
            Outcome::Failed(failure) => Compensated::Stands(format!(
                "undoing it failed: {}: {}",
                failure.kind.name(),
                failure.message
            )),
            Outcome::Abandoned { reason } => {
                Compensated::Stands(format!("nobody knows whether it is undone, and {reason}"))
            }
            // The compensation was done, and its result is not kept.
            Outcome::ResponseTooLarge(_) | Outcome::Expired { was: FinalState::Committed } => {
                Compensated::Undone(Undone::whole())
            }
            Outcome::Refused(error) => Compensated::Stands(error.to_string()),
            Outcome::Conflict(_) | Outcome::Compensated { .. } | Outcome::Expired { .. } => {
                Compensated::Stands("it was to be undone before, in another way".to_owned())
            }
        });
    }
}

/// The operation that undoes the effect, if the tool can.
async fn compensation(
    core: &Arc<Core>,
    record: &Record,
    surplus: Option<&Found<Payload>>,
) -> Result<Option<Operation>, ExecError> {
    let Some(undo) = core.registry.undo_of(record.operation.as_str()) else { return Ok(None) };
    let prepared = core.registry.hand_out(undo.with(request(core, record, surplus).await?)?);
    let key = stable_key(&*prepared)?.ok_or_else(|| refused(&record.key, Refusal::Stale))?; // there always is one
    let owner = Owner { run: record.owner.run, turn: record.owner.turn, ..Owner::default() };
    let trace = trace_of(core, record).await?;
    let asker = Asker { owner, trace, ..Asker::default() };
    Ok(Some(Requested::of(core, &record.tenant, prepared).await?.under(key.render()?, asker)))
}

/// The request of the compensation. Its key is bound to the forward key, which is always known: a second lookup of the
/// effect may show something else than the first one.
async fn request(
    core: &Core,
    record: &Record,
    surplus: Option<&Found<Payload>>,
) -> Result<Undoing, ExecError> {
    let declaration = core.declaration(record).await.map_err(|source| failed(&record.key, source))?;
    let bare = Undoing {
        key: record.key.as_str().to_owned(),
        wire_key: declaration.wire_key(&record.key, &record.tenant),
        external_ref: surplus.map_or(&record.external_ref, |effect| &effect.external_ref).clone(),
        surplus: surplus.is_some(),
        input: None,
        output: None,
    };
    let input = core.load(&record.tenant, &record.request).await?;
    let output = match (surplus, record.response()) {
        (Some(effect), _) => effect.output.clone(),
        // A response over the limit is absent; the compensation gets the provider's id and the keys.
        (None, Some(response)) => core.load_response(&record.tenant, response).await?.ok(),
        (None, None) => None,
    };
    let output = output.map(|output| output.value()).transpose()?;
    // An input with digests in place of secrets cannot be parsed as what it was.
    let input = if input.holds_secret() { None } else { Some(input.value()?) };
    let full = Undoing { input, output, ..bare.clone() };
    let fits = Payload::of(&full).and_then(|payload| payload.within(&core.limits)).is_ok();
    Ok(if fits { full } else { bare })
}

/// Marks the forward record as undone. In the same transaction questions are opened about the parts that are left, and
/// about runs that have come to rest on the effect meanwhile.
async fn mark(core: &Arc<Core>, record: &Record, undone: &Undone, family: &[RunId]) -> Result<(), ExecError> {
    let mut record = Box::new(record.clone());
    loop {
        let (compensation, large) = core.storable(Payload::of(undone)?);
        let event = Event::Compensate { compensation, whole: undone.is_whole() };
        let marked = match &record.state {
            State::Committed { .. } => apply(&record, event, core.fence, core.now()),
            _ => return Ok(()), // marked before a crash, or by a person who was faster
        };
        let marked = marked.map_err(|_| refused(&record.key, Refusal::Stale))?;
        let mut change = core.change(None).record(marked);
        change.payloads.extend(large.map(|payload| (record.tenant.clone(), payload)));
        change.escalations.extend(left_over(core, &record, undone, family).await?);
        match core.group.commit_one(change).await {
            Ok(Verdict::Refused(Refusal::Stale)) => record = again(core, &record).await?,
            verdict => return admitted(&record.key, verdict),
        }
    }
}

async fn left_over(
    core: &Core,
    record: &Record,
    undone: &Undone,
    family: &[RunId],
) -> Result<Vec<Question>, ExecError> {
    let mut questions = Vec::new();
    if let Some(rest) = undone.rest() {
        questions.push(escalate::left(core, record, &format!("was undone in part: {rest}")));
    }
    let sharers = sharers(core, record, family).await?;
    if !sharers.is_empty() {
        let runs: Vec<_> = sharers.iter().map(ToString::to_string).collect();
        let why = format!("was undone while other runs came to rest on it ({})", runs.join(", "));
        questions.push(escalate::left(core, record, &why));
    }
    Ok(questions)
}

/// The runs outside of the family that were answered from this record and have not failed: they rest on its effect.
async fn sharers(core: &Core, record: &Record, family: &[RunId]) -> Result<Vec<RunId>, ExecError> {
    let store_failed = |source| failed(&record.key, source);
    let mut sharers = Vec::new();
    for used in core.group.record_uses(&record.tenant, record.id).await.map_err(store_failed)? {
        if Some(used.run) == record.owner.run || family.contains(&used.run) || sharers.contains(&used.run) {
            continue;
        }
        let run = core.group.run_find(&record.tenant, used.run).await.map_err(store_failed)?;
        if run.is_some_and(|run| !matches!(run.state, RunState::Failed { .. })) {
            sharers.push(used.run);
        }
    }
    Ok(sharers)
}

async fn again(core: &Core, record: &Record) -> Result<Box<Record>, ExecError> {
    let found = core.find(&record.tenant, &record.key).await?;
    found.ok_or_else(|| refused(&record.key, Refusal::Stale))
}
