//! Schedules: rules by which runs begin at their time.

use super::cell::{coded, table};
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};
use crate::payload::Stored;

/// A schedule, which begins runs at their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The tenant that owns the schedule.
    pub tenant: Tenant,
    /// The name of the schedule, unique per tenant.
    pub name: Name,
    /// The workflow whose runs it begins.
    pub workflow: Name,
    /// The version of the workflow when the schedule was set.
    pub version: u32,
    /// The rule as JSON: the due times, and the treatment of runs that overlap. The store does not interpret it.
    pub rule: String,
    /// The input of the runs.
    pub input: Stored,
    /// The state of the schedule.
    pub state: ScheduleState,
    /// The instant at which the schedule is due next.
    pub next_at: Option<Timestamp>,
    /// The instant of the last tick that began a run.
    pub last_at: Option<Timestamp>,
    /// The run that the last tick began.
    pub last_run: Option<RunId>,
    /// The number of ticks that began no run.
    pub missed: u32,
    /// The number of changes of this row.
    pub revision: u32,
    /// The instant at which the schedule was set.
    pub created_at: Timestamp,
    /// The instant of the last change of this row.
    pub updated_at: Timestamp,
}

coded! {
    /// The state of a schedule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ScheduleState {
        /// The schedule begins runs.
        Active = 1,
        /// The schedule begins no run before it is resumed.
        Paused = 2,
        /// The schedule was deleted. Its row stays, so that its revisions go on if it is set again.
        Deleted = 3,
    }
}

table! { Schedule in "schedule", Moves by (tenant, name) {
    tenant, name, workflow, version, rule, input, state, next_at, last_at, last_run, missed, revision, created_at, updated_at
} }

impl Row for Schedule {}
