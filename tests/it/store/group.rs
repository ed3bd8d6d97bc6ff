//! Group commit: what shares a transaction, what waits, and what a failure leaves behind.
//!
//! Time is paused: it moves on only when nothing else can, so every wait below is exact and costs nothing.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::store::conformance::cancel::drop_after;
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::{
    Change, Group, OrderingKey, Refusal, Run, RunState, Store, StoreError, Ticket, Verdict,
};
use counterfoil::{RecordId, SystemClock};

use crate::store::watched::Watched;

/// No change waits longer than this for company (DESIGN 4.5).
const OLDEST: Duration = Duration::from_millis(5);
const ONE: Option<OrderingKey> = Some(OrderingKey(1));
const TWO: Option<OrderingKey> = Some(OrderingKey(2));

async fn grouped() -> (Group, Arc<Watched>, Sample) {
    let store = Watched::new();
    let sample = Sample::enrol(&*store, "ann").await;
    store.forget();
    (Group::new(store.clone(), Arc::new(SystemClock)), store, sample)
}

/// Paused time moves on.
#[allow(clippy::disallowed_methods, reason = "the time of these tests is simulated")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Simulated time so far.
#[allow(clippy::disallowed_methods, reason = "the time of these tests is simulated")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

fn io() -> StoreError {
    StoreError::Io { detail: "injected".into() }
}

async fn is_there(store: &Watched, sample: &Sample, record: RecordId) -> bool {
    store.record_at(&sample.tenant, record).await.unwrap().is_some()
}

fn stale(sample: &Sample) -> Change {
    let run = sample.run("never written");
    sample.change().run(sample.run_on(&run, RunState::Active))
}

#[tokio::test(start_paused = true)]
async fn a_seal_that_nobody_waits_for_rides_with_the_next_begin() {
    let (group, store, sample) = grouped().await;
    let mut seal: Option<(Change, RecordId)> = None;
    for call in 0..20 {
        let record = sample.record(&call.to_string());
        let sealed = seal.take().map(|(change, id)| (group.submit(change), id));
        let verdict = group.commit_one(sample.change().record(record.clone())).await.unwrap();
        assert_eq!(verdict, Verdict::Admitted);
        if let Some((ticket, id)) = sealed {
            let revision = store.record_at(&sample.tenant, id).await.unwrap().unwrap().revision;
            assert_eq!(revision, 2, "durable together with the next begin");
            assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
        }
        seal = Some((sample.change().record(sample.committed(&record)), record.id));
    }
    group.close().await;
    let sizes = store.sizes();
    assert_eq!(
        sizes.len(),
        20,
        "n begins are n waits; the last seal has no begin to ride with and no waiter"
    );
    assert_eq!(sizes, [vec![1], vec![2; 19]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_nobody_waits_for_goes_out_when_it_is_old() {
    let (group, store, sample) = grouped().await;
    for round in 0..5 {
        // From a deep sleep, and from the light one right after a transaction.
        pass(if round % 2 == 0 { Duration::from_secs(1) } else { Duration::ZERO }).await;
        let record = sample.record(&round.to_string());
        drop(group.submit(sample.change().record(record.clone())));
        assert!(!is_there(&store, &sample, record.id).await, "it waits for company");
        pass(OLDEST).await;
        assert!(is_there(&store, &sample, record.id).await, "round {round}");
    }
    assert_eq!(store.sizes(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_within_the_linger_shares_its_transaction() {
    let (group, store, sample) = grouped().await;
    pass(Duration::from_secs(1)).await;
    for i in 0..3 {
        drop(group.submit(sample.change().record(sample.record(&i.to_string()))));
        pass(Duration::from_millis(1)).await;
    }
    pass(OLDEST).await;
    assert_eq!(store.sizes(), [3]);
}

#[tokio::test(start_paused = true)]
async fn many_changes_do_not_wait_for_anybody() {
    let (group, store, sample) = grouped().await;
    let before = now();
    let tickets: Vec<_> =
        (0..300).map(|i| group.submit(sample.change().record(sample.record(&i.to_string())))).collect();
    while store.sizes().is_empty() {
        tokio::task::yield_now().await; // without a timer, time stands still
    }
    assert_eq!((store.sizes(), before), (vec![300], now()));
    drop(tickets);
}

/// A task that makes so many changes, one after the other.
fn commits(group: &Group, sample: &Sample, task: String, each: usize) -> impl Future<Output = ()> + use<> {
    let (group, sample) = (group.clone(), sample.clone());
    async move {
        for i in 0..each {
            let record = sample.record(&format!("{task}/{i}"));
            let verdict = group.commit_one(sample.change().record(record)).await.unwrap();
            assert_eq!(verdict, Verdict::Admitted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_tasks_share_transactions() {
    const TASKS: usize = 100;
    const EACH: usize = 20;
    let (group, store, sample) = grouped().await;
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(commits(&group, &sample, task.to_string(), EACH))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sizes = store.sizes();
    assert_eq!(sizes.iter().sum::<usize>(), TASKS * EACH);
    assert!(sizes.len() <= 2 * EACH, "{} transactions", sizes.len());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fall_out_of_step_share_transactions_again() {
    const HALF: usize = 10;
    const EACH: usize = 20;
    let (group, store, sample) = grouped().await;
    let begin = |half: usize| {
        (0..HALF)
            .map(move |task| format!("{half}/{task}"))
            .map(|task| tokio::spawn(commits(&group, &sample, task, EACH)))
    };
    store.model.hold();
    let mut tasks: Vec<_> = begin(0).collect();
    while store.model.unsynced() == 0 {
        tokio::task::yield_now().await;
    }
    // The others come while the disk is busy, and so wait for the next transaction.
    tasks.extend(begin(1));
    tokio::task::yield_now().await;
    store.model.release();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.sizes(), [vec![HALF], vec![2 * HALF; EACH - 1], vec![HALF]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_room_when_the_queue_is_full() {
    let (group, store, sample) = grouped().await;
    store.model.hold();
    let first = group.submit(sample.change().record(sample.record("first")));
    let waiting = tokio::spawn(first.durable());
    while store.model.unsynced() == 0 {
        tokio::task::yield_now().await;
    }
    // The disk is busy with the first; behind it the queue fills up.
    let mut queued: Vec<Ticket> = Vec::new();
    let overflow = loop {
        let change = sample.change().record(sample.record(&queued.len().to_string()));
        match drop_after(Box::pin(group.submit_with_room(change)), 1).await {
            Some(ticket) => queued.push(ticket),
            None => break queued.len(),
        }
        assert!(queued.len() < 100_000, "the queue has no end");
    };
    assert_eq!(overflow, 1024, "a bound on everything");
    let late = tokio::spawn({
        let (group, change) = (group.clone(), sample.change().record(sample.record("late")));
        async move { group.commit_one(change).await }
    });
    // A mark left in passing does not wait for room.
    queued.push(group.submit(sample.change().record(sample.record("mark"))));
    store.model.release();
    for ticket in queued {
        assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
    }
    assert_eq!(late.await.unwrap().unwrap(), Verdict::Admitted);
    assert_eq!(waiting.await.unwrap().unwrap(), Verdict::Admitted);
    assert!(store.sizes().iter().all(|size| *size <= 512), "{:?}", store.sizes());
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_lane_never_overtake() {
    let (group, store, sample) = grouped().await;
    let tasks: Vec<_> = (0..20_usize)
        .map(|lane| {
            let (group, sample) = (group.clone(), sample.clone());
            tokio::spawn(async move {
                let mut run = sample.run(&lane.to_string());
                let lane = Some(OrderingKey(lane as u64));
                let begun = group.commit_one(sample.change().run(run.clone()).in_lane(lane)).await;
                assert_eq!(begun.unwrap(), Verdict::Admitted);
                let mut tickets = Vec::new();
                for i in 0..60 {
                    run = sample.run_on(&run, RunState::Active);
                    let change = sample.change().run(run.clone()).in_lane(lane);
                    match i % 7 {
                        0 => assert_eq!(group.commit_one(change).await.unwrap(), Verdict::Admitted),
                        1 => tokio::task::yield_now().await,
                        2 => pass(Duration::from_millis(i)).await,
                        _ => tickets.push(group.submit(change)),
                    }
                    if i % 7 == 1 || i % 7 == 2 {
                        tickets.push(group.submit(sample.change().run(run.clone()).in_lane(lane)));
                    }
                }
                for ticket in tickets {
                    assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
                }
            })
        })
        .collect();
    store.model.fail_next(io());
    for task in tasks {
        task.await.unwrap();
    }
    // Each is admitted only on top of the one before, so none has overtaken.
    let runs = store.run_list(&sample.tenant, counterfoil::RunId(0), 100).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.revision).collect::<Vec<_>>(), [61; 20]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_stops_its_lane_in_later_transactions_too() {
    let (group, store, sample) = grouped().await;
    let commit = async |change: Change, lane| group.commit_one(change.in_lane(lane)).await.unwrap();
    let record = |target: &str| sample.change().record(sample.record(target));
    assert_eq!(commit(stale(&sample), ONE).await, Verdict::Refused(Refusal::Stale));
    store.forget();
    for target in ["a", "b"] {
        assert_eq!(commit(record(target), ONE).await, Verdict::Refused(Refusal::Predecessor));
    }
    assert_eq!(store.sizes().iter().sum::<usize>(), 0, "the store is not even asked");
    assert_eq!(commit(record("a"), TWO).await, Verdict::Admitted);
    assert_eq!(commit(record("b"), None).await, Verdict::Admitted);

    // In company of others, which are not disturbed.
    let tickets = [
        group.submit(record("c").in_lane(TWO)),
        group.submit(record("d").in_lane(ONE)),
        group.submit(record("e")),
    ];
    let mut verdicts = Vec::new();
    for ticket in tickets {
        verdicts.push(ticket.durable().await.unwrap());
    }
    assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Predecessor), Verdict::Admitted]);

    group.end_lane(OrderingKey(1));
    assert_eq!(commit(record("d"), ONE).await, Verdict::Admitted, "the number may be given again");
}

#[tokio::test(start_paused = true)]
async fn a_lost_question_stops_nothing() {
    let (group, _, sample) = grouped().await;
    let record = |target: &str| sample.change().record(sample.record(target)).in_lane(ONE);
    assert_eq!(group.commit_one(record("a")).await.unwrap(), Verdict::Admitted);
    assert_eq!(group.commit_one(record("a")).await.unwrap(), Verdict::Refused(Refusal::Exists));
    assert_eq!(group.commit_one(record("b")).await.unwrap(), Verdict::Admitted);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_failed_is_tried_again() {
    for error in
        [io(), StoreError::Busy { detail: String::new() }, StoreError::Full { detail: String::new() }]
    {
        let (group, store, sample) = grouped().await;
        store.model.fail_next(error.clone());
        store.model.fail_next(error);
        let verdict = group.commit_one(sample.change().record(sample.record("a"))).await.unwrap();
        assert_eq!((verdict, store.sizes()), (Verdict::Admitted, vec![1, 1, 1]));
    }
}

/// Queues changes while the disk is busy, so that they make one batch, and prepares its fate.
async fn one_batch(
    (group, store, sample): &(Group, Arc<Watched>, Sample),
    changes: impl IntoIterator<Item = Change>,
    fate: impl FnOnce(&Watched),
) -> Vec<Ticket> {
    store.model.hold();
    let first = tokio::spawn(group.submit(sample.change()).durable());
    while store.model.unsynced() == 0 {
        tokio::task::yield_now().await;
    }
    let tickets = changes.into_iter().map(|change| group.submit(change)).collect();
    store.forget();
    fate(store);
    store.model.release();
    assert_eq!(first.await.unwrap().unwrap(), Verdict::Admitted);
    tickets
}

#[tokio::test(start_paused = true)]
async fn a_poisonous_change_spoils_only_itself() {
    for (count, poisonous) in [(1, 0), (2, 1), (8, 5), (300, 0), (300, 299), (512, 137)] {
        let all = grouped().await;
        let (_, store, sample) = &all;
        let records: Vec<_> = (0..count).map(|i| sample.record(&i.to_string())).collect();
        let changes = records.iter().map(|record| sample.change().record(record.clone()));
        let before = now();
        let tickets = one_batch(&all, changes, |store| store.poison(&records[poisonous])).await;
        for (i, ticket) in tickets.into_iter().enumerate() {
            match ticket.durable().await {
                Ok(verdict) => assert_eq!(verdict, Verdict::Admitted),
                Err(error) => {
                    assert!(i == poisonous && matches!(error, StoreError::Io { .. }), "{i}: {error}");
                }
            }
            assert_eq!(is_there(store, sample, records[i].id).await, i != poisonous);
        }
        assert!(
            before.elapsed() < Duration::from_secs(1),
            "{count}: the others waited {:?}",
            before.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_poisonous_change_its_lane_has_stopped() {
    let all = grouped().await;
    let sample = &all.2;
    let records: Vec<_> = (0..8).map(|i| sample.record(&i.to_string())).collect();
    let changes = records
        .iter()
        .zip(0..)
        .map(|(record, i)| sample.change().record(record.clone()).in_lane(Some(OrderingKey(i % 2))));
    let tickets = one_batch(&all, changes, |store| store.poison(&records[2])).await;
    let mut fates = Vec::new();
    for ticket in tickets {
        fates.push(match ticket.durable().await {
            Ok(Verdict::Admitted) => "admitted",
            Ok(Verdict::Refused(Refusal::Predecessor)) => "stopped",
            other => {
                assert!(matches!(other, Err(StoreError::Io { .. })), "{other:?}");
                "failed"
            }
        });
    }
    let expected =
        ["admitted", "admitted", "failed", "admitted", "stopped", "admitted", "stopped", "admitted"];
    assert_eq!(fates, expected);
}

// A write that is refused fails every later queued write of its run, also when the run has ended meanwhile.
#[tokio::test(start_paused = true)]
async fn what_an_ended_lane_has_queued_is_refused_behind_its_refusal() {
    let (group, store, sample) = grouped().await;
    store.model.hold();
    let refused = group.submit(stale(&sample).in_lane(ONE));
    let refused = tokio::spawn(refused.durable());
    while store.sizes().is_empty() {
        tokio::task::yield_now().await;
    }
    // While the first is on its way to the disk, more is queued behind it.
    let behind = sample.record("behind");
    let other = sample.record("other");
    let queued = group.submit(sample.change().record(behind.clone()).in_lane(ONE));
    let sound = group.submit(sample.change().record(other.clone()).in_lane(TWO));
    store.model.release();
    assert_eq!(refused.await.unwrap().unwrap(), Verdict::Refused(Refusal::Stale));
    group.end_lane(OrderingKey(1)); // its run has stopped
    assert_eq!(queued.durable().await.unwrap(), Verdict::Refused(Refusal::Predecessor));
    assert_eq!(sound.durable().await.unwrap(), Verdict::Admitted);
    assert!(!is_there(&store, &sample, behind.id).await);

    // It is forgotten then: stopped lanes do not add up.
    let after = group.commit_one(sample.change().record(behind).in_lane(ONE)).await;
    assert_eq!(after.unwrap(), Verdict::Admitted);
    // And a lane that ends before its refusal is known is forgotten too.
    let late = group.submit(stale(&sample).in_lane(TWO));
    group.end_lane(OrderingKey(2));
    assert_eq!(late.durable().await.unwrap(), Verdict::Refused(Refusal::Stale));
    let after = group.commit_one(sample.change().record(sample.record("after")).in_lane(TWO)).await;
    assert_eq!(after.unwrap(), Verdict::Admitted);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_come_back_is_told_soon() {
    for (error, batches) in [(io(), 2048), (StoreError::Full { detail: String::new() }, 8)] {
        let all = grouped().await;
        let (_, store, sample) = &all;
        let changes = (0..512).map(|i| sample.change().record(sample.record(&i.to_string())));
        let fail = |store: &Watched| {
            for _ in 0..5_000 {
                store.model.fail_next(error.clone());
            }
        };
        let tickets = one_batch(&all, changes, fail).await;
        let before = now();
        for ticket in tickets {
            ticket.durable().await.unwrap_err();
        }
        assert!(before.elapsed() < Duration::from_secs(2), "{error}: told after {:?}", before.elapsed());
        assert!(store.sizes().len() <= batches, "{error}: tried {} times", store.sizes().len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_no_refusal() {
    let all = grouped().await;
    let (group, store, sample) = &all;
    let run = sample.run("a");
    let record = sample.call(&run, "pay/1", "a");
    let changes = [
        sample.change().run(run.clone()).in_lane(ONE),
        sample.change().record(record.clone()).step(sample.step(&run, "1")).in_lane(ONE),
        sample.change().escalation(sample.escalation("?")),
    ];
    let tickets = one_batch(&all, changes, |store| store.model.lose_next_answer()).await;
    for ticket in tickets {
        assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
    }
    assert_eq!(store.sizes(), [3, 3]);
    let next = sample.change().record(sample.committed(&record)).in_lane(ONE);
    assert_eq!(group.commit_one(next).await.unwrap(), Verdict::Admitted, "the lane goes on");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_takes_nothing_back() {
    let (group, store, sample) = grouped().await;
    let records: Vec<_> = (0..5).map(|i| sample.record(&i.to_string())).collect();
    for (polls, record) in (1..).zip(&records) {
        let change = sample.change().record(record.clone());
        let _ = drop_after(Box::pin(group.commit_one(change)), polls).await;
    }
    group.close().await;
    for record in &records {
        assert!(is_there(&store, &sample, record.id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn close_ends_when_everything_before_it_is_durable() {
    let (group, store, sample) = grouped().await;
    store.model.hold();
    let records: Vec<_> = (0..1500).map(|i| sample.record(&i.to_string())).collect();
    let tickets: Vec<_> =
        records.iter().map(|record| group.submit(sample.change().record(record.clone()))).collect();
    let mut closing = Box::pin(group.close());
    for _ in 0..3 {
        assert!(drop_after(&mut closing, 1).await.is_none(), "nothing is durable yet");
        tokio::task::yield_now().await;
        store.model.sync();
    }
    store.model.release();
    closing.await;
    assert_eq!(store.model.unsynced(), 0);
    let after = store.model.crash();
    for (record, ticket) in records.iter().zip(tickets) {
        assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
        assert!(after.record_at(&sample.tenant, record.id).await.unwrap().is_some());
    }
    let late = group.commit_one(sample.change()).await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    let late = group.submit(sample.change()).durable().await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    group.close().await; // again is no harm
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_leaves_nothing_behind() {
    let (group, store, sample) = grouped().await;
    let records: Vec<_> = (0..600).map(|i| sample.record(&i.to_string())).collect();
    let tickets: Vec<_> =
        records.iter().map(|record| group.submit(sample.change().record(record.clone()))).collect();
    drop(group.clone());
    drop(group);
    for (ticket, record) in tickets.into_iter().zip(&records) {
        assert_eq!(ticket.durable().await.unwrap(), Verdict::Admitted);
        assert!(is_there(&store, &sample, record.id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_not_taken_for_success() {
    let (group, store, sample) = grouped().await;
    let runs: Vec<Run> = (0..4).map(|i| sample.run(&i.to_string())).collect();
    assert_eq!(group.commit_one(sample.change().run(runs[0].clone())).await.unwrap(), Verdict::Admitted);
    store.model.hold();
    let held = tokio::spawn(group.submit(sample.change().run(runs[1].clone())).durable());
    while store.model.unsynced() == 0 {
        tokio::task::yield_now().await;
    }
    let queued = group.submit(sample.change().run(runs[2].clone()));
    let (lost, kept) = (store.model.crash_keeping(0), runs[0].id);
    assert!(matches!(held.await.unwrap(), Err(StoreError::Closed)));
    assert!(matches!(queued.durable().await, Err(StoreError::Closed)));
    let late = group.commit_one(sample.change().run(runs[3].clone())).await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    let left = lost.run_list(&sample.tenant, counterfoil::RunId(0), 9).await.unwrap();
    assert_eq!(left.iter().map(|run| run.id).collect::<Vec<_>>(), [kept]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_keeps_nobody_waiting() {
    let all = grouped().await;
    let (group, _, sample) = &all;
    let changes = (0..1000).map(|i| sample.change().record(sample.record(&i.to_string())));
    for ticket in one_batch(&all, changes, Watched::explode).await {
        let told = ticket.durable().await;
        assert!(matches!(told, Err(StoreError::Panicked { .. })), "{told:?}");
    }
    let late = group.commit_one(sample.change()).await;
    assert!(
        matches!(late, Err(StoreError::Panicked { .. })),
        "the writer goes on, and asks the store: {late:?}"
    );
    group.close().await;
}
