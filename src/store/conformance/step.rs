//! The checkpoints of a run, and its whole history.

use serde_json::json;

use super::sample::{self, HOSTILE, Sample, inline, payload};
use super::{admit, refused};
use crate::ledger::{RecordedFailure, State};
use crate::payload::Stored;
use crate::store::{
    Change, History, PastCall, PastStep, PastUse, Refusal, Run, Step, StepKind, Store, Turns,
};

fn past(step: &Step) -> PastStep {
    PastStep {
        turn: step.turn,
        kind: step.kind,
        name: step.name.clone(),
        id: step.id.clone(),
        input_hash: step.input_hash,
        value: step.value.clone(),
        at: step.at,
    }
}

async fn assert_steps(store: &dyn Store, run: &Run, expected: &[Step]) {
    let order = |steps: &mut Vec<PastStep>| {
        steps.sort_by(|a, b| (a.kind, &a.name, &a.id).cmp(&(b.kind, &b.name, &b.id)));
    };
    let mut found = store.run_history(&run.tenant, run.id, Turns::ALL).await.unwrap().steps;
    let mut expected = expected.iter().map(past).collect();
    order(&mut found);
    order(&mut expected);
    assert_eq!(found, expected);
}

/// Checkpoints of every kind come back with their run, and with no other.
pub async fn comes_back_with_its_run(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, other) = (sample.run("a"), sample.run("b"));
    let mut steps: Vec<_> =
        StepKind::ALL.into_iter().map(|kind| Step { kind, ..sample.step(&run, "1") }).collect();
    steps.push(Step { value: None, ..sample.step(&run, "no value") });
    steps.push(Step { input_hash: None, ..sample.step(&run, "no hash") });
    let large = Stored::At(payload(&json!("large")).digest());
    steps.push(Step { value: Some(large), ..sample.step(&run, "large") });
    let changes: Vec<_> = steps.iter().map(|step| sample.change().step(step.clone())).collect();
    admit(store, &changes).await;
    admit(store, &[sample.change().run(run.clone()), sample.change().step(sample.step(&other, "1"))]).await;
    assert_steps(store, &run, &steps).await;
    assert_eq!(
        store.run_history(&run.tenant, sample.run("c").id, Turns::ALL).await.unwrap(),
        History::default()
    );
}

/// Text is stored unchanged, in names, ids and values.
pub async fn hostile_text_is_text(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let large = "x".repeat(100_000);
    let texts = HOSTILE.into_iter().chain(["", "a\0b", "a\0c", "a", "A", "a ", "ä", "a\u{308}", &large]);
    let steps: Vec<_> = texts
        .flat_map(|text| {
            let value = Some(inline(json!({ "text": text })));
            [
                Step { name: text.into(), value: value.clone(), ..sample.step(&run, "1") },
                Step { id: text.into(), value, ..sample.step(&run, "1") },
            ]
        })
        .collect();
    let changes: Vec<_> = steps.iter().map(|step| sample.change().step(step.clone())).collect();
    admit(store, &changes).await;
    assert_steps(store, &run, &steps).await;
}

/// A checkpoint is written once: another value, another hash or none is refused as `Exists`.
pub async fn is_written_once(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let first = sample.step(&run, "1");
    admit(store, &[sample.change().step(first.clone())]).await;
    for other in [
        Step { value: None, ..first.clone() },
        Step { value: Some(inline(json!("another"))), ..first.clone() },
        Step { input_hash: None, ..first.clone() },
        Step { input_hash: Some(sample::hash("another")), ..first.clone() },
    ] {
        assert_eq!(
            refused(store, sample.change().step(other.clone())).await,
            Some(Refusal::Exists),
            "{other:?}"
        );
    }
    assert_steps(store, &run, &[first]).await;
}

/// Only kind, name and id distinguish the checkpoints of a run.
pub async fn is_known_by_kind_name_and_id(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let first = sample.step(&run, "1");
    let steps = [
        first.clone(),
        Step { kind: StepKind::Timer, ..first.clone() },
        Step { name: "store".into(), ..first.clone() },
        Step { id: "2".into(), ..first.clone() },
        Step { name: "load1".into(), id: String::new(), ..first },
    ];
    admit(store, &steps.each_ref().map(|step| sample.change().step(step.clone()))).await;
    assert_steps(store, &run, &steps).await;
}

/// The same run id under another tenant has a history of its own.
pub async fn belongs_to_its_tenant(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let (run, owner) = (sample.run("a"), sample.run("b"));
    let (ours, call, foreign) = (sample.step(&run, "1"), sample.call(&run, "pay/1", "a"), sample.record("b"));
    let mut change = sample.change().step(ours.clone()).record(call).run(run.clone());
    change.used = Some(Box::new(sample.used(&foreign, &run)));
    admit(store, &[sample.change().record(foreign).run(owner), change]).await;
    assert_eq!(store.run_history(&other.tenant, run.id, Turns::ALL).await.unwrap(), History::default());

    let theirs = Step { value: Some(inline(json!("theirs"))), ..other.step(&run, "1") };
    admit(store, &[other.change().step(theirs.clone())]).await;
    assert_steps(store, &run, &[ours]).await;
    assert_steps(store, &Run { tenant: other.tenant, ..run }, &[theirs]).await;
}

/// The operations that a run owns come back with it, with a result if they are committed.
pub async fn calls_come_back_with_their_run(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let response = inline(json!({ "id": "ch_1" }));
    let failure = RecordedFailure {
        kind: crate::ledger::ErrorKind::Unknown,
        message: "no".into(),
        detail: json!(null),
    };
    let states = [
        State::Started,
        State::Committed { response: response.clone() },
        State::Failed { failure },
        State::Compensated { response: response.clone(), compensation: response.clone(), whole: true },
        State::Abandoned { reason: "no".into() },
    ];
    let mut calls = Vec::new();
    for (i, state) in states.into_iter().enumerate() {
        let mut record = sample.call(&run, &format!("pay/{i}"), &i.to_string());
        record.state = state;
        calls.push(record);
    }
    calls[0].owner.step = None;
    let mut changes: Vec<_> = calls.iter().map(|record| sample.change().record(record.clone())).collect();
    changes.push(sample.change().record(sample.record("of nobody")));
    changes.push(sample.change().record(sample.call(&sample.run("b"), "pay/1", "of another")));
    admit(store, &changes).await;

    let mut found = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().calls;
    found.sort_by_key(|call| call.record);
    let expected: Vec<_> = calls
        .iter()
        .map(|record| PastCall {
            record: record.id,
            key: record.key.clone(),
            operation: record.operation.as_str().to_owned(),
            turn: record.owner.turn,
            step: record.owner.step.as_deref().unwrap_or_default().to_owned(),
            request_hash: record.request_hash,
            attempts: record.attempts,
            cost: record.cost,
            response: matches!(record.state, State::Committed { .. }).then(|| response.clone()),
        })
        .collect();
    assert_eq!(found, expected);
}

/// The operations of other runs that answered a run come back with it, and only those of its tenant.
pub async fn uses_come_back_with_their_run(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let foreign = sample.for_tenant("globex").record("secret");
    let used = |record| Change { used: Some(Box::new(sample.used(record, &run))), ..sample.change() };
    let changes = [
        sample.change().record(record.clone()),
        sample.change().record(foreign.clone()),
        used(&record),
        used(&foreign),
    ];
    admit(store, &changes).await;
    let found = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().uses;
    let expected = PastUse {
        record: record.id,
        key: record.key.clone(),
        operation: record.operation.as_str().to_owned(),
        turn: 0,
        step: "pay/1".into(),
    };
    assert_eq!(found, [expected]);
}
