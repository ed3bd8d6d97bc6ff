//! Rows that count their changes: each change follows the one before.

use std::fmt::Debug;

use super::sample::{Sample, fence_others, payload};
use super::{admit, refused};
use crate::id::Tenant;
use crate::ledger::{Look, Record};
use crate::store::{Change, Document, PublishedValue, Refusal, Run, Schedule, Store, Verdict};

/// A row that counts its changes.
trait Counted: Clone + Debug + PartialEq {
    /// The refusal of another first row; `LATE` is that of a row that does not follow.
    const TAKEN: Refusal = Refusal::Stale;
    const LATE: Refusal = Refusal::Stale;

    fn first(sample: &Sample) -> Self;
    /// The same row, of this tenant and at this revision, with a sign that distinguishes two rows.
    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self;
    fn by(&self, sample: &Sample) -> Change;
    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self>;
}

impl Counted for Record {
    fn first(sample: &Sample) -> Self {
        sample.record("a")
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, spent: sign, ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        sample.change().record(self.clone())
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.record_at(tenant, self.id).await.unwrap()
    }
}

impl Counted for Run {
    fn first(sample: &Sample) -> Self {
        sample.run("a")
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, deaths: sign, ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        sample.change().run(self.clone())
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.run_find(tenant, self.id).await.unwrap()
    }
}

impl Counted for Look {
    fn first(sample: &Sample) -> Self {
        sample.look(&sample.record("a"), 5)
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, made: sign, ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        sample.change().look(self.clone())
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.look_find(tenant, self.record).await.unwrap()
    }
}

impl Counted for Schedule {
    const TAKEN: Refusal = Refusal::Exists;

    fn first(sample: &Sample) -> Self {
        sample.schedule("nightly", 100)
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, missed: sign, ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        Change { schedule: Some(Box::new(self.clone())), ..sample.change() }
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.schedule_find(tenant, self.name.as_str()).await.unwrap()
    }
}

impl Counted for Document {
    const TAKEN: Refusal = Refusal::Exists;
    const LATE: Refusal = Refusal::Exists;

    fn first(sample: &Sample) -> Self {
        sample.document("notice/7")
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, body: sign.to_string(), ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        Change { documents: vec![self.clone()], ..sample.change() }
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.document_find(tenant, self.kind.as_str(), &self.id).await.unwrap()
    }
}

impl Counted for PublishedValue {
    const TAKEN: Refusal = Refusal::Exists;

    fn first(sample: &Sample) -> Self {
        sample.published(&sample.run("a"), "progress")
    }

    fn on(&self, tenant: &Tenant, revision: u32, sign: u32) -> Self {
        Self { tenant: tenant.clone(), revision, value: payload(&sign.into()), ..self.clone() }
    }

    fn by(&self, sample: &Sample) -> Change {
        Change { published: Some(Box::new(self.clone())), ..sample.change() }
    }

    async fn find(&self, store: &dyn Store, tenant: &Tenant) -> Option<Self> {
        store.published_find(tenant, self.run, &self.name).await.unwrap()
    }
}

/// Runs a case for each kind of row.
macro_rules! of_each {
    ($case:ident, $store:expr) => {
        $case::<Record>($store, "record").await;
        $case::<Run>($store, "run").await;
        $case::<Look>($store, "look").await;
        $case::<Schedule>($store, "schedule").await;
        $case::<Document>($store, "document").await;
        $case::<PublishedValue>($store, "published value").await;
    };
}

/// A change is admitted on top of the revision that it was computed from, and so is the very same one again. Another
/// change at the same revision is refused, even of the same worker: it is no repetition of the first one.
pub async fn each_follows_the_one_before(store: &dyn Store) {
    of_each!(follows, store);
}

async fn follows<R: Counted>(store: &dyn Store, what: &str) {
    let sample = Sample::enrol(store, what).await;
    let first = R::first(&sample);
    let on = |revision, sign| first.on(&sample.tenant, revision, sign);
    let second = on(2, 2);
    let is_refused = async |row: R, refusal: Refusal| {
        assert_eq!(refused(store, row.by(&sample)).await, Some(refusal), "{row:?}");
    };
    admit(store, &[first.by(&sample)]).await;
    admit(store, &[first.by(&sample)]).await;
    is_refused(on(1, 9), R::TAKEN).await;
    is_refused(on(3, 9), R::LATE).await;
    assert_eq!(first.find(store, &sample.tenant).await.as_ref(), Some(&first));
    admit(store, &[second.by(&sample)]).await;
    admit(store, &[second.by(&sample)]).await;
    for (revision, refusal) in [(0, R::LATE), (1, R::TAKEN), (2, R::LATE), (4, R::LATE)] {
        is_refused(on(revision, 9), refusal).await;
    }
    is_refused(first.clone(), R::TAKEN).await;
    assert_eq!(first.find(store, &sample.tenant).await, Some(second));
}

/// The first of two changes of a batch that were computed from one revision wins.
pub async fn of_two_from_one_revision_the_first_wins(store: &dyn Store) {
    of_each!(first_wins, store);
}

async fn first_wins<R: Counted>(store: &dyn Store, what: &str) {
    let sample = Sample::enrol(store, what).await;
    let first = R::first(&sample);
    admit(store, &[first.by(&sample)]).await;
    let two = [2, 3].map(|sign| first.on(&sample.tenant, 2, sign));
    let verdicts = store.commit(&two.each_ref().map(|row| row.by(&sample))).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(R::LATE)], "{what}");
    assert_eq!(first.find(store, &sample.tenant).await.as_ref(), Some(&two[0]));
}

/// A change of a row that is not there is refused.
pub async fn a_change_needs_its_row(store: &dyn Store) {
    of_each!(needs_its_row, store);
}

async fn needs_its_row<R: Counted>(store: &dyn Store, what: &str) {
    let sample = Sample::enrol(store, what).await;
    let row = R::first(&sample);
    for revision in [0, 2, 3, u32::MAX] {
        let change = row.on(&sample.tenant, revision, 0).by(&sample);
        assert_eq!(refused(store, change).await, Some(R::LATE), "{what} {revision}");
        assert_eq!(row.find(store, &sample.tenant).await, None);
    }
}

/// Only its tenant finds a row, and no change reaches the row of another tenant.
pub async fn a_change_stays_with_its_tenant(store: &dyn Store) {
    of_each!(stays_with_its_tenant, store);
}

async fn stays_with_its_tenant<R: Counted>(store: &dyn Store, what: &str) {
    let sample = Sample::enrol(store, what).await;
    let other = sample.for_tenant("globex").tenant;
    let row = R::first(&sample);
    admit(store, &[row.by(&sample)]).await;
    assert_eq!(row.find(store, &other).await, None);
    let foreign = row.on(&other, 2, 2);
    assert_eq!(refused(store, foreign.by(&sample)).await, Some(R::LATE), "{what}");
    assert_eq!(row.find(store, &sample.tenant).await, Some(row));
}

/// A fenced worker adds and changes no row.
pub async fn a_fenced_worker_changes_none(store: &dyn Store) {
    of_each!(fenced_changes_none, store);
}

async fn fenced_changes_none<R: Counted>(store: &dyn Store, what: &str) {
    let old = Sample::enrol(store, what).await;
    let row = R::first(&old);
    admit(store, &[row.by(&old)]).await;
    let new = Sample::enrol(store, &format!("{what} again")).await;
    admit(store, &[fence_others(new.fence)]).await;
    let theirs = R::first(&old.for_tenant("globex"));
    for late in [theirs, row.on(&old.tenant, 2, 2)] {
        assert_eq!(refused(store, late.by(&old)).await, Some(Refusal::Fenced), "{late:?}");
    }
    assert_eq!(row.find(store, &old.tenant).await, Some(row));
}
