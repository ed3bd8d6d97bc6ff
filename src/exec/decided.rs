//! A person's word on an open question, and its consequences for the record of a call.

use super::compare::compare;
use super::core::Core;
use super::escalate;
use super::outcome::ExecError;
use crate::clock::Timestamp;
use crate::ledger::{Event, Record, apply};
use crate::payload::Payload;
use crate::store::{
    Answer, Change, Evidence, Question, QuestionKind, Refusal, Resolution, Run, Store as _, StoreError,
    Verdict,
};

/// The reason that is given to a person whose answer came after another one.
pub(super) const MEANWHILE: &str = "it has been answered meanwhile";

/// A person's word on an open question.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) resolution: Resolution,
    pub(crate) by: String,
    pub(crate) because: Option<String>,
    /// The late answer on which the word rests.
    pub(crate) proof: Option<Box<Evidence>>,
}

impl Said {
    pub(crate) fn new(resolution: Resolution, by: impl Into<String>) -> Self {
        Self { resolution, by: by.into(), because: None, proof: None }
    }

    pub(crate) fn at(self, at: Timestamp) -> Answer {
        let Self { resolution, by, because, proof: _ } = self;
        Answer { by, resolution, because, misfit: None, at }
    }
}

/// The text that a record holds of a decision: the person, the decision and the reason.
fn words(answer: &Answer, what: &str) -> String {
    let reason = answer.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} decided {what}{reason}", answer.by)
}

/// Records a decision about a call: a person's, or that of a client with a late answer as its proof. `None` if a row has
/// changed meanwhile.
///
/// # Crash
/// The answer and the record's new state are one transaction.
pub(super) async fn decided(
    core: &Core,
    mut asked: Question,
    record: &Record,
    answer: Answer,
    proof: Option<&Evidence>,
) -> Result<Option<Question>, ExecError> {
    let id = asked.id;
    let unanswerable = |reason: &str| ExecError::Unanswerable { question: id, reason: reason.to_owned() };
    let mut change = core.change(None);
    let mut event = event(core, &asked, &answer, &mut change)?;
    if let (Event::ResolveCommitted { external_ref, .. }, Some(proof)) = (&mut event, proof) {
        external_ref.clone_from(&proof.external_ref);
    }
    let rests_on = proof.map(|late| (late.fence, late.attempt)).into_iter().collect();
    // The record no longer waits for this answer.
    let record = apply(record, event, core.fence, core.now()).map_err(|_| unanswerable(MEANWHILE))?;
    change.look = escalate::to_come(core, &record).await?.map(|look| Box::new(look.done()));
    let declaration = core.declaration(&record).await;
    let class = declaration.map_err(|source| ExecError::Store { key: id.to_string(), source })?.class;
    change = change.record(record);
    let is_compared = compare(core, &mut change, class, rests_on);
    (asked.answer, asked.waiting) = (Some(answer), None);
    change = change.escalation(asked.clone());
    match commit_answer(core, &asked, change).await {
        Ok(Verdict::Admitted) => {
            core.quiet.forget(id);
            if is_compared {
                core.late.notify_one(); // the store may have opened a question about another effect
            }
            Ok(Some(asked))
        }
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(None),
        Ok(Verdict::Refused(refusal)) => Err(unanswerable(&refusal.to_string())),
        Err(source) => Err(ExecError::Store { key: id.to_string(), source }),
    }
}

/// Writes the answer to a question, and with it the row by which the run that waits for the answer is due at once.
///
/// # Crash
/// The answer and the row are one transaction. A client wakes no run, and a process may die behind the answer: while
/// another question of the run is open, the search for answered runs does not find the run.
pub(crate) async fn commit_answer(
    core: &Core,
    answered: &Question,
    change: Change,
) -> Result<Verdict, StoreError> {
    let Some(run) = due_with(core, answered).await? else { return core.group.commit_one(change).await };
    match core.group.commit_one(change.clone().run(run)).await? {
        // The run has moved on meanwhile, or another answer was faster: a write without the run tells which.
        Verdict::Refused(Refusal::Stale) => core.group.commit_one(change).await,
        verdict => Ok(verdict),
    }
}

/// The next row of the run that waits for this answer as a row, if one does.
async fn due_with(core: &Core, answered: &Question) -> Result<Option<Run>, StoreError> {
    let waits = QuestionKind::PARKING.contains(&answered.kind);
    let Some(run) = answered.run.filter(|_| waits) else { return Ok(None) };
    let found = match core.group.run_find(&answered.tenant, run).await {
        Err(StoreError::Corrupt { .. }) => None, // the question about the call can be answered all the same
        found => found?,
    };
    Ok(found.and_then(|run| run.due_with_answer(core.fence, core.now())))
}

fn event(
    core: &Core,
    &Question { id: question, ref tenant, .. }: &Question,
    answer: &Answer,
    change: &mut Change,
) -> Result<Event, ExecError> {
    Ok(match &answer.resolution {
        Resolution::Happened(result) => {
            let payload = Payload::of(result)?.within(&core.limits)?;
            let (response, large) = core.storable(payload);
            change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
            Event::ResolveCommitted { response, external_ref: None }
        }
        Resolution::SendWithoutLooking { .. } => {
            Event::ResolveNotCommitted { message: words(answer, "that it is sent without a look") }
        }
        Resolution::DidNotHappen | Resolution::LookNow => {
            Event::ResolveNotCommitted { message: words(answer, "that it did not happen") }
        }
        Resolution::Abandon => Event::ResolveAbandoned { reason: words(answer, "to leave it") },
        other => {
            let reason = format!("`{}` says nothing of what became of a call", other.name());
            return Err(ExecError::Unanswerable { question, reason });
        }
    })
}
