//! The user's own changes and the checkpoint in one transaction: whatever the closure, the network or another worker
//! does.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::inbox::Processed;
use counterfoil::store::conformance::sample::{self, Sample};
use counterfoil::store::postgres::{Options, Postgres, TransactionError};
use counterfoil::store::{Refusal, Run, Step, Store, StoreError, Turns, Verdict};
use counterfoil::{Payload, SystemClock};
use futures_util::future::{BoxFuture, join_all};
use serde_json::json;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;
use tokio::sync::Barrier;

use super::proxy::{COMMIT, Loss, Proxy};
use super::{Schema, number, run};
use crate::world::acme;

const LIMIT: Duration = Duration::from_secs(5);

type Worked = Result<(i64, Payload), sqlx::Error>;

fn mark(sample: &Sample, owner: &Run, id: &str) -> Step {
    Step { value: None, input_hash: None, ..sample.step(owner, id) }
}

async fn transaction<F>(
    store: &Postgres,
    sample: &Sample,
    step: &Step,
    limit: Duration,
    work: F,
) -> Result<i64, TransactionError<sqlx::Error>>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Worked> + Send,
{
    store.transaction(sample.change(), step.clone(), limit, &SystemClock, work).await
}

/// A closure of statements, one after the other.
fn statements(
    sql: &'static [&'static str],
) -> impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Worked> {
    move |connection| {
        Box::pin(async move {
            for sql in sql {
                connection.execute(*sql).await?;
            }
            Ok((7, Payload::of(&json!(7)).unwrap()))
        })
    }
}

/// A closure as the compiler must see it to know how long its future lives.
fn closure<F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Worked>>(work: F) -> F {
    work
}

struct Scene {
    schema: Schema,
    proxy: Proxy,
    store: Arc<Postgres>,
    sample: Sample,
    owner: Run,
    other: PgConnection,
}

/// A store behind a proxy, with a run, and a table of the user's.
async fn scene() -> Scene {
    scene_with(|options| options).await
}

async fn scene_with(change: impl FnOnce(Options) -> Options) -> Scene {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = Arc::new(Postgres::open_with(&proxy.url(), change(schema.options())).await.unwrap());
    let sample = Sample::enrol(&*store, "ann").await;
    let owner = sample.run("a");
    store.commit(&[sample.change().run(owner.clone())]).await.unwrap();
    let mut other = schema.plain().await;
    run(&mut other, "CREATE TABLE account (cents BIGINT NOT NULL)").await;
    Scene { schema, proxy, store, sample, owner, other }
}

impl Scene {
    /// How many rows of the user's are there, and how many checkpoints with their value.
    async fn written(&mut self) -> (i64, i64) {
        let rows = number(&mut self.other, "SELECT count(*) FROM account").await;
        (rows, number(&mut self.other, "SELECT count(*) FROM step WHERE value = '7'").await)
    }

    /// Nothing is left open on the server, and the store goes on.
    async fn goes_on(&mut self) {
        let open = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND pid IN \
             (SELECT pid FROM pg_locks WHERE relation = '{}.step'::regclass)",
            self.schema.name()
        );
        while number(&mut self.other, open.as_str()).await > 0 {}
        let record = self.sample.record(&counterfoil::client_key());
        let verdicts = self.store.commit(&[self.sample.change().record(record)]).await.unwrap();
        assert_eq!(verdicts, [Verdict::Admitted]);
        let step = mark(&self.sample, &self.owner, &counterfoil::client_key());
        let again = transaction(&self.store, &self.sample, &step, LIMIT, statements(&["SELECT 1"])).await;
        assert_eq!(again.unwrap(), 7);
    }
}

const INSERT: &[&str] = &["INSERT INTO account VALUES (12)"];

#[tokio::test]
async fn both_are_there() {
    let mut scene = scene().await;
    let step = mark(&scene.sample, &scene.owner, "1");
    let value = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await.unwrap();
    assert_eq!((value, scene.written().await), (7, (1, 1)));
    let history = scene.store.run_history(&scene.sample.tenant, scene.owner.id, Turns::ALL).await.unwrap();
    assert_eq!(history.steps[0].value, Some(sample::inline(json!(7))));
    let again = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await;
    assert!(matches!(again, Err(TransactionError::Refused(Refusal::Exists))), "{again:?}");
    assert_eq!(scene.written().await, (1, 1));
    scene.goes_on().await;
}

#[tokio::test]
async fn neither_is_there_if_the_closure_fails() {
    let mut scene = scene().await;
    let ways: [(&str, &'static [&'static str]); 3] = [
        ("its own error", &["INSERT INTO account VALUES (12)", "SELECT 1 / (SELECT 0)"]),
        ("a statement that is none", &["INSERT INTO account VALUES (12)", "NONSENSE"]),
        ("a constraint", &["INSERT INTO account VALUES (NULL)"]),
    ];
    for (i, (way, sql)) in ways.into_iter().enumerate() {
        let step = mark(&scene.sample, &scene.owner, &i.to_string());
        let result = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(sql)).await;
        assert!(matches!(result, Err(TransactionError::Closure(_))), "{way}: {result:?}");
        assert_eq!(scene.written().await, (0, 0), "{way}");
        scene.goes_on().await;
        run(&mut scene.other, "DELETE FROM step").await;
    }
}

/// PostgreSQL rolls a transaction back in which a statement failed, and the driver says that COMMIT was done.
#[tokio::test]
async fn an_error_that_was_swallowed_is_told() {
    let mut scene = scene().await;
    let step = mark(&scene.sample, &scene.owner, "1");
    let work = closure(|connection| {
        Box::pin(async move {
            connection.execute("INSERT INTO account VALUES (12)").await?;
            let _ = connection.execute("NONSENSE").await;
            Ok((7, Payload::of(&json!(7)).unwrap()))
        })
    });
    let result = transaction(&scene.store, &scene.sample, &step, LIMIT, work).await;
    assert!(matches!(result, Err(TransactionError::Spoilt { .. })), "{result:?}");
    assert_eq!(scene.written().await, (0, 0));
    scene.goes_on().await;
}

/// What the closure committed by itself is there, and its mark without a value: it is not made again.
#[tokio::test]
async fn a_transaction_that_is_ended_inside_leaves_its_mark() {
    let ways: [&'static [&'static str]; 4] = [
        &["INSERT INTO account VALUES (12)", "COMMIT"],
        &["INSERT INTO account VALUES (12)", "COMMIT", "BEGIN"],
        &["INSERT INTO account VALUES (12)", "COMMIT AND CHAIN"],
        &["INSERT INTO account VALUES (12)", "COMMIT", "SAVEPOINT_THAT_FAILS"],
    ];
    for sql in ways {
        let mut scene = scene().await;
        let step = mark(&scene.sample, &scene.owner, "1");
        let result = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(sql)).await;
        assert!(matches!(result, Err(TransactionError::EndedInside)), "{sql:?}: {result:?}");
        assert_eq!(scene.written().await, (1, 0), "{sql:?}");
        let history =
            scene.store.run_history(&scene.sample.tenant, scene.owner.id, Turns::ALL).await.unwrap();
        assert_eq!((history.steps.len(), history.steps[0].value.as_ref()), (1, None), "{sql:?}");
        run(&mut scene.other, "DELETE FROM step").await;
        scene.goes_on().await;
    }
}

#[tokio::test]
async fn a_slow_one_is_rolled_back() {
    let mut scene = scene().await;
    let step = mark(&scene.sample, &scene.owner, "1");
    let slow = statements(&["INSERT INTO account VALUES (12)", "SELECT pg_sleep(60)"]);
    let result = transaction(&scene.store, &scene.sample, &step, Duration::from_millis(100), slow).await;
    assert!(matches!(result, Err(TransactionError::TooSlow { .. })), "{result:?}");
    // The same again waits for the server to notice, and then is the first.
    let value = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await.unwrap();
    assert_eq!((value, scene.written().await), (7, (1, 1)));
    scene.goes_on().await;
}

/// The lease ran out while the closure worked: whoever ended the worker did not have to wait for it, and its changes
/// are void.
#[tokio::test]
async fn a_worker_that_is_fenced_meanwhile_changes_nothing() {
    let mut scene = scene().await;
    let step = mark(&scene.sample, &scene.owner, "1");
    let other = Sample::enrol(&*scene.store, "other").await;
    let store = scene.store.clone();
    let work = closure(move |connection| {
        Box::pin(async move {
            connection.execute("INSERT INTO account VALUES (12)").await?;
            let verdicts = store.commit(&[sample::fence_others(other.fence)]).await.unwrap();
            assert_eq!(verdicts, [Verdict::Admitted], "and the writer is not held up");
            Ok((7, Payload::of(&json!(7)).unwrap()))
        })
    });
    let result = transaction(&scene.store, &scene.sample, &step, LIMIT, work).await;
    assert!(matches!(result, Err(TransactionError::Refused(Refusal::Fenced))), "{result:?}");
    assert_eq!(scene.written().await, (0, 0));
    let late = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await;
    assert!(matches!(late, Err(TransactionError::Refused(Refusal::Fenced))), "{late:?}");
}

/// HAZARDS G02: COMMIT is lost, or its answer.
#[tokio::test]
async fn a_lost_commit_is_found_out() {
    for (loss, written) in [(Loss::Request, false), (Loss::Answer, true)] {
        let mut scene = scene().await;
        let step = mark(&scene.sample, &scene.owner, "1");
        scene.proxy.lose(loss, COMMIT);
        let result = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await;
        assert_eq!(scene.proxy.lost(), 1);
        if written {
            assert_eq!(result.unwrap(), 7);
        } else {
            let error = result.unwrap_err();
            assert!(matches!(error, TransactionError::Store(StoreError::Io { .. })), "{error}");
        }
        let expected = if written { (1, 1) } else { (0, 0) };
        assert_eq!(scene.written().await, expected, "{loss:?}");
        scene.goes_on().await;
    }
}

/// The connection is lost while the server is still at COMMIT. The message is processed, and its delivery says so.
#[tokio::test]
async fn a_message_whose_commit_is_still_under_way_is_not_taken_for_rolled_back() {
    let Scene { schema, proxy, mut other, .. } = scene().await;
    run(
        &mut other,
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM pg_advisory_xact_lock(240717); RETURN NULL; \
         END $$; \
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON account DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION late(); \
         SELECT pg_advisory_lock(240717)",
    )
    .await;
    let executor = ExecutorBuilder::postgres_with(proxy.url(), schema.options()).open().await.unwrap();
    let (tenant, inbox) = (acme(), executor.clone());
    let mut delivery = pin!(inbox.process_once(&tenant, "billing", "m", |connection: &mut PgConnection| {
        Box::pin(async move { connection.execute("INSERT INTO account VALUES (12)").await.map(|_| 7_i64) })
    }));
    let cut_off = async {
        let at_commit = "SELECT coalesce(max(pid), 0)::bigint FROM pg_locks \
                         WHERE locktype = 'advisory' AND objid = 240717 AND NOT granted";
        let mut commits = 0;
        while commits == 0 {
            commits = number(&mut other, at_commit).await;
        }
        proxy.cut();
        let waits =
            format!("SELECT count(*) FROM pg_stat_activity WHERE {commits} = ANY (pg_blocking_pids(pid))");
        while number(&mut other, waits.as_str()).await == 0 {}
    };
    tokio::select! {
        biased;
        processed = &mut delivery => panic!("COMMIT is still under way: {processed:?}"),
        () = cut_off => {}
    }
    run(&mut other, "SELECT pg_advisory_unlock(240717)").await;
    assert_eq!(delivery.await.unwrap(), Processed::Now(7));
    assert_eq!(number(&mut other, "SELECT count(*) FROM account").await, 1);
    executor.shutdown(LIMIT).await;
}

/// A connection that is lost inside the closure is not the closure's failure: that would be recorded for good.
#[tokio::test]
async fn a_connection_that_is_lost_inside_is_not_the_closures_failure() {
    for loss in [Loss::Request, Loss::Answer] {
        let mut scene = scene().await;
        let step = mark(&scene.sample, &scene.owner, "1");
        scene.proxy.lose(loss, "INTO account");
        let result = transaction(&scene.store, &scene.sample, &step, LIMIT, statements(INSERT)).await;
        assert!(matches!(result, Err(TransactionError::Store(_))), "{loss:?}: {result:?}");
        assert_eq!(scene.written().await, (0, 0));
        scene.goes_on().await;
    }
}

/// What a closure sets and takes is not the next one's.
#[tokio::test]
async fn nothing_is_left_on_the_connection() {
    let scene = scene_with(|options| Options { guests: 1, ..options }).await;
    let step = |id: &str| mark(&scene.sample, &scene.owner, id);
    let leave = statements(&[
        "SET synchronous_commit = off",
        "SET search_path = pg_catalog",
        "SELECT pg_advisory_lock(4711)",
        "CREATE TEMP TABLE mine (a BIGINT)",
        "RESET search_path",
    ]);
    // The checkpoint's own statements find their tables even so: it fails or it succeeds, but leaves nothing behind.
    let _ = transaction(&scene.store, &scene.sample, &step("1"), LIMIT, leave).await;
    let look = closure(|connection| {
        Box::pin(async move {
            let found: (String, bool, i64, i64) = sqlx::query_as(
                "SELECT current_setting('synchronous_commit'), to_regclass('account') IS NOT NULL, \
                 (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711), \
                 (SELECT count(*) FROM pg_class WHERE relname = 'mine' AND pg_table_is_visible(oid))",
            )
            .fetch_one(connection)
            .await?;
            assert_eq!(found, ("on".to_owned(), true, 0, 0));
            Ok((7, Payload::of(&json!(7)).unwrap()))
        })
    });
    let looked = transaction(&scene.store, &scene.sample, &step("2"), LIMIT, look).await;
    assert_eq!(looked.unwrap(), 7);
}

/// A server has few connections for all its clients. Those that an idle worker does not need any more are closed.
#[tokio::test]
async fn connections_that_nobody_needs_are_closed() {
    const AT_ONCE: usize = 4;
    let mut scene = scene_with(|options| Options { idle_for: Duration::from_millis(100), ..options }).await;
    let together = Arc::new(Barrier::new(AT_ONCE));
    let transactions = (0..AT_ONCE).map(async |id| {
        let together = together.clone();
        let process = closure(move |connection| {
            Box::pin(async move {
                together.wait().await;
                let process =
                    sqlx::query_scalar("SELECT pg_backend_pid()::bigint").fetch_one(connection).await?;
                Ok((process, Payload::of(&process).unwrap()))
            })
        });
        let step = mark(&scene.sample, &scene.owner, &id.to_string());
        transaction(&scene.store, &scene.sample, &step, LIMIT, process).await.unwrap()
    });
    let processes = join_all(transactions).await;
    let mut other = scene.schema.plain().await;
    let processes: Vec<_> = processes.iter().map(ToString::to_string).collect();
    let open = format!("SELECT count(*) FROM pg_stat_activity WHERE pid IN ({})", processes.join(", "));
    // As a worker does that has nothing to do.
    while number(&mut other, &open).await > 0 {
        scene.store.pulse().await.unwrap();
    }
    scene.goes_on().await;
}
