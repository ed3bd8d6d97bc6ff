//! Workers, and the state that they poll.

use super::cell::table;
use crate::clock::Timestamp;
use crate::id::Fence;

/// A worker: one engine process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The number of the worker.
    pub fence: Fence,
    /// The name of the worker, with a random part: a process that restarts under the same pid is another worker.
    pub name: String,
    /// The instant at which the worker enrolled.
    pub enrolled_at: Timestamp,
    /// The end of the worker's lease by the store's clock, if it has a lease.
    pub lease_until: Option<Timestamp>,
    /// The instant since which the writes of the worker are void.
    pub ended_at: Option<Timestamp>,
    /// True if the worker ended in order: the work that it left did not kill it.
    pub retired: bool,
    /// True if nothing of the worker is left to be taken over.
    pub settled: bool,
    /// True if the worker publishes the events of the outbox.
    pub publishes: bool,
    /// The version of counterfoil that the worker runs; `None` for an engine that did not record it.
    pub version: Option<String>,
}

/// The state that a worker of a shared store polls, read in one query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ClusterStatus {
    /// The present time by the store's clock, which alone measures leases.
    pub time: Timestamp,
    /// The workers that have not ended, and the ended ones that are not yet settled, in the order of their fences.
    pub workers: Vec<Worker>,
    /// The earliest instant that any waiting run, schedule, queue or confirming lookup waits for.
    pub next_due: Option<Timestamp>,
    /// True if a run waits in a queue.
    pub queued: bool,
    /// True if a waiting run was sent a signal that wakes it, or its question was answered: by a process that could
    /// not wake the run itself.
    pub resumable: bool,
    /// True if an event waits to be published.
    pub unpublished: bool,
    /// True if the ledger counts as older than the world.
    pub restored: bool,
}

impl Worker {
    /// The version of counterfoil that a worker of this build runs: a store records it when the worker enrols.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    /// The name that the worker was given: the part of its [unique name](Self::name) before the last slash.
    pub fn given_name(&self) -> Option<&str> {
        self.name.rsplit_once('/').map(|(given, _)| given)
    }
}

table! { Worker in "worker", Own by (fence) {
    fence, name, enrolled_at, lease_until, ended_at, retired, settled, publishes, version
} }
