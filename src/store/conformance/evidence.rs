//! What fenced workers learned too late.

use super::admit;
use super::sample::{self, HOSTILE, Sample, payload};
use crate::clock::Timestamp;
use crate::store::{Change, Evidence, Store};

fn left(evidence: &Evidence) -> Change {
    Change { evidence: Some(Box::new(evidence.clone())), ..Change::default() }
}

/// A fenced worker may still leave what it learned; the record is not touched.
pub async fn is_left_by_fenced_workers_too(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    admit(store, &[old.change().record(record.clone()), sample::fence_others(new.fence)]).await;
    for (i, text) in (1..).zip(HOSTILE) {
        let mut evidence = old.evidence(&record, i);
        evidence.response = payload(&text.into());
        evidence.external_ref = Some(text.to_owned());
        evidence.at = Timestamp(i.into());
        admit(store, &[left(&evidence)]).await;
        assert_eq!(store.record_evidence(&old.tenant, record.id).await.unwrap().pop(), Some(evidence));
    }
    assert_eq!(store.record_find(&old.tenant, &record.key).await.unwrap(), Some(record));
}

/// The earliest comes first, whoever learned it.
pub async fn comes_back_the_earliest_first(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    let at = |evidence: Evidence, at: i64| Evidence { at: Timestamp(at), ..evidence };
    let (a, b) = (at(new.evidence(&record, 2), 10), at(old.evidence(&record, 3), 20));
    let c = at(old.evidence(&record, 1), 30);
    admit(store, &[left(&c), left(&a), left(&b)]).await;
    assert_eq!(store.record_evidence(&old.tenant, record.id).await.unwrap(), [a, b, c]);
}

/// Of one attempt and worker the first evidence stands; leaving it again is no error.
pub async fn the_first_of_an_attempt_stands(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    let first = sample.evidence(&record, 1);
    let second = Evidence { external_ref: None, ..first.clone() };
    admit(store, &[left(&first)]).await;
    admit(store, &[left(&second), left(&first)]).await;
    assert_eq!(store.record_evidence(&sample.tenant, record.id).await.unwrap(), [first]);
}

/// Only its tenant sees it.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    admit(store, &[left(&sample.evidence(&record, 1))]).await;
    assert_eq!(store.record_evidence(&sample::tenant("globex"), record.id).await.unwrap(), []);
}
