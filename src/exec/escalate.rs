//! Open questions: opened where nobody can know, listed until they are answered (invariant 8).

use std::fmt::Write as _;
use std::sync::Arc;

use super::asked;
use super::core::{Core, admitted};
use super::late;
use super::operation::Operation;
use super::outbox::answered;
use super::outcome::ExecError;
use super::resend;
use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
use crate::ledger::resolve::Why;
use crate::ledger::{Event, Look, Record, State, apply};
use crate::payload::Payload;
use crate::store::{
    Answer, Change, Escalation, EscalationKind, Refusal, Resolution, Store as _, StoreError, Use, Verdict,
};

/// Who answers where no person does.
const ENGINE: &str = "counterfoil";

/// Opens the question what became of a call. `None` if the record has changed meanwhile.
///
/// # Crash
/// The question, the record's mark, and the look that is made beside the question are one transaction.
pub(super) async fn park(
    core: &Core,
    op: &Operation,
    record: &Record,
    why: Why,
) -> Result<Option<EscalationId>, ExecError> {
    let id = EscalationId(core.ids.next());
    let Ok(parked) = apply(record, Event::Park { escalation: id }, core.fence, core.now()) else {
        return Ok(None);
    };
    let spec = op.tool.spec();
    let (kind, asked) = match &op.gone {
        Some(gone) => (EscalationKind::UnknownTool, gone.question(spec.name.as_str())),
        None => (EscalationKind::Ambiguous, why.question().to_owned()),
    };
    let class = record.class.name();
    let mut question = format!("{} ({class}, attempt {}): {asked}", op.key, record.attempts);
    let bound = core.bound(op, record).await?;
    let changes = bound.changes(core, op).filter(|_| op.gone.is_none());
    if let Some(changes) = changes {
        let _ = write!(question, " Since it went out, its tool has changed what it declares: {changes}.");
    }
    tracing::warn!(tenant = %op.tenant, key = %op.key, escalation = %id, ?why, gone = ?op.gone, "escalated");
    let escalation = about(core, record, id, kind, question);
    let look =
        asked::reason(op, &bound, why).map(|reason| Look::beside_question(&parked, reason, core.now()));
    let due_at = look.as_ref().and_then(|look| look.due_at);
    core.quiet.since(id, core.clock.boot());
    let mut change = core.change(op.lane).record(parked).escalation(escalation);
    change.look = look.map(Box::new);
    let written = core.commit(&op.key, change).await;
    // Also if it has failed: it may be there all the same.
    if let Some(at) = due_at {
        core.agenda.note(at);
    }
    written.map(|()| Some(id))
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
    asked: Escalation,
) -> Result<bool, ExecError> {
    let look = asked::to_come(core, record).await?;
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
pub(crate) fn withdrawn(core: &Core, mut asked: Escalation) -> Escalation {
    asked.answer = Some(by_engine(core, Resolution::Withdrawn));
    asked
}

fn by_engine(core: &Core, resolution: Resolution) -> Answer {
    Answer { by: ENGINE.into(), resolution, because: None, at: core.now() }
}

/// The question that is opened when the world holds more than one effect. Counted, listed, never settled in
/// silence.
pub(super) fn duplicated(
    core: &Core,
    op: &Operation,
    record: &Record,
    external_refs: &[String],
) -> Escalation {
    let id = EscalationId(core.ids.next());
    let (times, ids) = match external_refs {
        [] => ("more than once".to_owned(), "the lookup names none of them".to_owned()),
        ids => (format!("{} times", ids.len()), ids.join(", ")),
    };
    let question = format!("{} happened {times} ({ids}). The first is kept. What about the others?", op.key);
    tracing::error!(tenant = %op.tenant, key = %op.key, escalation = %id, count = external_refs.len(), "duplicated");
    about(core, record, id, EscalationKind::Duplicated, question)
}

/// The question that is opened when an effect arrives after it was undone.
pub(super) fn late(core: &Core, record: &Record, external_ref: &str) -> Escalation {
    let id = EscalationId(core.ids.next());
    let question = format!(
        "{} was undone, and its first request has arrived after that ({external_ref}). It stands. What about it?",
        record.key
    );
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %id, external_ref, "late effect");
    about(core, record, id, EscalationKind::Duplicated, question)
}

/// A question that the engine's own deeds have answered.
pub(super) fn settled(core: &Core, mut asked: Escalation, how: serde_json::Value) -> Escalation {
    asked.answer = Some(by_engine(core, Resolution::Committed(how)));
    asked
}

/// Asks a person whether there is a second effect: the confirming lookup has had no answer for too long.
///
/// # Crash
/// The question, and that the lookup is no longer due, are one transaction.
pub(super) async fn unconfirmed(core: &Core, record: &Record, given_up: Look) -> Result<(), ExecError> {
    let id = EscalationId(core.ids.next());
    let question = format!(
        "{} ({}) happened and is committed. An earlier request for it, of unknown outcome, may have arrived as \
         well; the lookup that would tell does not answer, and is not made again. Look by hand whether it \
         happened twice, and answer `abandon` when that is dealt with.",
        record.key,
        record.class.name()
    );
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %id, "not confirmed");
    let question = about(core, record, id, EscalationKind::Unconfirmed, question);
    core.commit(&record.key, core.change(None).look(given_up).escalation(question)).await
}

/// Asks what became of an effect that is recorded as done and that the lookup does not show.
///
/// # Crash
/// The question, and that the lookup is no longer due, are one transaction.
pub(super) async fn missing(core: &Core, record: &Record, done: Look) -> Result<(), ExecError> {
    let id = EscalationId(core.ids.next());
    let question = format!(
        "{} ({}) is recorded as done, and the provider's lookup does not show it: it was asked twice. \
         `committed`: it is there all the same. `not_committed`: it is not there, and is sent again under the \
         next revision of its key, after one more look; the record keeps answering under this one. \
         `abandon`: leave it.",
        record.key,
        record.class.name()
    );
    tracing::error!(tenant = %record.tenant, key = %record.key, escalation = %id, "recorded as done, and missing");
    let question = about(core, record, id, EscalationKind::Missing, question);
    core.commit(&record.key, core.change(None).look(done).escalation(question)).await
}

fn about(
    core: &Core,
    record: &Record,
    id: EscalationId,
    kind: EscalationKind,
    question: String,
) -> Escalation {
    Escalation {
        id,
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
        change.used = Some(Box::new(Use {
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

/// Answers an open question where there is no engine. One about a halted run is left open: closed here, it would
/// leave a run that nothing lets go on.
pub(crate) async fn answer_alone(
    core: &Arc<Core>,
    tenant: &Tenant,
    id: EscalationId,
    said: Said,
) -> Result<(), ExecError> {
    let found = core.group.escalation_find(tenant, id).await;
    let found = found.map_err(|source| ExecError::Store { key: id.to_string(), source })?;
    if found.is_some_and(|found| found.kind.halts_its_run()) {
        let reason = "its run goes on, or ends, with the answer: give it to the engine that carries the run";
        return Err(ExecError::Unanswerable { escalation: id, reason: reason.to_owned() });
    }
    answer(core, tenant, id, said, |_, _| {}).await.map(drop)
}

/// What somebody says to an open question.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) resolution: Resolution,
    pub(crate) by: String,
    pub(crate) because: Option<String>,
}

impl Said {
    pub(crate) fn new(resolution: Resolution, by: impl Into<String>) -> Self {
        Self { resolution, by: by.into(), because: None }
    }

    fn at(self, at: Timestamp) -> Answer {
        let Self { resolution, by, because } = self;
        Answer { by, resolution, because, at }
    }
}

/// As it stands in a record: who has decided what, and why.
fn words(answer: &Answer, what: &str) -> String {
    let reason = answer.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} decided {what}{reason}", answer.by)
}

/// Answers an open question. `also` adds what must be written together with the answer. The question comes back without an answer if
/// that waits for a lookup, or if it was to be looked up now: what follows from the lookup is seen to.
///
/// # Crash
/// The answer and the record's new state are one transaction.
pub(crate) async fn answer(
    core: &Arc<Core>,
    tenant: &Tenant,
    id: EscalationId,
    said: Said,
    also: impl FnOnce(&mut Change, &Escalation),
) -> Result<Escalation, ExecError> {
    let unanswerable = |reason: &str| ExecError::Unanswerable { escalation: id, reason: reason.to_owned() };
    let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
    let found = core.group.escalation_find(tenant, id).await.map_err(store_failed)?;
    let mut escalation = found.ok_or_else(|| unanswerable("there is none of that name"))?;
    if escalation.answer.is_some() {
        return Err(unanswerable("it has been answered"));
    }
    let resolution = &said.resolution;
    if *resolution == Resolution::Withdrawn {
        return Err(unanswerable("only the engine withdraws a question; answer `abandon` to leave it"));
    }
    let (mut change, mut again) = (core.change(None), None);
    let record = match escalation.record {
        Some(record) => core.group.record_at(tenant, record).await.map_err(store_failed)?,
        None => None,
    };
    match (escalation.kind, record) {
        (EscalationKind::Ambiguous | EscalationKind::UnknownTool, Some(record)) => {
            return about_call(core, escalation, record, said).await;
        }
        _ if asked::is_about_calls(resolution) => {
            return Err(unanswerable(
                "it does not ask what became of a call: there is nothing to be looked up or sent",
            ));
        }
        // Somebody has undone it, or the rest of it, by hand.
        (EscalationKind::Orphaned | EscalationKind::Compensation, Some(record))
            if matches!(resolution, Resolution::Committed(_)) =>
        {
            let Resolution::Committed(result) = resolution else { unreachable!("it was just looked at") };
            let payload = Payload::of(result)?.within(&core.limits)?;
            let (compensation, large) = core.storable(payload);
            change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
            let event = Event::Compensate { compensation, whole: true };
            let undone = apply(&record, event, core.fence, core.now()).map_err(|_| {
                unanswerable("there is nothing to be undone; answer `not_committed` or `abandon`")
            })?;
            change = change.record(undone);
        }
        (EscalationKind::Unpublished, _) => {
            let held = core.group.outbox_set_aside(tenant, id).await.map_err(store_failed)?;
            let held = held.ok_or_else(|| unanswerable("its aggregate goes on already"))?;
            change.aggregates.push(answered(&held, resolution, core.now()));
        }
        (EscalationKind::Restored, _) if !matches!(resolution, Resolution::Committed(_)) => {
            core.lifted(&mut change).await.map_err(store_failed)?;
        }
        // The record stays as it is, whatever the answer: what is sent again has one of its own.
        (EscalationKind::Missing, Some(record)) if *resolution == Resolution::NotCommitted => {
            again = Some(resend::prepare(core, &record, &mut change).await?.map_err(unanswerable)?);
        }
        (EscalationKind::Missing, _) => {}
        (_, _) if matches!(resolution, Resolution::Committed(_)) => {
            return Err(unanswerable("it does not ask for a result; answer `not_committed` or `abandon`"));
        }
        _ => {}
    }
    escalation.answer = Some(said.at(core.now()));
    change = change.escalation(escalation.clone());
    also(&mut change, &escalation);
    match core.group.commit_one(change).await.map_err(store_failed)? {
        Verdict::Admitted => {
            if escalation.kind == EscalationKind::Unpublished {
                core.group.events().notify_one();
            }
            if let Some(op) = again {
                resend::begin(core, op);
            }
            Ok(escalation)
        }
        Verdict::Refused(Refusal::Stale) => Err(unanswerable(MEANWHILE)),
        Verdict::Refused(refusal) => Err(unanswerable(&refusal.to_string())),
    }
}

const MEANWHILE: &str = "it has been answered meanwhile";

/// Answers what became of a call.
async fn about_call(
    core: &Arc<Core>,
    mut asked: Escalation,
    mut record: Record,
    said: Said,
) -> Result<Escalation, ExecError> {
    let (id, tenant) = (asked.id, asked.tenant.clone());
    let unanswerable = |reason: &str| ExecError::Unanswerable { escalation: id, reason: reason.to_owned() };
    let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
    loop {
        if asked.answer.is_some() || record.escalation != Some(id) {
            return Err(unanswerable(MEANWHILE));
        }
        let lookable = asked::lookable(core, &record).await?;
        let answered = match (&said.resolution, &lookable) {
            (Resolution::NotCommitted, Some(lookable)) => {
                asked::deny(core, lookable, &record, asked.clone(), said.clone().at(core.now())).await?
            }
            (Resolution::LookNow, Some(lookable)) => {
                asked::look_now(core, lookable, &record, asked.clone()).await?
            }
            (Resolution::LookNow, None) => {
                return Err(unanswerable(
                    "it cannot be looked up: its tool is not here, or its contract has no lookup",
                ));
            }
            _ => decided(core, asked, &record, said.clone().at(core.now())).await?,
        };
        if let Some(answered) = answered {
            return Ok(answered);
        }
        // A look was made or postponed meanwhile, or somebody else was faster.
        let found = core.group.escalation_find(&tenant, id).await.map_err(store_failed)?;
        asked = found.ok_or_else(|| unanswerable(MEANWHILE))?;
        let found = core.group.record_at(&tenant, record.id).await.map_err(store_failed)?;
        record = found.ok_or_else(|| unanswerable(MEANWHILE))?;
    }
}

/// Records what somebody has decided about a call. `None` if a row has changed meanwhile.
///
/// # Crash
/// The answer and the record's new state are one transaction.
pub(super) async fn decided(
    core: &Core,
    mut asked: Escalation,
    record: &Record,
    answer: Answer,
) -> Result<Option<Escalation>, ExecError> {
    let id = asked.id;
    let unanswerable = |reason: &str| ExecError::Unanswerable { escalation: id, reason: reason.to_owned() };
    let mut change = core.change(None);
    let event = event(core, &asked.tenant, &answer, &mut change)?;
    // The record no longer waits for this answer.
    let record = apply(record, event, core.fence, core.now()).map_err(|_| unanswerable(MEANWHILE))?;
    change.look = asked::to_come(core, &record).await?.map(|look| Box::new(look.done()));
    let declaration = core.declaration(&record).await;
    let class = declaration.map_err(|source| ExecError::Store { key: id.to_string(), source })?.class;
    change = change.record(record);
    late::compare(core, &mut change, class, Box::default());
    (asked.answer, asked.waiting) = (Some(answer), None);
    change = change.escalation(asked.clone());
    match core.group.commit_one(change).await {
        Ok(Verdict::Admitted) => {
            core.quiet.forget(id);
            Ok(Some(asked))
        }
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(None),
        Ok(Verdict::Refused(refusal)) => Err(unanswerable(&refusal.to_string())),
        Err(source) => Err(ExecError::Store { key: id.to_string(), source }),
    }
}

fn event(core: &Core, tenant: &Tenant, answer: &Answer, change: &mut Change) -> Result<Event, ExecError> {
    Ok(match &answer.resolution {
        Resolution::Committed(result) => {
            let payload = Payload::of(result)?.within(&core.limits)?;
            let (response, large) = core.storable(payload);
            change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
            Event::ResolveCommitted { response, external_ref: None }
        }
        Resolution::SendWithoutLooking { .. } => {
            Event::ResolveNotCommitted { message: words(answer, "that it is sent without a look") }
        }
        Resolution::NotCommitted | Resolution::LookNow => {
            Event::ResolveNotCommitted { message: words(answer, "that it did not happen") }
        }
        Resolution::Abandon | Resolution::Withdrawn => {
            Event::ResolveAbandoned { reason: words(answer, "to leave it") }
        }
    })
}

/// Lists a committed effect as an open question: its run failed, ended without asking for it, or diverged.
pub(crate) fn orphaned(core: &Core, record: &Record, why: &str) -> Escalation {
    let state = match &record.state {
        State::Started => "may have happened",
        _ => "happened",
    };
    left(core, record, &format!("{state}, and {why}"))
}

/// Lists what an effect has left in the world.
pub(crate) fn left(core: &Core, record: &Record, what: &str) -> Escalation {
    let question = format!("{} ({}) {what}. Keep it, or undo it by hand?", record.key, record.class.name());
    about(core, record, EscalationId(core.ids.next()), EscalationKind::Orphaned, question)
}

/// Asks whether an effect may be undone.
pub(crate) fn may_undo(core: &Core, record: &Record) -> Escalation {
    let id = EscalationId(core.ids.next());
    let question = format!(
        "{} ({}) happened, and its run did not end well. Undo it? `not_committed`: undo it. `abandon`: it stays. \
         `committed` with a result: it was undone by hand.",
        record.key,
        record.class.name()
    );
    tracing::warn!(tenant = %record.tenant, key = %record.key, escalation = %id, "may it be undone?");
    about(core, record, id, EscalationKind::Compensation, question)
}
