//! Queues: a run in a queue begins when it is its turn. The store decides whose turn it is. This module makes sure that
//! somebody asks: when a run is queued, when one gives its place free, when a token is due, at each start, and at each
//! heartbeat that tells of queued runs. Nothing is asked while nothing is queued.

mod admit;
mod declared;

use std::collections::BTreeMap;

pub(super) use self::declared::{Choice, Queues};
use super::engine::Engine;
use super::error::RunError;
use crate::store::{QueueLoad, Store as _};

/// The status of a queue, as an engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// The name of the queue.
    pub name: String,
    /// True if the queue is declared with this engine. The runs of a queue that no engine declares stay queued.
    pub declared: bool,
    /// The number of runs of all tenants that wait for their turn.
    pub queued: u64,
    /// The number of runs of all tenants that have a place.
    pub running: u64,
}

impl Engine {
    /// The queues by name: those that are declared, and those that have runs.
    pub async fn queues(&self) -> Result<Vec<QueueStatus>, RunError> {
        let declared = self.inner.queues.names().cloned();
        let empty = |name: String| QueueStatus { name, declared: true, queued: 0, running: 0 };
        let mut queues: BTreeMap<_, _> = declared.map(|name| (name.clone(), empty(name))).collect();
        for load in self.inner.core.group.queue_load().await? {
            let declared = self.inner.queues.has(&load.queue);
            let QueueLoad { queue: name, queued, running } = load;
            queues.insert(name.clone(), QueueStatus { name, declared, queued, running });
        }
        queues.retain(|name, queue| !name.starts_with('~') || queue.queued + queue.running > 0);
        Ok(queues.into_values().collect())
    }
}
