//! The instants at which the senders of calls ceased to send, for calls that were given up before they were settled.
//! The next request for such a call waits for the rest of the settle time, not for all of it: otherwise callers that go
//! away sooner would never see the call sent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Boot;
use crate::id::RecordId;
use crate::ledger::Record;

/// For each record: the number of the attempt, and the instant after which nothing of that attempt was sent.
#[derive(Debug, Default)]
pub(super) struct Ceased(Mutex<HashMap<RecordId, (u32, Boot)>>);

impl Ceased {
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, (u32, Boot)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, record: &Record, at: Boot) {
        self.lock().insert(record.id, (record.attempts, at));
    }

    /// The instant at which the sender of the record's last attempt ceased to send, if one was noted.
    pub(super) fn at(&self, record: &Record) -> Option<Boot> {
        let noted = self.lock().get(&record.id).copied();
        noted.filter(|(attempt, _)| *attempt == record.attempts).map(|(_, at)| at)
    }

    /// The number of calls of unknown outcome that this worker has not settled.
    #[cfg(feature = "metrics")]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn forget(&self, record: RecordId) {
        self.lock().remove(&record);
    }
}
