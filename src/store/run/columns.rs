//! The columns of the table of runs.

use std::hash::Hash;
use std::sync::Arc;

use super::{InQueue, Run, RunState, WaitsOn};
use crate::clock::Timestamp;
use crate::payload::{Payload, Stored};
use crate::store::StoreError;
use crate::store::cell::{Cells, table};
use crate::store::row::{Form, Put, Row, Take};

table! { Run in "run", Moves by (id) with (tenant) {
    id, tenant, workflow fixed, version, key fixed, parent fixed, input fixed, input_hash fixed,
    state [state number, wake_at number, waits_on number, outcome text],
    fence, revision, deaths, created_at fixed, updated_at, unsettled, number fixed, base, turn,
    queue [queue text, queue_key text, priority number, admitted_at number],
    deadline, traceparent fixed
} }

impl Row for Run {
    /// The form of a run that has been in no loop and in no queue, has no deadline and no caller with a trace, and has not
    /// gone on as new. The
    /// number of a turn only rises, and a queue and a deadline are never taken back, so the row never had other values
    /// in these columns.
    const FORMS: &'static [Form] = &[&[
        ("base", "0"),
        ("turn", "1"),
        ("queue", "NULL"),
        ("queue_key", "NULL"),
        ("priority", "NULL"),
        ("admitted_at", "NULL"),
        ("deadline", "NULL"),
        ("traceparent", "NULL"),
    ]];

    fn has(&self, _: usize) -> bool {
        self.base == 0
            && self.turn == 1
            && self.queue.is_none()
            && self.deadline.is_none()
            && self.traceparent.is_none()
    }

    /// The key by which batches are sorted: the start key for a new run, the id for the others.
    fn key(&self) -> impl Ord + Hash {
        (&self.tenant, (self.revision == 1).then_some((self.workflow.as_str(), &self.key)), self.id)
    }
}

impl Cells for RunState {
    /// The state as columns: its code, the instant at which the run wakes, the other events that wake it, and its
    /// outcome.
    fn put(&self, values: &mut impl Put) {
        let (wake_at, waits_on, outcome) = match self {
            Self::Queued | Self::Active => (None, WaitsOn::NOTHING, None),
            Self::Waiting { until, on } => (*until, *on, None),
            Self::Succeeded { output } => (None, WaitsOn::NOTHING, Some(output.column())),
            Self::Failed { failure } | Self::Blocked { failure } => {
                (None, WaitsOn::NOTHING, Some(failure.text()))
            }
            Self::Expired { outcome, .. } => (None, WaitsOn::NOTHING, Some(format!("#{outcome}").into())),
        };
        values.cell(&self.code()).cell(&wake_at).cell(&waits_on).cell(&outcome);
    }

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        const NOTHING: WaitsOn = WaitsOn::NOTHING;
        let columns: (i64, Option<Timestamp>, _, Option<Arc<str>>) =
            (values.cell()?, values.cell()?, values.cell()?, values.cell()?);
        let state = match columns {
            (0, None, NOTHING, None) => Some(Self::Queued),
            (1, None, NOTHING, None) => Some(Self::Active),
            (2, until, on, None) => Some(Self::Waiting { until, on }),
            (state @ (3 | 4), None, NOTHING, Some(outcome)) if outcome.starts_with(['#', '%']) => {
                Some(Self::Expired { succeeded: state == 3, outcome: outcome[1..].to_owned() })
            }
            (3, None, NOTHING, Some(output)) => {
                Stored::from_column(&output).map(|output| Self::Succeeded { output })
            }
            (4, None, NOTHING, Some(failure)) => Some(Self::Failed { failure: Payload::stored(failure) }),
            (5, None, NOTHING, Some(failure)) => Some(Self::Blocked { failure: Payload::stored(failure) }),
            _ => None,
        };
        state.ok_or_else(|| values.damaged(&format!("state {} does not fit its outcome", columns.0)))
    }
}

impl Cells for Option<Box<InQueue>> {
    fn put(&self, values: &mut impl Put) {
        let queue = self.as_deref();
        values
            .cell(&queue.map(|queue| queue.name.clone()))
            .cell(&queue.and_then(|queue| queue.key.clone()))
            .cell(&queue.map(|queue| queue.priority))
            .cell(&queue.and_then(|queue| queue.admitted_at));
    }

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        match (values.cell()?, values.cell()?, values.cell()?, values.cell()?) {
            (None, None::<String>, None, None) => Ok(None),
            (Some(name), key, Some(priority), admitted_at) => {
                Ok(Some(Box::new(InQueue { name, key, priority, admitted_at })))
            }
            _ => Err(values.damaged("its place is in no queue")),
        }
    }
}
