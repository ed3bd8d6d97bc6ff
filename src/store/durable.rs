//! The events and metrics of a durable change: the states of runs, calls and questions.
//!
//! The events are written here and not where a change is put together. So each event of one kind has the same fields, and the log
//! never reports what a crash has taken back.

use serde_json::Value;

use super::{Change, Question, QuestionKind, Run, RunState, WaitsOn};
use crate::ledger::{Record, State};
use crate::meter::Meter;
use crate::payload::Payload;
use crate::trace::{Span, SpanKind, Spans, TraceContext};

/// The places to which a store reports what has become durable.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) meter: Meter,
    pub(crate) spans: Spans,
}

impl Reports {
    /// The reports of a store without an engine: none.
    pub(crate) fn off() -> Self {
        Self { meter: Meter::off(), spans: Spans::default() }
    }
}

/// Logs, counts and traces what has become durable with a change.
pub(crate) fn note(change: &Change, meter: &Meter, spans: &Spans) {
    if let Some(record) = &change.record {
        note_state(change, record, meter);
    }
    for question in &change.escalations {
        note_question(change, question, meter);
    }
    if let Some(run) = &change.run
        && let Some(event) = note_run(change, run, meter)
    {
        spans.record(|| run.trace(), |context| span(context, run, event));
    }
}

fn note_state(change: &Change, record: &Record, meter: &Meter) {
    let tool = record.operation.as_str();
    let basis = record.basis.name();
    match &record.state {
        // Not when only its response was supplied later.
        State::Committed { .. } if record.sealed_at == Some(record.updated_at) => {
            let (attempt, external_ref) = (record.attempts, record.external_ref.as_deref());
            log_record!(debug, record, basis, attempt, external_ref, "call committed");
            let seconds = record.created_at.until(record.updated_at).as_secs_f64();
            observe!(seconds; meter, CALL_SECONDS of &record.tenant, tool, basis);
        }
        // A person's word that it did not happen lets it go out again. The event of the answer says so.
        State::Failed { failure } if record.not_before.is_none() && change.escalations.is_empty() => {
            let kind = failure.kind.name();
            log_record!(debug, record, attempt = record.attempts, kind, "call failed");
            count!(meter, CALLS_FAILED of &record.tenant, tool, kind);
        }
        State::Compensated { whole, .. } => {
            log_record!(debug, record, whole, "call undone");
            count!(meter, COMPENSATIONS of &record.tenant, tool, if *whole { "whole" } else { "in part" });
        }
        State::Abandoned { .. } => log_record!(debug, record, "call abandoned"),
        _ => {}
    }
}

fn note_question(change: &Change, question: &Question, meter: &Meter) {
    // It is a row by which a call waits for its provider. Nobody is asked.
    if question.kind == QuestionKind::Pending {
        return;
    }
    let Question { tenant, id, kind, run, .. } = question;
    let (kind, run) = (kind.name(), run.map(tracing::field::display));
    let record = change.record.as_deref().filter(|record| question.record == Some(record.id));
    let tool = record.map(|record| tracing::field::display(&record.operation));
    let key = record.map(|record| tracing::field::display(&record.key));
    let event = match (&question.answer, &question.waiting) {
        (None, None) => {
            tracing::warn!(%tenant, run, tool, key, question = %id, kind, "question asked");
            "asked"
        }
        (None, Some(answer)) => {
            let (by, decision) = (answer.by.as_str(), answer.resolution.name());
            let counts = answer.misfit.is_none();
            tracing::info!(%tenant, run, tool, key, question = %id, kind, by, decision, counts, "answer waits");
            return;
        }
        (Some(answer), _) if answer.resolution == super::Resolution::Withdrawn => {
            tracing::info!(%tenant, run, tool, key, question = %id, kind, "question withdrawn");
            "withdrawn"
        }
        (Some(answer), _) => {
            let (by, decision) = (answer.by.as_str(), answer.resolution.name());
            tracing::info!(%tenant, run, tool, key, question = %id, kind, by, decision, "question answered");
            "answered"
        }
    };
    count!(meter, QUESTIONS of tenant, kind, event);
    if question.kind == QuestionKind::Duplicated && question.is_new() {
        count!(meter, DUPLICATES of tenant);
    }
}

/// Logs and counts the new state of a run. Returns the state in which the run has ended.
fn note_run(change: &Change, run: &Run, meter: &Meter) -> Option<&'static str> {
    let Run { tenant, id, workflow, .. } = run;
    let is_in_lane = change.lane.is_some();
    let event = match &run.state {
        RunState::Queued => {
            let queue = run.queue.as_ref().map(|queue| tracing::field::display(&queue.name));
            tracing::debug!(%tenant, run = %id, %workflow, queue, "run queued");
            "queued"
        }
        RunState::Active if run.revision == 1 => {
            tracing::debug!(%tenant, run = %id, %workflow, "run started");
            "started"
        }
        // In its lane an active run only turns a page of its own.
        RunState::Active if is_in_lane => return None,
        RunState::Active => {
            tracing::debug!(%tenant, run = %id, %workflow, worker = %run.fence, deaths = run.deaths, "run resumed");
            "resumed"
        }
        // Outside of its lane a run that waits for an answer does not begin to wait: it is made due, because of an answer.
        RunState::Waiting { on: WaitsOn { answer: true, .. }, .. } if !is_in_lane => return None,
        RunState::Waiting { until, on } => {
            let for_ms = until.map(|until| run.updated_at.until(until).as_millis());
            tracing::debug!(%tenant, run = %id, %workflow, on = waits_for(*on), for_ms, "run waiting");
            "waiting"
        }
        RunState::Blocked { .. } => {
            let question = change.escalations.iter().find(|question| question.answer.is_none());
            let kind = question.map(|question| question.kind.name());
            let question = question.map(|question| tracing::field::display(question.id));
            tracing::warn!(%tenant, run = %id, %workflow, question, kind, "run blocked");
            "blocked"
        }
        // What is written later about a run that is over, beside its end, says nothing new of it.
        RunState::Succeeded { .. } if is_in_lane => {
            tracing::debug!(%tenant, run = %id, %workflow, "run succeeded");
            "succeeded"
        }
        RunState::Failed { failure } if is_in_lane || !change.escalations.is_empty() => {
            let code = code(failure);
            let code = code.as_deref();
            if code == Some("cancelled") {
                tracing::info!(%tenant, run = %id, %workflow, "run cancelled");
                "cancelled"
            } else {
                tracing::warn!(%tenant, run = %id, %workflow, code, "run failed");
                "failed"
            }
        }
        RunState::Succeeded { .. } | RunState::Failed { .. } | RunState::Expired { .. } => return None,
    };
    count!(meter, RUNS of tenant, workflow.as_str(), event);
    if !run.state.is_final() {
        return None;
    }
    let took = run.created_at.until(run.updated_at).as_secs_f64();
    observe!(took; meter, RUN_SECONDS of tenant, workflow.as_str(), event);
    Some(event)
}

/// The span of a run that has ended.
fn span(context: TraceContext, run: &Run, event: &'static str) -> Span {
    Span {
        context,
        parent: run.traceparent.map(|caller| caller.span),
        kind: SpanKind::Run,
        name: run.workflow.to_string(),
        began: run.created_at,
        ended: run.updated_at,
        failure: (event != "succeeded").then(|| event.to_owned()),
        fields: vec![
            ("tenant", run.tenant.to_string()),
            ("run", run.id.to_string()),
            ("worker", run.fence.to_string()),
        ],
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
