//! Queues: the order in which runs begin, and the counts.

use std::slice::from_ref;
use std::time::Duration;

use serde_json::json;

use super::sample::{Sample, fence_others, inline, name};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::id::RunId;
use crate::store::{Admission, COMMAND, Change, InQueue, Queue, Refusal, Run, RunState, Store, WaitsOn};

fn queued(sample: &Sample, key: Option<&str>, at: i64) -> Run {
    let queue = InQueue { name: name("mail"), key: key.map(str::to_owned), priority: 0, admitted_at: None };
    let (state, queue) = (RunState::Queued, Some(Box::new(queue)));
    Run { state, queue, created_at: Timestamp(at), ..sample.run_without_key() }
}

fn asks(sample: &Sample, queue: Queue, at: i64) -> Change {
    let admission = Admission { queue, at: Timestamp(at), most: 64, known: None };
    Change { admission: Some(Box::new(admission)), ..sample.change() }
}

/// The runs that were admitted to the worker at this instant or later.
async fn begun(store: &dyn Store, sample: &Sample, since: i64) -> Vec<RunId> {
    let runs = store.queue_admitted("mail", sample.fence, Timestamp(since)).await.unwrap();
    assert!(runs.iter().all(|run| run.state == RunState::Active && run.fence == sample.fence), "{runs:?}");
    runs.iter().map(|run| run.id).collect()
}

async fn put(store: &dyn Store, sample: &Sample, runs: &[Run]) {
    let changes: Vec<_> = runs.iter().map(|run| sample.change().run(run.clone())).collect();
    admit(store, &changes).await;
}

/// A queued run comes back as it was written, in its present place, and is not listed as an orphan.
pub async fn comes_back_as_it_was_written(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut run = queued(&sample, Some("'; DROP TABLE run; --"), 7);
    run.queue.as_mut().unwrap().priority = -3;
    run.turn = 4;
    put(store, &sample, from_ref(&run)).await;
    assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap(), Some(run.clone()));
    let next = Sample::enrol(store, "bob").await;
    admit(store, &[fence_others(next.fence)]).await;
    assert_eq!(store.run_orphans(RunId(i64::MIN), 9).await.unwrap(), []);
    admit(store, &[asks(&next, Queue::new("mail"), 50)]).await;
    run.queue.as_mut().unwrap().admitted_at = Some(Timestamp(50));
    (run.state, run.fence, run.revision, run.updated_at) = (RunState::Active, next.fence, 2, Timestamp(50));
    assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap(), Some(run.clone()));
    let waiting = next.run_on(&run, RunState::Waiting { until: None, on: WaitsOn::SIGNAL });
    let mut free = next.run_on(&waiting, RunState::Queued);
    free.queue.as_mut().unwrap().admitted_at = None;
    for state in [waiting, free] {
        put(store, &next, from_ref(&state)).await;
        assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap(), Some(state));
    }
}

/// No more runs than the limits allow have a place at once, however many workers ask, and how often. Places become
/// free with the runs.
pub async fn limits_hold(store: &dyn Store) {
    let (ann, bob) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    let runs: Vec<_> = (0..6).map(|at| queued(&ann, Some(if at % 2 == 0 { "x" } else { "y" }), at)).collect();
    put(store, &ann, &runs).await;
    let queue = || Queue::new("mail").concurrency(3).per_key(2);
    admit(store, &[asks(&ann, queue(), 100)]).await;
    assert_eq!(begun(store, &ann, 0).await, [runs[0].id, runs[1].id, runs[2].id]);
    admit(store, &[asks(&bob, queue(), 101)]).await;
    assert_eq!(begun(store, &bob, 0).await, [], "three have their places");
    let load = store.queue_load().await.unwrap();
    assert_eq!((load.len(), load[0].queued, load[0].running), (1, 3, 3));
    assert_eq!(store.queue_waiting().await.unwrap(), ["mail"]);

    // A run that waits keeps its place; a run that has ended or released its place does not.
    let first = store.run_find(&ann.tenant, runs[0].id).await.unwrap().unwrap();
    let waiting = ann.run_on(&first, RunState::Waiting { until: None, on: WaitsOn::SIGNAL });
    put(store, &ann, from_ref(&waiting)).await;
    admit(store, &[asks(&bob, queue(), 102)]).await;
    assert_eq!(begun(store, &bob, 0).await, []);
    let mut freed = ann.run_on(&waiting, RunState::Waiting { until: None, on: WaitsOn::SIGNAL });
    freed.queue.as_mut().unwrap().admitted_at = None;
    let second = store.run_find(&ann.tenant, runs[1].id).await.unwrap().unwrap();
    let ended = ann.run_on(&second, RunState::Succeeded { output: inline(json!(1)) });
    put(store, &ann, &[freed, ended]).await;
    admit(store, &[asks(&bob, queue(), 103)]).await;
    assert_eq!(begun(store, &bob, 0).await, [runs[3].id, runs[4].id]);
    assert_eq!(begun(store, &bob, 104).await, []);
    assert_eq!(begun(store, &ann, 0).await, [runs[2].id], "each has its own");
}

/// Runs whose key is full hide no other runs, however many there are.
pub async fn a_full_key_is_passed_over(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let runs: Vec<_> = (0..20).map(|at| queued(&sample, Some("x"), at)).collect();
    let other = queued(&sample, Some("y"), 20);
    put(store, &sample, &runs).await;
    put(store, &sample, from_ref(&other)).await;
    let queue = || Queue::new("mail").concurrency(2).per_key(1);
    // A store may find the second one at once, or when it is asked again.
    for at in [100, 101] {
        admit(store, &[asks(&sample, queue(), at)]).await;
        assert_eq!(begun(store, &sample, 100).await[0], runs[0].id);
    }
    assert_eq!(begun(store, &sample, 100).await, [runs[0].id, other.id]);
}

/// Tenants take turns; the highest priority of a tenant comes first, then the oldest run.
pub async fn tenants_take_turns(store: &dyn Store) {
    let (acme, globex) = {
        let sample = Sample::enrol(store, "ann").await;
        (sample.clone(), sample.for_tenant("globex"))
    };
    let many: Vec<_> = (0..90).map(|at| queued(&acme, None, at)).collect();
    let mut urgent = queued(&acme, None, 500);
    urgent.queue.as_mut().unwrap().priority = 1;
    let one = queued(&globex, None, 1000);
    put(store, &acme, &many).await;
    put(store, &acme, &[urgent.clone()]).await;
    put(store, &globex, from_ref(&one)).await;
    for (at, next) in [(2000, urgent.id), (2001, one.id), (2002, many[0].id), (2003, many[1].id)] {
        admit(store, &[asks(&acme, Queue::new("mail").concurrency(1), at)]).await;
        assert_eq!(begun(store, &acme, at).await, [next]);
        for tenant in [&acme.tenant, &globex.tenant] {
            if let Some(run) = store.run_find(tenant, next).await.unwrap() {
                let output = inline(json!(1));
                put(store, &acme, &[acme.run_on(&run, RunState::Succeeded { output })]).await;
            }
        }
    }
    admit(store, &[asks(&acme, Queue::new("mail"), 3000)]).await;
    assert_eq!(begun(store, &acme, 3000).await.len(), 64, "no more than were asked for");
}

/// A queue that waits for a token is due when the token is there, and is found.
pub async fn a_token_is_due(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let runs: Vec<_> = (0..3).map(|at| queued(&sample, None, at)).collect();
    put(store, &sample, &runs).await;
    let queue = || Queue::new("mail").rate(1, Duration::from_micros(100));
    let due = async || store.next_due(Timestamp::MIN).await.unwrap();
    assert_eq!(due().await, None);
    for (at, count, next) in
        [(1000, 1, Some(1100)), (1099, 0, Some(1100)), (1100, 1, Some(1200)), (1500, 1, None)]
    {
        admit(store, &[asks(&sample, queue(), at)]).await;
        assert_eq!(
            (begun(store, &sample, at).await.len(), due().await),
            (count, next.map(Timestamp)),
            "{at}"
        );
    }
    assert_eq!(store.queue_waiting().await.unwrap(), Vec::<String>::new());
}

/// Only runs of workflows that the worker knows begin.
pub async fn others_are_left(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (known, newer) = (queued(&sample, None, 2), Run { version: 2, ..queued(&sample, None, 1) });
    let other = Run { workflow: name("refund"), ..queued(&sample, None, 0) };
    put(store, &sample, &[known.clone(), newer, other]).await;
    let mut change = asks(&sample, Queue::new("mail"), 9);
    change.admission.as_mut().unwrap().known = Some(vec![(known.workflow.clone(), 1), (name("refund"), 7)]);
    admit(store, &[change]).await;
    assert_eq!(begun(store, &sample, 0).await, [known.id]);
}

/// A fenced worker admits nothing.
pub async fn a_fenced_worker_admits_nothing(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "ann").await, Sample::enrol(store, "bob").await);
    put(store, &old, &[queued(&old, None, 1)]).await;
    admit(store, &[fence_others(new.fence)]).await;
    let late = asks(&old, Queue::new("mail"), 5);
    assert_eq!(refused(store, late).await, Some(Refusal::Fenced));
    assert_eq!(begun(store, &old, 0).await, []);
    assert_eq!(store.queue_load().await.unwrap()[0].queued, 1);
}

/// A command wakes a queued run; another signal does not.
pub async fn a_command_comes_before_its_turn(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (one, two) = (queued(&sample, None, 1), queued(&sample, None, 2));
    put(store, &sample, &[one.clone(), two.clone()]).await;
    let say = |run: &Run, name: &str| Change {
        signal: Some(Box::new(sample.signal(run, name, "1"))),
        ..sample.change()
    };
    let command = format!("{COMMAND}cancel");
    admit(store, &[say(&one, "word"), say(&two, &command)]).await;
    assert_eq!(store.run_signalled(RunId(i64::MIN), 9).await.unwrap(), [two]);
}
