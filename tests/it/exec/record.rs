//! The record of a call that nobody's workflow makes: begun, sealed, replayed, kept apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil::exec::ExecError;
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, ErrorKind, Key, State};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{QuestionKind, Refusal, Store as _};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Fence, Outcome, ToolRequest};
use serde_json::json;

use crate::world::{Chance, Keys, Process, Reply, TestClock, World, acme, brief, executor, request};

fn lookup() -> Contract {
    Contract::new(ContractClass::Lookup)
}

fn open_ticket(world: &Arc<World>) -> DynamicTool {
    world.tool("open_ticket", EffectClass::InternalMutation, lookup()).retry(brief())
}

fn key() -> counterfoil::ledger::OperationKey {
    Key::of("open_ticket").target("c1").render().unwrap()
}

// R-REC-3, invariant 1: seen from inside the tool by somebody else who reads the file.
#[tokio::test]
async fn a_record_is_durable_before_its_call_is_dispatched() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, path) = (TestClock::breathing(), dir.path().join("agents.db"));
    let (file, seen) = (path.clone(), Arc::new(AtomicU32::new(0)));
    let looking = seen.clone();
    let tool = DynamicTool::new("peek", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
        .call(move |_, _| {
            let (file, seen) = (file.clone(), looking.clone());
            async move {
                use sqlx::{ConnectOptions as _, Row as _};
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).read_only(true);
                let mut connection = options.connect().await.unwrap();
                let row = sqlx::query("SELECT status, attempts FROM record")
                    .fetch_one(&mut connection)
                    .await
                    .unwrap();
                assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1)), (1, 1));
                seen.fetch_add(1, Ordering::SeqCst);
                Ok(Done::new(json!("seen")))
            }
        });
    let executor = executor(&dir, &clock).dynamic_tool(tool).open().await.unwrap();
    let outcome = executor.execute(request("peek").key(Key::of("peek").target("c1"))).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert!(path.exists());
}

// R-REC-3, A06: the same bytes as the first time, and the provider is not called.
#[tokio::test]
async fn a_committed_call_is_replayed_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    world.replies([Reply::AnswerWith(json!({"b": 1.5, "a": [null, "é\u{202e}😀"], "n": -0.0}))]);
    let process = Process::start(executor(&dir, &clock).dynamic_tool(open_ticket(&world))).await.unwrap();
    let first = process.execute(request("open_ticket").call_id("call-7")).await.unwrap().unwrap();
    let first = first.answer().unwrap().clone();
    assert!(first.first);
    assert_eq!(first.external_ref.as_deref(), Some("effect-1"));
    process.kill();

    let process = Process::start(executor(&dir, &clock).dynamic_tool(open_ticket(&world))).await.unwrap();
    let again = process.execute(request("open_ticket").call_id("call-8")).await.unwrap().unwrap();
    let again = again.answer().unwrap();
    assert!(!again.first);
    assert_eq!(again.response.as_str(), first.response.as_str());
    assert_eq!((&again.external_ref, again.basis), (&first.external_ref, Basis::Answer));
    assert_eq!((world.count(), world.requests(), world.lookups().len()), (1, 1, 0));

    // R-REC-1: who asked first stays in the record.
    let (record, _) = process.executor().record(&acme(), &key()).await.unwrap().unwrap();
    assert_eq!(record.owner.call_id.as_deref(), Some("call-7"));
    assert_eq!((record.attempts, record.operation.as_str()), (1, "open_ticket"));
}

// R-KEY-6, invariant 4, D10
#[tokio::test]
async fn another_payload_under_a_key_is_a_conflict_and_the_first_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    let executor = executor(&dir, &clock).dynamic_tool(open_ticket(&world)).open().await.unwrap();
    let first = executor.execute(request("open_ticket")).await.unwrap();
    let before = executor.record(&acme(), &key()).await.unwrap().unwrap().0;

    let other = ToolRequest::new(acme(), "open_ticket", json!({"case": "c1", "urgent": true}));
    let Outcome::Conflict(diff) = executor.execute(other).await.unwrap() else { panic!("no conflict") };
    assert_eq!(diff.0, json!([{"op": "add", "path": "/urgent", "value": true}]));
    assert_eq!(executor.record(&acme(), &key()).await.unwrap().unwrap().0, before);
    assert_eq!((world.count(), world.requests()), (1, 1));
    let again = executor.execute(request("open_ticket")).await.unwrap();
    assert_eq!(again.answer().unwrap().response, first.answer().unwrap().response);
}

// R-REC-3: failed for certain is not for ever, and the budget of the next execution is its own.
#[tokio::test]
async fn a_failed_call_may_be_tried_again_under_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    let executor = executor(&dir, &clock).dynamic_tool(open_ticket(&world)).open().await.unwrap();
    world.replies([ErrorKind::Unreachable; 3].map(Reply::Fail));
    let Outcome::Failed(failure) = executor.execute(request("open_ticket")).await.unwrap() else {
        panic!("not failed")
    };
    assert_eq!((failure.kind, world.requests(), world.count()), (ErrorKind::Unreachable, 3, 0));

    world.replies([Reply::Fail(ErrorKind::Unreachable)]);
    let outcome = executor.execute(request("open_ticket")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((world.requests(), world.count()), (5, 1));
    assert_eq!(world.wire_keys().len(), 1); // D11
    assert_eq!(executor.record(&acme(), &key()).await.unwrap().unwrap().0.attempts, 5);
}

// R-REC-4, DESIGN 4.2 (a): what was noted during the call is what the lookup goes by after the crash.
#[tokio::test]
async fn a_noted_reference_survives_the_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    let tool = |world: &Arc<World>| {
        let noting = world.clone();
        open_ticket(world).call(move |call, input| {
            let world = noting.clone();
            async move {
                let accepted = world.request("a key that no lookup will find", input).await?;
                call.note(accepted.external_ref.clone().unwrap()).await.unwrap();
                world.replies([Reply::Hang]);
                world.request("the second half", json!(null)).await?;
                Ok(accepted)
            }
        })
    };
    let process = Process::start(executor(&dir, &clock).dynamic_tool(tool(&world))).await.unwrap();
    drop(process.execute(request("open_ticket")));
    world.requested(2).await;
    process.kill();

    let process = Process::start(executor(&dir, &clock).dynamic_tool(tool(&world))).await.unwrap();
    let outcome = process.execute(request("open_ticket")).await.unwrap().unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!((answer.external_ref.as_deref(), answer.basis), (Some("effect-1"), Basis::Lookup));
    assert_eq!(world.lookups(), [Some("effect-1".to_owned())]);
    assert_eq!((world.count(), world.requests()), (1, 2));
}

/// Three workers on one store, of which the first is fenced while its call is under way.
async fn fenced(contract: Contract) -> (tempfile::TempDir, TestClock, Arc<World>, Arc<Sqlite>) {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    let store = Arc::new(Sqlite::open(dir.path().join("agents.db")).await.unwrap());
    let on = || {
        counterfoil::exec::ExecutorBuilder::store(store.clone()).clock(clock.clone()).entropy(Chance::least())
    };
    let tool = || world.tool("open_ticket", EffectClass::InternalMutation, contract.clone());
    let zombie = on().dynamic_tool(tool()).open().await.unwrap();
    world.replies([Reply::EffectThenHang]);
    let late = tokio::spawn(async move { zombie.execute(request("open_ticket")).await });
    world.requested(1).await;
    // Fences the first; it does not know the tool, and so sends nothing, and asks. Only then the answer comes: or it
    // would settle the call by it.
    let second = on().open().await.unwrap();
    while second.questions(&acme()).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    drop(second);
    world.release();
    let refused = late.await.unwrap().unwrap_err();
    assert!(matches!(refused, ExecError::Late { refusal: Refusal::Fenced, .. }), "{refused:?}");
    assert!(refused.to_string().contains("kept as evidence"), "{refused}");
    (dir, clock, world, store)
}

// R-REC-9, B03, invariant 6: a zombie changes nothing, and what it learned is not lost.
#[tokio::test]
async fn the_late_answer_of_a_fenced_worker_is_evidence() {
    let (_dir, clock, world, store) = fenced(lookup()).await;
    let record = store.record_find(&acme(), &key()).await.unwrap().unwrap();
    assert_eq!(record.state, State::Started);
    let evidence = store.record_evidence(&acme(), record.id).await.unwrap();
    assert_eq!(evidence.len(), 1);
    assert_eq!((evidence[0].fence, evidence[0].attempt), (Fence(1), 1));
    assert_eq!(evidence[0].external_ref.as_deref(), Some("effect-1"));

    let third = counterfoil::exec::ExecutorBuilder::store(store).clock(clock).entropy(Chance::least());
    let third = third.dynamic_tool(open_ticket(&world)).open().await.unwrap();
    let outcome = third.execute(request("open_ticket")).await.unwrap();
    assert_eq!(outcome.answer().unwrap().response.value().unwrap()["id"], "effect-1");
    assert_eq!((world.count(), world.lookups().len()), (1, 0)); // read before the provider is asked
}

// A fenced worker cannot begin a call. There was no call, so there is no answer that could be kept.
#[tokio::test]
async fn a_refused_start_speaks_of_no_call_and_of_no_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
    let store = Arc::new(Sqlite::open(dir.path().join("agents.db")).await.unwrap());
    let on = || {
        counterfoil::exec::ExecutorBuilder::store(store.clone()).clock(clock.clone()).entropy(Chance::least())
    };
    let zombie = on().dynamic_tool(open_ticket(&world)).open().await.unwrap();
    let _second = on().open().await.unwrap();
    let refused = zombie.execute(request("open_ticket")).await.unwrap_err();
    assert!(matches!(refused, ExecError::Refused { refusal: Refusal::Fenced, .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("nothing of it is durable") && !text.contains("evidence"), "{text}");
    assert_eq!(world.requests(), 0);
}

// R-REC-9: it is read where nothing else could tell.
#[tokio::test]
async fn evidence_settles_what_no_lookup_can() {
    let (_dir, clock, world, store) = fenced(Contract::new(ContractClass::Blind)).await;
    let third = counterfoil::exec::ExecutorBuilder::store(store).clock(clock).entropy(Chance::least());
    let tool = world.tool("open_ticket", EffectClass::InternalMutation, Contract::new(ContractClass::Blind));
    let third = third.dynamic_tool(tool).open().await.unwrap();
    let outcome = third.execute(request("open_ticket")).await.unwrap();
    assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
    assert_eq!((world.count(), world.requests()), (1, 1));
    assert!(third.questions(&acme()).await.unwrap().is_empty());
}

fn welcome() -> Key {
    Key::of("welcome").target("ann")
}

// R-REC-7
#[tokio::test]
async fn a_plain_function_runs_once_under_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, ran) = (TestClock::breathing(), Arc::new(AtomicU32::new(0)));
    let (executor, tenant) = (executor(&dir, &clock).open().await.unwrap(), acme());
    let once = |payload: &'static str| {
        let ran = ran.clone();
        executor.execute_once(&tenant, welcome(), payload, move || async move {
            Ok(ran.fetch_add(1, Ordering::SeqCst))
        })
    };
    for first in [true, false] {
        let outcome = once("hello").await.unwrap();
        let answer = outcome.answer().unwrap();
        assert_eq!((answer.first, answer.decode::<u32>().unwrap()), (first, 0));
    }
    assert!(matches!(once("goodbye").await.unwrap(), Outcome::Conflict(_)));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

// R-REC-7: an error that says that nothing happened lets it go again; one that does not is a question.
#[tokio::test]
async fn a_plain_function_that_fails_goes_again_only_if_nothing_happened() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::breathing();
    let (executor, tenant) = (executor(&dir, &clock).open().await.unwrap(), acme());
    let fail = |kind| {
        executor.execute_once(&tenant, welcome(), "hello", move || async move {
            Err::<u32, _>(ToolError::new(kind, "as told"))
        })
    };
    assert!(matches!(fail(ErrorKind::Unreachable).await.unwrap(), Outcome::Failed(_)));
    let Outcome::NeedsDecision { question: escalation } = fail(ErrorKind::Unknown).await.unwrap() else {
        panic!("not parked")
    };
    let open = executor.questions(&acme()).await.unwrap();
    assert_eq!((open.len(), open[0].id, open[0].kind), (1, escalation, QuestionKind::Ambiguous));
}

// R-REC-7, A11: a panic may have come after the effect. A crash as well.
#[tokio::test]
async fn a_plain_function_that_dies_is_not_run_again() {
    for panics in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (clock, world) = (TestClock::breathing(), World::new(Keys::Ignores));
        let process = Process::start(executor(&dir, &clock)).await.unwrap();
        world.replies([if panics { Reply::EffectThenPanic } else { Reply::EffectThenHang }]);
        let run = |process: &Process| {
            let (executor, world) = (process.executor(), world.clone());
            process.spawn(async move {
                let mail = || async move { Ok(world.request("mail", json!("hi")).await?.output) };
                executor.execute_once(&acme(), welcome(), "hello", mail).await
            })
        };
        let dying = run(&process);
        world.requested(1).await;
        if panics {
            assert!(matches!(dying.await.unwrap().unwrap(), Outcome::NeedsDecision { .. }));
        }
        process.kill();
        let process = Process::start(executor(&dir, &clock)).await.unwrap();
        let outcome = run(&process).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "panics: {panics}, {outcome:?}");
        assert_eq!((world.count(), world.requests()), (1, 1), "panics: {panics}");
    }
}
