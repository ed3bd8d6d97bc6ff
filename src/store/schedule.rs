//! Schedules: what begins runs at their time.

use super::cell::{coded, table};
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};
use crate::payload::Stored;

/// What begins runs at their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name, unique per tenant.
    pub name: Name,
    /// The workflow that it begins.
    pub workflow: Name,
    /// The workflow's version when it was set.
    pub version: u32,
    /// When it is due and what about runs that overlap, as JSON: of what that means the store knows nothing.
    pub rule: String,
    /// The input of its runs.
    pub input: Stored,
    /// Whether it goes on.
    pub state: ScheduleState,
    /// When it is due next.
    pub next_at: Option<Timestamp>,
    /// The last tick that began a run.
    pub last_at: Option<Timestamp>,
    /// The run that it began.
    pub last_run: Option<RunId>,
    /// So many ticks began none.
    pub missed: u32,
    /// Counts the changes of this row.
    pub revision: u32,
    /// When it was set.
    pub created_at: Timestamp,
    /// When this row last changed.
    pub updated_at: Timestamp,
}

coded! {
    /// Whether a schedule goes on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ScheduleState {
        /// Its ticks come.
        Active = 1,
        /// None comes before it is resumed.
        Paused = 2,
        /// It is gone. Its row stays, so that its revisions go on if it is set again.
        Deleted = 3,
    }
}

table! { Schedule in "schedule", Moves by (tenant, name) {
    tenant, name, workflow, version, rule, input, state, next_at, last_at, last_run, missed, revision, created_at, updated_at
} }

impl Row for Schedule {}
