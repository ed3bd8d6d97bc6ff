//! The history of a run as its callers see it: what it did, turn by turn.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::id::text;
use crate::ledger::{OperationKey, Record, State};
use crate::payload::Stored;
use crate::store::{self, History, StepKind};

/// A turn of a loop in a run's history. Outside of loops a run is in turn 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastTurn {
    /// The number of the turn.
    pub turn: u32,
    /// The checkpoints of the turn.
    pub steps: Vec<PastStep>,
    /// The operations that the run asked for first.
    pub calls: Vec<PastCall>,
    /// The operations of other runs that answered this run.
    pub uses: Vec<PastUse>,
}

/// A checkpoint in a run's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastStep {
    /// The kind of the checkpoint.
    pub kind: StepKind,
    /// The name of the checkpoint.
    pub name: String,
    /// The id among the checkpoints of that name.
    pub id: String,
    /// The recorded value. [`RunHandle::value`](super::RunHandle::value) reads a large one.
    pub value: Option<Stored>,
    /// The instant of the checkpoint (UTC).
    #[serde(serialize_with = "text")]
    pub at: Timestamp,
}

/// A call in a run's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastCall {
    /// The key of the operation.
    #[serde(serialize_with = "text")]
    pub key: OperationKey,
    /// The name of the tool.
    pub tool: String,
    /// The id of the call in the run.
    pub step: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The cost of the answered attempt, if it reported one.
    pub cost: Option<u64>,
    /// The result, if the call is committed.
    pub response: Option<Stored>,
}

impl From<&Record> for PastCall {
    fn from(record: &Record) -> Self {
        let response = match &record.state {
            State::Committed { response } => Some(response.clone()),
            _ => None,
        };
        Self {
            key: record.key.clone(),
            tool: record.operation.as_str().to_owned(),
            step: record.owner.step.as_deref().unwrap_or_default().to_owned(),
            attempts: record.attempts,
            cost: record.cost,
            response,
        }
    }
}

/// A call in a run's history that was answered by the operation of another run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastUse {
    /// The key of the operation.
    #[serde(serialize_with = "text")]
    pub key: OperationKey,
    /// The name of the tool.
    pub tool: String,
    /// The id of the call in this run.
    pub step: String,
}

/// Sorts the rows of a history by their turns.
pub(super) fn by_turn(history: History) -> Vec<PastTurn> {
    let mut turns = BTreeMap::new();
    let History { steps, calls, uses, .. } = history;
    for store::PastStep { turn, kind, name, id, value, at, .. } in steps {
        of_turn(&mut turns, turn).steps.push(PastStep { kind, name, id, value, at });
    }
    for store::PastCall { turn, key, operation: tool, step, attempts, cost, response, .. } in calls {
        of_turn(&mut turns, turn).calls.push(PastCall { key, tool, step, attempts, cost, response });
    }
    for store::PastUse { turn, key, operation: tool, step, .. } in uses {
        of_turn(&mut turns, turn).uses.push(PastUse { key, tool, step });
    }
    turns.into_values().collect()
}

fn of_turn(turns: &mut BTreeMap<u32, PastTurn>, turn: u32) -> &mut PastTurn {
    turns.entry(turn).or_insert_with(|| PastTurn { turn, ..PastTurn::default() })
}
