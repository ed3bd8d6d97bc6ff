//! The other workers of the store, as far as this one knows them: who has ended, and since when nothing of theirs is
//! sent any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::lease::{Lease, Moment};
use super::store_clock::StoreClock;
use crate::clock::Boot;
use crate::id::Fence;

#[derive(Debug)]
pub(crate) enum Peers {
    /// The store is this worker's alone: all before it were dead by then.
    Alone {
        /// When their lock was taken, on this machine's boot clock.
        since: Boot,
    },
    /// Others live, each for as long as its lease lasts.
    Shared(Shared),
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// When this worker began.
    pub(super) since: Boot,
    pub(super) lease: Arc<Lease>,
    pub(super) clock: Arc<StoreClock>,
    /// When this worker saw for the first time that another one had ended: by then it had ceased to send, for it
    /// holds back before its lease ends, and it is ended only after. From here settle times are counted.
    ended: Mutex<HashMap<Fence, Boot>>,
}

impl Shared {
    pub(super) fn new(lease: Lease, clock: Arc<StoreClock>, since: Boot) -> Self {
        Self { since, lease: Arc::new(lease), clock, ended: Mutex::default() }
    }

    /// By this machine's clocks, which measure the lease.
    pub(super) fn moment(&self) -> Moment {
        Moment::of(&**self.clock.machine())
    }

    /// Another worker has ended.
    pub(super) fn note_ended(&self, fence: Fence, now: Boot) -> Boot {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner).entry(fence).or_insert(now)
    }

    pub(super) fn ended_at(&self, fence: Fence) -> Option<Boot> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get(&fence).copied()
    }
}
