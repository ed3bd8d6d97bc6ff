//! Connections that are lost at the worst moment: before the server has a write, and before its answer has come back
//! (HAZARDS G01, G02, G06).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil::store::conformance::sample::{Sample, enrol};
use counterfoil::store::postgres::{Options, Postgres};
use counterfoil::store::{Change, Group, Refusal, Run, RunState, Store, StoreError, Verdict, WaitsOn};
use counterfoil::{RunId, SystemClock};

use super::proxy::{COMMIT, Loss, Proxy};
use super::{Schema, number, run};

async fn store(proxy: &Proxy, options: Options) -> Postgres {
    Postgres::open_with(&proxy.url(), options).await.unwrap()
}

async fn admitted(store: &dyn Store, changes: &[Change], at: &str) {
    let verdicts = store.commit(changes).await.unwrap_or_else(|error| panic!("{at}: {error}"));
    assert!(verdicts.iter().all(Verdict::is_admitted), "{at}: {verdicts:?}");
}

const LOSSES: [Loss; 2] = [Loss::Request, Loss::Answer];

/// A batch that is one statement.
#[tokio::test]
async fn a_lost_batch_is_found_or_written() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = store(&proxy, schema.options()).await;
    let sample = Sample::enrol(&store, "ann").await;
    for (i, loss) in LOSSES.into_iter().cycle().take(6).enumerate() {
        let (record, owner) = (sample.record(&format!("lost {i}")), sample.run_without_key());
        let at = format!("{loss:?} of the start");
        proxy.lose(loss, record.key.as_str());
        let start = sample.change().record(record.clone()).step(sample.step(&owner, "1")).run(owner.clone());
        admitted(&store, &[start], &at).await;
        assert_eq!(store.record_at(&sample.tenant, record.id).await.unwrap(), Some(record.clone()), "{at}");

        let committed = sample.committed(&record);
        let at = format!("{loss:?} of the outcome");
        proxy.lose(loss, record.key.as_str());
        admitted(&store, &[sample.change().record(committed.clone())], &at).await;
        assert_eq!(store.record_at(&sample.tenant, record.id).await.unwrap(), Some(committed), "{at}");
        assert_eq!(proxy.lost(), 2 * (i + 1), "{at}");
    }
}

/// A batch that must be judged change by change, with an explicit COMMIT.
#[tokio::test]
async fn a_lost_judgement_is_made_again() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = store(&proxy, schema.options()).await;
    let sample = Sample::enrol(&store, "ann").await;
    admitted(&store, &[sample.change().record(sample.record("taken"))], "before").await;
    for (i, loss) in LOSSES.into_iter().enumerate() {
        let record = sample.record(&format!("lost {i}"));
        let batch = [sample.change().record(record.clone()), sample.change().record(sample.record("taken"))];
        proxy.lose(loss, COMMIT);
        let verdicts = store.commit(&batch).await.unwrap();
        assert_eq!(verdicts, [Verdict::Admitted, Verdict::Refused(Refusal::Exists)], "{loss:?}");
        assert_eq!(store.record_at(&sample.tenant, record.id).await.unwrap(), Some(record), "{loss:?}");
        assert_eq!(proxy.lost(), i + 1);
    }
}

/// A worker that enrols gets one fence, whatever becomes of the answer.
#[tokio::test]
async fn a_lost_enrolment_gives_one_fence() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = store(&proxy, schema.options()).await;
    for loss in LOSSES {
        let name = format!("{loss:?}");
        proxy.lose(loss, COMMIT);
        admitted(&store, &[enrol(&name)], &name).await;
        assert!(store.worker_find(&name).await.unwrap().is_some());
    }
    assert_eq!(proxy.lost(), 2);
    let mut other = schema.plain().await;
    assert_eq!(number(&mut other, "SELECT count(*) FROM worker").await, 2);
}

/// Runs that were taken over belong to whoever took them, even if the answer to that was lost.
#[tokio::test]
async fn a_lost_claim_is_ours() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = store(&proxy, schema.options()).await;
    let sample = Sample::enrol(&store, "ann").await;
    for loss in LOSSES {
        let runs: Vec<_> = (0..3).map(|_| sample.run_without_key()).collect();
        let changes: Vec<_> = runs.iter().map(|run| sample.change().run(run.clone())).collect();
        admitted(&store, &changes, "before").await;
        let claims: Vec<_> = runs
            .iter()
            .map(|run| sample.run_on(run, RunState::Waiting { until: None, on: WaitsOn::ANSWER }))
            .collect();
        let changes: Vec<_> = claims.iter().map(|run| sample.change().run(run.clone())).collect();
        proxy.lose(loss, sample.tenant.as_str());
        admitted(&store, &changes, &format!("{loss:?}")).await;
        for run in claims {
            assert_eq!(store.run_find(&sample.tenant, run.id).await.unwrap(), Some(run));
        }
    }
    assert_eq!(proxy.lost(), 2);
}

/// Reading begins anew on another connection.
#[tokio::test]
async fn a_lost_question_is_asked_again() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = store(&proxy, schema.options()).await;
    let sample = Sample::enrol(&store, "ann").await;
    let record = sample.record("a");
    admitted(&store, &[sample.change().record(record.clone())], "before").await;
    for loss in LOSSES {
        proxy.lose(loss, record.key.as_str());
        assert_eq!(store.record_find(&sample.tenant, &record.key).await.unwrap(), Some(record.clone()));
        proxy.cut();
        assert_eq!(store.record_find(&sample.tenant, &record.key).await.unwrap(), Some(record.clone()));
    }
    assert_eq!(proxy.lost(), 2);
}

/// A server that says nothing any more, on a connection that nobody closes: a host that is gone.
#[tokio::test]
async fn silence_is_no_answer() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let quick = Options { answer_timeout: Duration::from_millis(300), ..schema.options() };
    let store = store(&proxy, quick).await;
    let sample = Sample::enrol(&store, "ann").await;
    let record = sample.record("a");
    proxy.lose(Loss::Silence, record.key.as_str());
    admitted(&store, &[sample.change().record(record.clone())], "a write").await;
    proxy.lose(Loss::Silence, record.key.as_str());
    assert_eq!(store.record_find(&sample.tenant, &record.key).await.unwrap(), Some(record));
    assert_eq!(proxy.lost(), 2);
}

/// A database that stays away: it is said that nobody knows what became of the write, and that is true of each of the
/// two ways in which it may have gone.
#[tokio::test]
async fn a_database_that_stays_away_is_reported_honestly() {
    for loss in LOSSES {
        let (schema, proxy) = (Schema::new(), Proxy::new().await);
        let impatient = Options { retry_for: Duration::from_millis(200), ..schema.options() };
        let store = store(&proxy, impatient).await;
        let sample = Sample::enrol(&store, "ann").await;
        let record = sample.record("a");
        proxy.lose(loss, record.key.as_str());
        let refusing = proxy.clone();
        let refuse = tokio::spawn(async move {
            while refusing.lost() == 0 {
                tokio::task::yield_now().await;
            }
            refusing.refuse(true);
        });
        // It may be back on the first try, before the proxy refuses: then it is cut off for good here.
        let change = sample.change().record(record.clone());
        let mut result = store.commit(std::slice::from_ref(&change)).await;
        refuse.await.unwrap();
        if result.is_ok() {
            result = store.commit(std::slice::from_ref(&change)).await;
        }
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.is_transient());
        assert!(error.to_string().contains("is not known"), "{error}");
        assert!(matches!(
            store.record_at(&sample.tenant, record.id).await,
            Err(StoreError::Unreachable { .. })
        ));
        proxy.refuse(false);
        admitted(&store, &[change], "and the same again is admitted").await;
        assert_eq!(store.record_at(&sample.tenant, record.id).await.unwrap(), Some(record));
    }
}

/// Backends that are terminated in the middle of load cost nothing but time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_backends_lose_nothing() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    let sample = Sample::enrol(&*store, "ann").await;
    let group = Group::new(store.clone(), Arc::new(SystemClock));
    let enough = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (group, sample, enough) = (group.clone(), sample.clone(), enough.clone());
            tokio::spawn(async move {
                let mut written = 0;
                while !enough.load(Ordering::SeqCst) {
                    let record = sample.record(&format!("{writer} {written}"));
                    let start = group.submit(sample.change().record(record.clone()));
                    assert!(start.durable().await.unwrap().is_admitted(), "start {writer} {written}");
                    let outcome = group.submit(sample.change().record(sample.committed(&record)));
                    assert!(outcome.durable().await.unwrap().is_admitted(), "outcome {writer} {written}");
                    written += 1;
                }
                written
            })
        })
        .collect();
    let mut other = schema.plain().await;
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'active' \
         AND pid <> pg_backend_pid() AND query LIKE 'WITH w AS%' \
         AND pid IN (SELECT pid FROM pg_locks WHERE relation = '{}.record'::regclass)",
        schema.name()
    );
    let mut killed = 0;
    while killed < 8 && !writers.iter().any(tokio::task::JoinHandle::is_finished) {
        killed += number(&mut other, kill.as_str()).await;
    }
    enough.store(true, Ordering::SeqCst);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    group.close().await;
    let committed = "SELECT count(*) FROM record WHERE status = 2 AND revision = 2";
    assert_eq!(number(&mut other, committed).await, written);
    assert_eq!(number(&mut other, "SELECT count(*) FROM record").await, written);
}

/// A statement of ours that another session cancels is written again.
#[tokio::test]
async fn a_write_that_waits_too_long_is_tried_again() {
    let schema = Schema::new();
    let quick = Options { lock_timeout: Duration::from_millis(50), ..schema.options() };
    let store = Arc::new(schema.open_with(quick).await.unwrap());
    let sample = Sample::enrol(&*store, "ann").await;
    let owner = sample.run("a");
    admitted(&*store, &[sample.change().run(owner.clone())], "before").await;
    let mut other = schema.plain().await;
    run(&mut other, "BEGIN; UPDATE run SET deaths = deaths").await;
    let next: Run = sample.run_on(&owner, RunState::Waiting { until: None, on: WaitsOn::ANSWER });
    let change = sample.change().run(next.clone()).step(sample.step(&owner, "1"));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.commit(&[change]).await }
    });
    let mut third = schema.plain().await;
    let mut waited = 0;
    let mut last = String::new();
    while waited < 3 {
        let started = format!(
            "SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
             AND pid IN (SELECT pid FROM pg_locks WHERE relation = '{}.run'::regclass)",
            schema.name()
        );
        let now: String =
            sqlx::query_scalar(sqlx::AssertSqlSafe(started)).fetch_one(&mut third).await.unwrap();
        if !now.is_empty() && now != last {
            waited += 1;
            last = now;
        }
    }
    assert!(!waiting.is_finished(), "it waits for the third time");
    run(&mut other, "COMMIT").await;
    assert_eq!(waiting.await.unwrap().unwrap(), [Verdict::Admitted]);
    assert_eq!(store.run_list(&sample.tenant, RunId(0), 9).await.unwrap(), [next]);
}
