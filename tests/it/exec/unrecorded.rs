//! A call that may be repeated (a query, a computation) is recorded once, with its outcome. Before it nothing is written: a crash leaves
//! nothing to be found out.

use std::sync::Arc;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{
    ApprovalSubject, Basis, Compensation, Contract, ContractClass, EffectClass, ErrorKind, Key, OperationKey,
    Price, Quota, Record, State, Undone,
};
use counterfoil::tool::{DynamicTool, Registry};
use counterfoil::{Executor, Outcome};
use serde_json::json;

use crate::store::postgres::Schema;
use crate::world::{Keys, Process, Reply, TestClock, World, acme, brief, executor, request};

fn key() -> OperationKey {
    Key::of("weather").target("c1").render().unwrap()
}

async fn record(executor: &Executor) -> Option<Record> {
    executor.record(&acme(), &key()).await.unwrap().map(|(record, _)| record)
}

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
}

impl Scene {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let world = World::new(Keys::Ignores);
        world.replies(replies);
        Self { dir: tempfile::tempdir().unwrap(), clock: TestClock::breathing(), world }
    }

    async fn process(&self) -> Process {
        let blind = Contract::new(ContractClass::Blind);
        let tool = self.world.tool("weather", EffectClass::ReadOnly, blind);
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(tool.retry(brief()))).await.unwrap()
    }
}

// R-EXE-1
#[tokio::test]
async fn nothing_is_written_before_a_query() {
    let scene = Scene::new([Reply::EffectThenHang, Reply::Answer]);
    let process = scene.process().await;
    drop(process.execute(request("weather")));
    scene.world.requested(1).await;
    assert_eq!(record(&process.executor()).await, None, "while it is under way");
    process.kill();

    let process = scene.process().await;
    assert_eq!(record(&process.executor()).await, None);
    let Outcome::Done(answer) = process.execute(request("weather")).await.unwrap().unwrap() else { panic!() };
    assert!(answer.first);
    let recorded = record(&process.executor()).await.unwrap();
    assert_eq!((recorded.revision, recorded.attempts), (1, 1));
    assert_eq!(recorded.external_ref, answer.external_ref);
    process.kill();

    // The first result stays: it is durable when a caller has it.
    let process = scene.process().await;
    let Outcome::Done(again) = process.execute(request("weather")).await.unwrap().unwrap() else { panic!() };
    assert_eq!((again.first, again.response), (false, answer.response));
    assert_eq!(scene.world.requests(), 2);
    assert_eq!(process.executor().questions(&acme()).await.unwrap(), []);
}

/// A tool that sets something to a value.
fn sets(world: &Arc<World>) -> DynamicTool {
    let idempotent = Contract::new(ContractClass::Idempotent);
    world.tool("weather", EffectClass::InternalMutation, idempotent).retry(brief())
}

// R-EXE-1: what is idempotent by nature goes out before anything is recorded of it, on both stores.
#[tokio::test]
async fn nothing_is_written_before_what_is_idempotent_by_nature() {
    let schema = Schema::new();
    for shared in [false, true] {
        let scene = Scene::new([Reply::EffectThenHang, Reply::Answer]);
        let open = async || {
            let builder = if shared {
                ExecutorBuilder::postgres_with(crate::server::url(), schema.options())
            } else {
                executor(&scene.dir, &scene.clock)
            };
            Process::start(builder.dynamic_tool(sets(&scene.world))).await.unwrap()
        };
        let process = open().await;
        drop(process.execute(request("weather")));
        scene.world.requested(1).await;
        assert_eq!(record(&process.executor()).await, None, "while it is under way");
        process.kill();

        let process = open().await;
        let Outcome::Done(answer) = process.execute(request("weather")).await.unwrap().unwrap() else {
            panic!()
        };
        let recorded = record(&process.executor()).await.unwrap();
        assert_eq!((answer.first, recorded.revision, recorded.attempts), (true, 1, 1));
        let again = process.execute(request("weather")).await.unwrap().unwrap();
        assert!(!again.answer().unwrap().first);
        assert_eq!(scene.world.requests(), 2);
        assert_eq!(process.executor().questions(&acme()).await.unwrap(), []);
    }
}

// It is repeated when nobody knows what became of it; and it is never said to have failed while it may have happened.
#[tokio::test]
async fn what_is_idempotent_by_nature_is_repeated_and_then_asked_about() {
    let lost = Reply::EffectThenFail(ErrorKind::Disconnected);
    let scene = Scene::new([lost.clone(), Reply::Answer]);
    let start = async || {
        let builder = executor(&scene.dir, &scene.clock).dynamic_tool(sets(&scene.world));
        Process::start(builder).await.unwrap()
    };
    let process = start().await;
    let outcome = process.execute(request("weather")).await.unwrap().unwrap();
    assert!(matches!(&outcome, Outcome::Done(answer) if answer.basis == Basis::Repeat), "{outcome:?}");
    assert_eq!((scene.world.requests(), scene.world.lookups().len()), (2, 0));

    scene.world.replies([lost.clone(), lost.clone(), lost.clone()]);
    let mut another = request("weather");
    another.input = json!({"case": "c2"});
    let outcome = process.execute(another).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");

    scene.world.replies([lost, Reply::Fail(ErrorKind::Validation)]);
    let mut refused = request("weather");
    refused.input = json!({"case": "c3"});
    let outcome = process.execute(refused).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "the first one may have happened: {outcome:?}");
}

// A second payment, notice or draft is a second one; and what is to be undone is recorded first.
#[tokio::test]
async fn what_cannot_be_idempotent_is_refused_and_what_is_to_be_undone_is_recorded_first() {
    let idempotent = || Contract::new(ContractClass::Idempotent);
    for effect in [EffectClass::Payment, EffectClass::Notification, EffectClass::Draft] {
        let tool =
            DynamicTool::new("set", effect, idempotent()).package(|input| ApprovalSubject::of("set", input));
        let tool = tool.call(|_, input| async { Ok(counterfoil::tool::Done::new(input)) });
        let refused = tool.register(&mut Registry::default()).unwrap_err().to_string();
        assert!(refused.contains("a second one is a second effect"), "{refused}");
    }
    let scene = Scene::new([Reply::EffectThenHang]);
    let undoable =
        sets(&scene.world).compensate(Compensation::Automatic, |_, _| async { Ok(Undone::whole().into()) });
    let process = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(undoable)).await.unwrap();
    drop(process.execute(request("weather")));
    scene.world.requested(1).await;
    assert_eq!(record(&process.executor()).await.unwrap().state, State::Started);
}

#[tokio::test]
async fn a_query_that_fails_is_tried_again_by_its_record() {
    for kind in [ErrorKind::Unreachable, ErrorKind::Server, ErrorKind::Panic] {
        let scene = Scene::new([Reply::Fail(kind), Reply::Answer]);
        let process = scene.process().await;
        let outcome = process.execute(request("weather")).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{kind:?}: {outcome:?}");
        let recorded = record(&process.executor()).await.unwrap();
        assert_eq!((recorded.attempts, recorded.revision), (2, 3), "failed, started again, committed");
    }
    let scene = Scene::new([Reply::Fail(ErrorKind::Validation)]);
    let process = scene.process().await;
    let outcome = process.execute(request("weather")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let State::Failed { .. } = record(&process.executor()).await.unwrap().state else { panic!() };
}

// A large request has a row of its own: it is recorded before, as any other.
#[tokio::test]
async fn a_large_query_is_recorded_first() {
    let scene = Scene::new([Reply::EffectThenHang]);
    let process = scene.process().await;
    let mut large = request("weather");
    large.input = json!({"case": "c1", "text": "x".repeat(100_000)});
    drop(process.execute(large));
    scene.world.requested(1).await;
    assert_eq!(record(&process.executor()).await.unwrap().state, State::Started);
}

// A budget counts attempts by their records: a crash must not give one back.
#[tokio::test]
async fn a_query_that_is_paid_for_is_recorded_first() {
    let scene = Scene::new([Reply::EffectThenHang]);
    let tool = scene.world.tool("weather", EffectClass::ReadOnly, Contract::new(ContractClass::Blind));
    let paid = tool.quota(Quota::default().price(Price::new(2, "cent")));
    let process = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(paid)).await.unwrap();
    drop(process.execute(request("weather")));
    scene.world.requested(1).await;
    assert_eq!(record(&process.executor()).await.unwrap().state, State::Started);
}

// Two workers ask at the same time. Both are given the result of whoever wrote first.
#[tokio::test]
async fn of_two_workers_that_ask_at_once_the_first_result_counts() {
    let schema = Schema::new();
    let world = World::new(Keys::Ignores);
    world.replies([Reply::EffectThenHang, Reply::EffectThenHang]);
    let open = async || {
        let tool = world.tool("weather", EffectClass::ReadOnly, Contract::new(ContractClass::Blind));
        let builder =
            ExecutorBuilder::postgres_with(crate::server::url(), schema.options()).dynamic_tool(tool);
        Process::start(builder).await.unwrap()
    };
    let (one, two) = (open().await, open().await);
    let (a, b) = (one.execute(request("weather")), two.execute(request("weather")));
    world.requested(2).await;
    world.release();
    let answers = [a.await.unwrap().unwrap(), b.await.unwrap().unwrap()];
    let [Outcome::Done(a), Outcome::Done(b)] = &answers else { panic!("{answers:?}") };
    assert_eq!(a.response, b.response);
    assert!(a.first != b.first, "one of them is answered from the record");
    assert_eq!(world.count(), 2);
}
