//! How states stand in columns: codes, outcomes and texts that every SQL store writes and reads alike, so that rows can
//! be moved from one to the other as they are.

use std::sync::Arc;

use super::rows::{InQueue, Run, RunState, WaitsOn};
use crate::clock::Timestamp;
use crate::id::Name;
use crate::ledger::{Record, State, Was};
use crate::payload::{Payload, Stored};

type Text = Arc<str>;

/// Status, outcome and compensation of a record. Status 6 is "compensated in part"; the others are the state's own codes.
pub(super) fn of_record(state: &State) -> (i64, Option<Text>, Option<Text>) {
    let code = state.code();
    match state {
        State::Started => (code, None, None),
        State::Committed { response } => (code, Some(response.column()), None),
        State::Failed { failure } => {
            let text = serde_json::to_string(failure).unwrap_or_default();
            (code, Some(text.into()), None)
        }
        State::Compensated { response, compensation, whole } => {
            (if *whole { code } else { 6 }, Some(response.column()), Some(compensation.column()))
        }
        State::Abandoned { reason } => (code, Some(reason.as_str().into()), None),
        State::Gone { was, outcome } => (code, Some(format!("{} {outcome}", was.name()).into()), None),
    }
}

/// Reads them back; nothing if they do not fit one another.
pub(super) fn record_state(
    status: i64,
    outcome: Option<String>,
    compensation: Option<String>,
) -> Option<State> {
    Some(match (status, outcome, compensation) {
        (1, None, None) => State::Started,
        (2, Some(response), None) => State::Committed { response: Stored::from_column(&response)? },
        (3, Some(failure), None) => State::Failed { failure: serde_json::from_str(&failure).ok()? },
        (4 | 6, Some(response), Some(compensation)) => State::Compensated {
            response: Stored::from_column(&response)?,
            compensation: Stored::from_column(&compensation)?,
            whole: status == 4,
        },
        (5, Some(reason), None) => State::Abandoned { reason },
        (7, Some(outcome), None) => {
            let (name, outcome) = outcome.split_once(' ')?;
            let was = Was::ALL.into_iter().find(|was| was.name() == name)?;
            State::Gone { was, outcome: outcome.to_owned() }
        }
        _ => return None,
    })
}

/// All that a change of a record may bring and nearly none does is at its default.
pub(super) fn is_usual(record: &Record) -> bool {
    record.spent == 0
        && !matches!(record.state, State::Compensated { .. })
        && record.escalation.is_none()
        && record.not_before.is_none()
        && !record.in_doubt
}

/// It has been in no loop and in no queue, and has not gone on as new. A turn's number only rises and a queue is for
/// good, so its row never had others than the defaults of these columns.
pub(super) const fn is_usual_run(run: &Run) -> bool {
    run.base == 0 && run.turn == 1 && run.queue.is_none()
}

/// A run's place in a queue from its columns; or what is wrong with them.
pub(super) fn in_queue(
    name: Option<String>,
    key: Option<String>,
    priority: Option<i64>,
    admitted_at: Option<i64>,
) -> Result<Option<Box<InQueue>>, &'static str> {
    const NONE: &str = "its place is in no queue";
    let Some(name) = name else {
        let empty = key.is_none() && priority.is_none() && admitted_at.is_none();
        return if empty { Ok(None) } else { Err(NONE) };
    };
    let name = Name::new(name).map_err(|_| NONE)?;
    let priority = priority.and_then(|priority| i32::try_from(priority).ok()).ok_or(NONE)?;
    Ok(Some(Box::new(InQueue { name, key, priority, admitted_at: admitted_at.map(Timestamp) })))
}

/// When a run is to be woken, what else wakes it, and its outcome. Its code is [`RunState::code`].
pub(super) fn of_run(state: &RunState) -> (Option<i64>, i64, Option<Text>) {
    match state {
        RunState::Queued | RunState::Active => (None, 0, None),
        RunState::Waiting { until, on } => (until.map(|at| at.0), on.code(), None),
        RunState::Succeeded { output } => (None, 0, Some(output.column())),
        RunState::Failed { failure } | RunState::Halted { failure } => (None, 0, Some(failure.text())),
    }
}

/// Reads them back; nothing if they do not fit one another.
pub(super) fn run_state(
    code: i64,
    until: Option<i64>,
    waits_on: i64,
    outcome: Option<String>,
) -> Option<RunState> {
    Some(match (code, until, waits_on, outcome) {
        (0, None, 0, None) => RunState::Queued,
        (1, None, 0, None) => RunState::Active,
        (2, until, on, None) => {
            RunState::Waiting { until: until.map(Timestamp), on: WaitsOn::from_code(on)? }
        }
        (3, None, 0, Some(output)) => RunState::Succeeded { output: Stored::from_column(&output)? },
        (4, None, 0, Some(failure)) => RunState::Failed { failure: Payload::stored(failure) },
        (5, None, 0, Some(failure)) => RunState::Halted { failure: Payload::stored(failure) },
        _ => return None,
    })
}
