//! What the log says of a change that is durable: how runs, calls and questions stand.
//!
//! The events are written here and not where a change is put together. So each event of one kind has the same fields, and the log
//! never reports what a crash has taken back.

use serde_json::Value;

use super::{Change, Question, QuestionKind, Run, RunState, WaitsOn};
use crate::ledger::{Record, State};
use crate::payload::Payload;

/// Logs what has become durable with a change.
pub(crate) fn log(change: &Change) {
    if let Some(record) = &change.record {
        log_state(change, record);
    }
    for question in &change.escalations {
        log_question(change, question);
    }
    if let Some(run) = &change.run {
        log_run(change, run);
    }
}

fn log_state(change: &Change, record: &Record) {
    let basis = record.basis.name();
    match &record.state {
        // Not when only its response was supplied later.
        State::Committed { .. } if record.sealed_at == Some(record.updated_at) => {
            let (attempt, external_ref) = (record.attempts, record.external_ref.as_deref());
            log_record!(debug, record, basis, attempt, external_ref, "call committed");
        }
        // A person's word that it did not happen lets it go out again. The event of the answer says so.
        State::Failed { failure } if record.not_before.is_none() && change.escalations.is_empty() => {
            log_record!(debug, record, attempt = record.attempts, kind = failure.kind.name(), "call failed");
        }
        State::Compensated { whole, .. } => log_record!(debug, record, whole, "call undone"),
        State::Abandoned { .. } => log_record!(debug, record, "call abandoned"),
        _ => {}
    }
}

fn log_question(change: &Change, question: &Question) {
    // It is a row by which a call waits for its provider. Nobody is asked.
    if question.kind == QuestionKind::Pending {
        return;
    }
    let Question { tenant, id, kind, run, .. } = question;
    let (kind, run) = (kind.name(), run.map(tracing::field::display));
    let record = change.record.as_deref().filter(|record| question.record == Some(record.id));
    let tool = record.map(|record| tracing::field::display(&record.operation));
    let key = record.map(|record| tracing::field::display(&record.key));
    match (&question.answer, &question.waiting) {
        (None, None) => tracing::warn!(%tenant, run, tool, key, question = %id, kind, "question asked"),
        (None, Some(answer)) => {
            let (by, decision) = (answer.by.as_str(), answer.resolution.name());
            let counts = answer.misfit.is_none();
            tracing::info!(%tenant, run, tool, key, question = %id, kind, by, decision, counts, "answer waits");
        }
        (Some(answer), _) if answer.resolution == super::Resolution::Withdrawn => {
            tracing::info!(%tenant, run, tool, key, question = %id, kind, "question withdrawn");
        }
        (Some(answer), _) => {
            let (by, decision) = (answer.by.as_str(), answer.resolution.name());
            tracing::info!(%tenant, run, tool, key, question = %id, kind, by, decision, "question answered");
        }
    }
}

fn log_run(change: &Change, run: &Run) {
    let Run { tenant, id, workflow, .. } = run;
    let is_in_lane = change.lane.is_some();
    match &run.state {
        RunState::Queued => {
            let queue = run.queue.as_ref().map(|queue| tracing::field::display(&queue.name));
            tracing::debug!(%tenant, run = %id, %workflow, queue, "run queued");
        }
        RunState::Active if run.revision == 1 => {
            tracing::debug!(%tenant, run = %id, %workflow, "run started");
        }
        // In its lane an active run only turns a page of its own.
        RunState::Active if is_in_lane => {}
        RunState::Active => {
            tracing::debug!(%tenant, run = %id, %workflow, worker = %run.fence, deaths = run.deaths, "run resumed");
        }
        RunState::Waiting { until, on } => {
            let for_ms = until.map(|until| run.updated_at.until(until).as_millis());
            tracing::debug!(%tenant, run = %id, %workflow, on = waits_for(*on), for_ms, "run waiting");
        }
        RunState::Blocked { .. } => {
            let question = change.escalations.iter().find(|question| question.answer.is_none());
            let kind = question.map(|question| question.kind.name());
            let question = question.map(|question| tracing::field::display(question.id));
            tracing::warn!(%tenant, run = %id, %workflow, question, kind, "run blocked");
        }
        // What is written later about a run that is over, beside its end, says nothing new of it.
        RunState::Succeeded { .. } if is_in_lane => {
            tracing::debug!(%tenant, run = %id, %workflow, "run succeeded");
        }
        RunState::Failed { failure } if is_in_lane || !change.escalations.is_empty() => {
            let code = code(failure);
            let code = code.as_deref();
            if code == Some("cancelled") {
                tracing::info!(%tenant, run = %id, %workflow, "run cancelled");
            } else {
                tracing::warn!(%tenant, run = %id, %workflow, code, "run failed");
            }
        }
        RunState::Succeeded { .. } | RunState::Failed { .. } | RunState::Expired { .. } => {}
    }
}

const fn waits_for(on: WaitsOn) -> &'static str {
    match (on.answer, on.signal) {
        (false, false) => "time",
        (true, false) => "answer",
        (false, true) => "signal",
        (true, true) => "answer or signal",
    }
}

/// The code of a failure. Its message may show a part of a payload, and stays out of the log.
fn code(failure: &Payload) -> Option<String> {
    let failure: Value = failure.decode().ok()?;
    failure.get("code")?.as_str().map(ToOwned::to_owned)
}
