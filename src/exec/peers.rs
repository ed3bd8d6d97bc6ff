//! The other workers of the store, as far as this one knows them: the ones that have ended, and the instants since
//! which they send nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::lease::{Lease, Moment};
use super::store_clock::StoreClock;
use crate::clock::Boot;
use crate::id::Fence;

#[derive(Debug)]
pub(crate) enum Peers {
    /// The store belongs to this worker alone. All earlier workers were dead when it began.
    Alone {
        /// The instant at which this worker took the lock, on this machine's boot clock.
        since: Boot,
    },
    /// The store is shared. Other workers live, each as long as its lease lasts.
    Shared(Shared),
    /// This process is a client: it carries nothing out, and holds no lease.
    Client {
        /// The instant at which the client attached, on this machine's boot clock.
        since: Boot,
        /// The clock of a store that workers share.
        clock: Option<Arc<StoreClock>>,
    },
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// The instant at which this worker began.
    pub(super) since: Boot,
    pub(super) lease: Arc<Lease>,
    pub(super) clock: Arc<StoreClock>,
    /// For each other worker, the instant at which this one first saw that it had ended. The ended worker had ceased to
    /// send by then, because it stops sending before its lease ends and is ended only after that. Settle times count
    /// from here.
    ended: Mutex<HashMap<Fence, Boot>>,
}

impl Shared {
    pub(super) fn new(lease: Lease, clock: Arc<StoreClock>, since: Boot) -> Self {
        Self { since, lease: Arc::new(lease), clock, ended: Mutex::default() }
    }

    /// The present moment by this machine's clocks, which measure the lease.
    pub(super) fn moment(&self) -> Moment {
        Moment::of(&**self.clock.machine())
    }

    /// Notes that another worker has ended. Returns the instant at which this was first noted.
    pub(super) fn note_ended(&self, fence: Fence, now: Boot) -> Boot {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner).entry(fence).or_insert(now)
    }

    pub(super) fn ended_at(&self, fence: Fence) -> Option<Boot> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get(&fence).copied()
    }
}
