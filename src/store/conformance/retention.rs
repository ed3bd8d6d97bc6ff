//! Records whose retention is over, and the rest that is left of them.

use super::sample::{self, Sample};
use super::{admit, refused};
use crate::clock::Timestamp;
use crate::ledger::{EffectClass, ErrorKind, FinalState, Record, RecordedFailure, Retention, Scopes, State};
use crate::payload::{DigestKey, Payload, Stored};
use crate::store::{Change, Refusal, Retired, Run, RunState, Store};

const DIGEST_KEY: [u8; 32] = [7; 32];

/// A committed record that is kept until this instant.
async fn committed(store: &dyn Store, sample: &Sample, target: &str, until: i64) -> Record {
    committed_as(store, sample, Record { kept_until: Some(Timestamp(until)), ..sample.record(target) }).await
}

async fn committed_as(store: &dyn Store, sample: &Sample, record: Record) -> Record {
    let committed = sample.committed(&record);
    admit(store, &[sample.change().record(record), sample.change().record(committed.clone())]).await;
    committed
}

fn failed() -> RunState {
    RunState::Failed { failure: Payload::stored("null") }
}

fn succeeded() -> RunState {
    RunState::Succeeded { output: sample::inline(serde_json::json!("paid")) }
}

fn tombstone(record: &Record) -> Record {
    let retention = Retention::tombstone_after(std::time::Duration::ZERO);
    let key = DigestKey::new(DIGEST_KEY);
    retention.left(record, std::time::Duration::ZERO, &key, Timestamp::MAX).expect("digests are left")
}

async fn retire(store: &dyn Store, sample: &Sample, record: &Record, left: Option<Record>) {
    admit(store, &[Change { retired: vec![Retired::of(record, left)], beside: true, ..sample.change() }])
        .await;
}

async fn expired(store: &dyn Store) -> Vec<Record> {
    store.record_expired(Timestamp::MIN, Timestamp(100), 10).await.unwrap()
}

/// Records are listed when their time is over, the longest over first; a record that is kept is not listed.
pub async fn expired_ones_are_listed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let late = committed(store, &sample, "late", 30).await;
    let early = committed(store, &sample, "early", 10).await;
    let started = Record { kept_until: Some(Timestamp(20)), ..sample.record("failed") };
    let detail = serde_json::Value::Null;
    let failure = RecordedFailure { kind: ErrorKind::Validation, message: "no".into(), detail };
    let failed = sample.record_on(&started, State::Failed { failure });
    admit(store, &[sample.change().record(started), sample.change().record(failed.clone())]).await;
    committed_as(store, &sample, sample.record("for ever")).await;
    let listed = async |after: i64, until: i64, limit: u32| {
        store.record_expired(Timestamp(after), Timestamp(until), limit).await.unwrap()
    };
    assert_eq!(listed(i64::MIN, 9, 10).await, []);
    assert_eq!(listed(i64::MIN, 30, 10).await, [early.clone(), failed.clone(), late.clone()]);
    assert_eq!(listed(20, i64::MAX, 1).await, [failed]);
    assert_eq!(listed(21, 29, 10).await, []);
    let next = async |after: i64| store.record_expiring(Timestamp(after)).await.unwrap();
    assert_eq!(next(i64::MIN).await, Some(Timestamp(10)));
    assert_eq!(next(20).await, Some(Timestamp(30)));
    assert_eq!(next(30).await, None);
}

/// A record that is under way, asked about, to be looked up or rested on is not listed, and stays if a worker retires
/// it.
pub async fn what_is_needed_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let kept = Some(Timestamp(10));
    let expires = |record: Record| Record { kept_until: kept, ..record };
    let started = expires(sample.record("started"));
    admit(store, &[sample.change().record(started.clone())]).await;
    let to_be_confirmed = committed_as(store, &sample, expires(sample.record("confirmed later"))).await;
    admit(store, &[sample.change().look(sample.look(&to_be_confirmed, 5))]).await;
    let asked = committed(store, &sample, "asked about", 10).await;
    let question = crate::store::Question { record: Some(asked.id), ..sample.escalation("again?") };
    admit(store, &[sample.change().escalation(question.clone())]).await;
    let (run, other) = (sample.run("a"), sample.run("b"));
    let owned = expires(sample.call(&run, "pay/1", "owned"));
    admit(store, &[sample.change().run(run.clone()), sample.change().run(other.clone())]).await;
    let owned = committed_as(store, &sample, owned).await;
    let shared = committed(store, &sample, "shared", 10).await;
    let used = sample.used(&shared, &other);
    admit(store, &[Change { used: Some(Box::new(used)), ..sample.change() }]).await;

    assert_eq!(expired(store).await, []);
    for record in [&started, &to_be_confirmed, &asked, &owned, &shared] {
        let digests = (record.state != State::Started).then(|| tombstone(record));
        for left in [None, digests] {
            retire(store, &sample, record, left).await;
            let stored = store.record_at(&sample.tenant, record.id).await.unwrap();
            assert_eq!(stored.as_ref(), Some(record), "it is needed");
        }
    }

    // Once nobody needs them any more, they may go.
    admit(store, &[sample.change().escalation(sample::answered(&question, "ann"))]).await;
    let ended = |run| sample.change().run(sample.run_on(run, failed()));
    admit(store, &[ended(&run), ended(&other)]).await;
    assert_eq!(expired(store).await, [asked, owned, shared]);
}

/// A run that has gone on as new does not rest on its earlier calls.
pub async fn finished_history_may_go(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = Run { turn: 3, ..sample.run("a") };
    let call = |turn: u32, target: &str| {
        let mut record = Record { kept_until: Some(Timestamp(10)), ..sample.call(&run, "pay/1", target) };
        record.owner.turn = turn;
        record
    };
    admit(store, &[sample.change().run(run.clone())]).await;
    let (before, present) = (call(2, "before"), call(3, "present"));
    let before = committed_as(store, &sample, before).await;
    committed_as(store, &sample, present).await;
    assert_eq!(expired(store).await, []);
    let on = Run { base: 3, revision: 2, ..run };
    admit(store, &[sample.change().run(on)]).await;
    assert_eq!(expired(store).await, [before]);
}

/// An effect of a child that ended well stays for as long as a run above it may fail and undo it. What else the child
/// recorded may go, and so may what a child that failed has left.
pub async fn what_a_parent_may_undo_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let expires = |record: Record| Record { kept_until: Some(Timestamp(10)), ..record };
    let top = sample.run("top");
    let middle = Run { parent: Some(top.id), ..sample.run("middle") };
    let child = Run { parent: Some(middle.id), ..sample.run("child") };
    let lost = Run { parent: Some(middle.id), ..sample.run("lost") };
    for run in [&top, &middle, &child, &lost] {
        admit(store, &[sample.change().run(run.clone())]).await;
    }
    let effect = expires(sample.call(&child, "pay/1", "effect"));
    let effect = committed_as(store, &sample, effect).await;
    let query = Record { class: EffectClass::ReadOnly, ..sample.call(&child, "look/1", "query") };
    let query = committed_as(store, &sample, expires(query)).await;
    let undone = committed_as(store, &sample, expires(sample.call(&lost, "pay/1", "undone"))).await;
    let shared = committed(store, &sample, "shared", 10).await;
    let used = sample.used(&shared, &child);
    admit(store, &[Change { used: Some(Box::new(used)), ..sample.change() }]).await;
    for (run, state) in [(&child, succeeded()), (&lost, failed()), (&middle, succeeded())] {
        admit(store, &[sample.change().run(sample.run_on(run, state))]).await;
    }

    assert_eq!(expired(store).await, [query.clone(), undone.clone()]);
    for record in [&effect, &shared] {
        for left in [None, Some(tombstone(record))] {
            retire(store, &sample, record, left).await;
            let stored = store.record_at(&sample.tenant, record.id).await.unwrap();
            assert_eq!(stored.as_ref(), Some(record), "it may be undone");
        }
    }
    admit(store, &[sample.change().run(sample.run_on(&top, failed()))]).await;
    assert_eq!(expired(store).await, [effect, query, undone, shared]);
}

/// A run that has gone on as new does not undo what the children did that it had begun before.
pub async fn what_earlier_children_did_may_go(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let parent = Run { turn: 3, ..sample.run("parent") };
    admit(store, &[sample.change().run(parent.clone())]).await;
    let mut effects = Vec::new();
    // A name is escaped in such a key, and an id is not.
    for (n, place) in ["~turn:2/a", "~turn:3/a", "a/~turn:9/b", "a%2Fb\"\\"].into_iter().enumerate() {
        let key = format!("~child/{}/order/{place}", parent.id);
        let child = Run { parent: Some(parent.id), key: Some(key), ..sample.run_without_key() };
        admit(store, &[sample.change().run(child.clone())]).await;
        let call = sample.call(&child, "pay/1", &format!("effect {n}"));
        let call = Record { kept_until: Some(Timestamp(10)), ..call };
        effects.push(committed_as(store, &sample, call).await);
        admit(store, &[sample.change().run(sample.run_on(&child, succeeded()))]).await;
    }
    assert_eq!(expired(store).await, []);
    let on = Run { base: 3, revision: 2, ..parent };
    admit(store, &[sample.change().run(on)]).await;
    let _of_this_input = effects.remove(1);
    assert_eq!(expired(store).await, effects);
}

/// A tombstone keeps the key taken, and no earlier content can be read.
pub async fn a_tombstone_keeps_its_key(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut record = Record { kept_until: Some(Timestamp(10)), ..sample.record("a") };
    record.owner.call_id = Some("call-1".into());
    record.owner.step = Some("pay/1".into());
    record.external_ref = Some("ch_1".into());
    (record.sealed_at, record.approval) = (Some(Timestamp(5)), Some(Box::new(sample::approval("ann"))));
    record.scopes = Some(Box::new(Scopes::of("acct_17")));
    let committed = committed_as(store, &sample, record).await;
    let (contacts, record_labels) =
        (vec![sample.attempt(&committed, 1)], vec![sample.record_label(&committed, "customer", "c-7")]);
    let attempt = Change { record_labels, contacts, ..sample.change() };
    let late = Change { evidence: Some(Box::new(sample.evidence(&committed, 1))), ..Change::default() };
    admit(store, &[attempt, late]).await;
    let left = tombstone(&committed);
    assert!(matches!(left.state, State::Gone { was: FinalState::Committed, .. }), "{left:?}");
    assert_eq!(
        (left.sealed_at, &left.approval, &left.scopes),
        (Some(Timestamp(5)), &None, &None),
        "when, and not who"
    );
    retire(store, &sample, &committed, Some(left.clone())).await;
    let found = store.record_find(&sample.tenant, &committed.key).await.unwrap();
    assert_eq!(found.as_ref(), Some(&left));
    assert_eq!(store.record_at(&sample.tenant, left.id).await.unwrap(), Some(left.clone()));
    assert_eq!(store.record_evidence(&sample.tenant, left.id).await.unwrap(), []);
    assert_eq!(store.record_contacts(&sample.tenant, left.id).await.unwrap(), []);
    assert_eq!(store.record_labels(&sample.tenant, left.id).await.unwrap(), []);
    assert_eq!(expired(store).await, []);
    assert_eq!(refused(store, sample.change().record(sample.record("a"))).await, Some(Refusal::Exists));
    // The same retirement again, because its answer was lost, changes nothing.
    retire(store, &sample, &committed, Some(left.clone())).await;
    assert_eq!(store.record_at(&sample.tenant, left.id).await.unwrap(), Some(left));
}

/// A forgotten record leaves nothing: the key is new, and its next record has nothing of the first one's.
pub async fn a_forgotten_key_is_new(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let committed = committed(store, &sample, "a", 10).await;
    let run = Run { state: failed(), ..sample.run("a") };
    let used = sample.used(&committed, &run);
    let changes = [
        sample.change().run(run.clone()),
        Change { used: Some(Box::new(used)), ..sample.change() },
        Change { evidence: Some(Box::new(sample.evidence(&committed, 1))), ..Change::default() },
        Change { contacts: vec![sample.attempt(&committed, 1)], ..sample.change() },
        Change { record_labels: vec![sample.record_label(&committed, "customer", "c-7")], ..sample.change() },
    ];
    admit(store, &changes).await;
    retire(store, &sample, &committed, None).await;
    assert_eq!(store.record_find(&sample.tenant, &committed.key).await.unwrap(), None);
    assert_eq!(store.record_at(&sample.tenant, committed.id).await.unwrap(), None);
    assert_eq!(store.record_uses(&sample.tenant, committed.id).await.unwrap(), []);
    assert_eq!(store.record_evidence(&sample.tenant, committed.id).await.unwrap(), []);
    assert_eq!(store.record_contacts(&sample.tenant, committed.id).await.unwrap(), []);
    let labelled = store.record_labelled(&sample.tenant, ("customer", "c-7"), "", "", 9).await.unwrap();
    assert_eq!(labelled, []);
    let again = sample.record("a");
    admit(store, &[sample.change().record(again.clone())]).await;
    assert_eq!(store.record_find(&sample.tenant, &again.key).await.unwrap(), Some(again));
}

/// A record may be kept for longer, and is not listed before that.
pub async fn may_be_kept_for_longer(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = committed(store, &sample, "a", 10).await;
    let kept = |record: &Record, until| Record {
        kept_until: until,
        revision: record.revision + 1,
        ..record.clone()
    };
    let longer = kept(&first, Some(Timestamp(50)));
    retire(store, &sample, &first, Some(longer.clone())).await;
    assert_eq!(store.record_find(&sample.tenant, &first.key).await.unwrap(), Some(longer.clone()));
    assert_eq!(store.record_expired(Timestamp::MIN, Timestamp(49), 10).await.unwrap(), []);
    retire(store, &sample, &longer, Some(kept(&longer, None))).await;
    assert_eq!(expired(store).await, []);
    assert_eq!(store.record_expiring(Timestamp::MIN).await.unwrap(), None);
}

/// Payloads that are too large for their rows are deleted with the last record that refers to them; a payload that a
/// run refers to stays.
pub async fn large_payloads_go_with_the_last_record(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let body = |of: &str| sample::payload(&serde_json::json!({ "large": of }));
    let (shared, own, input) = (body("shared"), body("own"), body("input"));
    let large = |target: &str, request: &Payload| Record {
        request: Stored::At(request.digest()),
        kept_until: Some(Timestamp(10)),
        ..sample.record(target)
    };
    let write = async |record: Record, payloads: &[&Payload]| {
        let payloads = payloads.iter().map(|&payload| (sample.tenant.clone(), payload.clone())).collect();
        admit(store, &[Change { payloads, ..sample.change().record(record) }]).await;
    };
    let mut committed = Vec::new();
    for (target, response) in [("a", &shared), ("b", &own), ("c", &input)] {
        let started = large(target, &shared);
        write(started.clone(), &[&shared]).await;
        let response_at = State::Committed { response: Stored::At(response.digest()) };
        let done = sample.record_on(&started, response_at);
        write(done.clone(), &[response]).await;
        committed.push(done);
    }
    let run = Run { input: Stored::At(input.digest()), ..sample.run("r") };
    let payloads = vec![(sample.tenant.clone(), input.clone()), (sample.tenant.clone(), input.clone())];
    admit(store, &[Change { payloads, ..sample.change().run(run) }]).await;
    let is_there = async |payload: &Payload| {
        store.payload_find(&sample.tenant, payload.digest()).await.unwrap().is_some()
    };
    for (record, left) in [(0, None), (1, Some(tombstone(&committed[1])))] {
        assert!(is_there(&own).await);
        retire(store, &sample, &committed[record], left).await;
        assert!(is_there(&shared).await, "another record refers to it");
    }
    assert!(!is_there(&own).await);
    retire(store, &sample, &committed[2], None).await;
    assert!(!is_there(&shared).await);
    assert!(is_there(&input).await, "a run refers to it");
}

/// A stale retirement changes nothing, and neither does one by another tenant's worker or a fenced one.
pub async fn what_has_changed_stays(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let committed = committed(store, &sample, "a", 10).await;
    let stale = Record { revision: 1, ..committed.clone() };
    let foreign = Record { tenant: sample::tenant("globex"), ..committed.clone() };
    for other in [&stale, &foreign] {
        for left in [None, Some(tombstone(other))] {
            retire(store, &sample, other, left).await;
        }
    }
    let bob = Sample::enrol(store, "bob").await;
    admit(store, &[sample::fence_others(bob.fence)]).await;
    let late = Change { retired: vec![Retired::of(&committed, None)], ..sample.change() };
    assert_eq!(refused(store, late).await, Some(Refusal::Fenced));
    assert_eq!(store.record_find(&sample.tenant, &committed.key).await.unwrap(), Some(committed));
}
