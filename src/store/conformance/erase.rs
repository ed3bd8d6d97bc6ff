//! Erasing a tenant: nothing of it is left, and everything of the others is.

use serde_json::json;

use super::sample::{self, Sample, answered, inline};
use super::state::{Names, State};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::ledger::Record;
use crate::payload::DigestKey;
use crate::store::{
    Aggregate, Change, OutboxEvent, Refusal, Run, RunState, Schedule, ScheduleState, Store, UnderWay,
};

/// One thing of each kind, each followed by its end.
struct Things {
    run: [Run; 2],
    record: [Record; 2],
    schedule: [Schedule; 2],
    event: OutboxEvent,
    published: Aggregate,
}

impl Things {
    fn of(sample: &Sample) -> Self {
        let run = sample.run("a");
        let ended = sample.run_on(&run, RunState::Succeeded { output: inline(json!({ "total": 7 })) });
        let record = sample.record("order 7");
        let committed = sample.committed(&record);
        let schedule = Schedule { next_at: None, ..sample.schedule("nightly", 1) };
        let deleted = Schedule { state: ScheduleState::Deleted, revision: 2, ..schedule.clone() };
        let event = OutboxEvent {
            tenant: sample.tenant.clone(),
            id: "paid/7".into(),
            aggregate: "order/7".into(),
            seq: 1,
            kind: "paid".into(),
            payload: inline(json!({ "order": 7 })),
            created_at: Timestamp(1),
        };
        let published = Aggregate {
            tenant: sample.tenant.clone(),
            name: event.aggregate.clone(),
            last: 1,
            published: 1,
            tries: 0,
            refusals: 0,
            due_at: Timestamp(1),
            escalation: None,
            revision: 2,
        };
        Self {
            run: [run, ended],
            record: [record, committed],
            schedule: [schedule, deleted],
            event,
            published,
        }
    }
}

fn schedule(sample: &Sample, schedule: &Schedule) -> Change {
    Change { schedule: Some(Box::new(schedule.clone())), ..sample.change() }
}

/// The changes that write a tenant with nothing under way.
fn all(sample: &Sample) -> Vec<Change> {
    let Things { run: [run, ended], record: [record, committed], schedule: [set, deleted], event, published } =
        Things::of(sample);
    let question = sample.escalation("again?");
    let large = sample::payload(&json!("0123456789".repeat(1_000)));
    let (step, signal) = (sample.step(&run, "load"), sample.signal(&run, "paid", "1"));
    let (used, evidence) = (sample.used(&record, &run), sample.evidence(&record, 1));
    let contacts = vec![sample.attempt(&record, 1)];
    let record_labels = vec![sample.record_label(&record, "customer", "c-7")];
    vec![
        Change { payloads: vec![(sample.tenant.clone(), large)], ..sample.change().record(record) },
        sample.change().record(committed),
        Change { evidence: Some(Box::new(evidence)), contacts, record_labels, ..sample.change() },
        Change { labels: vec![sample.label(&run, "customer", "c-7")], ..sample.change().run(run).step(step) },
        Change { signal: Some(Box::new(signal)), used: Some(Box::new(used)), ..sample.change() },
        sample.change().run(ended),
        sample.change().escalation(question.clone()),
        sample.change().escalation(answered(&question, "ann")),
        schedule(sample, &set),
        schedule(sample, &deleted),
        Change { documents: vec![sample.document("notice/7")], ..sample.change() },
        Change { events: vec![event], ..sample.change() },
        Change { aggregates: vec![published], ..sample.change() },
    ]
}

fn erase(sample: &Sample) -> Change {
    Change { erased: Some(sample.tenant.clone()), ..sample.change() }
}

async fn write(store: &dyn Store, changes: &[Change]) {
    for change in changes {
        admit(store, std::slice::from_ref(change)).await;
    }
}

/// Nothing that can be read is left of the tenant but its key for digests, and everything of another tenant is. Then
/// the tenant may begin again.
pub async fn nothing_is_left_of_a_tenant(store: &dyn Store) {
    let ours = Sample::enrol(store, "ann").await;
    let theirs = ours.for_tenant("globex");
    let (mine, others) = (all(&ours), all(&theirs));
    let mut names = Names::default();
    mine.iter().chain(&others).for_each(|change| names.learn(change));
    let key = Change { tenant_key: Some((ours.tenant.clone(), DigestKey::new([1; 32]))), ..ours.change() };
    admit(store, &[key]).await;
    write(store, &others).await;
    let before = State::of(store, &names).await;
    let later = ours.change().record(theirs.record("later"));
    for batch in [vec![erase(&ours)], vec![later, erase(&ours)]] {
        write(store, &mine).await;
        assert!(before.difference(&State::of(store, &names).await).len() > 20, "little is there at all");
        admit(store, &batch).await;
        assert_eq!(before.difference(&State::of(store, &names).await), Vec::<String>::new());
        admit(store, &batch[batch.len() - 1..]).await; // however often
    }
}

/// A thing under way keeps all of its tenant, and nothing of another one.
pub async fn what_is_under_way_keeps_it(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let Things { run, record, schedule: [set, deleted], event, published } = Things::of(&sample);
    let [run, ended] = run.map(|run| sample.change().run(run));
    let [record, committed] = record.map(|record| sample.change().record(record));
    let question = sample.escalation("again?");
    let confirmed = sample.record("confirmed");
    admit(store, &[sample.change().record(confirmed.clone())]).await;
    let look = sample.look(&confirmed, 9);
    let to_come = sample.change().record(sample.committed(&confirmed)).look(look.clone());
    let all = [
        (UnderWay::Operation, to_come, sample.change().look(look.done())),
        (UnderWay::Run, run, ended),
        (UnderWay::Operation, record, committed),
        (
            UnderWay::Question,
            sample.change().escalation(question.clone()),
            sample.change().escalation(answered(&question, "ann")),
        ),
        (UnderWay::Schedule, schedule(&sample, &set), schedule(&sample, &deleted)),
        (
            UnderWay::Event,
            Change { events: vec![event], ..sample.change() },
            Change { aggregates: vec![published], ..sample.change() },
        ),
    ];
    for (i, (what, begin, end)) in all.into_iter().enumerate() {
        admit(store, &[begin]).await;
        assert_eq!(refused(store, erase(&sample)).await, Some(Refusal::UnderWay(what)));
        let another = sample.for_tenant("globex").record(&format!("beside it {i}"));
        let beside = vec![sample.change().record(another), erase(&sample)];
        let verdicts = store.commit(&beside).await.expect("the store works");
        assert!(verdicts[0].is_admitted() && !verdicts[1].is_admitted(), "{verdicts:?}");
        admit(store, &[end]).await;
    }
    admit(store, &[erase(&sample)]).await;
}

/// A fenced worker erases nothing.
pub async fn a_fenced_worker_erases_nothing(store: &dyn Store) {
    let ann = Sample::enrol(store, "ann").await;
    let record = ann.record("order 7");
    write(store, &[ann.change().record(record.clone()), ann.change().record(ann.committed(&record))]).await;
    let bob = Sample::enrol(store, "bob").await;
    admit(store, &[sample::fence_others(bob.fence)]).await;
    assert_eq!(refused(store, erase(&ann)).await, Some(Refusal::Fenced));
    assert!(store.record_at(&ann.tenant, record.id).await.expect("the store works").is_some());
}
