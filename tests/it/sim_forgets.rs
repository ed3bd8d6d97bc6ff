//! A store that forgets, as a sweeper in `forget` mode does: there is none yet, so this stands in its place.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::{OperationKey, Record, State};
use counterfoil::store::{Asked, Change, Store, Verdict};
use counterfoil::{RecordId, Tenant, Timestamp};

/// A committed record whose time is over is not found any more, and its key is new. The row cannot be deleted
/// through a [`Store`], so that the next record of the key is written over it.
pub(crate) struct Forgets {
    store: Arc<dyn Store>,
    window: Duration,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    now: Option<Timestamp>,
    /// New records, and the forgotten ones that they are written over.
    over: HashMap<RecordId, Record>,
}

impl fmt::Debug for Forgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forgets").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Forgets {
    pub(crate) fn new(store: Arc<dyn Store>, window: Duration) -> Self {
        Self { store, window, seen: Mutex::default() }
    }

    /// The latest time in what is written is what time it is.
    fn sees(&self, change: &Change) {
        let run = change.run.as_ref().map(|run| run.updated_at);
        let record = change.record.as_ref().map(|record| record.updated_at);
        let mut seen = self.seen.lock().unwrap();
        seen.now = seen.now.max(run).max(record);
    }

    fn is_forgotten(&self, record: &Record) -> bool {
        let now = self.seen.lock().unwrap().now;
        let over = now.is_some_and(|now| now >= record.updated_at.after(self.window));
        over && matches!(record.state, State::Committed { .. })
    }

    /// The change, with a record that takes a forgotten one's place in that one's row.
    async fn written(&self, mut change: Change) -> Change {
        let Some(record) = &mut change.record else { return change };
        if record.revision == 1
            && let Ok(Some(old)) = self.store.record_find(&record.tenant, &record.key).await
            && self.is_forgotten(&old)
        {
            self.seen.lock().unwrap().over.insert(record.id, old);
        }
        if let Some(old) = self.seen.lock().unwrap().over.get(&record.id) {
            record.id = old.id;
            record.revision += old.revision;
            (record.owner, record.created_at) = (old.owner.clone(), old.created_at);
        }
        change
    }
}

impl Store for Forgets {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async move {
            let mut written = Vec::new();
            for change in changes {
                self.sees(change);
                written.push(self.written(change.clone()).await);
            }
            self.store.commit(&written).await
        })
    }

    fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Asked<'a, Option<Record>> {
        Box::pin(async move {
            let found = self.store.record_find(tenant, key).await?;
            Ok(found.filter(|record| !self.is_forgotten(record)))
        })
    }

    counterfoil::delegate_reads!(self => self.store; record_at record_orphans record_unconfirmed record_uses
        record_evidence run_find run_keyed run_history run_orphans run_answered run_signalled run_children run_due next_due run_list queues memories
        escalation_find escalation_open escalation_about escalation_unknown_workflow signal_find signal_pending worker_find worker_at sharing tenant_key payload_find);
}
