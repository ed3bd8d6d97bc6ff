//! Runs whose retention is over, and the rest that is left of them.

use super::sample::{self, Sample};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::payload::{DigestKey, Payload, Stored};
use crate::store::{Change, Refusal, RetiredRun, Run, RunState, Store, Turns};

const DIGEST_KEY: [u8; 32] = [7; 32];

fn succeeded() -> RunState {
    RunState::Succeeded { output: sample::inline(serde_json::json!({ "paid": "DE02" })) }
}

/// A run that ended at this instant.
async fn ended(store: &dyn Store, sample: &Sample, run: Run, at: i64) -> Run {
    let ended = Run { updated_at: Timestamp(at), ..sample.run_on(&run, succeeded()) };
    admit(store, &[sample.change().run(run), sample.change().run(ended.clone())]).await;
    ended
}

async fn retire(store: &dyn Store, sample: &Sample, run: &Run, is_left: bool) {
    let retired = RetiredRun::of(run, is_left, &DigestKey::new(DIGEST_KEY)).expect("it has ended");
    admit(store, &[Change { retired_runs: vec![retired], beside: true, ..sample.change() }]).await;
}

async fn over(store: &dyn Store, run: &Run) -> Vec<Run> {
    store.run_over(run.workflow.as_str(), Timestamp::MIN, Timestamp(100), 10).await.unwrap()
}

async fn found(store: &dyn Store, run: &Run) -> Option<Run> {
    store.run_find(&run.tenant, run.id).await.unwrap()
}

/// The runs of a workflow are listed in the order of their ends, and a run that has not ended is left out.
pub async fn ended_ones_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let late = ended(store, &sample, sample.run("late"), 30).await;
    let early = ended(store, &sample, sample.run("early"), 10).await;
    let workflow = sample::name("another");
    let other = ended(store, &sample, Run { workflow, ..sample.run("other") }, 5).await;
    admit(store, &[sample.change().run(Run { updated_at: Timestamp(7), ..sample.run("under way") })]).await;
    let listed = async |after: i64, until: i64, limit: u32| {
        store.run_over(late.workflow.as_str(), Timestamp(after), Timestamp(until), limit).await.unwrap()
    };
    assert_eq!(listed(i64::MIN, 9, 10).await, []);
    assert_eq!(listed(i64::MIN, 30, 10).await, [early.clone(), late.clone()]);
    assert_eq!(listed(i64::MIN, 30, 1).await, [early]);
    assert_eq!(listed(11, i64::MAX, 10).await, std::slice::from_ref(&late));
    assert_eq!(over(store, &other).await, std::slice::from_ref(&other));
    let next = async |after| store.run_over_next(late.workflow.as_str(), Timestamp(after)).await.unwrap();
    assert_eq!(next(i64::MIN).await, Some(Timestamp(10)));
    assert_eq!(next(10).await, Some(Timestamp(30)));
    assert_eq!(next(30).await, None);
}

/// A run stays if it is under way, asked about or unsettled, if it owns a call that is, or if its parent is not
/// expired.
pub async fn what_is_needed_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let parent = ended(store, &sample, sample.run("parent"), 10).await;
    let child = Run { parent: Some(parent.id), ..sample.run("child") };
    let child = ended(store, &sample, child, 10).await;
    let unsettled = Run { unsettled: true, ..sample.run("unsettled") };
    let unsettled = ended(store, &sample, unsettled, 10).await;
    let asked = ended(store, &sample, sample.run("asked"), 10).await;
    let question = crate::store::Question { run: Some(asked.id), ..sample.escalation("again?") };
    let calls = sample.run("calls");
    let call = sample.call(&calls, "pay/1", "c1");
    admit(store, &[sample.change().escalation(question.clone()), sample.change().record(call.clone())]).await;
    let calls = ended(store, &sample, calls, 10).await;

    assert_eq!(over(store, &parent).await, std::slice::from_ref(&parent));
    for run in [&child, &unsettled, &asked, &calls] {
        for is_left in [true, false] {
            retire(store, &sample, run, is_left).await;
            assert_eq!(found(store, run).await.as_ref(), Some(run), "it is needed");
        }
    }

    // Once nobody needs them any more, they may go.
    retire(store, &sample, &parent, true).await;
    let settled = Run { unsettled: false, revision: unsettled.revision + 1, ..unsettled };
    let answered = sample.change().escalation(sample::answered(&question, "ann"));
    let committed = sample.change().record(sample.committed(&call));
    admit(store, &[answered, committed, sample.change().run(settled.clone())]).await;
    assert_eq!(over(store, &parent).await, [child, settled, asked, calls]);
}

/// The start key is taken, and nothing can be read of the run's input, history and result.
pub async fn a_tombstone_keeps_its_start_key(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let record = sample.record("shared");
    let question = crate::store::Question { run: Some(run.id), ..sample.escalation("again?") };
    let used = Change { used: Some(Box::new(sample.used(&record, &run))), ..sample.change() };
    let told = Change { signal: Some(Box::new(sample.signal(&run, "paid", "1"))), ..sample.change() };
    let labels = vec![sample.label(&run, "customer", "c-7")];
    admit(store, &[Change { labels, ..sample.change().run(run.clone()).step(sample.step(&run, "1")) }]).await;
    let changes =
        [sample.change().record(record.clone()), used, told, sample.change().escalation(question.clone())];
    admit(store, &changes).await;
    admit(store, &[sample.change().escalation(sample::answered(&question, "ann"))]).await;
    let last = Run { updated_at: Timestamp(10), ..sample.run_on(&run, succeeded()) };
    admit(store, &[sample.change().run(last.clone())]).await;
    retire(store, &sample, &last, true).await;

    let left = found(store, &run).await.expect("a tombstone is left");
    assert!(matches!(left.state, RunState::Expired { succeeded: true, .. }), "{left:?}");
    assert!(!format!("{left:?}").contains("DE02"), "{left:?}");
    assert_eq!((left.key, left.revision), (run.key.clone(), last.revision + 1));
    assert_eq!(left.input_hash, last.input_hash.keyed(&DigestKey::new(DIGEST_KEY)));
    let history = store.run_history(&run.tenant, run.id, Turns::between(0, u32::MAX)).await.unwrap();
    assert_eq!((history.steps.len(), history.uses.len()), (0, 0));
    assert_eq!(store.run_labels(&run.tenant, run.id).await.unwrap(), []);
    assert_eq!(store.signal_find(&run.tenant, run.id, "paid", "1").await.unwrap(), None);
    assert_eq!(store.record_uses(&run.tenant, record.id).await.unwrap(), []);
    assert_eq!(store.escalation_find(&run.tenant, question.id).await.unwrap(), None);
    assert_eq!(over(store, &run).await, []);
    assert_eq!(store.run_over_next(run.workflow.as_str(), Timestamp::MIN).await.unwrap(), None);
    assert_eq!(refused(store, sample.change().run(sample.run("a"))).await, Some(Refusal::Exists));
}

/// A forgotten run leaves nothing: its start key is new.
pub async fn a_forgotten_start_key_is_new(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = ended(store, &sample, sample.run("a"), 10).await;
    retire(store, &sample, &run, false).await;
    assert_eq!(found(store, &run).await, None);
    let again = sample.run("a");
    admit(store, &[sample.change().run(again.clone())]).await;
    assert_eq!(found(store, &again).await, Some(again));
}

/// A run with many checkpoints is deleted in parts, one in each transaction: it is expired from the first one on, and
/// is listed until all are gone.
pub async fn a_long_one_goes_in_parts(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let mut change = sample.change().run(run.clone());
    change.steps.extend((0..2500).map(|n| sample.step(&run, &n.to_string())));
    admit(store, &[change]).await;
    let last = Run { updated_at: Timestamp(10), ..sample.run_on(&run, succeeded()) };
    admit(store, &[sample.change().run(last.clone())]).await;
    retire(store, &sample, &last, true).await;
    let mut parts = 1;
    while let Some(rest) = over(store, &run).await.pop() {
        assert!(rest.state.is_expired(), "{rest:?}");
        retire(store, &sample, &rest, true).await;
        parts += 1;
        assert!(parts < 10, "it never ends");
    }
    let left = found(store, &run).await.expect("a tombstone is left");
    assert_eq!((left.state.is_expired(), left.revision), (true, last.revision + 1));
    let history = store.run_history(&run.tenant, run.id, Turns::between(0, u32::MAX)).await.unwrap();
    assert_eq!(history.steps.len(), 0);
}

/// A payload that is too large for its row is deleted with the last run that refers to it, even if another run
/// brought it.
pub async fn a_large_payload_stays_for_whoever_copied_it(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let body = |of: &str| sample::payload(&serde_json::json!({ "large": of }));
    let (input, value) = (body("input"), body("value"));
    let with = |payload: &Payload| Some((sample.tenant.clone(), payload.clone()));
    let first = Run { input: Stored::At(input.digest()), ..sample.run("first") };
    let step = |run: &Run| {
        let value = Some(Stored::At(value.digest()));
        crate::store::Step { value, ..sample.step(run, "1") }
    };
    let brought = sample.change().run(first.clone()).step(step(&first));
    let payloads = [with(&input), with(&value)].into_iter().flatten().collect();
    admit(store, &[Change { payloads, ..brought }]).await;
    let second = Run { input: Stored::At(input.digest()), ..sample.run("second") };
    admit(store, &[sample.change().run(second.clone()).step(step(&second))]).await;
    let is_there = async || {
        let input = store.payload_find(&sample.tenant, input.digest()).await.unwrap().is_some();
        (input, store.payload_find(&sample.tenant, value.digest()).await.unwrap().is_some())
    };
    for (run, left) in [(first, true), (second, false)] {
        assert_eq!(is_there().await, (true, true));
        let last = Run { updated_at: Timestamp(10), ..sample.run_on(&run, succeeded()) };
        admit(store, &[sample.change().run(last.clone())]).await;
        retire(store, &sample, &last, left).await;
    }
    assert_eq!(is_there().await, (false, false));
}

/// A stale retirement changes nothing, and neither does one by another tenant's worker or a fenced one.
pub async fn what_has_changed_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = ended(store, &sample, sample.run("a"), 10).await;
    let stale = Run { revision: 1, ..run.clone() };
    let foreign = Run { tenant: sample::tenant("globex"), ..run.clone() };
    for other in [&stale, &foreign] {
        for is_left in [true, false] {
            retire(store, &sample, other, is_left).await;
        }
    }
    let bob = Sample::enrol(store, "bob").await;
    admit(store, &[sample::fence_others(bob.fence)]).await;
    let retired = RetiredRun::of(&run, false, &DigestKey::new(DIGEST_KEY)).into_iter().collect();
    let late = Change { retired_runs: retired, ..sample.change() };
    assert_eq!(refused(store, late).await, Some(Refusal::Fenced));
    assert_eq!(found(store, &run).await, Some(run));
}
