//! Several workers on one database: who waits for whom, and who must not (HAZARDS B).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::store::conformance::sample::{self, Sample};
use counterfoil::store::postgres::{Options, Postgres};
use counterfoil::store::{Change, Refusal, Run, RunState, Store, Verdict, WaitsOn, WorkerChange};
use counterfoil::{Fence, Timestamp};
use sqlx::postgres::PgConnection;
use tokio::task::JoinHandle;

use super::{Schema, number, run};

fn end(by: Fence, fence: Fence, at: i64) -> Change {
    let end = WorkerChange::End { fence, at: Timestamp(at) };
    Change { worker: Some(end), ..Change::by(by) }
}

fn renew(by: Fence, until: i64) -> Change {
    Change { worker: Some(WorkerChange::Renew { until: Timestamp(until) }), ..Change::by(by) }
}

fn committing(store: &Arc<Postgres>, batch: Vec<Change>) -> JoinHandle<Vec<Verdict>> {
    let store = store.clone();
    tokio::spawn(async move { store.commit(&batch).await.unwrap() })
}

/// Waits until so many of the schema's sessions wait for a lock.
async fn waiting(schema: &Schema, sessions: i64) {
    let mut other = schema.plain().await;
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid IN \
         (SELECT pid FROM pg_locks WHERE relation IN ('{0}.worker'::regclass, '{0}.record'::regclass, \
         '{0}.run'::regclass))",
        schema.name()
    );
    while number(&mut other, sql.as_str()).await < sessions {}
}

/// A batch under way, as another connection's transaction: what it holds of its worker until it is durable.
async fn under_way(schema: &Schema, fence: Fence) -> PgConnection {
    let mut batch = schema.plain().await;
    let hold =
        format!("BEGIN; SELECT 1 FROM worker WHERE fence = {fence} AND ended_at IS NULL FOR KEY SHARE");
    run(&mut batch, hold).await;
    batch
}

/// Whoever ends a worker waits for its batch that is under way: or that could become durable after the other one has
/// looked at what the worker left.
#[tokio::test]
async fn ending_a_worker_waits_for_its_batch() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    let (a, b) = (Sample::leased(&*store, "a", 1_000).await, Sample::leased(&*store, "b", 9_000).await);
    let mut batch = under_way(&schema, a.fence).await;
    let ending = committing(&store, vec![end(b.fence, a.fence, 2_000)]);
    waiting(&schema, 1).await;
    run(&mut batch, "COMMIT").await;
    assert_eq!(ending.await.unwrap(), [Verdict::Admitted]);
    let late = store.commit(&[a.change().record(a.record("late"))]).await.unwrap();
    assert_eq!(late, [Verdict::Refused(Refusal::Fenced)]);
}

/// A batch that comes while its worker is being ended waits, and is refused.
#[tokio::test]
async fn a_batch_waits_for_the_end_of_its_worker() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    let a = Sample::leased(&*store, "a", 1_000).await;
    let mut ending = schema.plain().await;
    run(&mut ending, format!("BEGIN; SELECT 1 FROM worker WHERE fence = {} FOR UPDATE", a.fence)).await;
    run(&mut ending, format!("UPDATE worker SET ended_at = 2000 WHERE fence = {}", a.fence)).await;
    let batch = committing(&store, vec![a.change().record(a.record("late")), a.change().run(a.run("late"))]);
    waiting(&schema, 1).await;
    run(&mut ending, "COMMIT").await;
    let fenced = Verdict::Refused(Refusal::Fenced);
    assert_eq!(batch.await.unwrap(), [fenced.clone(), fenced]);
}

/// A heartbeat waits neither for the worker's own batches nor for the connection that writes them.
#[tokio::test]
async fn a_heartbeat_passes_a_long_batch() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    let a = Sample::leased(&*store, "a", 1_000).await;
    let owner = a.run("a");
    store.commit(&[a.change().run(owner.clone())]).await.unwrap();
    let _batch = under_way(&schema, a.fence).await;
    let mut holder = schema.plain().await;
    run(&mut holder, "BEGIN; UPDATE run SET deaths = deaths").await;
    let ended = a.run_on(&owner, RunState::Waiting { until: None, on: WaitsOn::ANSWER });
    let long = committing(&store, vec![a.change().run(ended).step(a.step(&owner, "1"))]);
    waiting(&schema, 1).await;
    assert_eq!(store.commit(&[renew(a.fence, 5_000)]).await.unwrap(), [Verdict::Admitted]);
    assert_eq!(store.worker_at(a.fence).await.unwrap().unwrap().lease_until, Some(Timestamp(5_000)));
    assert!(!long.is_finished());
    run(&mut holder, "COMMIT").await;
    assert_eq!(long.await.unwrap(), [Verdict::Admitted]);
}

/// Of two workers that claim the same runs each gets some or none, and neither waits for the other.
#[tokio::test]
async fn claims_pass_over_what_another_is_writing() {
    let schema = Schema::new();
    let store = schema.open().await;
    let (a, b) = (Sample::enrol(&store, "a").await, Sample::enrol(&store, "b").await);
    let runs: Vec<_> = (0..4).map(|i| a.run(&i.to_string())).collect();
    store.commit(&runs.iter().map(|run| a.change().run(run.clone())).collect::<Vec<_>>()).await.unwrap();
    let mut holder = schema.plain().await;
    run(
        &mut holder,
        format!("BEGIN; SELECT 1 FROM run WHERE id IN ({}, {}) FOR UPDATE", runs[0].id.0, runs[2].id.0),
    )
    .await;
    let claims: Vec<_> = runs.iter().map(|run| b.change().run(b.run_on(run, RunState::Active))).collect();
    let stale = Verdict::Refused(Refusal::Stale);
    let admitted = Verdict::Admitted;
    let verdicts = store.commit(&claims).await.unwrap();
    assert_eq!(verdicts, [stale.clone(), admitted.clone(), stale.clone(), admitted.clone()]);
    run(&mut holder, "COMMIT").await;
    assert_eq!(
        store.commit(&claims).await.unwrap(),
        [admitted.clone(), admitted.clone(), admitted.clone(), admitted]
    );
    let late: Vec<_> = runs.iter().map(|run| a.change().run(a.run_on(run, RunState::Active))).collect();
    assert_eq!(store.commit(&late).await.unwrap(), [stale.clone(), stale.clone(), stale.clone(), stale]);
    store.commit(&[sample::retire(a.fence)]).await.unwrap();
    let fenced = Verdict::Refused(Refusal::Fenced);
    assert_eq!(store.commit(&late).await.unwrap(), [fenced.clone(), fenced.clone(), fenced.clone(), fenced]);
}

/// Two workers write the same rows, each in an order of its own, again and again: every batch gets through, and each
/// row has one winner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_meet_all_get_through() {
    const ROUNDS: usize = 30;
    let schema = Schema::new();
    let stores = [Arc::new(schema.open().await), Arc::new(schema.open().await)];
    let workers = [Sample::enrol(&*stores[0], "a").await, Sample::enrol(&*stores[1], "b").await];
    let runs: Vec<_> = (0..20).map(|i| workers[0].run(&format!("shared {i}"))).collect();
    let changes: Vec<_> = runs.iter().map(|run| workers[0].change().run(run.clone())).collect();
    stores[0].commit(&changes).await.unwrap();
    let writing = [0, 1].map(|who| {
        let (store, by, runs) = (stores[who].clone(), workers[who].clone(), runs.clone());
        tokio::spawn(async move {
            let mut won = Vec::new();
            for round in 0..ROUNDS {
                let mut batch: Vec<_> = (0..20)
                    .map(|i| {
                        let next = Run { revision: u32::try_from(round).unwrap() + 2, ..runs[i].clone() };
                        by.change().record(by.record(&format!("{round} {i}"))).run(next)
                    })
                    .collect();
                if who == 1 {
                    batch.reverse();
                }
                let verdicts = store.commit(&batch).await.unwrap();
                won.push(verdicts.iter().filter(|verdict| verdict.is_admitted()).count());
                // The other one may be behind: both go on from the revision that is there.
                loop {
                    let now = store.run_list(&by.tenant, counterfoil::RunId(0), 50).await.unwrap();
                    if now.iter().all(|run| run.revision >= u32::try_from(round).unwrap() + 2) {
                        break;
                    }
                    let missing: Vec<_> = now
                        .iter()
                        .filter(|run| run.revision < u32::try_from(round).unwrap() + 2)
                        .map(|run| by.change().run(Run { revision: run.revision + 1, ..run.clone() }))
                        .collect();
                    let _ = store.commit(&missing).await.unwrap();
                }
            }
            won
        })
    });
    for writer in writing {
        writer.await.unwrap();
    }
    let mut other = schema.plain().await;
    let doubled = "SELECT count(*) FROM (SELECT 1 FROM record GROUP BY key HAVING count(*) > 1) d";
    assert_eq!(number(&mut other, doubled).await, 0);
}

/// Two sessions that wait for each other: the server ends one of them, and if it is ours, it is written again.
#[tokio::test]
async fn a_deadlock_is_written_again() {
    let schema = Schema::new();
    let patient = Options { lock_timeout: Duration::from_secs(20), ..schema.options() };
    let store = Arc::new(schema.open_with(patient).await.unwrap());
    let a = Sample::enrol(&*store, "a").await;
    let [first, second] = ["1", "2"].map(|key| a.run(key));
    store.commit(&[&first, &second].map(|run| a.change().run(run.clone()))).await.unwrap();
    let mut holder = schema.plain().await;
    run(
        &mut holder,
        format!(
            "SET deadlock_timeout = '60s'; BEGIN; SELECT 1 FROM run WHERE id = {} FOR UPDATE",
            second.id.0
        ),
    )
    .await;
    let next = |run: &Run| a.run_on(run, RunState::Waiting { until: None, on: WaitsOn::ANSWER });
    let batch = vec![
        a.change().run(next(&first)).step(a.step(&first, "1")),
        a.change().run(next(&second)).step(a.step(&second, "1")),
    ];
    let writing = committing(&store, batch);
    waiting(&schema, 1).await;
    // Ours looks for deadlocks after a second, and gives way; this one would only after a minute.
    run(&mut holder, format!("UPDATE run SET deaths = 7 WHERE id = {}; COMMIT", first.id.0)).await;
    assert_eq!(writing.await.unwrap(), [Verdict::Admitted, Verdict::Admitted]);
}

/// A hint reaches the others, and not the one who gave it.
#[tokio::test]
async fn a_hint_wakes_the_others() {
    let schema = Schema::new();
    let (one, two) = (schema.open().await, schema.open().await);
    for store in [&one, &two] {
        store.woken().await.unwrap(); // it listens now: what came before may have been lost
    }
    for _ in 0..5 {
        let (told, given) = futures_util::future::join(two.woken(), one.wake_others()).await;
        told.unwrap();
        given.unwrap();
    }
    assert!(futures_util::poll!(one.woken()).is_pending(), "its own hints");
    let silent = schema.open_with(Options { notify: false, ..schema.options() }).await.unwrap();
    silent.wake_others().await.unwrap();
    assert!(futures_util::poll!(silent.woken()).is_pending());
    one.wake_others().await.unwrap();
    two.woken().await.unwrap();
}
