//! Encryption at rest, between the queue of changes and a store.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use counterfoil::Timestamp;
use counterfoil::ledger::{ErrorKind, Record, RecordedFailure, State};
use counterfoil::payload::{DigestKey, Stored};
use counterfoil::store::conformance::sample::{Sample, approval, inline, payload};
use counterfoil::store::encryption::{EncryptedStore, EncryptionKey, Keyring, TenantKeys};
use counterfoil::store::{
    Answer, Change, Contact, Document, Evidence, ExpiredSignal, Model, OutboxEvent, PublishedValue, Question,
    Refusal, Resolution, Retired, Run, RunState, Schedule, Signal, Step, Store, StoreError, StoreFuture,
    Verdict,
};
use serde_json::json;

fn keys() -> TenantKeys {
    TenantKeys::new(EncryptionKey::new("k1", [1; 32]).unwrap())
}

/// A store under keys of which the second one is used for new texts.
pub(crate) fn encrypted(store: Arc<dyn Store>) -> EncryptedStore {
    EncryptedStore::new(store, Arc::new(keys().writes(EncryptionKey::new("k2", [2; 32]).unwrap())))
}

/// A store that notes what it is given.
#[derive(Debug)]
struct Spy {
    model: Model,
    given: Mutex<String>,
}

impl Spy {
    fn new() -> Arc<Self> {
        Arc::new(Self { model: Model::new(), given: Mutex::default() })
    }
}

impl Store for Spy {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        write!(self.given.lock().unwrap(), "{changes:?}").unwrap();
        self.model.commit(changes)
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.model)
    }
}

async fn admitted(store: &dyn Store, change: Change) {
    assert_eq!(store.commit(&[change]).await.unwrap(), [Verdict::Admitted]);
}

fn canary() -> Stored {
    inline(json!("canary"))
}

fn states() -> [State; 4] {
    let failure = RecordedFailure {
        kind: ErrorKind::Validation,
        message: "canary".into(),
        detail: json!({"of": "canary"}),
    };
    [
        State::Committed { response: canary() },
        State::Failed { failure },
        State::Compensated { response: canary(), compensation: canary(), whole: true },
        State::Abandoned { reason: "canary".into() },
    ]
}

#[tokio::test]
async fn a_store_is_given_no_private_value() {
    let spy = Spy::new();
    let store = encrypted(spy.clone());
    let sample = Sample::enrol(&store, "one").await;
    let run = Run { input: canary(), ..sample.run("run") };
    admitted(&store, sample.change().run(run.clone())).await;
    let failure = payload(&json!({"message": "canary"}));
    let ends = [
        RunState::Succeeded { output: canary() },
        RunState::Failed { failure: failure.clone() },
        RunState::Blocked { failure },
    ];
    for (of, state) in ["a", "b", "c"].into_iter().zip(ends) {
        let run = sample.run(of);
        admitted(&store, sample.change().run(run.clone())).await;
        admitted(&store, sample.change().run(sample.run_on(&run, state.clone()))).await;
        assert_eq!(store.run_find(&run.tenant, run.id).await.unwrap().unwrap().state, state);
    }
    for (of, state) in ["one", "two", "three", "four"].into_iter().zip(states()) {
        let approval = Some(Box::new(approval("ann")));
        let record = Record { request: canary(), approval, ..sample.record(of) };
        admitted(&store, sample.change().record(record.clone())).await;
        let record = sample.record_on(&record, state);
        admitted(&store, sample.change().record(record.clone())).await;
        assert_eq!(store.record_at(&record.tenant, record.id).await.unwrap().unwrap(), record);
    }
    let record = sample.record("seen");
    let (tenant, at) = (sample.tenant.clone(), Timestamp(1));
    let event = OutboxEvent {
        tenant: tenant.clone(),
        id: "e".into(),
        aggregate: "a".into(),
        seq: 1,
        kind: "k".into(),
        payload: canary(),
        created_at: at,
    };
    let answers = [
        Resolution::Happened(json!("canary")),
        Resolution::Undone(json!({"canary": 1})),
        Resolution::Deliver(json!(["canary"])),
        Resolution::SendWithoutLooking { reason: "canary".into() },
    ];
    let asked = answers.map(|resolution| {
        let text = || Some("canary".to_owned());
        let answer =
            Answer { by: "ann".into(), resolution, because: text(), misfit: text(), at: Timestamp(5) };
        let asked = sample.escalation("canary?");
        (asked.clone(), Question { waiting: Some(answer.clone()), answer: Some(answer), ..asked })
    });
    let key = DigestKey::new([7; 32]);
    let rows = Change {
        contacts: vec![Contact { message: Some("canary".into()), ..sample.attempt(&record, 1) }],
        documents: vec![Document { body: "canary".into(), ..sample.document("d") }],
        schedule: Some(Box::new(Schedule { input: canary(), ..sample.schedule("s", 1) })),
        published: Some(Box::new(PublishedValue {
            value: payload(&json!("canary")),
            ..sample.published(&run, "p")
        })),
        events: vec![event],
        payloads: vec![(tenant.clone(), payload(&json!("canary")))],
        tenant_key: Some((tenant.clone(), key.clone())),
        steps: vec![Step { value: Some(canary()), ..sample.step(&run, "step") }],
        signal: Some(Box::new(Signal { body: canary(), ..sample.signal(&run, "told", "1") })),
        evidence: Some(Box::new(Evidence { response: canary(), ..sample.evidence(&record, 1) })),
        escalations: asked.iter().map(|(asked, _)| asked.clone()).collect(),
        ..sample.change().record(record.clone())
    };
    admitted(&store, rows).await;
    for (_, answered) in &asked {
        admitted(&store, sample.change().escalation(answered.clone())).await;
        assert_eq!(store.escalation_find(&tenant, answered.id).await.unwrap().as_ref(), Some(answered));
    }
    let given = spy.given.lock().unwrap().clone();
    assert!(given.contains("~k2:") && given.contains("ann"), "{given}");
    assert!(!given.contains("canary"), "{given}");
    let hash = format!("{:?}", record.request_hash);
    assert!(given.contains("v1:") && !given.contains(&hash), "the digest of the request is permuted");
    let left = |key: &DigestKey| ExpiredSignal::of(sample.signal(&run, "told", "1"), key).left;
    assert_ne!(left(&spy.tenant_key(&tenant).await.unwrap().unwrap()), left(&key));
    assert_eq!(left(&store.tenant_key(&tenant).await.unwrap().unwrap()), left(&key));
    let digest = payload(&json!("canary")).digest();
    assert_eq!(
        spy.payload_find(&tenant, digest).await.unwrap(),
        None,
        "nor is its address the digest of its text"
    );
    assert_eq!(store.payload_find(&tenant, digest).await.unwrap().unwrap().as_str(), "\"canary\"");
}

// A text that was moved or changed by hand is damage, and not another text.
#[tokio::test]
async fn a_value_that_was_put_into_another_row_is_damage() {
    let model = Arc::new(Model::new());
    let store = encrypted(model.clone());
    let sample = Sample::enrol(&store, "one").await;
    let (ann, bob) = (sample.record("ann"), sample.record("bob"));
    admitted(&store, sample.change().record(ann.clone())).await;
    admitted(&store, sample.change().record(sample.committed(&ann))).await;
    admitted(&store, sample.change().record(bob.clone())).await;
    let stored = model.record_at(&ann.tenant, ann.id).await.unwrap().unwrap();
    let moved = Record {
        state: stored.state,
        revision: 2,
        ..model.record_at(&bob.tenant, bob.id).await.unwrap().unwrap()
    };
    admitted(&*model, sample.change().record(moved)).await;
    assert!(store.record_at(&ann.tenant, ann.id).await.is_ok());
    let damaged = store.record_at(&bob.tenant, bob.id).await;
    assert!(matches!(damaged, Err(StoreError::Corrupt { .. })), "{damaged:?}");
}

#[tokio::test]
async fn without_its_tenants_key_a_change_is_refused_and_others_are_written() {
    let line = |tenant: &str| format!("{tenant} {tenant}-1 {}\n", "ab".repeat(32));
    let keyring = Keyring::parse(&(line("t1") + &line("other"))).unwrap();
    let store = EncryptedStore::new(Arc::new(Model::new()), Arc::new(keyring));
    let sample = Sample::enrol(&store, "one").await;
    let (known, unknown) = (sample.for_tenant("t1"), sample.for_tenant("unknown"));
    let first = Some(counterfoil::store::OrderingKey(1));
    let changes = [
        unknown.change().record(unknown.record("a")).in_lane(first),
        known.change().record(known.record("b")).in_lane(first),
        known.change().record(known.record("c")),
    ];
    let verdicts = store.commit(&changes).await.unwrap();
    assert!(
        matches!(&verdicts[0], Verdict::Refused(Refusal::Invalid(why)) if why.contains("no key")),
        "{verdicts:?}"
    );
    assert_eq!(verdicts[1..], [Verdict::Refused(Refusal::Predecessor), Verdict::Admitted]);
}

// The content of a signal is compared as it is stored, which may be under an earlier key.
#[tokio::test]
async fn a_signal_expires_after_its_key_was_changed() {
    let model = Arc::new(Model::new());
    let before = EncryptedStore::new(model.clone(), Arc::new(keys()));
    let sample = Sample::enrol(&before, "one").await;
    let run = sample.run("run");
    let signal = sample.signal(&run, "told", "1");
    admitted(&before, sample.change().run(run.clone())).await;
    admitted(&before, Change { signal: Some(Box::new(signal.clone())), ..sample.change() }).await;
    admitted(&before, Change { received: Some(Box::new(signal.clone())), ..sample.change() }).await;
    let after = encrypted(model);
    let expired = ExpiredSignal::of(signal.clone(), &DigestKey::new([7; 32]));
    let left = expired.left.clone();
    admitted(&after, Change { expired_signals: vec![expired], ..sample.change() }).await;
    let stored = after.signal_find(&signal.tenant, run.id, "told", "1").await.unwrap().unwrap();
    assert_eq!(stored.body, left);
}

// The rows of a tenant whose keys were dropped are listed as they are stored, and retention goes on for all tenants.
#[tokio::test]
async fn what_nobody_can_read_any_more_is_retired() {
    let line = |tenant: &str| format!("{tenant} {tenant}-1 {}\n", "ab".repeat(32));
    let keyring = Arc::new(Keyring::parse(&(line("t1") + &line("other"))).unwrap());
    let store = EncryptedStore::new(Arc::new(Model::new()), keyring.clone());
    let sample = Sample::enrol(&store, "one").await;
    let (dropped, other) = (sample.for_tenant("t1"), sample.for_tenant("other"));
    for tenant in [&dropped, &other] {
        let record = Record { kept_until: Some(Timestamp(10)), ..tenant.record("ann") };
        admitted(&store, tenant.change().record(record.clone())).await;
        admitted(&store, tenant.change().record(tenant.committed(&record))).await;
    }
    keyring.replace(&line("other")).unwrap();
    let over = store.record_expired(Timestamp(0), Timestamp(100), 10).await.unwrap();
    assert_eq!(over.len(), 2);
    let retired = over.iter().map(|record| Retired::of(record, None)).collect();
    admitted(&store, Change { retired, beside: true, ..sample.change() }).await;
    assert_eq!(store.record_expired(Timestamp(0), Timestamp(100), 10).await.unwrap(), []);
}
