//! Links of chains of evidence.

use super::sample::{self, Sample};
use super::{admit, one};
use crate::store::chain::Link;
use crate::store::{Change, Store, Verdict};

fn with(change: Change, link: &Link) -> Change {
    Change { link: Some(Box::new(link.clone())), ..change }
}

async fn all(store: &dyn Store, chain: i64) -> Vec<Link> {
    store.link_list(chain, 0, u32::MAX).await.unwrap()
}

/// Links come back in the order of their numbers, chain by chain, from a number on.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "a").await;
    let links = [(9, 2), (9, 1), (7, 1), (9, 3)].map(|(chain, number)| sample.link(chain, number));
    for (key, link) in ["a", "b", "c", "d"].into_iter().zip(&links) {
        admit(store, &[with(sample.change().record(sample.record(key)), link)]).await;
    }
    let [second, first, other, third] = links;
    assert_eq!(all(store, 9).await, [first.clone(), second.clone(), third]);
    assert_eq!(store.link_list(9, 1, 1).await.unwrap(), [second]);
    assert_eq!(all(store, 7).await, [other]);
    let mut chains = Vec::new();
    while let Some(next) = store.link_chain(chains.last().copied().unwrap_or(0)).await.unwrap() {
        chains.push(next);
    }
    assert_eq!(chains, [7, 9]);
}

/// A link shares the fate of its change.
pub async fn is_refused_with_its_change(store: &dyn Store) {
    let sample = Sample::enrol(store, "a").await;
    let record = sample.record("a");
    admit(store, &[with(sample.change().record(record.clone()), &sample.link(1, 1))]).await;
    let taken = sample.record("a");
    let refused = one(store, with(sample.change().record(taken), &sample.link(1, 2))).await;
    assert!(matches!(refused, Verdict::Refused(_)));
    assert_eq!(all(store, 1).await, [sample.link(1, 1)]);
    // The answer to the first change was lost, and the change is written again.
    admit(store, &[with(sample.change().record(record), &sample.link(1, 1))]).await;
    assert_eq!(all(store, 1).await, [sample.link(1, 1)]);
}

/// The late answer of a fenced worker has its link, too.
pub async fn is_left_by_fenced_workers_too(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let record = old.record("a");
    admit(store, &[old.change().record(record.clone()), sample::fence_others(new.fence)]).await;
    let evidence = Some(Box::new(old.evidence(&record, 1)));
    admit(store, &[with(Change { evidence, ..Change::default() }, &old.link(1, 1))]).await;
    assert_eq!(all(store, 1).await, [old.link(1, 1)]);
}

/// Links outlive the rows of their tenant.
pub async fn outlives_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "a").await;
    let run = sample.run("1");
    let ended = crate::store::Run {
        state: crate::store::RunState::Succeeded { output: sample::inline("1".into()) },
        ..run
    };
    admit(store, &[with(sample.change().run(ended), &sample.link(1, 1))]).await;
    let erased = Change { erased: Some(sample.tenant.clone()), ..sample.change() };
    admit(store, &[with(erased, &sample.link(1, 2))]).await;
    assert_eq!(all(store, 1).await, [sample.link(1, 1), sample.link(1, 2)]);
}
