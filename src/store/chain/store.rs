//! The wrapper of a store.

use std::fmt;
use std::sync::Arc;

use super::key::ChainKey;
use super::mark::ChainMark;
use super::writer::Writer;
use crate::clock::SharedClock;
use crate::id::Entropy;
use crate::store::{Change, Store, StoreFuture, Verdict};

/// A store whose changes carry links of a chain of evidence.
pub(super) struct ChainedStore {
    store: Arc<dyn Store>,
    pub(super) writer: Arc<Writer>,
}

impl fmt::Debug for ChainedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChainedStore").field(&self.store).finish()
    }
}

impl ChainedStore {
    /// Wraps a store.
    pub(super) fn new(
        store: Arc<dyn Store>,
        mark: &ChainMark,
        key: &ChainKey,
        clock: SharedClock,
        entropy: &dyn Entropy,
    ) -> Self {
        Self { store, writer: Arc::new(Writer::new(mark, key, clock, entropy)) }
    }
}

impl Store for ChainedStore {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let Some(linked) = self.writer.linked(changes) else { return self.store.commit(changes).await };
            let verdicts = self.store.commit(&linked.changes).await?;
            linked.judged(&verdicts);
            Ok(verdicts)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}
