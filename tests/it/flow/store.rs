//! A tap on the store: what was written together, how often the store was asked, and writes that are held,
//! refused or fail.

use std::sync::Arc;

use counterfoil::clock::SharedClock;
use counterfoil::store::{
    Change, ClusterStatus, Passing, Refusal, Run, Store, StoreError, StoreFuture, Verdict,
};
use counterfoil::{Clock, RunId, Tenant};
use tokio::sync::watch;

type Picks = fn(&Change) -> bool;

/// What the tap knows and does.
#[derive(Default)]
pub(crate) struct Tapped {
    /// The batches that are durable, in their order.
    pub(crate) batches: Vec<Vec<Change>>,
    /// How often anything was read or written.
    pub(crate) asked: usize,
    /// How often the engine began to listen for writes of other processes: once, and again after each look for such writes.
    pub(crate) listened: usize,
    /// Batches with such a change wait.
    hold: Option<Picks>,
    pub(crate) held: usize,
    /// The disk takes nothing any more, from the first such change on.
    cut: Option<Picks>,
    /// The first such change is refused as stale.
    refuse: Option<Picks>,
    pub(crate) refused: usize,
    /// Every write fails so.
    fail: Option<StoreError>,
    pub(crate) failed: usize,
    /// The first batch with such a change is written, and its answer is lost. Every later write fails.
    lose: Option<Picks>,
    /// The number of reads of a run's row that fail.
    unread: usize,
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

    /// Writes the next batch with such a change, loses its answer, and fails every later write until
    /// [`fail(None)`](Self::fail).
    pub(crate) fn lose(&self, picks: Picks) {
        self.0.send_modify(|tapped| tapped.lose = Some(picks));
    }

    /// So many of the next reads of a run's row fail.
    pub(crate) fn unread(&self, reads: usize) {
        self.0.send_modify(|tapped| tapped.unread = reads);
    }

    fn fails_to_read(&self) -> bool {
        let mut fails = false;
        self.0.send_if_modified(|tapped| {
            fails = tapped.unread > 0;
            tapped.unread = tapped.unread.saturating_sub(1);
            false // a read is nothing to wait for
        });
        fails
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
        if self.tap.see(|tapped| tapped.lose.is_some_and(|picks| changes.iter().any(picks))) {
            self.store.commit(changes).await?;
            self.tap.0.send_modify(|tapped| {
                tapped.lose = None;
                tapped.fail = Some(cut_off());
                tapped.batches.push(changes.to_vec());
            });
            return Err(cut_off());
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
        self.tap.0.send_modify(|tapped| (tapped.refuse, tapped.refused) = (None, tapped.refused + 1));
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

fn cut_off() -> StoreError {
    StoreError::Unreachable { detail: "cut off".into() }
}

impl Store for TappedStore {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(self.write(changes))
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }

    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> StoreFuture<'a, Option<Run>> {
        self.tap.ask();
        if self.tap.fails_to_read() {
            return Box::pin(async { Err(cut_off()) });
        }
        self.store.run_find(tenant, id)
    }

    fn woken(&self) -> StoreFuture<'_, ()> {
        self.tap.0.send_modify(|tapped| tapped.listened += 1);
        self.store.woken()
    }

    fn passing(&self) -> Option<Passing> {
        self.tap.ask();
        None
    }

    fn pulse(&self) -> StoreFuture<'_, ClusterStatus> {
        self.tap.ask();
        Box::pin(async {
            let pulse = self.store.pulse().await?;
            let time = self.tap.see(|tapped| tapped.time.as_ref().map(|clock| clock.now()));
            Ok(ClusterStatus { time: time.unwrap_or(pulse.time), ..pulse })
        })
    }
}
