//! Workers come and go; a fenced one changes nothing.

use super::sample::{self, Sample, enrol, fence_others, retire};
use super::{admit, one, refused};
use crate::clock::Timestamp;
use crate::id::Fence;
use crate::payload::DigestKey;
use crate::store::{Change, Refusal, RunState, Store, Verdict, WaitsOn, Worker, WorkerChange};

/// Each worker is given a higher fence than all before it, and is found by its name.
pub async fn rises_with_each_worker(store: &dyn Store) {
    let mut last = Fence(0);
    for name in ["ann", "bob", "'; DROP TABLE worker; --", "👷"] {
        admit(store, &[enrol(name)]).await;
        let worker = store.worker_find(name).await.unwrap().unwrap();
        assert!(worker.fence > last, "{:?} after {last:?}", worker.fence);
        assert_eq!((worker.name.as_str(), worker.enrolled_at, worker.ended_at), (name, Timestamp(100), None));
        assert_eq!(worker.version.as_deref(), Some(Worker::VERSION));
        last = worker.fence;
    }
    assert_eq!(store.worker_find("nobody").await.unwrap(), None);
}

/// A name is given once, even after its worker has ended.
pub async fn a_name_is_given_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let WorkerChange::Enrol { name, .. } = enrol("ann").worker.unwrap() else { unreachable!() };
    let again = WorkerChange::Enrol { name, at: Timestamp(101), lease_until: None };
    let again = Change { worker: Some(again), ..Change::default() };
    assert_eq!(refused(store, again.clone()).await, Some(Refusal::Exists));
    admit(store, &[retire(sample.fence)]).await;
    assert_eq!(refused(store, again).await, Some(Refusal::Exists));
    assert_eq!(refused(store, enrol("ann")).await, Some(Refusal::Exists), "this worker has ended");
}

/// A change by a fenced worker is refused as `Fenced`, whatever its rows are.
pub async fn a_fenced_worker_changes_nothing(store: &dyn Store) {
    let old = Sample::enrol(store, "old").await;
    let (run, record, question) = (old.run("a"), old.record("a"), old.escalation("?"));
    let before = old.change().run(run.clone()).record(record.clone()).escalation(question.clone());
    admit(store, std::slice::from_ref(&before)).await;
    let new = Sample::enrol(store, "new").await;
    admit(store, &[fence_others(new.fence)]).await;
    for change in of_every_kind(&old).into_iter().chain([
        before,
        old.change().run(old.run_on(&run, RunState::Active)),
        old.change().record(old.committed(&record)),
        old.change().escalation(sample::answered(&question, "old")),
    ]) {
        let alone = one(store, change.clone()).await;
        assert_eq!(alone, Verdict::Refused(Refusal::Fenced), "alone: {change:?}");
        let company = [new.change().step(new.step(&run, "1")), change.clone()];
        let verdicts = store.commit(&company).await.unwrap();
        assert_eq!(
            verdicts,
            [Verdict::Admitted, Verdict::Refused(Refusal::Fenced)],
            "in company: {change:?}"
        );
        for payload in &change.payloads {
            assert_eq!(store.payload_find(&payload.0, payload.1.digest()).await.unwrap(), None);
        }
    }
    assert_eq!(store.run_find(&old.tenant, run.id).await.unwrap(), Some(run));
    assert_eq!(store.record_find(&old.tenant, &record.key).await.unwrap(), Some(record));
    assert!(store.tenant_key(&old.tenant).await.unwrap().is_none());
    assert!(store.worker_find("by old").await.unwrap().is_none());
}

/// A fence that was never given counts like that of a fenced worker.
pub async fn an_unknown_worker_changes_nothing(store: &dyn Store) {
    let mut nobody = Sample::enrol(store, "ann").await;
    nobody.fence = Fence(nobody.fence.0 + 1000);
    for change in of_every_kind(&nobody) {
        assert_eq!(refused(store, change.clone()).await, Some(Refusal::Fenced), "{change:?}");
    }
}

/// Only a worker may write records, runs, steps, uses and escalations.
pub async fn a_change_by_nobody_is_refused(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let mut used = sample.change();
    used.used = Some(Box::new(sample.used(&record, &run)));
    for change in [
        used,
        sample.change().step(sample.step(&run, "1")),
        sample.change().run(run),
        sample.change().record(record),
        sample.change().escalation(sample.escalation("?")),
    ] {
        let change = Change { fence: None, ..change };
        let refusal = refused(store, change.clone()).await;
        assert!(matches!(refusal, Some(Refusal::Invalid(_))), "{refusal:?}: {change:?}");
    }
}

/// The worker that fences the others goes on; a fenced worker stays fenced since the first time.
pub async fn only_the_others_are_fenced(store: &dyn Store) {
    let (a, b) = (Sample::enrol(store, "a").await, Sample::enrol(store, "b").await);
    admit(store, &[fence_others(b.fence), b.change().record(b.record("b"))]).await;
    let ended = async |name: &str| store.worker_find(name).await.unwrap().unwrap().ended_at;
    assert_eq!((ended("a").await, ended("b").await), (Some(Timestamp(200)), None));
    assert_eq!(refused(store, a.change().record(a.record("a"))).await, Some(Refusal::Fenced));
    assert_eq!(refused(store, fence_others(a.fence)).await, Some(Refusal::Fenced), "a zombie fences nobody");

    let c = Sample::enrol(store, "c").await;
    admit(store, &[b.change().record(b.record("still"))]).await;
    let later = WorkerChange::FenceOthers { at: Timestamp(900) };
    admit(store, &[Change { worker: Some(later), ..c.change() }]).await;
    assert_eq!((ended("a").await, ended("b").await), (Some(Timestamp(200)), Some(Timestamp(900))));
}

/// A worker that is fenced by an earlier change of the batch is fenced for the later ones.
pub async fn counts_within_the_batch(store: &dyn Store) {
    let (old, new) = (Sample::enrol(store, "old").await, Sample::enrol(store, "new").await);
    let batch = [
        old.change().record(old.record("in time")),
        fence_others(new.fence),
        old.change().record(old.record("too late")),
        new.change().record(new.record("taken over")),
    ];
    let verdicts = store.commit(&batch).await.unwrap();
    let fenced = Verdict::Refused(Refusal::Fenced);
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Admitted, fenced, Verdict::Admitted]);
}

/// A worker that has retired writes no more, and the others go on.
pub async fn a_retired_worker_has_ended(store: &dyn Store) {
    let (a, b) = (Sample::enrol(store, "a").await, Sample::enrol(store, "b").await);
    admit(store, &[retire(a.fence)]).await;
    assert_eq!(store.worker_find("a").await.unwrap().unwrap().ended_at, Some(Timestamp(300)));
    assert_eq!(refused(store, a.change().record(a.record("a"))).await, Some(Refusal::Fenced));
    admit(store, &[b.change().record(b.record("b"))]).await;
}

/// A worker whose lease has run out is ended by another, and writes no more; the other goes on.
pub async fn a_lease_that_ran_out_ends_its_worker(store: &dyn Store) {
    let (a, b) = (Sample::leased(store, "a", 1_000).await, Sample::leased(store, "b", 9_000).await);
    for early in [999, 1_000] {
        assert_eq!(refused(store, end(b.fence, a.fence, early)).await, Some(Refusal::Stale), "at {early}");
    }
    admit(store, &[a.change().record(a.record("in time")), end(b.fence, a.fence, 1_001)]).await;
    let ended = store.worker_at(a.fence).await.unwrap().unwrap();
    assert_eq!((ended.ended_at, ended.retired), (Some(Timestamp(1_001)), false));
    assert_eq!(refused(store, a.change().record(a.record("late"))).await, Some(Refusal::Fenced));
    assert_eq!(
        refused(store, renew(a.fence, 9_999)).await,
        Some(Refusal::Fenced),
        "its heartbeat comes too late"
    );
    admit(store, &[b.change().record(b.record("b"))]).await;

    let embedded = Sample::enrol(store, "no lease").await;
    assert_eq!(refused(store, end(b.fence, embedded.fence, 99_999)).await, Some(Refusal::Stale));
    let nobody = Fence(embedded.fence.0 + 1000);
    assert_eq!(refused(store, end(b.fence, nobody, 99_999)).await, Some(Refusal::Stale));
}

/// A worker that renews its lease in time is not ended.
pub async fn a_lease_that_was_renewed_goes_on(store: &dyn Store) {
    let (a, b) = (Sample::leased(store, "a", 1_000).await, Sample::leased(store, "b", 9_000).await);
    admit(store, &[renew(a.fence, 5_000)]).await;
    assert_eq!(store.worker_at(a.fence).await.unwrap().unwrap().lease_until, Some(Timestamp(5_000)));
    assert_eq!(refused(store, end(b.fence, a.fence, 1_001)).await, Some(Refusal::Stale));
    admit(store, &[a.change().record(a.record("a"))]).await;
    assert_eq!(store.worker_at(b.fence).await.unwrap().unwrap().lease_until, Some(Timestamp(9_000)));
}

/// One of two workers that end a third does; the same change again is admitted, because its answer may have been
/// lost. A worker that has retired is not ended again.
pub async fn an_ended_worker_is_ended_once(store: &dyn Store) {
    let (a, b) = (Sample::leased(store, "a", 1_000).await, Sample::leased(store, "b", 9_000).await);
    let c = Sample::leased(store, "c", 9_000).await;
    admit(store, &[end(b.fence, a.fence, 2_000)]).await;
    assert_eq!(refused(store, end(c.fence, a.fence, 2_001)).await, Some(Refusal::Stale));
    admit(store, &[end(b.fence, a.fence, 2_000)]).await;
    admit(store, &[retire(b.fence)]).await;
    let retired = store.worker_at(b.fence).await.unwrap().unwrap();
    assert_eq!((retired.ended_at, retired.retired), (Some(Timestamp(300)), true));
    assert_eq!(refused(store, end(c.fence, b.fence, 99_999)).await, Some(Refusal::Stale));
}

/// Workers are listed while they live, and after their end until they are settled.
pub async fn is_listed_until_it_is_settled(store: &dyn Store) {
    let (a, b) = (Sample::leased(store, "a", 1_000).await, Sample::leased(store, "b", 9_000).await);
    let listed = async || -> Vec<_> {
        let pulse = store.pulse().await.unwrap();
        pulse.workers.into_iter().map(|worker| (worker.fence, worker.ended_at)).collect()
    };
    let settle = |fence| sample::worker(Some(b.fence), WorkerChange::Settle { fence });
    assert_eq!(listed().await, [(a.fence, None), (b.fence, None)]);
    assert_eq!(refused(store, settle(a.fence)).await, Some(Refusal::Stale), "it is alive");
    admit(store, &[end(b.fence, a.fence, 2_000)]).await;
    assert_eq!(listed().await, [(a.fence, Some(Timestamp(2_000))), (b.fence, None)]);
    admit(store, &[settle(a.fence)]).await;
    admit(store, &[settle(a.fence)]).await;
    assert_eq!(listed().await, [(b.fence, None)]);
    assert!(store.worker_at(a.fence).await.unwrap().unwrap().settled);
    assert_eq!(store.worker_at(Fence(b.fence.0 + 1000)).await.unwrap(), None);
}

fn end(by: Fence, fence: Fence, at: i64) -> Change {
    sample::worker(Some(by), WorkerChange::End { fence, at: Timestamp(at) })
}

fn renew(by: Fence, until: i64) -> Change {
    sample::worker(Some(by), WorkerChange::Renew { until: Timestamp(until) })
}

/// A change of each kind that a worker makes.
fn of_every_kind(by: &Sample) -> Vec<Change> {
    let (run, record) = (by.run("new"), by.record("new"));
    let mut used = by.change();
    used.used = Some(Box::new(by.used(&record, &run)));
    let mut evidence = by.change();
    evidence.evidence = Some(Box::new(by.evidence(&record, 1)));
    let mut payload = by.change();
    payload.payloads = vec![(by.tenant.clone(), sample::payload(&"large".into()))];
    let mut key = by.change();
    key.tenant_key = Some((by.tenant.clone(), DigestKey::new([7; 32])));
    let enrolment = Change { fence: Some(by.fence), ..enrol("by old") };
    vec![
        by.change(),
        by.change().step(by.step(&run, "new")),
        by.change().escalation(by.escalation("new")),
        by.change().look(by.look(&record, 5)),
        by.change().run(run),
        by.change().record(record),
        used,
        evidence,
        payload,
        key,
        enrolment,
    ]
}

/// A client attaches beside the workers: its writes count until it goes, nobody takes over from it, and a worker that
/// fences all others spares it.
pub async fn a_client_is_no_worker(store: &dyn Store) {
    let attach = WorkerChange::Attach { name: "a client".to_owned(), at: Timestamp(150) };
    let attach = Change { worker: Some(attach), ..Change::default() };
    admit(store, std::slice::from_ref(&attach)).await;
    assert_eq!(refused(store, attach).await, None, "the very same row");
    let client = store.worker_find("a client").await.unwrap().unwrap();
    assert_eq!((client.lease_until, client.ended_at, client.settled), (None, None, true));
    let ann = Sample::enrol(store, "ann").await;
    assert!(ann.fence > client.fence);
    admit(store, &[fence_others(ann.fence)]).await;
    assert_eq!(store.worker_at(client.fence).await.unwrap(), Some(client.clone()));
    let listed = store.pulse().await.unwrap().workers;
    assert_eq!(listed.iter().map(|worker| worker.fence).collect::<Vec<_>>(), [ann.fence]);
    let by_client = |key| Change::by(client.fence).run(ann.run(key));
    admit(store, &[by_client("a")]).await;
    admit(store, &[retire(client.fence)]).await;
    assert_eq!(refused(store, by_client("b")).await, Some(Refusal::Fenced));
}

/// The pulse tells of a waiting run that was sent a signal which wakes it, and of no other.
pub async fn the_pulse_tells_of_runs_that_may_go_on(store: &dyn Store) {
    let ann = Sample::enrol(store, "ann").await;
    let told = async || store.pulse().await.unwrap().resumable;
    let deaf = ann.run("deaf");
    let waits = |on| RunState::Waiting { until: None, on };
    let asleep = ann.run_on(&deaf, waits(WaitsOn::NOTHING));
    admit(store, &[ann.change().run(deaf.clone())]).await;
    admit(store, &[ann.change().run(asleep.clone())]).await;
    admit(store, &[Change { signal: Some(Box::new(ann.signal(&deaf, "go", "1"))), ..ann.change() }]).await;
    assert!(!told().await, "it waits for no signal");
    let listens = ann.run_on(&asleep, waits(WaitsOn::SIGNAL));
    admit(store, &[ann.change().run(listens.clone())]).await;
    assert!(told().await);
    let signal = ann.signal(&deaf, "go", "1");
    admit(store, &[Change { received: Some(Box::new(signal)), ..ann.change() }]).await;
    assert!(!told().await, "it has received the signal");
    let asks = ann.run_on(&listens, waits(WaitsOn::ANSWER));
    admit(store, &[ann.change().run(asks)]).await;
    assert!(told().await, "nothing that it asked is open");
}
