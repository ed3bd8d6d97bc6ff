//! The calls of unknown outcome whose tool is not here: they are looked up when it comes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::{Name, RecordId, Tenant};
use crate::ledger::Record;

/// Calls, each once, in an order that does not depend on chance.
type Calls = BTreeSet<(Tenant, RecordId)>;

/// The calls that this process took up and could not look up, by the name of their tool.
#[derive(Debug, Default)]
pub(crate) struct Toolless(Mutex<HashMap<Name, Calls>>);

impl Toolless {
    fn calls(&self) -> MutexGuard<'_, HashMap<Name, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call whose tool is not here.
    pub(super) fn note(&self, record: &Record) {
        let call = (record.tenant.clone(), record.id);
        self.calls().entry(record.operation.clone()).or_default().insert(call);
    }

    /// Removes and returns the calls that wait for this tool.
    pub(super) fn take(&self, tool: &Name) -> Calls {
        self.calls().remove(tool).unwrap_or_default()
    }
}
