//! SCALE-8: from one file to a shared database, with everything that is under way.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use counterfoil::flow::EngineBuilder;
use counterfoil::payload::{DigestKey, Stored};
use counterfoil::store::chain::{ChainKey, FindingKind};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::transfer::{MoveError, Moved, Progress, Stage, columns, move_all};
use counterfoil::store::{Change, Evidence, OpenError, QuestionKind, Resolution, Store, StoreError};
use counterfoil::{ApprovalSubject, Ctx, Engine, Failure, Payload, Queue, RunId};
use serde_json::json;
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tokio::sync::Notify;

use crate::flow;
use crate::flow::tools::{Bill, Pay, Ring, post};
use crate::flow::wait::HOUR;
use crate::flow::world::{Process, World, counted};
use crate::store::postgres::{Schema, url};
use crate::world::acme;

async fn moved(from: &Path, schema: &Schema) -> Result<Moved, MoveError> {
    move_all(from, &url(), schema.options(), |_| ()).await
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// What a life can be in the middle of.
macro_rules! case {
    ($world:ident) => {
        flow!($world, |ctx, kind: u32| {
            counted(&$world, &ctx, "begun", kind).await?;
            match kind {
                DONE => post(&ctx, "done").await.map(|number| number.to_string()),
                PAID | PAID_BEFORE => ctx
                    .call::<Pay>(Bill::new("bill", 5))
                    .label("customer", "c-7")
                    .await
                    .map(|number| number.to_string()),
                ASLEEP => {
                    ctx.publish("state", "asleep").await?;
                    ctx.sleep(HOUR).await.map(|()| "awake".to_owned())
                }
                FAILED => Err(Failure::new("it cannot be done")),
                LARGE => ctx.step("large", &(), |&()| "x".repeat(100_000)).await,
                ASKING => ctx.call::<Ring>("bell".to_owned()).await.map(|number| format!("rang {number}")),
                _ => post(&ctx, "cut off").await.map(|number| format!("posted {number}")),
            }
        })
    };
}
const DONE: u32 = 0;
const ASLEEP: u32 = 1;
const FAILED: u32 = 2;
const LARGE: u32 = 3;
const ASKING: u32 = 4;
const PAID: u32 = 5;
/// By the other one, or the other way round.
const PAID_BEFORE: u32 = 6;
const CUT_OFF: u32 = 7;

fn begin(
    process: &Process,
    tenant: &str,
    flow: &(impl counterfoil::flow::WorkflowFn<u32, String> + Clone),
) -> Vec<RunId> {
    let tenant = process.engine().tenant(tenant).unwrap();
    for content in ["likes tea", "does not like tea"] {
        process.on(tenant.memory("ann").remember("fact", content).into_future()).unwrap();
    }
    let start = |kind: u32| process.on(tenant.run(flow.clone(), kind).start()).unwrap().id();
    (DONE..=CUT_OFF).map(start).collect()
}

fn result(process: &Process, tenant: &str, run: RunId) -> Result<String, String> {
    let handle = process.engine().tenant(tenant).unwrap().handle::<String>(run);
    process.on(handle.result()).map_err(|error| error.to_string())
}

/// What a worker that was ended before has learned, about any record; and a tenant's key.
async fn late_evidence(path: &Path) {
    let store = Sqlite::open(path).await.unwrap();
    let mut file = plain(path).await;
    let row = sqlx::query("SELECT id FROM record LIMIT 1").fetch_one(&mut file).await.unwrap();
    let evidence = Evidence {
        tenant: acme(),
        record: counterfoil::RecordId(row.get(0)),
        fence: counterfoil::Fence(1),
        attempt: 1,
        response: Stored::Inline(Payload::of(&json!({"number": 1})).unwrap()),
        external_ref: Some("effect-1".into()),
        at: counterfoil::Timestamp(1),
    };
    let tenant_key = Some((acme(), DigestKey::new([7; 32])));
    let change = Change { evidence: Some(Box::new(evidence)), tenant_key, ..Change::default() };
    assert!(store.commit(&[change]).await.unwrap()[0].is_admitted());
    store.close().await;
    let look = "INSERT INTO look SELECT tenant, id, 1, 1, 9000000000000000, 0, 0, 0, 0 FROM record LIMIT 1";
    sqlx::query(look).execute(&mut file).await.unwrap(); // not due within this test
}

/// An event that nobody has published, a message that was processed, and one that was tried.
async fn messages(path: &Path) {
    let executor = counterfoil::Executor::sqlite(path).evidence_chain(ChainKey::none());
    let executor = executor.open().await.unwrap();
    let mut own = plain(path).await;
    let event = counterfoil::outbox::NewEvent {
        id: "1".into(),
        aggregate: "a".into(),
        kind: "told".into(),
        payload: Payload::of(&1).unwrap(),
    };
    counterfoil::outbox::add(&mut own, &acme(), event).await.unwrap();
    let message = counterfoil::inbox::Message::new("m").version("a", 1);
    let tenant = acme();
    let done = executor.process_once(&tenant, "consumer", message, |_: &mut SqliteConnection| {
        Box::pin(async { Ok::<_, sqlx::Error>(1) })
    });
    assert_eq!(done.await.unwrap(), counterfoil::inbox::Processed::Now(1));
    let fails = executor.process_once(&tenant, "consumer", "n", |_: &mut SqliteConnection| {
        Box::pin(async { Err::<i64, _>("not yet") })
    });
    assert!(fails.await.is_err());
    executor.shutdown(std::time::Duration::from_secs(5)).await;
}

async fn plain(path: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap()
}

/// Asks people, who decide elsewhere.
async fn asks(ctx: Ctx, what: String) -> Result<String, Failure> {
    let approval = ctx.approval(ApprovalSubject::of("notice", &what)).await?;
    Ok(format!("{what} by {}", approval.by))
}

#[test]
fn what_was_under_way_in_the_file_goes_on_in_the_database() {
    const TENANTS: [&str; 2] = ["acme", "globex"];
    let (world, schema) = (World::new(), Schema::new());
    let flow = case!(world);
    world.hold("ring after");
    world.hold("post before cut off");
    let chained = |engine: EngineBuilder| engine.evidence_chain(ChainKey::none());
    let first = Process::start(&world, chained(world.engine()).workflow("case", 1, flow.clone()));
    let runs = TENANTS.map(|tenant| begin(&first, tenant, &flow));
    first.on(async {
        for _ in TENANTS {
            world.reached("ring after").await;
            world.reached("post before cut off").await;
        }
    });
    for (tenant, runs) in TENANTS.iter().zip(&runs) {
        for kind in [DONE, FAILED, LARGE, PAID, PAID_BEFORE] {
            let _ = result(&first, tenant, runs[kind as usize]);
        }
    }
    first.on(world.counts("ring called", 2));
    first.on(first.state(runs[0][ASLEEP as usize], "waiting"));
    first.crash(); // it has rung, and nobody knows
    world.release("ring after");
    let engine = chained(world.engine()).workflow("case", 1, flow.clone()).queue(Queue::new("post"));
    let engine = engine.workflow("asks", 1, asks);
    let second = Process::start(&world, engine);
    second.on(async {
        second.acme().run(flow.clone(), LARGE).queue("post").label("customer", "c-7").await.unwrap();
        let yearly = second.acme().schedule("yearly").cron("0 0 1 1 *");
        yearly.run(flow.clone(), LARGE).await.unwrap();
        second.acme().schedule("yearly").pause().await.unwrap();
        second.acme().run(asks, "granted".to_owned()).start().await.unwrap();
        second.until(async |acme| !acme.reviews(None).await.unwrap().is_empty()).await;
    });
    for tenant in TENANTS {
        let tenant = second.engine().tenant(tenant).unwrap();
        second.on(second.until(async |_| !tenant.questions().await.unwrap().is_empty()));
    }
    second.on(async {
        let sleeper = second.acme().handle::<()>(runs[0][ASLEEP as usize]);
        sleeper.signal("note", "for later").await.unwrap();
    });
    let asleep = second.on(second.acme().handle::<()>(runs[0][ASLEEP as usize]).row()).unwrap();
    second.crash();
    run(late_evidence(&world.path()));
    run(messages(&world.path()));

    let moved = run(moved(&world.path(), &schema)).unwrap();
    for table in moved.tables {
        assert!(table.rows > 0, "nothing in {} to be moved", table.table);
    }

    let engine = world.equip(Engine::postgres_with(url(), schema.options()), &world.tap);
    let engine = chained(engine).workflow("case", 1, flow.clone()).workflow("asks", 1, asks);
    world.release("post before cut off");
    let third = Process::start(&world, engine);
    let sleeper = third.acme().handle::<()>(runs[0][ASLEEP as usize]);
    assert_eq!(third.on(sleeper.published::<String>("state")).unwrap().unwrap(), "asleep");
    for (tenant, runs) in TENANTS.iter().zip(&runs) {
        let of = third.engine().tenant(tenant).unwrap();
        let questions = third.on(of.questions()).unwrap();
        let question = questions.iter().find(|question| question.kind == QuestionKind::Ambiguous).unwrap();
        third.on(of.answer(question.id, Resolution::Happened(json!(7)), "ann")).unwrap();
        assert_eq!(result(&third, tenant, runs[ASKING as usize]).unwrap(), "rang 7");
        assert_eq!(result(&third, tenant, runs[LARGE as usize]).unwrap().len(), 100_000);
        assert!(result(&third, tenant, runs[FAILED as usize]).unwrap_err().contains("it cannot be done"));
        for kind in [DONE, PAID, PAID_BEFORE, CUT_OFF] {
            result(&third, tenant, runs[kind as usize]).unwrap();
        }
    }
    assert_eq!(third.on(third.acme().handle::<()>(asleep.id).row()).unwrap(), asleep, "its timer runs on");
    third.on(async {
        let review = third.acme().reviews(None).await.unwrap().remove(0);
        third.acme().decide(&review.id, 1).approve("ann").await.unwrap();
        let asks = third.acme().handle::<String>(review.review.run.unwrap());
        assert_eq!(asks.result().await.unwrap(), "granted by ann");
    });
    assert_eq!(world.effects("ring").len(), 2, "nothing is rung again");
    let mut posted = world.effects("post");
    posted.sort();
    assert_eq!(posted, ["cut off", "cut off", "done", "done"], "one for each tenant");
    assert_eq!(world.effects("pay").len(), 2, "one for each tenant");
    assert_eq!(world.counted("begun"), 17, "no step is made twice");
    let new = third.on(third.acme().run(flow, DONE).start()).unwrap().id();
    result(&third, "acme", new).unwrap();
    let new = third.on(third.acme().handle::<()>(new).row()).unwrap();
    assert!(new.fence > asleep.fence, "{:?} after {:?}", new.fence, asleep.fence);
    let report = third.on(third.engine().executor().verify_chain(None)).unwrap().unwrap();
    // The late answer that this test wrote by itself gives itself a time before the chain. There were no rows then.
    assert!(report.rows > 20 && report.older == 0, "{report}");
    assert!(
        matches!(&report.findings[..], [only] if only.kind == FindingKind::Added && only.what.starts_with("late answer")),
        "{report}"
    );
    third.shut_down();
}

/// A file with many rows, and text that PostgreSQL cannot store as it is.
async fn many(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("many.db");
    Sqlite::open(&path).await.unwrap().close().await;
    let mut file = plain(&path).await;
    sqlx::raw_sql(
        "INSERT INTO worker (fence, name, enrolled_at) VALUES (7, 'a worker', 1);
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
         INSERT INTO step (tenant, run, kind, name, id, value, at)
         SELECT 'acme', n % 50, 1, 'step ' || char(0, 1, 2), n, CASE WHEN n % 2 THEN char(n) || 'é' END, n FROM n",
    )
    .execute(&mut file)
    .await
    .unwrap();
    file.close().await.unwrap();
    path
}

/// Cuts a move off while it writes the steps.
async fn cut_off(path: &Path, schema: &Schema) {
    let (enough, url) = (Notify::new(), url());
    let told = |progress: Progress| {
        if progress.table == "step" && progress.rows >= 2000 {
            enough.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = enough.notified() => {}
        moved = move_all(path, &url, schema.options(), told) => panic!("{moved:?}"),
    }
}

#[tokio::test]
async fn a_move_that_was_cut_off_goes_on_where_it_was() {
    let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let path = many(folder.path()).await;
    cut_off(&path, &schema).await;
    let refused = schema.open_with(schema.options()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Open(OpenError::Filling { .. })), "{refused}");
    let mut database = schema.plain().await;
    let mark =
        sqlx::query("SELECT * FROM migration WHERE number = 1000000").fetch_one(&mut database).await.unwrap();

    let progress = Mutex::new(Vec::new());
    let moved_now =
        move_all(&path, &url(), schema.options(), |p| progress.lock().unwrap().push(p)).await.unwrap();
    let progress = progress.into_inner().unwrap();
    let steps = |stage| progress.iter().filter(move |p| p.table == "step" && p.stage == stage);
    assert!(steps(Stage::Copy).next().unwrap().rows >= 2000, "from the beginning again: {progress:?}");
    assert!(steps(Stage::Copy).is_sorted_by_key(|p| p.rows));
    for stage in [Stage::Copy, Stage::Verify] {
        assert_eq!(
            steps(stage).next_back().unwrap(),
            &Progress { stage, table: "step", rows: 5000, of: 5000 }
        );
    }
    let step = moved_now.tables.iter().find(|table| table.table == "step").unwrap();
    assert_eq!((step.rows, step.digest.len()), (5000, 64));

    // The file is given up, and nothing goes on in two places.
    let refused = Sqlite::open(&path).await.unwrap_err();
    assert!(matches!(refused, StoreError::Open(OpenError::GivenUp { .. })), "{refused}");
    assert!(matches!(moved(&path, &schema).await, Err(MoveError::AlreadyMoved { .. })));
    let store = schema.open().await;
    assert_eq!(store.worker_find("a worker").await.unwrap().unwrap().fence.0, 7);
    assert!(store.worker_find("a worker").await.unwrap().unwrap().ended_at.is_some(), "its lock was free");
    store.close().await;

    // As if it had been cut off between giving up the file and releasing the database.
    sqlx::query("INSERT INTO migration (number, name, digest, works_from) VALUES ($1, $2, $3, $4)")
        .bind(mark.get::<i64, _>("number"))
        .bind(mark.get::<String, _>("name"))
        .bind(mark.get::<String, _>("digest"))
        .bind(mark.get::<i64, _>("works_from"))
        .execute(&mut database)
        .await
        .unwrap();
    assert_eq!(moved(&path, &schema).await.unwrap(), moved_now);
    schema.open().await.close().await;
}

#[tokio::test]
async fn a_row_that_differs_is_found() {
    for change in [
        "UPDATE step SET value = 'other' WHERE id = '100'",
        "UPDATE step SET input_hash = '' WHERE id = '100'",
        "DELETE FROM step WHERE id = '100'",
        "INSERT INTO step SELECT 'acme', run, turn, kind, name, id || ' too', input_hash, value, at FROM step WHERE id = '100'",
        "UPDATE worker SET settled = true",
    ] {
        let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
        let path = many(folder.path()).await;
        cut_off(&path, &schema).await;
        let mut database = schema.plain().await;
        assert_eq!(sqlx::query(change).execute(&mut database).await.unwrap().rows_affected(), 1, "{change}");
        let error = moved(&path, &schema).await.unwrap_err();
        assert!(matches!(error, MoveError::Differs { .. }), "{change}: {error}");
        assert!(schema.open_with(schema.options()).await.is_err(), "{change}: engines stay out");
        Sqlite::open(&path).await.unwrap().close().await; // and the file still works
    }
}

#[tokio::test]
async fn what_would_mix_two_histories_is_refused() {
    let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let missing = folder.path().join("missing.db");
    assert!(matches!(moved(&missing, &schema).await, Err(MoveError::NoSource { .. })));
    assert!(!missing.exists());

    let path = many(folder.path()).await;
    let living = Sqlite::open(&path).await.unwrap();
    let error = moved(&path, &schema).await.unwrap_err();
    assert!(matches!(error, MoveError::Open(OpenError::OwnedHere { .. })), "{error}");
    living.close().await;

    // An engine works on the file again, after a move has begun.
    cut_off(&path, &schema).await;
    Engine::sqlite(&path).start().await.unwrap().shutdown(std::time::Duration::ZERO).await;
    let error = moved(&path, &schema).await.unwrap_err();
    assert!(matches!(error, MoveError::AnotherMove { .. }), "{error}");

    let used = Schema::new();
    let store = Arc::new(used.open().await);
    Engine::store(store).start().await.unwrap().shutdown(std::time::Duration::ZERO).await;
    let error = moved(&path, &used).await.unwrap_err();
    assert!(matches!(error, MoveError::NotEmpty { table: "worker", .. }), "{error}");
    used.open().await.close().await; // it was left as it was
    moved(&path, &Schema::new()).await.unwrap();
}

/// A copy lacks what was sent after it was made. The database cannot tell that the rows come from a copy.
#[test]
fn a_copy_is_moved_once_an_engine_has_noted_that_it_may_be_older_than_the_world() {
    let (world, schema) = (World::new(), Schema::new());
    let pays = flow!(world, |ctx, bill: Bill| ctx.call::<Pay>(bill).await);
    let on_file = |path: &Path| {
        let engine = world.equip(Engine::sqlite(path), &world.tap);
        Process::start(&world, engine.workflow("pays", 1, pays.clone()))
    };
    let pay = |process: &Process, reference: &str| {
        let run = process.acme().run(pays.clone(), Bill::new(reference, 5));
        process.on(async { run.await.unwrap() })
    };
    let copy = world.path().with_extension("copy");
    let process = on_file(&world.path());
    pay(&process, "before");
    process.shut_down();
    std::fs::copy(world.path(), &copy).unwrap();
    let process = on_file(&world.path());
    let paid = pay(&process, "after");
    process.shut_down();

    let refused = run(moved(&copy, &schema)).unwrap_err();
    assert!(matches!(refused, MoveError::Doubtful { .. }), "{refused}");
    on_file(&copy).shut_down();
    run(moved(&copy, &schema)).unwrap();
    let engine = world.engine_in(&schema, true).workflow("pays", 1, pays.clone());
    let process = Process::start(&world, engine);
    assert!(process.on(process.engine().executor().restored()).unwrap().is_some(), "the note moves along");
    assert_eq!(pay(&process, "after"), paid, "the lookup shows the payment");
    assert_eq!(world.effects("pay").len(), 2, "it was not paid twice");
    process.shut_down();
}

/// A column that a later migration adds must be moved, too.
#[tokio::test]
async fn every_column_of_both_databases_is_moved() {
    let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    schema.open().await.close().await;
    let path = many(folder.path()).await;
    let known: Vec<_> = columns().map(|(table, column)| format!("{table}.{column}")).collect();
    let mut sorted = known.clone();
    sorted.sort();

    let there = "SELECT table_name || '.' || column_name FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name NOT IN ('migration', 'fence') \
                 AND table_name NOT IN (SELECT table_name FROM information_schema.views WHERE table_schema = current_schema()) \
                 AND is_generated = 'NEVER'"; // what is made of other columns is not moved
    let mut database = schema.plain().await;
    let mut found: Vec<String> = sqlx::query_scalar(there).fetch_all(&mut database).await.unwrap();
    found.sort();
    assert_eq!(found, sorted, "PostgreSQL");

    // `born` is a constant that SQLite needs to refuse a row.
    let there = "SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c \
                 WHERE t.type = 'table' AND t.name NOT IN ('birth', '_counterfoil_migrations') \
                 AND t.name NOT LIKE 'sqlite_%' AND c.name <> 'born'";
    let mut found: Vec<String> = sqlx::query_scalar(there).fetch_all(&mut plain(&path).await).await.unwrap();
    found.sort();
    assert_eq!(found, sorted, "SQLite");
}

#[tokio::test]
async fn the_command_moves_and_says_so() {
    let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let path = many(folder.path()).await;
    let command = |json: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(["move", "--to", &url(), "--schema", schema.name(), "--from"]);
        command.arg(format!("sqlite:{}", path.display())).args(json.then_some("--json"));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (succeeded, lines, trouble) = command(true);
    assert!(succeeded, "{trouble}");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let copied = json!({"stage": "copy", "table": "step", "rows": 5000, "of": 5000});
    assert!(lines.contains(&copied), "{lines:?}");
    let (last, _) = lines.split_last().unwrap();
    assert_eq!(last["moved"].as_array().unwrap().len(), 24);
    let (succeeded, lines, trouble) = command(false);
    assert!(!succeeded && lines.is_empty() && trouble.contains("has been moved already"), "{trouble}");
}
