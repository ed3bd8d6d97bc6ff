//! A store that nothing can be written to through: what looks at recorded runs is put on it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    Aggregate, Asked, Change, Document, Due, Escalation, Evidence, History, OutboxEvent, Published, Pulse,
    QueueLoad, Run, Schedule, Signal, Store, StoreError, Turns, Use, Verdict, Worker,
};
use crate::clock::Timestamp;
use crate::id::{EscalationId, Fence, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

/// Passes reads on and counts those under way. Every write is refused.
pub(crate) struct ReadOnly {
    store: Arc<dyn Store>,
    reads: AtomicUsize,
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnly").field(&self.store).finish()
    }
}

impl ReadOnly {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reads: AtomicUsize::new(0) }
    }

    /// Somebody waits for an answer of the store.
    pub(crate) fn is_reading(&self) -> bool {
        self.reads.load(Ordering::Acquire) > 0
    }
}

/// A read under way: until its answer was taken, or nobody wants it any more.
struct Read<'a>(&'a ReadOnly);

impl<'a> Read<'a> {
    fn of(store: &'a ReadOnly) -> Self {
        store.reads.fetch_add(1, Ordering::AcqRel);
        Self(store)
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.0.reads.fetch_sub(1, Ordering::AcqRel);
    }
}

macro_rules! counted {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        fn $name<'a>(&'a self, $($argument: $kind),*) -> Asked<'a, $answer> {
            let read = Read::of(self);
            Box::pin(async move {
                let _read = read;
                self.store.$name($($argument),*).await
            })
        }
    )*};
}

#[allow(clippy::elidable_lifetime_names, reason = "one form for all: some of them need it")]
impl Store for ReadOnly {
    fn commit<'a>(&'a self, _: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    counted! {
        record_find(tenant: &'a Tenant, key: &'a OperationKey) -> Option<Record>;
        record_at(tenant: &'a Tenant, id: RecordId) -> Option<Record>;
        record_orphans(after: RecordId, limit: u32) -> Vec<Record>;
        record_committed(tenant: &'a Tenant, since: Timestamp, after: &'a str, limit: u32) -> Vec<Record>;
        record_removed(tenant: &'a Tenant, key: &'a str, since: Timestamp) -> bool;
        look_due(until: Timestamp, limit: u32) -> Vec<Look>;
        look_find(tenant: &'a Tenant, record: RecordId) -> Option<Look>;
        escalation_of(tenant: &'a Tenant, record: RecordId) -> Vec<Escalation>;
        record_expired(after: Timestamp, until: Timestamp, limit: u32) -> Vec<Record>;
        record_expiring(after: Timestamp) -> Option<Timestamp>;
        record_uses(tenant: &'a Tenant, id: RecordId) -> Vec<Use>;
        record_evidence(tenant: &'a Tenant, id: RecordId) -> Vec<Evidence>;
        run_find(tenant: &'a Tenant, id: RunId) -> Option<Run>;
        run_keyed(tenant: &'a Tenant, workflow: &'a str, key: &'a str) -> Option<Run>;
        run_history(tenant: &'a Tenant, id: RunId, turns: Turns) -> History;
        run_orphans(after: RunId, limit: u32) -> Vec<Run>;
        run_answered(after: RunId, limit: u32) -> Vec<Run>;
        run_signalled(after: RunId, limit: u32) -> Vec<Run>;
        run_children(tenant: &'a Tenant, parent: RunId, after: RunId, limit: u32) -> Vec<Run>;
        signal_find(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
        signal_unreceived(tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
        signal_last(tenant: &'a Tenant, run: RunId) -> Option<i64>;
        signal_pending(runs: &'a [(Tenant, RunId)]) -> Vec<Signal>;
        run_due(until: Timestamp, limit: u32) -> Vec<Run>;
        next_due(after: Timestamp) -> Option<Timestamp>;
        queue_waiting() -> Vec<String>;
        queue_admitted(queue: &'a str, fence: Fence, since: Timestamp) -> Vec<Run>;
        queue_load() -> Vec<QueueLoad>;
        schedule_find(tenant: &'a Tenant, name: &'a str) -> Option<Schedule>;
        schedule_list(tenant: &'a Tenant, after: &'a str, limit: u32) -> Vec<Schedule>;
        schedule_due(until: Timestamp, limit: u32) -> Vec<Schedule>;
        document_find(tenant: &'a Tenant, kind: &'a str, id: &'a str) -> Option<Document>;
        document_list(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
        document_open(tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
        outbox_due(until: Timestamp, limit: u32) -> Vec<Due>;
        outbox_next(after: Timestamp) -> Option<Timestamp>;
        outbox_published(after: Timestamp, limit: u32) -> Vec<Published>;
        outbox_find(tenant: &'a Tenant, id: &'a str) -> Option<OutboxEvent>;
        outbox_aggregate(tenant: &'a Tenant, name: &'a str) -> Option<Aggregate>;
        outbox_set_aside(tenant: &'a Tenant, question: EscalationId) -> Option<Aggregate>;
        run_list(tenant: &'a Tenant, after: RunId, limit: u32) -> Vec<Run>;
        escalation_find(tenant: &'a Tenant, id: EscalationId) -> Option<Escalation>;
        escalation_open(tenant: &'a Tenant, after: EscalationId, limit: u32) -> Vec<Escalation>;
        escalation_about(tenant: &'a Tenant, run: RunId) -> Vec<Escalation>;
        escalation_unknown_workflow(after: EscalationId, limit: u32) -> Vec<Escalation>;
        escalation_duplicated(after: EscalationId, limit: u32) -> Vec<Escalation>;
        worker_find(name: &'a str) -> Option<Worker>;
        worker_at(fence: Fence) -> Option<Worker>;
        pulse() -> Pulse;
        tenant_key(tenant: &'a Tenant) -> Option<DigestKey>;
        payload_find(tenant: &'a Tenant, digest: PayloadDigest) -> Option<Payload>;
    }

    fn in_place(&self) -> Result<(), StoreError> {
        self.store.in_place()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Nobody need be told: nothing changes here.
    fn wake_others(&self) -> Asked<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn woken(&self) -> Asked<'_, ()> {
        self.store.woken()
    }
}
