//! The shelves that this process has written to last, kept in memory with their newest memories, taken apart. Whatever is said on a
//! shelf is compared with all of these; to read them from the store each time would cost more than the write itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::facts::Text;
use super::rows::Memory;
use crate::clock::Timestamp;
use crate::id::Tenant;

/// The most bytes of content that are kept. A text that is taken apart takes several times its length.
const MAX_BYTES: usize = 1024 * 1024;
/// The most shelves that are kept.
const MAX_SHELVES: usize = 256;

/// A memory with its text, taken apart.
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

/// The row of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The place that was taken last; 0 on a new shelf.
    pub(super) place: u32,
    /// The number of memories that stand there and are not forgotten.
    pub(super) standing: u32,
    /// The id of the write that moved it on last; 0 on a new shelf.
    pub(super) written: i64,
    pub(super) since: Timestamp,
}

/// A shelf as a write of this process has left it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The tenant and the shelf's name.
    of: (Tenant, String),
    pub(super) state: State,
    pub(super) newest: Newest,
    /// The length of all contents.
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

/// The shelves that are kept; the one that was written to last at the end.
#[derive(Debug, Default)]
pub(super) struct Shelves(Mutex<VecDeque<Kept>>);

impl Shelves {
    /// A shelf as this process has left it. Another one may have written to it since.
    pub(super) fn find(&self, tenant: &Tenant, name: &str) -> Option<Kept> {
        self.lock().iter().find(|kept| kept.is_of(tenant, name)).cloned()
    }

    /// Keeps a shelf as a durable write has left it, instead of those that were written to before all others.
    pub(super) fn keep(&self, new: Kept) {
        let mut all = self.lock();
        if let Some(place) = all.iter().position(|kept| kept.of == new.of) {
            if all[place].state.place > new.state.place {
                return; // of two writes that have become durable, this is the earlier one
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

    /// Keeps nothing of a shelf any more: some of its words are to go.
    pub(super) fn forget(&self, tenant: &Tenant, name: &str) {
        self.lock().retain(|kept| !kept.is_of(tenant, name));
    }

    /// Nothing that holds this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
