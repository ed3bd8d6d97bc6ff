//! Memories: each write takes the next place on its shelf, and with it everything that it was decided by.

use std::slice::from_ref;

use super::sample::{HOSTILE, Sample, hash, name, tenant};
use super::{admit, one, refused};
use crate::clock::Timestamp;
use crate::store::{
    Change, Contradiction, Difference, Forgotten, Lane, Memory, MemoryWrite, Refusal, Store, Verdict,
};

fn change(sample: &Sample, write: &MemoryWrite) -> Change {
    Change { memory: Some(Box::new(write.clone())), ..sample.change() }
}

/// The same memory, said once more.
fn again(sample: &Sample, first: &Memory, place: i64, key: &str) -> MemoryWrite {
    let memory = Memory {
        confidence: first.confidence + 100_000,
        sources: first.sources + 1,
        updated_at: Timestamp(6_000 + place),
        ..first.clone()
    };
    let source = Some(sample.said(&memory, place, key));
    MemoryWrite { place, memory, form: None, source, contradicts: Vec::new() }
}

fn forget(first: &Memory, place: i64) -> MemoryWrite {
    let forgotten = Forgotten { by: "ann".into(), reason: "it was wrong".into(), at: Timestamp(7_000) };
    let memory = Memory {
        content: String::new(),
        updated_at: forgotten.at,
        forgotten: Some(forgotten),
        ..first.clone()
    };
    MemoryWrite { place, memory, form: None, source: None, contradicts: Vec::new() }
}

/// A memory comes back as it was written last, with all that was said.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let new = sample.memory("customer 7", 1, "likes tea");
    admit(store, &[change(&sample, &new)]).await;
    let tenant = &sample.tenant;
    assert_eq!(store.memory_find(tenant, new.memory.id).await.unwrap().as_ref(), Some(&new.memory));
    let merged = again(&sample, &new.memory, 2, "another");
    admit(store, &[change(&sample, &merged)]).await;
    assert_eq!(store.memory_find(tenant, new.memory.id).await.unwrap(), Some(merged.memory.clone()));
    assert_eq!(store.memory_keyed(tenant, "customer 7/1").await.unwrap(), new.source);
    assert_eq!(store.memory_keyed(tenant, "another").await.unwrap(), merged.source);
    assert_eq!(store.memory_keyed(tenant, "a third").await.unwrap(), None);
    let shelf = store.memory_shelf(tenant, "customer 7", "order", &new.memory.digest, 9).await.unwrap();
    assert_eq!(
        (shelf.place, shelf.same, shelf.newest),
        (2, Some(merged.memory.clone()), vec![merged.memory])
    );
    let other = store.memory_shelf(tenant, "customer 7", "order", &hash("other").digest, 0).await.unwrap();
    assert_eq!((other.place, other.same, other.newest), (2, None, vec![]));
    let empty = store.memory_shelf(tenant, "customer 7", "habit", &new.memory.digest, 9).await.unwrap();
    assert_eq!((empty.place, empty.same, empty.newest), (0, None, vec![]));
}

/// Whatever subject, content and source hold.
pub async fn hostile_text_is_text(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for (place, text) in (1..).zip(HOSTILE.iter().chain(&["a\0b\u{1}c", "\n\t"])) {
        let mut new = sample.memory("customer 7", place, text);
        let source = new.source.as_mut().unwrap();
        (source.key, source.source, source.content) =
            (format!("k{text}"), (*text).to_owned(), (*text).to_owned());
        admit(store, &[change(&sample, &new)]).await;
        let found = store.memory_find(&sample.tenant, new.memory.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&new.memory));
        let said = store.memory_keyed(&sample.tenant, &format!("k{text}")).await.unwrap();
        assert_eq!(said, new.source);
        assert_eq!(store.memory_said(&sample.tenant, new.memory.id, text).await.unwrap(), Some(600_000));
        let elsewhere = sample.memory(text, 1, text);
        admit(store, &[change(&sample, &elsewhere)]).await;
        let list = store.memory_list(&sample.tenant, text, "order", i64::MAX, 9).await.unwrap();
        assert_eq!(list, [elsewhere.memory]);
    }
}

/// Of two writes that were decided upon the same shelf one is admitted; the other finds its place taken.
pub async fn a_place_is_taken_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let [first, other] = ["tea", "coffee"].map(|what| sample.memory("customer 7", 1, what));
    assert_eq!(refused(store, change(&sample, &sample.memory("customer 7", 2, "x"))).await, TAKEN);
    admit(store, &[change(&sample, &first)]).await;
    assert_eq!(refused(store, change(&sample, &other)).await, TAKEN);
    let [merged, lost] = ["a", "b"].map(|key| again(&sample, &first.memory, 2, key));
    let verdicts = store.commit(&[change(&sample, &merged), change(&sample, &lost)]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Exists)]);
    assert_eq!(refused(store, change(&sample, &again(&sample, &first.memory, 4, "c"))).await, TAKEN);
    let found = store.memory_find(&sample.tenant, first.memory.id).await.unwrap();
    assert_eq!(found, Some(merged.memory));
    assert_eq!(store.memory_find(&sample.tenant, other.memory.id).await.unwrap(), None);
    assert_eq!(store.memory_keyed(&sample.tenant, "b").await.unwrap(), None);
    let elsewhere = sample.memory("customer 8", 1, "coffee");
    admit(store, &[change(&sample, &elsewhere)]).await;
    let fenced = Sample::of(crate::id::Fence(999));
    let verdict = one(store, change(&fenced, &sample.memory("customer 9", 1, "x"))).await;
    assert_eq!(verdict, Verdict::Refused(Refusal::Fenced));
}

const TAKEN: Option<Refusal> = Some(Refusal::Exists);

/// A key and a normal form stand for one memory, and nothing of a refused write is there.
pub async fn a_key_and_a_form_are_taken_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = sample.memory("customer 7", 1, "likes tea");
    admit(store, &[change(&sample, &first)]).await;
    let same_form = sample.memory("customer 7", 2, "likes tea");
    assert_eq!(refused(store, change(&sample, &same_form)).await, TAKEN);
    let mut same_key = sample.memory("customer 8", 1, "likes coffee");
    same_key.source.as_mut().unwrap().key = "customer 7/1".into();
    assert_eq!(refused(store, change(&sample, &same_key)).await, TAKEN);
    for write in [same_form, same_key] {
        assert_eq!(store.memory_find(&sample.tenant, write.memory.id).await.unwrap(), None);
    }
    admit(store, &[change(&sample, &sample.memory("customer 8", 1, "likes tea"))]).await;
    let known_as = MemoryWrite {
        form: Some(hash("is fond of tea").digest),
        ..again(&sample, &first.memory, 2, "by another name")
    };
    admit(store, &[change(&sample, &known_as)]).await;
    let form = hash("is fond of tea").digest;
    let shelf = store.memory_shelf(&sample.tenant, "customer 7", "order", &form, 0).await.unwrap();
    assert_eq!(shelf.same, Some(known_as.memory));
}

/// Its answer was lost: it is admitted, and counts once.
pub async fn the_same_write_again_is_admitted(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = sample.memory("customer 7", 1, "likes tea");
    let with_step =
        Change { steps: vec![sample.step(&sample.run("r"), "remember")], ..change(&sample, &first) };
    for _ in 0..2 {
        admit(store, from_ref(&with_step)).await;
    }
    let merged = again(&sample, &first.memory, 2, "another");
    for _ in 0..2 {
        admit(store, &[change(&sample, &merged)]).await;
    }
    admit(store, &[with_step]).await;
    let forgotten = forget(&merged.memory, 3);
    for _ in 0..2 {
        admit(store, &[change(&sample, &forgotten)]).await;
    }
    let shelf = store.memory_shelf(&sample.tenant, "customer 7", "order", &[0; 32], 9).await.unwrap();
    assert_eq!((shelf.place, shelf.newest), (3, vec![]));
}

/// Another was first: whoever asked looks again, and what is behind it goes on.
pub async fn a_refused_one_stops_no_lane(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    admit(store, &[change(&sample, &sample.memory("customer 7", 1, "likes tea"))]).await;
    let late = change(&sample, &sample.memory("customer 7", 1, "likes coffee"));
    let next = change(&sample, &sample.memory("customer 7", 2, "likes coffee"));
    let batch = [late, next].map(|change| change.in_lane(Some(Lane(1))));
    let verdicts = store.commit(&batch).await.unwrap();
    assert_eq!(verdicts, [Verdict::Refused(Refusal::Exists), Verdict::Admitted]);
}

/// Page by page, those of the shelf alone.
pub async fn the_newest_come_first(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let all: Vec<_> =
        (1..=5).map(|place| sample.memory("customer 7", place, &format!("fact {place}"))).collect();
    let changes: Vec<_> = all.iter().map(|write| change(&sample, write)).collect();
    admit(store, &changes).await;
    let mut habit = sample.memory("customer 7", 1, "a habit");
    habit.memory.kind = name("habit");
    habit.source.as_mut().unwrap().key = "habit".into();
    admit(store, &[change(&sample, &habit)]).await;
    let list = async |before, limit| {
        let list = store.memory_list(&sample.tenant, "customer 7", "order", before, limit).await.unwrap();
        list.iter().map(|memory| memory.place).collect::<Vec<_>>()
    };
    assert_eq!(list(i64::MAX, 2).await, [5, 4]);
    assert_eq!(list(4, 9).await, [3, 2, 1]);
    assert_eq!(list(1, 9).await, [0; 0]);
    let shelf = store.memory_shelf(&sample.tenant, "customer 7", "order", &[0; 32], 3).await.unwrap();
    assert_eq!(shelf.newest.iter().map(|memory| memory.place).collect::<Vec<_>>(), [5, 4, 3]);
}

/// Each with its own words, and how sure each source was at most.
pub async fn sources_are_listed_in_their_order(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = sample.memory("customer 7", 1, "likes tea");
    admit(store, &[change(&sample, &first)]).await;
    let mut expected = vec![first.source.clone().unwrap()];
    for (place, confidence) in [(2, 100_000), (3, 300_000), (4, 200_000)] {
        let mut write = again(&sample, &first.memory, place, &format!("k{place}"));
        let said = write.source.as_mut().unwrap();
        (said.source, said.confidence) = ("mail".to_owned(), confidence);
        said.content = format!("LIKES tea, {place}");
        expected.push(said.clone());
        admit(store, &[change(&sample, &write)]).await;
    }
    let id = first.memory.id;
    let tenant = &sample.tenant;
    assert_eq!(store.memory_sources(tenant, id, 0, 9).await.unwrap(), expected);
    assert_eq!(store.memory_sources(tenant, id, 1, 2).await.unwrap(), expected[1..3]);
    assert_eq!(store.memory_said(tenant, id, "mail").await.unwrap(), Some(300_000));
    assert_eq!(store.memory_said(tenant, id, "crm").await.unwrap(), Some(600_000));
    assert_eq!(store.memory_said(tenant, id, "nobody").await.unwrap(), None);
}

/// Both memories are marked.
pub async fn contradictions_go_both_ways(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let one = sample.memory("customer 7", 1, "likes tea");
    let mut other = sample.memory("customer 7", 2, "does not like tea");
    let mark = Contradiction { memory: other.memory.id, other: one.memory.id, differs: Difference::Negation };
    other.contradicts = vec![mark];
    admit(store, &[change(&sample, &one), change(&sample, &other)]).await;
    let turned = Contradiction { memory: mark.other, other: mark.memory, ..mark };
    let marks = store.memory_contradictions(&sample.tenant, &[one.memory.id, other.memory.id]).await;
    assert_eq!(marks.unwrap(), [turned, mark]);
    assert_eq!(store.memory_contradictions(&sample.tenant, &[one.memory.id]).await.unwrap(), [turned]);
    assert_eq!(store.memory_contradictions(&sample.tenant, &[]).await.unwrap(), []);
    admit(store, &[change(&sample, &forget(&one.memory, 3))]).await;
    let marks = store.memory_contradictions(&sample.tenant, &[one.memory.id, other.memory.id]).await;
    assert_eq!(marks.unwrap(), []);
}

/// Its words and those of its sources go; what it was bound to stays.
pub async fn what_is_forgotten_leaves_a_tombstone(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let new = sample.memory("customer 7", 1, "likes tea");
    let tomb = forget(&new.memory, 2);
    admit(store, &[change(&sample, &new), change(&sample, &tomb)]).await;
    let tenant = &sample.tenant;
    assert_eq!(store.memory_find(tenant, new.memory.id).await.unwrap(), Some(tomb.memory.clone()));
    assert_eq!(tomb.memory.digest, new.memory.digest);
    let said = store.memory_keyed(tenant, "customer 7/1").await.unwrap().unwrap();
    let first = new.source.unwrap();
    assert_eq!((said.source.as_str(), said.content.as_str()), ("", ""));
    assert_eq!((said.request, said.answer, said.memory), (first.request, first.answer, first.memory));
    let shelf = store.memory_shelf(tenant, "customer 7", "order", &new.memory.digest, 9).await.unwrap();
    assert_eq!((shelf.place, shelf.same, shelf.newest), (2, None, vec![]));
    let mut anew = sample.memory("customer 7", 3, "likes tea");
    anew.source.as_mut().unwrap().key = "anew".into();
    admit(store, &[change(&sample, &anew)]).await;
    let shelf = store.memory_shelf(tenant, "customer 7", "order", &new.memory.digest, 9).await.unwrap();
    assert_eq!(shelf.same, Some(anew.memory));
}

/// Nothing is added to it, and it is forgotten once.
pub async fn what_is_forgotten_is_over(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let new = sample.memory("customer 7", 1, "likes tea");
    admit(store, &[change(&sample, &new), change(&sample, &forget(&new.memory, 2))]).await;
    assert_eq!(refused(store, change(&sample, &again(&sample, &new.memory, 3, "late"))).await, TAKEN);
    let mut other = forget(&new.memory, 3);
    other.memory.forgotten.as_mut().unwrap().by = "bob".into();
    assert_eq!(refused(store, change(&sample, &other)).await, TAKEN);
    let found = store.memory_find(&sample.tenant, new.memory.id).await.unwrap().unwrap();
    assert_eq!(found.forgotten.unwrap().by, "ann");
    let shelf = store.memory_shelf(&sample.tenant, "customer 7", "order", &[0; 32], 9).await.unwrap();
    assert_eq!(shelf.place, 2);
}

/// Another tenant's subjects, keys and forms are other ones.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let acme = Sample::enrol(store, "ann").await;
    let globex = acme.for_tenant("globex");
    let (ours, theirs) = (acme.memory("s", 1, "likes tea"), globex.memory("s", 1, "likes tea"));
    admit(store, &[change(&acme, &ours), change(&globex, &theirs)]).await;
    let them = tenant("globex");
    assert_eq!(store.memory_find(&them, ours.memory.id).await.unwrap(), None);
    assert_eq!(store.memory_keyed(&them, "s/1").await.unwrap(), theirs.source);
    assert_eq!(store.memory_sources(&them, ours.memory.id, 0, 9).await.unwrap(), []);
    assert_eq!(store.memory_said(&them, ours.memory.id, "crm").await.unwrap(), None);
    assert_eq!(store.memory_list(&them, "s", "order", i64::MAX, 9).await.unwrap(), from_ref(&theirs.memory));
    let shelf = store.memory_shelf(&them, "s", "order", &ours.memory.digest, 9).await.unwrap();
    assert_eq!((shelf.same, shelf.newest), (Some(theirs.memory.clone()), vec![theirs.memory]));
}
