//! The row with which a run begins.

use super::deadline::Deadline;
use super::workflow::Registered;
use crate::clock::Timestamp;
use crate::exec::Core;
use crate::id::{RunId, RunNumber, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;
use crate::store::{InQueue, Run, RunState, WaitsOn};
use crate::trace::TraceContext;

/// The prefix of the start keys of runs that a tick of a schedule has begun.
pub(super) const TICK: &str = "~tick/";

/// The values with which a run's row begins.
pub(super) struct NewRow<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) workflow: &'a Registered,
    /// The number of the run. Drawn if it is absent.
    pub(super) number: Option<RunNumber>,
    pub(super) key: Option<String>,
    pub(super) parent: Option<RunId>,
    pub(super) queue: Option<Box<InQueue>>,
    pub(super) deadline: Option<Deadline>,
    pub(super) input: Stored,
    pub(super) input_hash: RequestHash,
    /// The place of the caller in its trace.
    pub(super) traceparent: Option<TraceContext>,
}

impl NewRow<'_> {
    pub(super) fn at(self, core: &Core, now: Timestamp) -> Run {
        Run {
            id: RunId(core.ids.next()),
            tenant: self.tenant.clone(),
            number: self.number.unwrap_or_else(|| RunNumber::draw(&*core.entropy)),
            workflow: self.workflow.name.clone(),
            version: self.workflow.version,
            key: self.key,
            parent: self.parent,
            input: self.input,
            input_hash: self.input_hash,
            state: if self.queue.is_some() { RunState::Queued } else { started(core, now) },
            queue: self.queue,
            fence: core.fence,
            revision: 1,
            deaths: 0,
            unsettled: false,
            base: 0,
            turn: 1,
            deadline: self.deadline.and_then(|deadline| deadline.of_run_begun(now)),
            traceparent: self.traceparent,
            created_at: now,
            updated_at: now,
        }
    }
}

/// The state of a run that goes on: active in this process, or due at once for the workers.
pub(super) fn started(core: &Core, now: Timestamp) -> RunState {
    if core.is_client() { due(now) } else { RunState::Active }
}

/// The state of a run that is due at once, for a worker that may claim it.
pub(super) const fn due(now: Timestamp) -> RunState {
    RunState::Waiting { until: Some(now), on: WaitsOn::NOTHING }
}
