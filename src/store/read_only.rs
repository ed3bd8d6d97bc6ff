//! A store that nothing can be written to through: what looks at recorded runs is put on it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Change, Passing, Store, StoreError, StoreFuture, Verdict};

/// Passes reads on and counts those under way. Every write is refused.
pub(crate) struct ReadOnly {
    store: Arc<dyn Store>,
    reads: Arc<AtomicUsize>,
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnly").field(&self.store).finish()
    }
}

impl ReadOnly {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reads: Arc::default() }
    }

    /// Somebody waits for an answer of the store.
    pub(crate) fn is_reading(&self) -> bool {
        self.reads.load(Ordering::Acquire) > 0
    }
}

/// A question under way: until its answer was taken, or nobody wants it any more.
struct Read(Arc<AtomicUsize>);

impl Drop for Read {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Store for ReadOnly {
    fn commit<'a>(&'a self, _: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }

    fn passing(&self) -> Option<Passing> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        Some(Box::new(Read(self.reads.clone())))
    }

    /// Nobody need be told: nothing changes here.
    fn wake_others(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    // It takes as long as it takes: nobody waits for an answer.
    fn woken(&self) -> StoreFuture<'_, ()> {
        self.store.woken()
    }
}
