//! Signals to runs.

use std::slice::from_ref;

use super::sample::{HOSTILE, Sample, answered, fence_others, inline, name, payload};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::id::RunId;
use crate::payload::{DigestKey, Stored};
use crate::store::{CANCEL, COMMAND, Change, ExpiredSignal, Refusal, Run, RunState, Signal, Store, WaitsOn};

pub(super) fn sent(sample: &Sample, signal: &Signal) -> Change {
    Change { signal: Some(Box::new(signal.clone())), ..sample.change() }
}

fn received(sample: &Sample, signal: &Signal) -> Change {
    Change { received: Some(Box::new(signal.clone())), ..sample.change() }
}

/// A signal comes back as it was written, and is pending until it is received.
pub async fn is_pending_until_it_is_received(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let signal = sample.signal(&run, "paid", "1");
    admit(store, &[sample.change().run(run.clone())]).await;
    admit(store, &[sent(&sample, &signal)]).await;
    let pending = async || store.signal_pending(&[(sample.tenant.clone(), run.id)]).await.unwrap();
    let found = async || store.signal_find(&sample.tenant, run.id, "paid", "1").await.unwrap();
    let unreceived = async || store.signal_unreceived(&sample.tenant, run.id, "paid", "1").await.unwrap();
    assert_eq!((pending().await, found().await), (vec![signal.clone()], Some(signal.clone())));
    assert_eq!(unreceived().await.as_ref(), Some(&signal));
    assert_eq!(
        store.run_history(&sample.tenant, run.id, crate::store::Turns::ALL).await.unwrap().signals,
        from_ref(&signal)
    );
    admit(store, &[received(&sample, &signal)]).await;
    assert_eq!((pending().await, found().await), (vec![], Some(signal)), "it is known, and not pending");
    assert_eq!(unreceived().await, None);
    assert_eq!(
        store.run_history(&sample.tenant, run.id, crate::store::Turns::ALL).await.unwrap().signals,
        []
    );
}

/// Text of a signal is stored unchanged, with any content.
pub async fn hostile_text_is_text(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    admit(store, &[sample.change().run(run.clone())]).await;
    for text in HOSTILE {
        let signal = Signal { body: inline(serde_json::json!(text)), ..sample.signal(&run, text, text) };
        admit(store, &[sent(&sample, &signal)]).await;
        let found = store.signal_find(&sample.tenant, run.id, text, text).await.unwrap();
        assert_eq!(found.as_ref(), Some(&signal), "{text:?}");
        admit(store, &[received(&sample, &signal)]).await;
    }
}

/// Signals are received by their positions, and by name and id where these are equal.
pub async fn are_listed_in_their_order(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let signal = |place: i64, name: &str, id: &str| Signal { place, ..sample.signal(&run, name, id) };
    let signals = [signal(0, "b", "2"), signal(0, "b", "3"), signal(1, "b", "1"), signal(7, "a", "1")];
    let (next, other) = (sample.run("b"), sample.run("c"));
    let [of_next, of_other] = [&next, &other].map(|run| sample.signal(run, "b", "2"));
    admit(store, &[&run, &next, &other].map(|run| sample.change().run(run.clone()))).await;
    admit(store, &[3, 1, 0, 2].map(|i: usize| sent(&sample, &signals[i]))).await;
    admit(store, &[&of_next, &of_other].map(|signal| sent(&sample, signal))).await;
    let asked = [&run, &next].map(|run| (sample.tenant.clone(), run.id));
    assert_eq!(store.signal_pending(&asked[..1]).await.unwrap(), signals);
    let of_both = [&signals[..], &[of_next]].concat();
    assert_eq!(store.signal_pending(&asked).await.unwrap(), of_both, "of those that were asked for");
    assert_eq!(store.signal_pending(&[]).await.unwrap(), []);
    let last = async || store.signal_last(&sample.tenant, run.id).await.unwrap();
    assert_eq!(last().await, Some(7));
    admit(store, &[received(&sample, &signals[3])]).await;
    assert_eq!(last().await, Some(1), "of those that it has not received");
    assert_eq!(store.signal_last(&sample.tenant, sample.run("d").id).await.unwrap(), None);
}

/// The first signal of a name and id is kept; the very same one again is admitted.
pub async fn an_id_is_taken_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (sample.run("a"), sample.run("b"));
    let signal = sample.signal(&run, "paid", "1");
    admit(store, &[sample.change().run(run.clone())]).await;
    admit(store, &[sent(&sample, &signal)]).await;
    admit(store, &[sent(&sample, &signal)]).await;
    let another = Signal { body: inline(serde_json::json!("other")), ..signal.clone() };
    assert_eq!(refused(store, sent(&sample, &another)).await, Some(Refusal::Exists));
    assert_eq!(store.signal_pending(&[(sample.tenant.clone(), run.id)]).await.unwrap(), from_ref(&signal));
    let elsewhere = [
        sample.signal(&other, "paid", "1"),
        sample.signal(&run, "refunded", "1"),
        sample.signal(&run, "paid", "2"),
        sample.for_tenant("globex").signal(&run, "paid", "1"),
    ];
    admit(store, &elsewhere.map(|signal| sent(&sample, &signal))).await;
}

/// A signal is received once, and only if it is there; otherwise nothing of the change is written.
pub async fn is_received_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let signal = sample.signal(&run, "paid", "1");
    let receipt = |id: &str| received(&sample, &signal).step(sample.step(&run, id));
    admit(store, &[sample.change().run(run.clone())]).await;
    assert_eq!(refused(store, receipt("0")).await, Some(Refusal::Stale));
    admit(store, &[sent(&sample, &signal), receipt("1")]).await;
    admit(store, &[receipt("1")]).await;
    assert_eq!(refused(store, receipt("2")).await, Some(Refusal::Stale));
    let steps = store.run_history(&sample.tenant, run.id, crate::store::Turns::ALL).await.unwrap().steps;
    assert_eq!(steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["1"]);
}

/// A fenced worker neither sends nor receives.
pub async fn a_fenced_worker_says_nothing(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let run = old.run("a");
    let (first, second) = (old.signal(&run, "paid", "1"), old.signal(&run, "paid", "2"));
    admit(store, &[old.change().run(run.clone()), sent(&old, &first)]).await;
    admit(store, &[fence_others(new.fence)]).await;
    assert_eq!(refused(store, sent(&old, &second)).await, Some(Refusal::Fenced));
    assert_eq!(refused(store, received(&old, &first)).await, Some(Refusal::Fenced));
    assert_eq!(store.signal_pending(&[(old.tenant.clone(), run.id)]).await.unwrap(), [first]);
}

/// Runs that wait for a signal and have one are listed in the order of their ids.
pub async fn runs_that_have_one_are_found(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let waiting =
        |on: WaitsOn| Run { state: RunState::Waiting { until: None, on }, ..sample.run_without_key() };
    let (one, two) = (waiting(WaitsOn::SIGNAL), waiting(WaitsOn::SIGNAL.or(WaitsOn::ANSWER)));
    let (none, asking, active) =
        (waiting(WaitsOn::SIGNAL), waiting(WaitsOn::ANSWER), sample.run_without_key());
    let all = [&one, &two, &none, &asking, &active];
    admit(store, &all.map(|run| sample.change().run(run.clone()))).await;
    let found = async |after: i64, limit: u32| store.run_signalled(RunId(after), limit).await.unwrap();
    assert_eq!(found(0, 10).await, []);
    for run in [&one, &two, &asking, &active] {
        let signals = ["1", "2"].map(|id| sent(&sample, &sample.signal(run, "paid", id)));
        admit(store, &signals).await;
    }
    assert_eq!(found(0, 10).await, [one.clone(), two.clone()], "each once");
    assert_eq!(found(0, 1).await, from_ref(&one));
    assert_eq!(found(one.id.0, 10).await, from_ref(&two));
    let answered = store.run_answered(RunId(0), 10).await.unwrap();
    assert_eq!(answered, [two.clone(), asking.clone()], "who waits for a signal alone has no answer to come");
    admit(store, &[sent(&sample, &sample.signal(&asking, COMMAND, "1"))]).await;
    admit(store, &[sent(&sample, &sample.signal(&active, COMMAND, "1"))]).await;
    assert_eq!(
        found(0, 10).await,
        [one.clone(), two.clone(), asking.clone()],
        "a command wakes whoever waits"
    );
    admit(store, &[received(&sample, &sample.signal(&asking, COMMAND, "1"))]).await;
    admit(store, &["1", "2"].map(|id| received(&sample, &sample.signal(&one, "paid", id)))).await;
    assert_eq!(found(0, 10).await, [two]);
}

/// Blocked runs that have not received a command to cancel them are listed in the order of their ids.
pub async fn blocked_runs_that_are_to_be_cancelled_are_found(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let in_state = |state: RunState| Run { state, ..sample.run_without_key() };
    let blocked = || in_state(RunState::Blocked { failure: payload(&serde_json::json!("asked")) });
    let (one, two, other) = (blocked(), blocked(), blocked());
    let waiting = in_state(RunState::Waiting { until: None, on: WaitsOn::SIGNAL });
    let all = [&one, &two, &other, &waiting];
    admit(store, &all.map(|run| sample.change().run(run.clone()))).await;
    let commands = [&one, &two, &waiting].map(|run| sent(&sample, &sample.signal(run, CANCEL, "1")));
    admit(store, &commands).await;
    admit(store, &[sent(&sample, &sample.signal(&other, "paid", "1"))]).await;
    let found = async |after: i64, limit: u32| store.run_cancelled(RunId(after), limit).await.unwrap();
    assert_eq!(found(0, 10).await, [one.clone(), two.clone()]);
    assert_eq!(found(0, 1).await, from_ref(&one));
    assert_eq!(found(one.id.0, 10).await, from_ref(&two));
    admit(store, &[received(&sample, &sample.signal(&one, CANCEL, "1"))]).await;
    assert_eq!(found(0, 10).await, [two]);
}

/// The children of a run are listed in the order of their ids.
pub async fn children_are_found_by_their_parent(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let parent = sample.run("a");
    let child = |key: &str| Run { parent: Some(parent.id), ..sample.run(key) };
    let (one, two) = (child("b"), child("c"));
    let stranger = Run { parent: Some(parent.id), ..sample.for_tenant("globex").run("d") };
    let all = [&parent, &one, &two, &stranger];
    admit(store, &all.map(|run| sample.change().run(run.clone()))).await;
    let found = async |after: i64, limit: u32| {
        store.run_children(&sample.tenant, parent.id, RunId(after), limit).await.unwrap()
    };
    assert_eq!(found(0, 10).await, [one.clone(), two.clone()]);
    assert_eq!(found(0, 1).await, from_ref(&one));
    assert_eq!(found(one.id.0, 10).await, from_ref(&two));
    let ended = sample.run_on(&one, RunState::Waiting { until: None, on: WaitsOn::SIGNAL });
    admit(store, &[sample.change().run(ended.clone())]).await;
    assert_eq!(found(0, 1).await, [ended], "a run keeps its parent");
}

async fn over(store: &dyn Store, run: &Run) -> Vec<Signal> {
    store.signal_over(run.workflow.as_str(), Timestamp::MIN, Timestamp(100), 10).await.unwrap()
}

async fn expire(store: &dyn Store, sample: &Sample, signal: &Signal) -> Signal {
    let expired = ExpiredSignal::of(signal.clone(), &DigestKey::new([7; 32]));
    let left = Signal { body: expired.left.clone(), ..signal.clone() };
    admit(store, &[Change { expired_signals: vec![expired], beside: true, ..sample.change() }]).await;
    left
}

/// Signals that runs have received are listed by the instant at which they were sent. One that is not received is left
/// out, and one of a run that has ended, one of a run with an open question, and one of the engine's own.
pub async fn received_ones_are_listed_by_their_time(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, ended, asked) = (sample.run("a"), sample.run("b"), sample.run("c"));
    let elsewhere = Run { workflow: name("another"), ..sample.run("d") };
    admit(store, &[&run, &ended, &asked, &elsewhere].map(|run| sample.change().run(run.clone()))).await;
    let at = |run: &Run, name: &str, at: i64| Signal { at: Timestamp(at), ..sample.signal(run, name, "1") };
    let (late, early) = (at(&run, "late", 30), at(&run, "early", 10));
    let (pending, command) = (at(&run, "pending", 5), at(&run, "~!cancel", 5));
    let others = [at(&ended, "paid", 5), at(&asked, "paid", 6), at(&elsewhere, "paid", 7)];
    let received_ones = [&late, &early, &command, &others[0], &others[1], &others[2]];
    admit(store, &[sent(&sample, &pending)]).await;
    for signal in received_ones {
        admit(store, &[sent(&sample, signal), received(&sample, signal)]).await;
    }
    let output = inline(serde_json::json!(1));
    let question = crate::store::Question { run: Some(asked.id), ..sample.escalation("again?") };
    admit(
        store,
        &[
            sample.change().run(sample.run_on(&ended, RunState::Succeeded { output })),
            sample.change().escalation(question.clone()),
        ],
    )
    .await;
    let listed = async |after: i64, until: i64, limit: u32| {
        store.signal_over(run.workflow.as_str(), Timestamp(after), Timestamp(until), limit).await.unwrap()
    };
    assert_eq!(listed(i64::MIN, 9, 10).await, []);
    assert_eq!(listed(i64::MIN, 30, 10).await, [early.clone(), late.clone()]);
    assert_eq!(listed(i64::MIN, 30, 1).await, from_ref(&early));
    assert_eq!(listed(11, i64::MAX, 10).await, from_ref(&late));
    assert_eq!(over(store, &elsewhere).await, from_ref(&others[2]));
    admit(store, &[sample.change().escalation(answered(&question, "ann"))]).await;
    assert_eq!(over(store, &run).await, [others[1].clone(), early, late]);
}

/// Only a digest is left of the content of a signal that expires. Its name and id stay taken.
pub async fn one_that_expires_keeps_its_id(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let (signal, pending) = (sample.signal(&run, "paid", "1"), sample.signal(&run, "paid", "2"));
    admit(store, &[sample.change().run(run.clone())]).await;
    admit(store, &[sent(&sample, &signal), received(&sample, &signal), sent(&sample, &pending)]).await;
    let found = async |id: &str| store.signal_find(&sample.tenant, run.id, "paid", id).await.unwrap();
    expire(store, &sample, &pending).await;
    assert_eq!(found("2").await, Some(pending), "its run has not received it");
    let changed = Signal { body: inline(serde_json::json!("another")), ..signal.clone() };
    expire(store, &sample, &changed).await;
    assert_eq!(found("1").await, Some(signal.clone()), "it has another content");
    let left = expire(store, &sample, &signal).await;
    assert_ne!(left, signal);
    assert_eq!(found("1").await, Some(left.clone()));
    assert_eq!(over(store, &run).await, []);
    expire(store, &sample, &signal).await;
    assert_eq!(found("1").await, Some(left));
    assert_eq!(refused(store, sent(&sample, &signal)).await, Some(Refusal::Exists));
    let again = received(&sample, &signal).step(sample.step(&run, "again"));
    assert_eq!(refused(store, again).await, Some(Refusal::Stale), "it stays received");
}

/// A large payload goes with the last row that names it: a checkpoint that holds the signal keeps it.
pub async fn an_expired_one_lets_its_payload_go(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let large = payload(&serde_json::json!("x".repeat(500)));
    let body = Stored::At(large.digest());
    let [kept, alone] = ["1", "2"].map(|id| Signal { body: body.clone(), ..sample.signal(&run, "paid", id) });
    admit(store, &[sample.change().run(run.clone())]).await;
    for signal in [&kept, &alone] {
        let change =
            Change { payloads: vec![(sample.tenant.clone(), large.clone())], ..sent(&sample, signal) };
        admit(store, &[change, received(&sample, signal)]).await;
    }
    let there = async || store.payload_find(&sample.tenant, large.digest()).await.unwrap().is_some();
    expire(store, &sample, &alone).await;
    assert!(there().await, "the other signal holds it");
    expire(store, &sample, &alone).await;
    assert!(there().await, "an expiry that was written before counts once");
    expire(store, &sample, &kept).await;
    assert!(!there().await);
}
