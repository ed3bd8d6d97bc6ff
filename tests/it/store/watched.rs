//! A store that counts what it is given, and can be told to choke on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use counterfoil::RecordId;
use counterfoil::ledger::Record;
use counterfoil::store::{Change, Model, Store, StoreError, StoreFuture, Verdict};

/// The model, watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) model: Model,
    batches: Mutex<Vec<usize>>,
    poison: Mutex<Option<RecordId>>,
    explosive: AtomicBool,
}

impl Watched {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on every batch with this record fails as a whole.
    pub(crate) fn poison(&self, record: &Record) {
        *self.poison.lock().unwrap() = Some(record.id);
    }

    /// The next batch makes it panic.
    pub(crate) fn explode(&self) {
        self.explosive.store(true, Ordering::Relaxed);
    }

    /// Forgets the batches so far.
    pub(crate) fn forget(&self) {
        self.batches.lock().unwrap().clear();
    }

    /// The sizes of the batches since, whatever became of them.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

impl Store for Watched {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.batches.lock().unwrap().push(changes.len());
        assert!(!self.explosive.load(Ordering::Relaxed), "the store panics, as it was told to");
        let poison = *self.poison.lock().unwrap();
        if changes.iter().any(|change| change.record.as_ref().is_some_and(|record| Some(record.id) == poison))
        {
            return Box::pin(async { Err(StoreError::Io { detail: "it chokes on this".into() }) });
        }
        self.model.commit(changes)
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.model)
    }
}
