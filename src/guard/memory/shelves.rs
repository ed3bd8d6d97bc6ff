//! A cache of the shelves that this process wrote last, with the tokens and facts of their newest memories. Each
//! statement is compared with all of these memories, and reading them from the store each time would cost more than
//! the write itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::facts::Text;
use super::rows::Memory;
use crate::clock::Timestamp;
use crate::id::Tenant;

/// The maximum size of all cached contents, in bytes. A text with its tokens takes several times its length.
const MAX_BYTES: usize = 1024 * 1024;
/// The maximum number of cached shelves.
const MAX_SHELVES: usize = 256;

/// A memory that is not forgotten, with its tokens and facts.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) memory: Memory,
    pub(super) text: Arc<Text>,
}

impl Standing {
    pub(super) fn of(memory: Memory) -> Arc<Self> {
        Arc::new(Self { text: Arc::new(Text::of(&memory.content)), memory })
    }
}

/// The newest memories of a shelf, the newest first.
pub(super) type Newest = Arc<[Arc<Standing>]>;

/// The state of a shelf's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The place that was taken last; 0 on a new shelf.
    pub(super) place: u32,
    /// The number of the shelf's memories that are not forgotten.
    pub(super) standing: u32,
    /// The id of the last write to the shelf; 0 on a new shelf.
    pub(super) written: i64,
    pub(super) since: Timestamp,
}

/// A shelf as a write of this process left it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The tenant and the shelf's name.
    of: (Tenant, String),
    pub(super) state: State,
    pub(super) newest: Newest,
    /// The size of all contents, in bytes.
    bytes: usize,
}

impl Kept {
    pub(super) fn new(of: (Tenant, String), state: State, newest: Newest) -> Self {
        let bytes = newest.iter().map(|standing| standing.memory.content.len()).sum();
        Self { of, state, newest, bytes }
    }

    fn is_of(&self, tenant: &Tenant, name: &str) -> bool {
        self.of.1 == name && self.of.0 == *tenant
    }
}

/// The cached shelves, in the order of their last writes.
#[derive(Debug, Default)]
pub(super) struct Shelves(Mutex<VecDeque<Kept>>);

impl Shelves {
    /// A shelf as this process left it. Another process may have written to the shelf since.
    pub(super) fn find(&self, tenant: &Tenant, name: &str) -> Option<Kept> {
        self.lock().iter().find(|kept| kept.is_of(tenant, name)).cloned()
    }

    /// Caches a shelf after a durable write, and evicts the shelves that were written longest ago.
    pub(super) fn keep(&self, new: Kept) {
        let mut all = self.lock();
        if let Some(place) = all.iter().position(|kept| kept.of == new.of) {
            if all[place].state.place > new.state.place {
                return; // of two durable writes, this one is the earlier
            }
            all.remove(place);
        }
        all.push_back(new);
        let mut bytes: usize = all.iter().map(|kept| kept.bytes).sum();
        while bytes > MAX_BYTES || all.len() > MAX_SHELVES {
            let Some(oldest) = all.pop_front() else { return };
            bytes -= oldest.bytes;
        }
    }

    /// Evicts a shelf whose memory is to be forgotten.
    pub(super) fn forget(&self, tenant: &Tenant, name: &str) {
        self.lock().retain(|kept| !kept.is_of(tenant, name));
    }

    /// Locks the cache. No holder of the lock can panic in the middle of a change, so a poisoned lock is usable.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
