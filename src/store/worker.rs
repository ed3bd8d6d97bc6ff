//! Workers, and what they look at from time to time.

use super::cell::table;
use crate::clock::Timestamp;
use crate::id::Fence;

/// One engine process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number.
    pub fence: Fence,
    /// Its name, with a random part: a process that restarts under the same pid is another worker.
    pub name: String,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// Until when it is alive, by the store's clock, if it has a lease.
    pub lease_until: Option<Timestamp>,
    /// Since when its writes are void.
    pub ended_at: Option<Timestamp>,
    /// It ended in order: it was not killed by what it left.
    pub retired: bool,
    /// Nothing of it is left to be taken over.
    pub settled: bool,
    /// It publishes what is in the outbox.
    pub publishes: bool,
    /// The version of counterfoil that it runs. None of an engine that did not say so.
    pub version: Option<String>,
}

/// What a worker that shares its store looks at from time to time, read in one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// What time it is by the store's clock, which alone measures leases.
    pub time: Timestamp,
    /// The workers that have not ended, and those that have and are not yet settled, in the order of their fences.
    pub workers: Vec<Worker>,
    /// The earliest instant that any waiting run, schedule, queue or confirming lookup waits for.
    pub next_due: Option<Timestamp>,
    /// Some run waits in a queue.
    pub queued: bool,
    /// Some event waits to be published.
    pub unpublished: bool,
    /// The ledger is taken for older than the world.
    pub restored: bool,
}

impl Worker {
    /// The version of counterfoil that a worker of this build runs: a store writes it down when the worker enrols.
    pub const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

table! { Worker in "worker", Own by (fence) {
    fence, name, enrolled_at, lease_until, ended_at, retired, settled, publishes, version
} }
