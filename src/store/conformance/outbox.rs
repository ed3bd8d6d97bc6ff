//! The outbox: events are placed in the order in which they are admitted, and published from the first one on.

use serde_json::json;

use super::sample::{HOSTILE, Sample, fence_others, inline};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::store::{Aggregate, Change, Due, OutboxEvent, Published, Refusal, Store, WorkerChange};

fn event(sample: &Sample, aggregate: &str, id: &str, at: i64) -> OutboxEvent {
    OutboxEvent {
        tenant: sample.tenant.clone(),
        id: id.into(),
        aggregate: aggregate.into(),
        seq: 77, // this value is ignored
        kind: "paid".into(),
        payload: inline(json!({ "of": id })),
        created_at: Timestamp(at),
    }
}

fn add(sample: &Sample, events: &[OutboxEvent]) -> Change {
    Change { events: events.to_vec(), ..sample.change() }
}

fn mark(sample: &Sample, mark: &Aggregate) -> Change {
    Change { aggregates: vec![mark.clone()], ..sample.change() }
}

async fn aggregate(store: &dyn Store, sample: &Sample, name: &str) -> Aggregate {
    store.outbox_aggregate(&sample.tenant, name).await.unwrap().expect("it is there")
}

fn places(due: &[Due]) -> Vec<(String, i64)> {
    let events = due.iter().flat_map(|due| &due.events);
    events.map(|event| (event.id.clone(), event.seq)).collect()
}

async fn due(store: &dyn Store, until: i64, limit: u32) -> Vec<(String, i64)> {
    places(&store.outbox_due(Timestamp(until), limit).await.unwrap())
}

fn placed(ids: &[(&str, i64)]) -> Vec<(String, i64)> {
    ids.iter().map(|(id, seq)| ((*id).to_owned(), *seq)).collect()
}

/// An event comes back as it was written, in its place.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for (i, text) in HOSTILE.iter().enumerate() {
        let written = OutboxEvent {
            kind: (*text).into(),
            payload: inline(json!({ *text: text })),
            ..event(&sample, text, text, 10)
        };
        admit(store, &[add(&sample, std::slice::from_ref(&written))]).await;
        let found = store.outbox_find(&sample.tenant, text).await.unwrap();
        assert_eq!(found, Some(OutboxEvent { seq: 1, ..written }), "{i}");
        assert_eq!(aggregate(store, &sample, text).await.last, 1);
    }
    let theirs = sample.for_tenant("globex");
    assert_eq!(store.outbox_find(&theirs.tenant, HOSTILE[0]).await.unwrap(), None);
    assert_eq!(store.outbox_aggregate(&theirs.tenant, HOSTILE[0]).await.unwrap(), None);
}

/// Events are placed one after the other, within a change, a batch and from batch to batch; each aggregate by itself.
pub async fn are_placed_in_their_order(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let a = |id: &str| event(&sample, "a", id, 100);
    let batch = [
        add(&sample, &[a("a1"), event(&sample, "b", "b1", 100), a("a2")]),
        add(&other, &[event(&other, "a", "a1", 100)]),
        add(&sample, &[a("a3")]),
    ];
    admit(store, &batch).await;
    admit(store, &[add(&sample, &[a("a4")])]).await;
    let expected = placed(&[("a1", 1), ("a2", 2), ("a3", 3), ("a4", 4), ("b1", 1), ("a1", 1)]);
    assert_eq!(due(store, 100, 99).await, expected);
    assert_eq!(due(store, 100, 2).await, expected[..2]);
    assert_eq!(due(store, 99, 99).await, []);
    assert_eq!(store.outbox_next(Timestamp(99)).await.unwrap(), Some(Timestamp(100)));
    assert_eq!(store.outbox_next(Timestamp(100)).await.unwrap(), None);
    assert!(store.pulse().await.unwrap().unpublished);
}

/// An id is taken once, and a refused event leaves no gap.
pub async fn an_id_is_taken_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = add(&sample, &[event(&sample, "a", "1", 1)]);
    admit(store, std::slice::from_ref(&first)).await;
    admit(store, &[first]).await; // the same again: its answer was lost
    let late = OutboxEvent { kind: "sent".into(), ..event(&sample, "a", "1", 1) };
    assert_eq!(refused(store, add(&sample, &[late])).await, Some(Refusal::Exists));
    let both = [event(&sample, "b", "2", 1), event(&sample, "b", "1", 1)];
    assert_eq!(refused(store, add(&sample, &both)).await, Some(Refusal::Exists));
    assert_eq!(store.outbox_aggregate(&sample.tenant, "b").await.unwrap(), None);
    admit(store, &[add(&sample, &[event(&sample, "a", "2", 1)])]).await;
    assert_eq!(due(store, 9, 9).await, placed(&[("1", 1), ("2", 2)]));
}

/// An event and the checkpoint that it comes with are both there, or neither.
pub async fn comes_with_its_checkpoint(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("r");
    let step = sample.step(&run, "told");
    admit(store, &[sample.change().run(run)]).await;
    let emit = Change { events: vec![event(&sample, "a", "1", 1)], ..sample.change().step(step) };
    admit(store, std::slice::from_ref(&emit)).await;
    let again = Change { events: vec![event(&sample, "a", "2", 1)], ..emit };
    assert_eq!(refused(store, again).await, Some(Refusal::Exists));
    assert_eq!(due(store, 9, 9).await, placed(&[("1", 1)]));
}

/// A published event is not due any more; each mark follows the one before, and adding events changes none.
pub async fn marks_follow_one_another(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let events = ["1", "2", "3"].map(|id| event(&sample, "a", id, 5));
    admit(store, &[add(&sample, &events)]).await;
    let fresh = aggregate(store, &sample, "a").await;
    assert_eq!((fresh.published, fresh.last, fresh.revision, fresh.due_at), (0, 3, 1, Timestamp(5)));
    let two = Aggregate { published: 2, revision: 2, due_at: Timestamp(50), ..fresh.clone() };
    admit(store, &[mark(&sample, &two), add(&sample, &[event(&sample, "a", "4", 60)])]).await;
    assert_eq!(
        aggregate(store, &sample, "a").await,
        Aggregate { last: 4, ..two.clone() },
        "it keeps its turn"
    );
    admit(store, &[mark(&sample, &two)]).await; // the same again
    assert_eq!(due(store, 50, 9).await, placed(&[("3", 3), ("4", 4)]));
    let late = Aggregate { published: 3, ..two.clone() };
    assert_eq!(refused(store, mark(&sample, &late)).await, Some(Refusal::Stale));
    let nowhere = Aggregate { name: "b".into(), ..late };
    assert_eq!(refused(store, mark(&sample, &nowhere)).await, Some(Refusal::Stale));
    let all = Aggregate { published: 4, last: 4, revision: 3, ..two };
    admit(store, &[mark(&sample, &all)]).await;
    assert_eq!(due(store, i64::MAX, 9).await, []);
    assert!(!store.pulse().await.unwrap().unpublished);
    admit(store, &[add(&sample, &[event(&sample, "a", "5", 70)])]).await;
    assert_eq!(due(store, 69, 9).await, [], "it is due from when it was written");
    assert_eq!(due(store, 70, 9).await, placed(&[("5", 5)]));
}

/// The aggregate that is due for longest comes first; one that is set aside is left out, and is found by its
/// question.
pub async fn the_longest_due_come_first(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let events = [("a", 30), ("b", 20), ("c", 10)].map(|(id, at)| event(&sample, id, id, at));
    admit(store, &[add(&sample, &events)]).await;
    assert_eq!(due(store, 99, 9).await, placed(&[("c", 1), ("b", 1), ("a", 1)]));
    assert_eq!(due(store, 20, 1).await, placed(&[("c", 1)]));
    let question = QuestionId(9);
    let c = aggregate(store, &sample, "c").await;
    let aside = Aggregate { escalation: Some(question), tries: 4, refusals: 3, revision: 2, ..c };
    admit(store, &[mark(&sample, &aside)]).await;
    assert_eq!(due(store, 99, 9).await, placed(&[("b", 1), ("a", 1)]));
    let find = async |tenant: &Sample| store.outbox_set_aside(&tenant.tenant, question).await.unwrap();
    assert_eq!(find(&sample).await, Some(aside.clone()));
    assert_eq!(find(&sample.for_tenant("globex")).await, None);
    let list = async |of: &Sample, after| {
        store.outbox_all_set_aside(&of.tenant, QuestionId(after), 9).await.unwrap()
    };
    assert_eq!(list(&sample, 8).await, std::slice::from_ref(&aside));
    assert_eq!(list(&sample, 9).await, []);
    assert_eq!(list(&sample.for_tenant("globex"), 8).await, []);
    let held = store.outbox_at(&sample.tenant, "c", 1).await.unwrap();
    assert_eq!(held.map(|event| event.id), Some("c".to_owned()));
    assert_eq!(store.outbox_at(&sample.tenant, "c", 2).await.unwrap(), None);
    let later = Aggregate { escalation: None, due_at: Timestamp(25), revision: 3, ..aside };
    admit(store, &[mark(&sample, &later)]).await;
    assert_eq!(due(store, 99, 9).await, placed(&[("b", 1), ("c", 1), ("a", 1)]));
    assert_eq!(find(&sample).await, None);
    assert_eq!(store.outbox_next(Timestamp(20)).await.unwrap(), Some(Timestamp(25)));
}

/// Published events are listed and can be forgotten, and no others can.
pub async fn only_published_ones_are_forgotten(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let events = [("1", 10), ("2", 20), ("3", 30)].map(|(id, at)| event(&sample, "a", id, at));
    admit(store, &[add(&sample, &events), add(&sample, &[event(&sample, "b", "b", 5)])]).await;
    let fresh = aggregate(store, &sample, "a").await;
    admit(store, &[mark(&sample, &Aggregate { published: 2, revision: 2, ..fresh })]).await;
    let published = |seq, at| Published {
        tenant: sample.tenant.clone(),
        aggregate: "a".into(),
        seq,
        created_at: Timestamp(at),
    };
    let list = async |after: i64, limit: u32| store.outbox_published(Timestamp(after), limit).await.unwrap();
    assert_eq!(list(0, 9).await, [published(1, 10), published(2, 20)]);
    assert_eq!(list(0, 1).await, [published(1, 10)]);
    assert_eq!(list(11, 9).await, [published(2, 20)]);
    admit(store, &[Change { forgotten: vec![published(3, 30)], ..sample.change() }]).await;
    assert_eq!(list(0, 9).await, []);
    assert_eq!(due(store, 99, 9).await, placed(&[("b", 1), ("3", 3)]));
    admit(store, &[add(&sample, &[event(&sample, "a", "4", 40)])]).await;
    assert_eq!(aggregate(store, &sample, "a").await.last, 4, "places are never given twice");
}

/// A fenced worker adds, marks and forgets nothing.
pub async fn a_fenced_worker_publishes_nothing(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    admit(store, &[add(&sample, &[event(&sample, "a", "1", 1)])]).await;
    let fresh = aggregate(store, &sample, "a").await;
    let next = Sample::enrol(store, "bob").await;
    admit(store, &[fence_others(next.fence)]).await;
    let all = Aggregate { published: 1, revision: 2, ..fresh.clone() };
    assert_eq!(refused(store, mark(&sample, &all)).await, Some(Refusal::Fenced));
    let late = event(&sample, "a", "2", 1);
    assert_eq!(refused(store, add(&sample, &[late])).await, Some(Refusal::Fenced));
    assert_eq!(aggregate(store, &sample, "a").await, fresh);
}

/// One worker publishes at a time: until it has ended.
pub async fn one_worker_publishes(store: &dyn Store) {
    let (ann, bob) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    let publish = |sample: &Sample| Change { worker: Some(WorkerChange::Publish), ..sample.change() };
    admit(store, &[publish(&ann)]).await;
    admit(store, &[publish(&ann)]).await;
    assert_eq!(refused(store, publish(&bob)).await, Some(Refusal::Exists));
    let publishes = async |sample: &Sample| store.worker_at(sample.fence).await.unwrap().unwrap().publishes;
    assert!(publishes(&ann).await && !publishes(&bob).await);
    admit(store, &[Change { worker: Some(WorkerChange::Retire { at: Timestamp(9) }), ..ann.change() }]).await;
    admit(store, &[publish(&bob)]).await;
    assert!(publishes(&bob).await);
    assert_eq!(refused(store, publish(&ann)).await, Some(Refusal::Fenced));
}
