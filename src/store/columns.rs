//! How states stand in columns: codes, outcomes and texts that every SQL store writes and reads alike, so that rows can
//! be moved from one to the other as they are.

use std::sync::Arc;

use crate::ledger::{Record, State, Was};
use crate::payload::Stored;

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
