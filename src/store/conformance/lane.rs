//! The writes of one activation of a run go in order, and stop at a refusal.

use super::admit;
use super::sample::Sample;
use crate::store::{Change, OrderingKey, Refusal, RunState, Store, Turns, Verdict};

const ONE: Option<OrderingKey> = Some(OrderingKey(1));
const TWO: Option<OrderingKey> = Some(OrderingKey(2));

async fn verdicts(store: &dyn Store, changes: &[Change]) -> Vec<Option<Refusal>> {
    let refusal = |verdict| match verdict {
        Verdict::Admitted => None,
        Verdict::Refused(refusal) => Some(refusal),
    };
    store.commit(changes).await.expect("the store works").into_iter().map(refusal).collect()
}

/// After a refused change, all later changes of its lane in the batch are refused as `Predecessor`.
pub async fn a_refused_change_stops_its_lane(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let stale = sample.run_on(&sample.run_on(&run, RunState::Active), RunState::Active);
    let step = |id: &str| sample.change().step(sample.step(&run, id)).in_lane(ONE);
    let batch = [
        sample.change().run(run.clone()).in_lane(ONE),
        step("1"),
        sample.change().run(stale).in_lane(ONE),
        step("2"),
        sample.change().in_lane(ONE),
        step("3"),
    ];
    let predecessor = Some(Refusal::Predecessor);
    let expected = [None, None, Some(Refusal::Stale), predecessor.clone(), predecessor.clone(), predecessor];
    assert_eq!(verdicts(store, &batch).await, expected);
    let steps = store.run_history(&sample.tenant, run.id, Turns::ALL).await.unwrap().steps;
    assert_eq!(steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["1"]);
}

/// Other lanes, and changes without a lane, are not stopped.
pub async fn other_lanes_go_on(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    admit(store, &[sample.change().run(run.clone())]).await;
    let stale = sample.run_on(&sample.run_on(&run, RunState::Active), RunState::Active);
    let step = |id: &str| sample.change().step(sample.step(&run, id));
    let batch = [
        sample.change().run(stale.clone()).in_lane(ONE),
        sample.change().run(stale),
        step("1").in_lane(TWO),
        step("2"),
        step("3").in_lane(ONE),
        step("4").in_lane(TWO),
    ];
    let stale = Some(Refusal::Stale);
    let expected = [stale.clone(), stale, None, None, Some(Refusal::Predecessor), None];
    assert_eq!(verdicts(store, &batch).await, expected);
}

/// A refusal because another writer was first is an answer, and stops nothing.
pub async fn a_lost_question_stops_nothing(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    admit(store, &[sample.change().record(sample.record("a")).run(sample.run("a"))]).await;
    let run = sample.run("b");
    let batch = [
        sample.change().record(sample.record("a")).in_lane(ONE),
        sample.change().run(sample.run("a")).in_lane(ONE),
        sample.change().run(run.clone()).in_lane(ONE),
        sample.change().step(sample.step(&run, "1")).in_lane(ONE),
    ];
    let exists = Some(Refusal::Exists);
    assert_eq!(verdicts(store, &batch).await, [exists.clone(), exists, None, None]);

    let taken = crate::store::Step { value: None, ..sample.step(&run, "1") };
    let batch =
        [sample.change().step(taken).in_lane(ONE), sample.change().step(sample.step(&run, "2")).in_lane(ONE)];
    let expected = [Some(Refusal::Exists), Some(Refusal::Predecessor)];
    assert_eq!(verdicts(store, &batch).await, expected, "a checkpoint asks nothing");
}

/// A question that is refused for another reason has no answer: it stops its lane.
pub async fn a_stale_change_stops_its_lane_even_if_it_asks(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let run = sample.run("a");
    let stale = sample.run_on(&sample.run_on(&run, RunState::Active), RunState::Active);
    let batch = [
        sample.change().record(sample.record("a")).run(stale).in_lane(ONE),
        sample.change().step(sample.step(&run, "1")).in_lane(ONE),
    ];
    assert_eq!(verdicts(store, &batch).await, [Some(Refusal::Stale), Some(Refusal::Predecessor)]);
    assert_eq!(store.record_find(&sample.tenant, &sample.record("a").key).await.unwrap(), None);
}

/// Each change gets its own verdict, however a large batch is cut.
pub async fn verdicts_keep_their_places(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let (mut batch, mut expected) = (Vec::new(), Vec::new());
    for i in 0..40 {
        let run = sample.run(&i.to_string());
        let stale = i % 3 == 0;
        let first = if stale { sample.run_on(&run, RunState::Active) } else { run.clone() };
        let lane = Some(OrderingKey(i));
        batch.push(sample.change().run(first).in_lane(lane));
        batch.push(sample.change().step(sample.step(&run, "1")).in_lane(lane));
        expected.extend(if stale {
            [Some(Refusal::Stale), Some(Refusal::Predecessor)]
        } else {
            [None, None]
        });
    }
    assert_eq!(verdicts(store, &batch).await, expected);
}

/// Changes of one lane are judged in their order.
pub async fn is_kept_in_order(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let runs: Vec<_> = (0..3).map(|i| sample.run(&i.to_string())).collect();
    let mut batch = Vec::new();
    let mut last = runs.clone();
    batch.extend(
        runs.iter()
            .zip(1..)
            .map(|(run, lane)| sample.change().run(run.clone()).in_lane(Some(OrderingKey(lane)))),
    );
    for _ in 0..20 {
        for (run, lane) in last.iter_mut().zip(1..) {
            *run = sample.run_on(run, RunState::Active);
            batch.push(sample.change().run(run.clone()).in_lane(Some(OrderingKey(lane))));
        }
    }
    admit(store, &batch).await;
    for run in last {
        assert_eq!(store.run_find(&sample.tenant, run.id).await.unwrap(), Some(run));
    }
}
