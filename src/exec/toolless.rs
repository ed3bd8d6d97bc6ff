//! The calls of unknown outcome whose tool is not here: they are looked up when it comes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::{Name, RecordId, Tenant};
use crate::ledger::Record;

/// The calls that this process took up and could not look up, by the name of their tool.
#[derive(Debug, Default)]
pub(crate) struct Toolless(Mutex<HashMap<Name, Vec<(Tenant, RecordId)>>>);

impl Toolless {
    fn calls(&self) -> MutexGuard<'_, HashMap<Name, Vec<(Tenant, RecordId)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call whose tool is not here.
    pub(super) fn note(&self, record: &Record) {
        let call = (record.tenant.clone(), record.id);
        self.calls().entry(record.operation.clone()).or_default().push(call);
    }

    /// Removes and returns the calls that wait for this tool.
    pub(super) fn take(&self, tool: &Name) -> Vec<(Tenant, RecordId)> {
        self.calls().remove(tool).unwrap_or_default()
    }
}
