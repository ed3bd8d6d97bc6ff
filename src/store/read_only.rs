//! A store that refuses all writes, for code that inspects recorded runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Change, Passing, Store, StoreError, StoreFuture, Verdict};

/// A store that passes reads on and counts those under way. Every write is refused.
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

    /// True while a caller waits for an answer of the store.
    pub(crate) fn is_reading(&self) -> bool {
        self.reads.load(Ordering::Acquire) > 0
    }
}

/// A question under way, until its answer was taken or its caller has gone.
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

    /// Does nothing: this store changes nothing that others must be told of.
    fn wake_others(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    // The wait is not counted as a read: no caller waits for its answer.
    fn woken(&self) -> StoreFuture<'_, ()> {
        self.store.woken()
    }
}
