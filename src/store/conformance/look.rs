//! Scheduled looks at committed records.

use super::sample::{Sample, fence_others};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::ledger::{Look, Reason, Record, State};
use crate::store::{Refusal, Store};

async fn due(store: &dyn Store, until: i64, limit: u32) -> Vec<Look> {
    store.look_due(Timestamp(until), None, limit).await.unwrap()
}

/// Every field that is written comes back, also at its limits.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for (i, reason) in Reason::ALL.into_iter().enumerate() {
        let look = Look { reason, missed: i % 2 == 0, ..sample.look(&sample.record(&i.to_string()), 5) };
        admit(store, &[sample.change().look(look.clone())]).await;
        assert_eq!(store.look_find(&look.tenant, look.record).await.unwrap(), Some(look.clone()));
        let extreme = Look {
            due_at: Some(Timestamp::MAX),
            since: Timestamp::MIN,
            made: u32::MAX,
            tries: u32::MAX,
            missed: !look.missed,
            revision: 2,
            ..look
        };
        admit(store, &[sample.change().look(extreme.clone())]).await;
        assert_eq!(store.look_find(&extreme.tenant, extreme.record).await.unwrap(), Some(extreme.clone()));
        let other = sample.for_tenant("globex").tenant;
        assert_eq!(store.look_find(&other, extreme.record).await.unwrap(), None, "another tenant's");
    }
}

/// Looks that are due are listed, the earliest first, up to the limit; a deleted look is not.
pub async fn the_earliest_are_due_first(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let look = |at: i64, target: &str| sample.look(&sample.record(target), at);
    let [late, early, middle] = [look(30, "late"), look(10, "early"), look(20, "middle")];
    admit(store, &[&late, &early, &middle].map(|look| sample.change().look(look.clone()))).await;
    assert_eq!(due(store, 9, 10).await, []);
    assert_eq!(due(store, 20, 10).await, [early.clone(), middle.clone()]);
    assert_eq!(due(store, i64::MAX, 1).await, std::slice::from_ref(&early));
    let later = Look { revision: 2, due_at: Some(Timestamp(40)), ..middle };
    admit(store, &[sample.change().look(early.done()), sample.change().look(later.clone())]).await;
    assert_eq!(due(store, i64::MAX, 10).await, [late, later]);
}

/// A look that is not to come is deleted, by the same rule, and may begin again.
pub async fn one_that_is_not_to_come_goes(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let look = sample.look(&sample.record("a"), 5);
    let change = |look: &Look| sample.change().look(look.clone());
    admit(store, &[change(&look.done())]).await; // the look is not there in any case
    admit(store, &[change(&look)]).await;
    let second = Look { revision: 2, due_at: Some(Timestamp(7)), ..look.clone() };
    admit(store, &[change(&second)]).await;
    assert_eq!(refused(store, change(&look.done())).await, Some(Refusal::Stale));
    assert_eq!(due(store, i64::MAX, 10).await, std::slice::from_ref(&second));
    admit(store, &[change(&second.done()), change(&second.done())]).await;
    assert_eq!(due(store, i64::MAX, 10).await, []);
    admit(store, &[change(&look)]).await;
}

/// A look is written with the record that it belongs to, or not at all.
pub async fn it_comes_with_its_record(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    admit(store, &[sample.change().record(record.clone())]).await;
    let stale = Record { revision: 5, ..sample.committed(&record) };
    let look = sample.look(&record, 5);
    let change = sample.change().record(stale).look(look.clone());
    assert_eq!(refused(store, change).await, Some(Refusal::Stale));
    assert_eq!(due(store, i64::MAX, 10).await, []);
    let committed = sample.committed(&record);
    assert!(matches!(committed.state, State::Committed { .. }));
    admit(store, &[sample.change().record(committed).look(look.clone())]).await;
    assert_eq!(due(store, i64::MAX, 10).await, [look]);
}

/// A fenced worker deletes no look.
pub async fn a_fenced_worker_takes_none_off(store: &dyn Store) {
    let old = Sample::enrol(store, "old").await;
    let look = old.look(&old.record("a"), 5);
    admit(store, &[old.change().look(look.clone())]).await;
    let new = Sample::enrol(store, "new").await;
    admit(store, &[fence_others(new.fence)]).await;
    assert_eq!(refused(store, old.change().look(look.done())).await, Some(Refusal::Fenced));
    assert_eq!(due(store, i64::MAX, 10).await, [look]);
}

/// Committed records are listed by their keys, page by page, from a given instant on.
pub async fn committed_records_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (mut committed, mut changes) = (Vec::new(), Vec::new());
    for (at, target) in [(5, "c"), (7, "a"), (9, "b")] {
        let started = sample.record(target);
        let done = Record { updated_at: Timestamp(at), ..sample.committed(&started) };
        changes.extend([sample.change().record(started), sample.change().record(done.clone())]);
        committed.push(done);
    }
    changes.push(sample.change().record(sample.record("started")));
    let theirs = sample.for_tenant("globex");
    changes.push(theirs.change().record(theirs.record("theirs")));
    for change in changes {
        admit(store, &[change]).await;
    }
    let [c, a, b] = <[Record; 3]>::try_from(committed).unwrap();
    let listed = async |since: i64, after: &str, limit: u32| {
        store.record_committed(&sample.tenant, Timestamp(since), after, limit).await.unwrap()
    };
    assert_eq!(listed(i64::MIN, "", 10).await, [a.clone(), b.clone(), c.clone()]);
    assert_eq!(listed(i64::MIN, a.key.as_str(), 1).await, std::slice::from_ref(&b));
    assert_eq!(listed(7, "", 10).await, [a.clone(), b]);
    assert_eq!(listed(i64::MIN, c.key.as_str(), 10).await, []);

    let removed = async |key: &str, since: i64| {
        store.record_removed(&sample.tenant, key, Timestamp(since)).await.unwrap()
    };
    let key = a.key.as_str();
    assert!(removed(key, 7).await && !removed(key, 8).await);
    let (kind, _) = key.split_once(':').unwrap();
    assert!(removed(kind, i64::MIN).await, "it goes on behind it");
    assert!(!removed(&key[..key.len() - 1], i64::MIN).await || key.ends_with(":a"), "another target");
}

/// All questions about a record are listed, answered or not.
pub async fn questions_of_a_record_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let record = sample.record("a");
    let about = |text: &str| crate::store::Question { record: Some(record.id), ..sample.escalation(text) };
    let (first, second, other) = (about("one?"), about("two?"), sample.escalation("another?"));
    let answered = super::sample::answered(&first, "ann");
    for question in [&first, &second, &other, &answered] {
        admit(store, &[sample.change().escalation(question.clone())]).await;
    }
    let listed = store.escalation_of(&sample.tenant, record.id).await.unwrap();
    assert_eq!(listed, [answered, second]);
}
