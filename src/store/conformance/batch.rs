//! A batch: judged change by change, each of them all or nothing.

use super::sample::{self, Sample};
use super::{admit, one, refused};
use crate::id::RunId;
use crate::store::{Change, Refusal, RunState, Store, Turns, Verdict, WaitsOn};

/// An empty batch has no verdicts.
pub async fn nothing_is_a_batch(store: &dyn Store) {
    assert_eq!(store.commit(&[]).await.expect("the store works"), []);
    let sample = Sample::enrol(store, "ann").await;
    admit(store, &[sample.change()]).await;
}

/// A batch may have any number of changes, and all of them are there afterwards.
pub async fn sizes(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    for size in [1, 2, 5, 257, 1000] {
        let runs: Vec<_> = (0..size).map(|i| sample.run(&format!("{size}/{i}"))).collect();
        let changes: Vec<_> = runs
            .iter()
            .map(|run| {
                let call = sample.call(run, "pay/1", &format!("{}", run.id));
                sample.change().run(run.clone()).step(sample.step(run, "1")).record(call)
            })
            .collect();
        admit(store, &changes).await;
        let after = RunId(runs[0].id.0 - 1);
        let limit = u32::try_from(size).expect("a small number");
        assert_eq!(store.run_list(&sample.tenant, after, limit).await.unwrap(), runs, "a batch of {size}");
        for run in [&runs[0], &runs[size / 2], &runs[size - 1]] {
            let history = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap();
            assert_eq!((history.steps.len(), history.calls.len()), (1, 1), "a batch of {size}");
        }
    }
}

/// `verdicts[i]` belongs to `changes[i]`.
pub async fn verdicts_stand_in_the_order_of_the_changes(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let first = sample.record("a");
    admit(store, &[sample.change().record(first.clone())]).await;
    let stale = sample.record_on(&sample.committed(&first), first.state.clone());
    let changes = [
        sample.change().record(sample.record("b")),
        sample.change().record(sample.record("a")),
        sample.change().record(stale),
        sample.change().record(sample.record("c")),
    ];
    let verdicts = store.commit(&changes).await.unwrap();
    let expected = [
        Verdict::Admitted,
        Verdict::Refused(Refusal::Exists),
        Verdict::Refused(Refusal::Stale),
        Verdict::Admitted,
    ];
    assert_eq!(verdicts, expected);
}

/// A change is admitted or refused by itself: a refused one in the middle of 300 affects none of the others.
pub async fn one_refused_change_leaves_the_others(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let taken = sample.step(&run, "taken");
    admit(store, &[sample.change().run(run.clone()).step(taken.clone())]).await;
    let mut changes: Vec<_> =
        (0..300).map(|i| sample.change().step(sample.step(&run, &i.to_string()))).collect();
    changes[150] = sample.change().step(crate::store::Step { value: None, ..taken });
    let verdicts = store.commit(&changes).await.unwrap();
    let refusals: Vec<_> =
        verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.is_admitted()).collect();
    assert_eq!(refusals, [(150, &Verdict::Refused(Refusal::Exists))]);
    let history = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap();
    assert_eq!(history.steps.len(), 300, "the first one and 299 of these");
}

/// Nothing of a refused change is written, whichever of its rows is the reason.
pub async fn a_change_is_all_or_nothing(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let (step, question) = (sample.step(&run, "taken"), sample.escalation("taken"));
    let taken = sample.change().run(run.clone()).record(record.clone()).step(step.clone());
    admit(store, &[taken.escalation(question.clone())]).await;

    let full = |i: usize| {
        let run = sample.run(&format!("new {i}"));
        let record = sample.call(&run, "pay/1", &format!("new {i}"));
        let mut change = sample.change().step(sample.step(&run, "1")).escalation(sample.escalation("new"));
        change.used = Some(Box::new(sample.used(&record, &run)));
        change.evidence = Some(Box::new(sample.evidence(&record, 1)));
        change.payloads = vec![(sample.tenant.clone(), sample::payload(&i.into()))];
        change.run(run).record(record)
    };
    let spoil = |change: &mut Change, row: &str, by: &Change| match row {
        "run" => change.run.clone_from(&by.run),
        "record" => change.record.clone_from(&by.record),
        "step" => change.steps.clone_from(&by.steps),
        _ => change.escalations.extend(by.escalations.clone()),
    };
    let mut spoiler = sample.change().run(sample.run("a")).record(sample.record("a"));
    spoiler.steps = vec![crate::store::Step { value: None, ..step }];
    spoiler.escalations = vec![crate::store::Question { question: "another".into(), ..question }];
    let rows = [
        ("run", Refusal::Exists),
        ("record", Refusal::Exists),
        ("step", Refusal::Exists),
        ("escalation", Refusal::Stale),
    ];
    for (i, (row, refusal)) in rows.into_iter().enumerate() {
        let whole = full(i);
        let mut change = whole.clone();
        spoil(&mut change, row, &spoiler);
        assert_eq!(refused(store, change).await, Some(refusal), "spoiled by its {row}");
        assert_unwritten(store, &sample, &whole, row).await;
        admit(store, &[whole]).await;
    }
}

async fn assert_unwritten(store: &dyn Store, sample: &Sample, change: &Change, spoiled_by: &str) {
    let tenant = &sample.tenant;
    let (run, record) = (change.run.as_ref().unwrap(), change.record.as_ref().unwrap());
    let what = format!("a change spoiled by its {spoiled_by}");
    assert_eq!(store.run_find(tenant, run.id).await.unwrap(), None, "run of {what}");
    assert_eq!(
        store.run_history(tenant, run.id, Turns::ALL).await.unwrap(),
        crate::store::History::default(),
        "{what}"
    );
    assert_eq!(store.record_find(tenant, &record.key).await.unwrap(), None, "record of {what}");
    assert_eq!(store.record_uses(tenant, record.id).await.unwrap(), [], "use of {what}");
    assert_eq!(store.record_evidence(tenant, record.id).await.unwrap(), [], "evidence of {what}");
    let question = change.escalations[0].id;
    assert_eq!(store.escalation_find(tenant, question).await.unwrap(), None, "escalation of {what}");
    let digest = change.payloads[0].1.digest();
    assert_eq!(store.payload_find(tenant, digest).await.unwrap(), None, "payload of {what}");
}

/// The very same change again is admitted, because an earlier answer was lost. It changes nothing.
pub async fn the_same_change_again_is_admitted(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let question = sample.escalation("?");
    let mut used = sample.change();
    used.used = Some(Box::new(sample.used(&record, &run)));
    let late = Change {
        evidence: Some(Box::new(sample.evidence(&record, 1))),
        payloads: vec![(sample.tenant.clone(), sample::payload(&"large".into()))],
        ..Change::default()
    };
    let changes = [
        sample::enrol("bob"),
        sample.change().run(run.clone()),
        sample.change().record(record.clone()),
        sample.change().record(sample.committed(&record)),
        sample.change().step(sample.step(&run, "1")),
        sample.change().escalation(question.clone()),
        sample.change().escalation(sample::answered(&question, "ann")),
        used,
        late,
        sample
            .change()
            .run(sample.run_on(&run, RunState::Waiting { until: None, on: WaitsOn::ANSWER }))
            .step(sample.step(&run, "2")),
    ];
    for change in changes {
        for time in ["first", "second", "third"] {
            let verdict = one(store, change.clone()).await;
            assert_eq!(verdict, Verdict::Admitted, "the {time} time: {change:?}");
        }
    }
    assert_eq!(store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().steps.len(), 2);
    assert_eq!(store.run_find(&sample.tenant, run.id).await.unwrap().map(|run| run.revision), Some(2));
}

/// The very same batch again is admitted as a whole, if no row occurs in it twice.
pub async fn the_same_batch_again_is_admitted(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let old = sample.record("old");
    admit(store, &[sample.change().record(old.clone())]).await;
    let run = sample.run("a");
    let mut batch: Vec<_> =
        (0..20).map(|i| sample.change().record(sample.call(&run, "pay/1", &i.to_string()))).collect();
    batch.push(sample.change().record(sample.committed(&old)).step(sample.step(&run, "1")));
    batch.push(sample.change().run(run));
    for _ in 0..3 {
        admit(store, &batch).await;
    }
}

/// A change is refused if only a part of it is stored as it would have written it.
pub async fn a_part_of_a_change_again_is_refused(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    admit(store, &[sample.change().run(run.clone()).record(record.clone())]).await;
    let again = sample.change().record(record).step(sample.step(&run, "1"));
    assert_eq!(refused(store, again).await, Some(Refusal::Stale));
    assert_eq!(store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().steps, []);
}

/// Changes of one row in one batch build on one another in their order.
pub async fn changes_of_one_row_build_on_one_another(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (run, record) = (sample.run("a"), sample.record("a"));
    let waiting = sample.run_on(&run, RunState::Waiting { until: None, on: WaitsOn::ANSWER });
    let active = sample.run_on(&waiting, RunState::Active);
    let committed = sample.committed(&record);
    let batch = [
        sample.change().run(run),
        sample.change().record(record),
        sample.change().run(waiting),
        sample.change().record(committed.clone()),
        sample.change().run(active.clone()),
    ];
    admit(store, &batch).await;
    assert_eq!(store.run_find(&sample.tenant, active.id).await.unwrap(), Some(active));
    assert_eq!(store.record_find(&sample.tenant, &committed.key).await.unwrap(), Some(committed));
    let early = sample.record("early");
    let verdicts = store
        .commit(&[sample.change().record(sample.committed(&early)), sample.change().record(early)])
        .await;
    assert_eq!(
        verdicts.unwrap(),
        [Verdict::Refused(Refusal::Stale), Verdict::Admitted],
        "the wrong way round"
    );
}
