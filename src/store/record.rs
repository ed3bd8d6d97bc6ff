//! Records, and the form of their states in columns: codes, outcomes and texts that both databases write and read
//! alike, so that rows can be moved from one to the other unchanged.

use std::hash::Hash;
use std::sync::Arc;

use super::StoreError;
use super::cell::{Cells, as_json, table};
use super::row::{Form, Put, Row, Take};
use crate::ledger::{Basis, FinalState, Owner, Record, State};
use crate::payload::Stored;

table! { Record in "record", Moves by (id) with (tenant, key) {
    id, tenant, key, operation fixed, class fixed, request fixed, request_hash fixed, declaration,
    owner [run number fixed, turn number fixed, step text fixed, call_id text fixed],
    fence, revision, attempts, spent, state [status number, outcome text, compensation text], basis, external_ref,
    escalation, not_before, kept_until fixed, created_at fixed, updated_at, in_doubt, sealed_at, approval, scopes, cost
} }

impl Cells for Owner {
    fn put(&self, values: &mut impl Put) {
        values.cell(&self.run).cell(&self.turn).cell(&self.step).cell(&self.call_id);
    }

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self { run: values.cell()?, turn: values.cell()?, step: values.cell()?, call_id: values.cell()? })
    }
}

impl Cells for State {
    fn put(&self, values: &mut impl Put) {
        let (status, outcome, compensation) = columns(self);
        values.cell(&status).cell(&outcome).cell(&compensation);
    }

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        let (status, outcome, compensation) = (values.cell()?, values.cell()?, values.cell()?);
        state(status, outcome, compensation)
            .ok_or_else(|| values.damaged(&format!("status {status} does not fit its outcome")))
    }
}

/// The values of the columns that nearly no change of a record sets.
macro_rules! usual {
    ($($known:expr),*) => {
        &[
            $($known,)*
            ("call_id", "NULL"),
            ("spent", "0"),
            ("compensation", "NULL"),
            ("escalation", "NULL"),
            ("not_before", "NULL"),
            ("in_doubt", "false"),
            ("scopes", "NULL"),
            ("cost", "NULL"),
        ]
    };
}

impl Row for Record {
    /// The forms of nearly all rows: each column of a row takes a fiftieth of the time of writing the row.
    const FORMS: &'static [Form] = &[
        usual!(
            ("sealed_at", "NULL"),
            ("approval", "NULL"),
            ("turn", "0"),
            ("revision", "1"),
            ("attempts", "1"),
            ("status", "1"),
            ("basis", "0"),
            ("outcome", "NULL"),
            ("external_ref", "NULL")
        ),
        usual!(
            ("sealed_at", "NULL"),
            ("approval", "NULL"),
            ("revision", "1"),
            ("attempts", "1"),
            ("status", "1"),
            ("basis", "0"),
            ("outcome", "NULL"),
            ("external_ref", "NULL")
        ),
        usual!(("approval", "NULL"), ("turn", "0")),
        usual!(("approval", "NULL")),
        usual!(),
    ];

    fn has(&self, form: usize) -> bool {
        let is_first = self.revision == 1;
        let usual = self.spent == 0
            && !matches!(self.state, State::Compensated { .. })
            && self.escalation.is_none()
            && self.not_before.is_none()
            && !self.in_doubt
            && self.scopes.is_none()
            && self.cost.is_none()
            && (!is_first || self.owner.call_id.is_none());
        let starts = is_first
            && self.state == State::Started
            && self.attempts == 1
            && self.basis == Basis::Answer
            && self.external_ref.is_none()
            && self.sealed_at.is_none();
        let unapproved = self.approval.is_none();
        let outside = !is_first || self.owner.turn == 0; // a change after the start leaves the turn unchanged
        usual
            && match form {
                0 => unapproved && starts && outside,
                1 => unapproved && starts,
                2 => unapproved && outside,
                3 => unapproved,
                _ => true,
            }
    }

    fn key(&self) -> impl Ord + Hash {
        (&self.tenant, self.key.as_str())
    }

    fn is_as_written(&self, written: &Self) -> bool {
        Self::is_as_written(self, written)
    }
}

/// The status, outcome and compensation of a state. Status 6 is "compensated in part"; the others are the codes of
/// the state itself.
pub(super) fn columns(state: &State) -> (i64, Option<Arc<str>>, Option<Arc<str>>) {
    let code = state.code();
    match state {
        State::Started => (code, None, None),
        State::Committed { response } => (code, Some(response.column()), None),
        State::Failed { failure } => (code, Some(as_json(failure)), None),
        State::Compensated { response, compensation, whole } => {
            (if *whole { code } else { 6 }, Some(response.column()), Some(compensation.column()))
        }
        State::Abandoned { reason } => (code, Some(reason.as_str().into()), None),
        State::Gone { was, outcome } => (code, Some(format!("{} {outcome}", was.name()).into()), None),
    }
}

/// Reads the columns back; `None` if they do not fit one another.
fn state(status: i64, outcome: Option<String>, compensation: Option<String>) -> Option<State> {
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
            let was = FinalState::ALL.into_iter().find(|was| was.name() == name)?;
            State::Gone { was, outcome: outcome.to_owned() }
        }
        _ => return None,
    })
}
