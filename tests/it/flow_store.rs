//! A tap on the store: what was written together, how often the store was asked, and writes that are held,
//! refused or fail.

use std::sync::Arc;

use counterfoil::clock::{Clock, SharedClock, Timestamp};
use counterfoil::ledger::{Look, OperationKey, Record};
use counterfoil::payload::{DigestKey, PayloadDigest};
use counterfoil::store::{
    Aggregate, Asked, Change, Document, Due, Escalation, Evidence, History, OutboxEvent, Published, Pulse,
    QueueLoad, Refusal, Run, Schedule, Signal, Store, StoreError, Turns, Use, Verdict, Worker,
};
use counterfoil::{EscalationId, Fence, Payload, RecordId, RunId, Tenant};
use tokio::sync::watch;

type Picks = fn(&Change) -> bool;

/// What the tap knows and does.
#[derive(Default)]
pub(crate) struct Tapped {
    /// The batches that are durable, in their order.
    pub(crate) batches: Vec<Vec<Change>>,
    /// How often anything was read or written.
    pub(crate) asked: usize,
    /// Batches with such a change wait.
    hold: Option<Picks>,
    pub(crate) held: usize,
    /// The disk takes nothing any more, from the first such change on.
    cut: Option<Picks>,
    /// The first such change is refused as stale.
    refuse: Option<Picks>,
    /// Every write fails so.
    fail: Option<StoreError>,
    pub(crate) failed: usize,
    /// The next write panics.
    panics: bool,
    /// Whose wall time the store tells as its own.
    time: Option<SharedClock>,
}

#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<watch::Sender<Tapped>>);

impl Tap {
    pub(crate) fn around(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(TappedStore { store, tap: self.clone() })
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Tapped> {
        self.0.subscribe()
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&Tapped) -> T) -> T {
        look(&self.0.borrow())
    }

    pub(crate) async fn until(&self, condition: impl FnMut(&Tapped) -> bool) {
        self.0.subscribe().wait_for(condition).await.map(drop).unwrap();
    }

    /// Batches with such a change are not written until [`release`](Self::release).
    pub(crate) fn hold(&self, picks: Picks) {
        self.0.send_modify(|tapped| tapped.hold = Some(picks));
    }

    pub(crate) fn release(&self) {
        self.0.send_modify(|tapped| tapped.hold = None);
    }

    /// What is queued before the first such change becomes durable, that change and everything behind it does
    /// not: two transactions with a crash in between. Until [`mend`](Self::mend).
    pub(crate) fn cut(&self, picks: Picks) {
        self.0.send_modify(|tapped| tapped.cut = Some(picks));
    }

    pub(crate) fn mend(&self) {
        self.0.send_modify(|tapped| tapped.cut = None);
    }

    /// Refuses the next such change.
    pub(crate) fn refuse(&self, picks: Picks) {
        self.0.send_modify(|tapped| tapped.refuse = Some(picks));
    }

    pub(crate) fn fail(&self, with: Option<StoreError>) {
        self.0.send_modify(|tapped| tapped.fail = with);
    }

    /// The next write panics.
    pub(crate) fn panic_once(&self) {
        self.0.send_modify(|tapped| tapped.panics = true);
    }

    /// The store goes by this clock from now on.
    pub(crate) fn tells_time_of(&self, clock: impl Clock + 'static) {
        self.0.send_modify(|tapped| tapped.time = Some(Arc::new(clock)));
    }

    fn ask(&self) {
        self.0.send_if_modified(|tapped| {
            tapped.asked += 1;
            false // a read is nothing to wait for
        });
    }
}

struct TappedStore {
    store: Arc<dyn Store>,
    tap: Tap,
}

impl std::fmt::Debug for TappedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TappedStore")
    }
}

struct Held<'a>(&'a Tap);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|tapped| tapped.held -= 1);
    }
}

impl TappedStore {
    async fn write(&self, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
        self.tap.ask();
        let mut panics = false;
        self.tap.0.send_modify(|tapped| panics = std::mem::take(&mut tapped.panics));
        assert!(!panics, "a panic that was asked for");
        let held = |tapped: &Tapped| tapped.hold.is_some_and(|picks| changes.iter().any(picks));
        if self.tap.see(held) {
            self.tap.0.send_modify(|tapped| tapped.held += 1);
            let _held = Held(&self.tap);
            self.tap.until(|tapped| !held(tapped)).await;
        }
        if let Some(cut) = self.tap.see(|tapped| tapped.cut.and_then(|picks| changes.iter().position(picks)))
        {
            self.store.commit(&changes[..cut]).await?;
            self.tap.0.send_modify(|tapped| tapped.held += 1);
            std::future::pending::<()>().await;
        }
        if let Some(error) = self.tap.see(|tapped| tapped.fail.clone()) {
            self.tap.0.send_modify(|tapped| tapped.failed += 1);
            return Err(error);
        }
        let refused = self.tap.see(|tapped| tapped.refuse.and_then(|picks| changes.iter().position(picks)));
        let (wanted, verdicts) = match refused {
            None => (changes.to_vec(), self.store.commit(changes).await?),
            Some(refused) => self.without(changes, refused).await?,
        };
        self.tap.0.send_modify(|tapped| tapped.batches.push(wanted));
        Ok(verdicts)
    }

    /// Writes all but one change and those that its lane holds back because of it.
    async fn without(
        &self,
        changes: &[Change],
        refused: usize,
    ) -> Result<(Vec<Change>, Vec<Verdict>), StoreError> {
        self.tap.0.send_modify(|tapped| tapped.refuse = None);
        let lane = changes[refused].lane;
        let stays = |i: usize| i < refused || (i > refused && (lane.is_none() || changes[i].lane != lane));
        let kept: Vec<_> = (0..changes.len()).filter(|i| stays(*i)).map(|i| changes[i].clone()).collect();
        let mut written = self.store.commit(&kept).await?.into_iter();
        let verdict = |i: usize| match i {
            i if stays(i) => written.next().unwrap(),
            i if i == refused => Verdict::Refused(Refusal::Stale),
            _ => Verdict::Refused(Refusal::Predecessor),
        };
        let verdicts = (0..changes.len()).map(verdict).collect();
        Ok((kept, verdicts))
    }
}

macro_rules! asks {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Store for TappedStore {
            fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
                Box::pin(self.write(changes))
            }
            fn pulse(&self) -> Asked<'_, Pulse> {
                self.tap.ask();
                Box::pin(async {
                    let pulse = self.store.pulse().await?;
                    let time = self.tap.see(|tapped| tapped.time.as_ref().map(|clock| clock.now()));
                    Ok(Pulse { time: time.unwrap_or(pulse.time), ..pulse })
                })
            }
            fn in_place(&self) -> Result<(), StoreError> {
                self.store.in_place()
            }
            fn is_shared(&self) -> bool {
                self.store.is_shared()
            }
            $(fn $name<'a>(&'a self, $($arg: $kind),*) -> Asked<'a, $answer> {
                self.tap.ask();
                self.store.$name($($arg),*)
            })*
        }
    };
}

asks! {
    record_find(tenant: &'a Tenant, key: &'a OperationKey) -> Option<Record>;
    record_at(tenant: &'a Tenant, id: RecordId) -> Option<Record>;
    record_orphans(after: RecordId, limit: u32) -> Vec<Record>;
    look_due(until: Timestamp, limit: u32) -> Vec<Look>;
    look_find(tenant: &'a Tenant, record: RecordId) -> Option<Look>;
    record_committed(tenant: &'a Tenant, since: Timestamp, after: &'a str, limit: u32) -> Vec<Record>;
    record_removed(tenant: &'a Tenant, key: &'a str, since: Timestamp) -> bool;
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
    wake_others() -> ();
    woken() -> ();
    tenant_key(tenant: &'a Tenant) -> Option<DigestKey>;
    payload_find(tenant: &'a Tenant, digest: PayloadDigest) -> Option<Payload>;
}
