//! A store that counts what it is given, and can be told to choke on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use counterfoil::ledger::{OperationKey, Record};
use counterfoil::payload::{DigestKey, Payload, PayloadDigest};
use counterfoil::store::{
    Asked, Change, Escalation, Evidence, History, Model, Run, Store, StoreError, Use, Verdict, Worker,
};
use counterfoil::{EscalationId, RecordId, RunId, Tenant, Timestamp};

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
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        self.batches.lock().unwrap().push(changes.len());
        assert!(!self.explosive.load(Ordering::Relaxed), "the store panics, as it was told to");
        let poison = *self.poison.lock().unwrap();
        if changes.iter().any(|change| change.record.as_ref().is_some_and(|record| Some(record.id) == poison))
        {
            return Box::pin(async { Err(StoreError::Io { detail: "it chokes on this".into() }) });
        }
        self.model.commit(changes)
    }

    fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Asked<'a, Option<Record>> {
        self.model.record_find(tenant, key)
    }

    fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Option<Record>> {
        self.model.record_at(tenant, id)
    }

    fn record_orphans(&self, limit: u32) -> Asked<'_, Vec<Record>> {
        self.model.record_orphans(limit)
    }

    fn record_unconfirmed(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Record>> {
        self.model.record_unconfirmed(until, limit)
    }

    fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Use>> {
        self.model.record_uses(tenant, id)
    }

    fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Evidence>> {
        self.model.record_evidence(tenant, id)
    }

    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Asked<'a, Option<Run>> {
        self.model.run_find(tenant, id)
    }

    fn run_keyed<'a>(
        &'a self,
        tenant: &'a Tenant,
        workflow: &'a str,
        key: &'a str,
    ) -> Asked<'a, Option<Run>> {
        self.model.run_keyed(tenant, workflow, key)
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Asked<'a, History> {
        self.model.run_history(tenant, id)
    }

    fn run_orphans(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        self.model.run_orphans(after, limit)
    }

    fn run_answered(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        self.model.run_answered(after, limit)
    }

    fn run_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Run>> {
        self.model.run_due(until, limit)
    }

    fn next_due(&self) -> Asked<'_, Option<Timestamp>> {
        self.model.next_due()
    }

    fn run_list<'a>(&'a self, tenant: &'a Tenant, after: RunId, limit: u32) -> Asked<'a, Vec<Run>> {
        self.model.run_list(tenant, after, limit)
    }

    fn escalation_find<'a>(&'a self, tenant: &'a Tenant, id: EscalationId) -> Asked<'a, Option<Escalation>> {
        self.model.escalation_find(tenant, id)
    }

    fn escalation_open<'a>(&'a self, tenant: &'a Tenant, limit: u32) -> Asked<'a, Vec<Escalation>> {
        self.model.escalation_open(tenant, limit)
    }

    fn worker_find<'a>(&'a self, name: &'a str) -> Asked<'a, Option<Worker>> {
        self.model.worker_find(name)
    }

    fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> Asked<'a, Option<DigestKey>> {
        self.model.tenant_key(tenant)
    }

    fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> Asked<'a, Option<Payload>> {
        self.model.payload_find(tenant, digest)
    }
}
