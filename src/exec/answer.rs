//! Answers to open questions, and the changes that follow from them.

use std::sync::Arc;

use super::approval::withdrawn;
use super::asked;
use super::core::Core;
use super::decided::{MEANWHILE, Said, commit_answer, decided};
use super::outbox::answered;
use super::outcome::ExecError;
use super::resend::{self, Repeated};
use super::result::{self, Fit, fit};
use super::reviewed::open_review;
use crate::id::{QuestionId, Tenant};
use crate::ledger::{Event, FinalState, Record, Review, State, apply};
use crate::payload::Payload;
use crate::store::{
    Change, Document, Question, QuestionKind, Refusal, Resolution, Store as _, StoreError, Verdict,
};

/// Answers an open question in a process without an engine. A question about a blocked run or a signal stays open:
/// closed here, it would leave a run that nothing resumes, or a signal that nobody delivers.
pub(crate) async fn answer_alone(
    core: &Arc<Core>,
    tenant: &Tenant,
    id: QuestionId,
    said: Said,
) -> Result<(), ExecError> {
    let found = core.group.escalation_find(tenant, id).await;
    let found = found.map_err(|source| ExecError::Store { key: id.to_string(), source })?;
    let needs_engine = |kind: QuestionKind| kind.blocks_its_run() || kind == QuestionKind::Unread;
    if found.is_some_and(|found| needs_engine(found.kind)) {
        let reason = "its run goes on, or ends, with the answer: give it to the engine that carries the run";
        return Err(ExecError::Unanswerable { question: id, reason: reason.to_owned() });
    }
    Answerable::find(core, tenant, id, &said.resolution).await?.answer(core, said, |_, _| {}).await.map(drop)
}

/// An open question, with the rows that its answer concerns.
pub(crate) struct Answerable {
    asked: Question,
    /// The record that the question is about.
    record: Option<Record>,
    /// The open review of what the question asks about.
    review: Option<(Document, Review)>,
}

impl Answerable {
    /// The question, if it is open and takes this resolution.
    pub(crate) async fn find(
        core: &Arc<Core>,
        tenant: &Tenant,
        id: QuestionId,
        resolution: &Resolution,
    ) -> Result<Self, ExecError> {
        let unanswerable = |reason: &str| ExecError::Unanswerable { question: id, reason: reason.to_owned() };
        let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
        let found = core.group.escalation_find(tenant, id).await.map_err(store_failed)?;
        let escalation = found.ok_or_else(|| unanswerable("there is none of that name"))?;
        if escalation.answer.is_some() {
            return Err(unanswerable("it has been answered"));
        }
        if *resolution == Resolution::Withdrawn {
            return Err(unanswerable("only the engine withdraws a question"));
        }
        if !escalation.kind.takes(resolution) {
            let possible: Vec<_> = escalation.answers().iter().map(ToString::to_string).collect();
            let reason =
                format!("it does not take `{}`. It takes {}", resolution.name(), possible.join("; "));
            return Err(unanswerable(&reason));
        }
        let review = open_review(core, &escalation).await?;
        // That an effect was undone by hand is a fact: anybody may say it, and nobody needs to decide any more.
        if let Some((row, _)) = &review
            && !matches!(resolution, Resolution::Undone(_))
        {
            return Err(unanswerable(&format!("its reviewers decide about it, under {:?}", row.id)));
        }
        let record = match escalation.record {
            Some(record) => core.group.record_at(tenant, record).await.map_err(store_failed)?,
            None => None,
        };
        Ok(Self { asked: escalation, record, review })
    }

    /// Answers the question. `also` adds further writes to the transaction of the answer. The returned question has no
    /// answer yet if the answer waits for a lookup, or if it asked for a lookup now; the lookup's consequences follow.
    ///
    /// # Crash
    /// The answer and the record's new state are one transaction.
    pub(crate) async fn answer(
        self,
        core: &Arc<Core>,
        said: Said,
        also: impl FnOnce(&mut Change, &Question),
    ) -> Result<Question, ExecError> {
        let Self { asked: mut escalation, record, review } = self;
        if escalation.kind.is_about_call()
            && let Some(record) = record
        {
            return Box::pin(about_call(core, escalation, record, said)).await; // boxed because it is large
        }
        let id = escalation.id;
        let unanswerable = |reason: &str| ExecError::Unanswerable { question: id, reason: reason.to_owned() };
        let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
        let (mut change, again) = consequences(core, &escalation, record, &said.resolution).await?;
        change.documents.extend(review.and_then(|(row, review)| withdrawn(row, &review, core.now())));
        escalation.answer = Some(said.at(core.now()));
        change = change.escalation(escalation.clone());
        also(&mut change, &escalation);
        let written = commit_answer(core, &escalation, change).await;
        // An error says only that the store gave no answer. If the change was written all the same, the question is
        // closed, and nothing else in this process would send the call.
        if let Some(again) = again
            && !matches!(written, Ok(Verdict::Refused(_)))
        {
            resend::begin(core, again);
        }
        match written.map_err(store_failed)? {
            Verdict::Admitted => {
                if escalation.kind == QuestionKind::Unpublished {
                    core.group.events().notify_one();
                }
                Ok(escalation)
            }
            Verdict::Refused(Refusal::Stale) => Err(unanswerable(MEANWHILE)),
            Verdict::Refused(refusal) => Err(unanswerable(&refusal.to_string())),
        }
    }
}

/// The change for an answer that is not about a call of unknown outcome, and the operation to send again after it.
async fn consequences(
    core: &Arc<Core>,
    asked: &Question,
    record: Option<Record>,
    resolution: &Resolution,
) -> Result<(Change, Option<Repeated>), ExecError> {
    let (id, tenant) = (asked.id, &asked.tenant);
    let unanswerable = |reason: &str| ExecError::Unanswerable { question: id, reason: reason.to_owned() };
    let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
    let mut change = core.change(None);
    let is_gone = |record: &Record| matches!(record.state, State::Gone { was: FinalState::Committed, .. });
    match (asked.kind, record, resolution) {
        // What is left of a record takes no result: the answer alone says what was done by hand.
        (_, Some(record), Resolution::Undone(_)) if is_gone(&record) => {}
        // Somebody has undone the effect, or the rest of it, by hand.
        (_, Some(record), Resolution::Undone(result)) => {
            let payload = Payload::of(result)?.within(&core.limits)?;
            let (compensation, large) = core.storable(payload);
            change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
            let event = Event::Compensate { compensation, whole: true };
            let undone = apply(&record, event, core.fence, core.now()).map_err(|_| {
                unanswerable(
                    "there is nothing to be undone: its effect has not happened, or is undone already",
                )
            })?;
            change = change.record(undone);
        }
        (QuestionKind::Unpublished, ..) => {
            let held = core.group.outbox_set_aside(tenant, id).await.map_err(store_failed)?;
            let held = held.ok_or_else(|| unanswerable("its aggregate goes on already"))?;
            change.aggregates.push(answered(&held, resolution, core.now()));
        }
        // The record stays as it is, whatever the answer: the repeated send has a record of its own.
        (QuestionKind::Missing, Some(record), Resolution::Again) => {
            let again = resend::prepare(core, &record, &mut change).await?.map_err(unanswerable)?;
            return Ok((change, Some(again)));
        }
        (_, _, Resolution::Lift) => core.lifted(&mut change).await.map_err(store_failed)?,
        // The engine writes all other consequences, in the same change.
        _ => {}
    }
    Ok((change, None))
}

/// Answers a question about the outcome of a call.
async fn about_call(
    core: &Arc<Core>,
    mut asked: Question,
    mut record: Record,
    said: Said,
) -> Result<Question, ExecError> {
    let (id, tenant) = (asked.id, asked.tenant.clone());
    let unanswerable = |reason: &str| ExecError::Unanswerable { question: id, reason: reason.to_owned() };
    let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
    loop {
        if asked.answer.is_some() || record.escalation != Some(id) {
            return Err(unanswerable(MEANWHILE));
        }
        let lookable = asked::lookable(core, &record).await?;
        let answered = match (&said.resolution, &lookable) {
            (Resolution::Happened(result), _) => match fit(core, &record, result).await? {
                Fit::Fits => {
                    decided(core, asked, &record, said.clone().at(core.now()), said.proof.as_deref()).await?
                }
                Fit::Unknown => result::wait(core, &record, asked, said.clone().at(core.now())).await?,
                Fit::Misfit(why) => return Err(unanswerable(&format!("{why}; nothing was changed"))),
            },
            (Resolution::DidNotHappen, Some(lookable)) => {
                lookable.deny(core, &record, asked.clone(), said.clone().at(core.now())).await?
            }
            (Resolution::DidNotHappen, None) if result::takes_lookup(core, &record, asked.kind).await? => {
                result::wait(core, &record, asked, said.clone().at(core.now())).await?
            }
            (Resolution::LookNow, Some(lookable)) => lookable.look_now(core, &record, asked.clone()).await?,
            (Resolution::LookNow, None)
                if core.is_client() && result::takes_lookup(core, &record, asked.kind).await? =>
            {
                asked::leave_to_a_worker(core, &record, asked).await?
            }
            (Resolution::LookNow, None) => {
                return Err(unanswerable(
                    "it cannot be looked up: its tool is not here, or its contract has no lookup",
                ));
            }
            _ => decided(core, asked, &record, said.clone().at(core.now()), said.proof.as_deref()).await?,
        };
        if let Some(answered) = answered {
            return Ok(answered);
        }
        // A look was made or postponed meanwhile, or another answer was faster.
        let found = core.group.escalation_find(&tenant, id).await.map_err(store_failed)?;
        asked = found.ok_or_else(|| unanswerable(MEANWHILE))?;
        let found = core.group.record_at(&tenant, record.id).await.map_err(store_failed)?;
        record = found.ok_or_else(|| unanswerable(MEANWHILE))?;
    }
}
