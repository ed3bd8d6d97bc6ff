//! The turns of a run: the rows under each, their reads, and their deletion.

use super::sample::{Sample, fence_others};
use super::{admit, refused};
use crate::ledger::{Owner, Record};
use crate::store::{
    Change, History, HistoryPlace, Refusal, Run, RunState, SharedEffect, Step, Store, Turns, WaitsOn,
};

fn step(sample: &Sample, run: &Run, turn: u32) -> Step {
    Step { turn, ..sample.step(run, "1") }
}

fn call(sample: &Sample, run: &Run, turn: u32, target: &str) -> Record {
    let record = sample.call(run, "pay/1", target);
    Record { owner: Owner { turn, ..record.owner.clone() }, ..record }
}

/// The run, one revision on and in another turn.
fn in_turn(sample: &Sample, run: &Run, turn: u32) -> Run {
    Run { turn, ..sample.run_on(run, RunState::Active) }
}

async fn turns_of(store: &dyn Store, run: &Run, turns: Turns) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let History { steps, calls, uses, .. } = store.run_history(&run.tenant, run.id, turns).await.unwrap();
    let mut found = (
        steps.iter().map(|step| step.turn).collect::<Vec<_>>(),
        calls.iter().map(|call| call.turn).collect::<Vec<_>>(),
        uses.iter().map(|used| used.turn).collect::<Vec<_>>(),
    );
    for turns in [&mut found.0, &mut found.1, &mut found.2] {
        turns.sort_unstable();
    }
    found
}

/// The number of the present turn, and the number under which a run's history begins, come back with the run.
pub async fn a_run_is_in_one(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut run = sample.run("a");
    admit(store, &[sample.change().run(run.clone())]).await;
    for (base, turn) in [(0, 2), (0, 3), (4, 5), (4, u32::MAX)] {
        run = Run { base, ..in_turn(&sample, &run, turn) };
        admit(store, &[sample.change().run(run.clone())]).await;
        assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap(), Some(run.clone()));
        // The run is changed as one that is taken over.
        run = sample.run_on(&run, RunState::Waiting { until: None, on: WaitsOn::ANSWER });
        admit(store, &[sample.change().run(run.clone())]).await;
        assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap(), Some(run.clone()));
    }
    let late = Run { base: 7, turn: 8, ..sample.run("b") };
    admit(store, &[sample.change().run(late.clone())]).await;
    assert_eq!(store.run_find(&late.tenant, late.id).await.unwrap(), Some(late));
}

/// The same name and id in another turn is another checkpoint; in the same turn it is taken.
pub async fn tells_checkpoints_apart(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let steps = [0, 1, 2, u32::MAX].map(|turn| step(&sample, &run, turn));
    admit(store, &steps.each_ref().map(|step| sample.change().step(step.clone()))).await;
    assert_eq!(turns_of(store, &run, Turns::ALL).await.0, [0, 1, 2, u32::MAX]);
    let again = Step { value: None, ..step(&sample, &run, 2) };
    assert_eq!(refused(store, sample.change().step(again)).await, Some(Refusal::Exists));
    // The very same change again: an earlier answer was lost.
    admit(store, &[sample.change().step(step(&sample, &run, 2))]).await;
}

/// Only the requested turns are read: of steps, calls and uses.
pub async fn history_is_read_by_turns(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (sample.run("a"), sample.run("b"));
    let mut changes = Vec::new();
    for turn in 0..6 {
        let foreign = sample.record(&format!("foreign {turn}"));
        let used = SharedEffect { turn, ..sample.used(&foreign, &run) };
        changes.push(sample.change().record(foreign));
        changes.push(Change { used: Some(Box::new(used)), ..sample.change() });
        changes.push(sample.change().step(step(&sample, &run, turn)));
        changes.push(sample.change().record(call(&sample, &run, turn, &format!("own {turn}"))));
        changes.push(sample.change().step(step(&sample, &other, turn)));
    }
    admit(store, &changes).await;
    let every = async |turns, expected: &[u32]| {
        let (steps, calls, uses) = turns_of(store, &run, turns).await;
        assert_eq!((&steps[..], &calls[..], &uses[..]), (expected, expected, expected), "{turns:?}");
    };
    every(Turns::ALL, &[0, 1, 2, 3, 4, 5]).await;
    every(Turns::between(2, 3), &[2, 3]).await;
    every(Turns { base: 0, first: 4, last: 4 }, &[0, 4]).await;
    every(Turns { base: 3, first: 2, last: 4 }, &[2, 3, 4]).await;
    every(Turns { base: 7, first: 8, last: u32::MAX }, &[]).await;
}

/// A history is read page by page, each part in the order of the places.
pub async fn history_is_read_page_by_page(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (sample.run("a"), sample.run("b"));
    let mut changes = Vec::new();
    for turn in 0..3 {
        changes.push(sample.change().step(step(&sample, &other, turn)));
        for name in ["b", "a", "aa"] {
            let foreign = sample.record(&format!("foreign {turn} {name}"));
            let used = SharedEffect { turn, ..sample.used(&foreign, &run) };
            changes.push(sample.change().record(foreign));
            changes.push(Change { used: Some(Box::new(used)), ..sample.change() });
            changes.push(sample.change().step(Step { name: name.into(), ..step(&sample, &run, turn) }));
            changes.push(sample.change().record(call(&sample, &run, turn, &format!("own {turn} {name}"))));
        }
    }
    admit(store, &changes).await;
    let page = async |after: HistoryPlace, limit| {
        let page = store.run_history_page(&run.tenant, run.id, &after, limit).await.unwrap();
        assert_eq!(page.signals, []);
        (page.steps, page.calls, page.uses)
    };
    let (steps, calls, uses) = page(HistoryPlace::Start, 100).await;
    let names: Vec<_> = steps.iter().map(|step| (step.turn, step.name.as_str())).collect();
    let expected = (0..3).flat_map(|turn| ["a", "aa", "b"].map(|name| (turn, name)));
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert_eq!((calls.len(), uses.len()), (9, 9));
    assert!(calls.is_sorted_by_key(|call| (call.turn, call.key.as_str())));
    assert!(uses.is_sorted_by_key(|used| (used.turn, used.key.as_str())));
    let fifth = HistoryPlace::Step {
        turn: 1,
        kind: steps[4].kind.code(),
        name: steps[4].name.clone(),
        id: steps[4].id.clone(),
    };
    let of_call = HistoryPlace::Call { turn: 1, key: calls[4].key.as_str().to_owned() };
    let of_use = HistoryPlace::Use { turn: 1, key: uses[4].key.as_str().to_owned() };
    for (after, from) in [
        (HistoryPlace::Start, [0, 0, 0]),
        (fifth, [5, 3, 3]),
        (of_call, [6, 5, 3]),
        (of_use, [6, 6, 5]),
        (HistoryPlace::Turn(1), [6, 6, 6]),
    ] {
        let expected =
            (steps[from[0]..][..2].to_vec(), calls[from[1]..][..2].to_vec(), uses[from[2]..][..2].to_vec());
        assert_eq!(page(after, 2).await, expected, "{from:?}");
    }
    assert_eq!(page(HistoryPlace::Turn(2), 2).await, (vec![], vec![], vec![]));
}

/// A call keeps its turn when it is settled, and whole rows come back with it.
pub async fn a_record_keeps_its_turn(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let started = call(&sample, &run, 3, "a");
    admit(store, &[sample.change().record(started.clone())]).await;
    let committed = sample.committed(&started);
    admit(store, &[sample.change().record(committed.clone())]).await;
    assert_eq!(store.record_at(&run.tenant, started.id).await.unwrap(), Some(committed));
    let mut unusual = call(&sample, &run, 4, "b");
    unusual.owner.call_id = Some("call-1".into());
    admit(store, &[sample.change().record(unusual.clone())]).await;
    assert_eq!(store.record_at(&run.tenant, unusual.id).await.unwrap(), Some(unusual));
    let used = SharedEffect { turn: 5, ..sample.used(&started, &run) };
    admit(store, &[Change { used: Some(Box::new(used.clone())), ..sample.change() }]).await;
    assert_eq!(store.record_uses(&run.tenant, started.id).await.unwrap(), [used]);
}

/// The checkpoints of turns are deleted with a change of their run: only this run's, after its base, up to the given
/// turn.
pub async fn checkpoints_go_with_a_change_of_their_run(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (Run { base: 1, ..sample.run("a") }, sample.run("b"));
    let theirs = sample.for_tenant("globex");
    let foreign = Run { tenant: theirs.tenant.clone(), ..run.clone() };
    let mut changes = vec![sample.change().run(run.clone()), sample.change().run(other.clone())];
    for turn in 0..6 {
        changes.extend([&run, &other].map(|run| sample.change().step(step(&sample, run, turn))));
        changes.push(theirs.change().step(step(&theirs, &foreign, turn)));
        changes.push(sample.change().record(call(&sample, &run, turn, &format!("{turn}"))));
    }
    admit(store, &changes).await;
    let mut next = in_turn(&sample, &run, 6);
    let change = Change { prune: Some(3), ..sample.change().run(next.clone()).step(step(&sample, &run, 6)) };
    admit(store, &[change]).await;
    let (steps, calls, _) = turns_of(store, &run, Turns::ALL).await;
    assert_eq!((steps, calls), (vec![0, 1, 4, 5, 6], vec![0, 1, 2, 3, 4, 5]), "records stay");
    for run in [&other, &foreign] {
        assert_eq!(turns_of(store, run, Turns::ALL).await.0, [0, 1, 2, 3, 4, 5]);
    }
    // Checkpoints of the same batch are deleted as well.
    let mut changes = Vec::new();
    for turn in 7..10 {
        next = in_turn(&sample, &next, turn);
        let change = sample.change().run(next.clone()).step(step(&sample, &run, turn));
        changes.push(Change { prune: Some(turn - 1), ..change });
    }
    admit(store, &changes).await;
    assert_eq!(turns_of(store, &run, Turns::ALL).await.0, [0, 1, 9]);
}

/// A refused change deletes nothing.
pub async fn nothing_goes_with_a_refused_change(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    admit(store, &[sample.change().run(run.clone()), sample.change().step(step(&sample, &run, 1))]).await;
    let stale = Run { revision: 7, ..in_turn(&sample, &run, 2) };
    let change = Change { prune: Some(1), ..sample.change().run(stale) };
    assert_eq!(refused(store, change).await, Some(Refusal::Stale));
    let bob = Sample::enrol(store, "bob").await;
    admit(store, &[fence_others(bob.fence)]).await;
    let change = Change { prune: Some(1), ..sample.change().run(in_turn(&sample, &run, 2)) };
    assert_eq!(refused(store, change).await, Some(Refusal::Fenced));
    assert_eq!(turns_of(store, &run, Turns::ALL).await.0, [1]);
}

/// A call that a run dropped in a finished turn is an orphan, like one that an ended run dropped; the run resumes its
/// present turn itself.
pub async fn orphans_are_left_by_finished_turns(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let run = Run { base: 1, turn: 4, unsettled: true, ..old.run("a") };
    let settled = Run { base: 1, turn: 4, ..old.run("b") };
    let calls: Vec<_> = (0..5).map(|turn| call(&old, &run, turn, &format!("{turn}"))).collect();
    let mut changes = vec![old.change().run(run), old.change().run(settled.clone())];
    changes.extend(calls.iter().map(|call| old.change().record(call.clone())));
    changes.push(old.change().record(call(&old, &settled, 2, "of another")));
    admit(store, &changes).await;
    admit(store, &[fence_others(new.fence)]).await;
    let orphans = store.record_orphans(crate::id::RecordId(0), 10).await.unwrap();
    assert_eq!(orphans, [0, 2, 3].map(|turn: usize| calls[turn].clone()));
}
