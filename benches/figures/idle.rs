//! The row about idleness: what an engine with nothing to do asks of its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil::clock::Timestamp;
use counterfoil::id::{EscalationId, Fence, RecordId, RunId, Tenant};
use counterfoil::ledger::{Look, OperationKey, Record};
use counterfoil::payload::{DigestKey, Payload, PayloadDigest};
use counterfoil::store::{
    Aggregate, Asked, Change, Document, Due, Escalation, Evidence, History, OutboxEvent, Published, Pulse,
    QueueLoad, Run, Schedule, Signal, Store, StoreError, Turns, Use, Verdict, Worker,
};

use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};
use crate::waiting::{For, park};

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn statements(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |(runs, wait, what)| {
        let home = Home::of(Database::Sqlite, options)?;
        let asked = multi_thread().block_on(asked_a_minute(&home.place("idle"), runs, wait));
        let measure = format!("statements per minute of an idle engine with {runs} runs waiting for {what}");
        let subject = Values::new("a minute", vec![asked]);
        Ok(Finding::absolute("idle", measure, subject, None).at_most(60.0, 0.0))
    };
    [(1000, For::Timer, "timers"), (10_000, For::Signal, "signals")].into_iter().map(finding).collect()
}

/// What an engine asks of its store while so many runs wait, and nothing else happens: for a whole minute, because
/// half of one is seven or eight heartbeats, which the figure would tell apart.
pub(crate) async fn asked_a_minute(place: &Place, runs: usize, wait: For) -> f64 {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let engine = subject::builder(place)
        .wrap_store(|store| Arc::new(Counting { store, asked: counted }))
        .start()
        .await
        .expect("an engine");
    park(&engine.tenant(TENANT).expect("a tenant"), runs, wait).await;
    let before = asked.load(Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    let asked = asked.load(Ordering::SeqCst) - before;
    engine.shutdown(subject::DRAIN).await;
    asked as f64
}

/// Counts what a store is asked, reads and writes alike.
#[derive(Debug)]
struct Counting {
    store: Arc<dyn Store>,
    asked: Arc<AtomicU64>,
}

/// Passes each method on, counted.
macro_rules! counting {
    ($(fn $name:ident<'a>(&'a self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {$(
        fn $name<'a>(&'a self $(, $argument: $type)*) -> Asked<'a, $answer> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.store.$name($($argument),*)
        }
    )*};
}

impl Store for Counting {
    counting! {
        fn commit<'a>(&'a self, changes: &'a [Change]) -> Vec<Verdict>;
        fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Option<Record>;
        fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Option<Record>;
        fn record_orphans<'a>(&'a self, after: RecordId, limit: u32) -> Vec<Record>;
        fn look_due<'a>(&'a self, until: Timestamp, limit: u32) -> Vec<Look>;
        fn look_find<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Option<Look>;
        fn record_committed<'a>(&'a self, tenant: &'a Tenant, since: Timestamp, after: &'a str, limit: u32) -> Vec<Record>;
        fn record_removed<'a>(&'a self, tenant: &'a Tenant, key: &'a str, since: Timestamp) -> bool;
        fn escalation_of<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Vec<Escalation>;
        fn record_expired<'a>(&'a self, after: Timestamp, until: Timestamp, limit: u32) -> Vec<Record>;
        fn record_expiring<'a>(&'a self, after: Timestamp) -> Option<Timestamp>;
        fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Vec<Use>;
        fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Vec<Evidence>;
        fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Option<Run>;
        fn run_keyed<'a>(&'a self, tenant: &'a Tenant, workflow: &'a str, key: &'a str) -> Option<Run>;
        fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> History;
        fn run_orphans<'a>(&'a self, after: RunId, limit: u32) -> Vec<Run>;
        fn run_answered<'a>(&'a self, after: RunId, limit: u32) -> Vec<Run>;
        fn run_signalled<'a>(&'a self, after: RunId, limit: u32) -> Vec<Run>;
        fn run_children<'a>(&'a self, tenant: &'a Tenant, parent: RunId, after: RunId, limit: u32) -> Vec<Run>;
        fn signal_find<'a>(&'a self, tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
        fn signal_unreceived<'a>(&'a self, tenant: &'a Tenant, run: RunId, name: &'a str, id: &'a str) -> Option<Signal>;
        fn signal_last<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Option<i64>;
        fn signal_pending<'a>(&'a self, runs: &'a [(Tenant, RunId)]) -> Vec<Signal>;
        fn run_due<'a>(&'a self, until: Timestamp, limit: u32) -> Vec<Run>;
        fn next_due<'a>(&'a self, after: Timestamp) -> Option<Timestamp>;
        fn queue_waiting<'a>(&'a self) -> Vec<String>;
        fn queue_admitted<'a>(&'a self, queue: &'a str, fence: Fence, since: Timestamp) -> Vec<Run>;
        fn queue_load<'a>(&'a self) -> Vec<QueueLoad>;
        fn schedule_find<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Option<Schedule>;
        fn schedule_list<'a>(&'a self, tenant: &'a Tenant, after: &'a str, limit: u32) -> Vec<Schedule>;
        fn schedule_due<'a>(&'a self, until: Timestamp, limit: u32) -> Vec<Schedule>;
        fn document_find<'a>(&'a self, tenant: &'a Tenant, kind: &'a str, id: &'a str) -> Option<Document>;
        fn document_list<'a>(&'a self, tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
        fn document_open<'a>(&'a self, tenant: &'a Tenant, kind: &'a str, after: &'a str, limit: u32) -> Vec<Document>;
        fn outbox_due<'a>(&'a self, until: Timestamp, limit: u32) -> Vec<Due>;
        fn outbox_next<'a>(&'a self, after: Timestamp) -> Option<Timestamp>;
        fn outbox_published<'a>(&'a self, after: Timestamp, limit: u32) -> Vec<Published>;
        fn outbox_find<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> Option<OutboxEvent>;
        fn outbox_aggregate<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Option<Aggregate>;
        fn outbox_set_aside<'a>(&'a self, tenant: &'a Tenant, question: EscalationId) -> Option<Aggregate>;
        fn run_list<'a>(&'a self, tenant: &'a Tenant, after: RunId, limit: u32) -> Vec<Run>;
        fn escalation_find<'a>(&'a self, tenant: &'a Tenant, id: EscalationId) -> Option<Escalation>;
        fn escalation_open<'a>(&'a self, tenant: &'a Tenant, after: EscalationId, limit: u32) -> Vec<Escalation>;
        fn escalation_about<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Vec<Escalation>;
        fn escalation_unknown_workflow<'a>(&'a self, after: EscalationId, limit: u32) -> Vec<Escalation>;
        fn escalation_duplicated<'a>(&'a self, after: EscalationId, limit: u32) -> Vec<Escalation>;
        fn worker_find<'a>(&'a self, name: &'a str) -> Option<Worker>;
        fn worker_at<'a>(&'a self, fence: Fence) -> Option<Worker>;
        fn pulse<'a>(&'a self) -> Pulse;
        fn wake_others<'a>(&'a self) -> ();
        fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> Option<DigestKey>;
        fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> Option<Payload>;
    }

    fn in_place(&self) -> Result<(), StoreError> {
        self.store.in_place()
    }
    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Waiting for a hint asks the database nothing.
    fn woken(&self) -> Asked<'_, ()> {
        self.store.woken()
    }
}
