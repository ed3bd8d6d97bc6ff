//! Calls that died with their process and whose tool or function is not there any more: listed without anybody
//! asking for them, settled by what is known, and withdrawn when the tool is back (invariant 8, R-REC-7, R-REC-9).

use std::marker::PhantomData;
use std::sync::Arc;

use counterfoil::exec::{ExecError, ExecutorBuilder};
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, Key, OperationKey, State};
use counterfoil::payload::{Oversized, Stored};
use counterfoil::store::conformance::sample::fence_others;
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Change, Evidence, Question, QuestionKind, Resolution, Store as _};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Executor, Outcome, Payload, QuestionId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::world::{Chance, Keys, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
}

impl Scene {
    fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(Keys::Ignores) }
    }

    /// An executor without any tool.
    fn bare(&self) -> ExecutorBuilder {
        executor(&self.dir, &self.clock)
    }

    fn with(&self, class: ContractClass) -> ExecutorBuilder {
        let tool = self.world.tool("pay_out", EffectClass::InternalMutation, Contract::new(class));
        self.bare().dynamic_tool(tool.retry(brief()))
    }

    /// A process dies while its tool's call is under way.
    async fn crash(&self, class: ContractClass, reply: Reply) {
        self.world.replies([reply]);
        let process = Process::start(self.with(class)).await.unwrap();
        drop(process.execute(request("pay_out")));
        self.world.requested(1).await;
        process.kill();
    }

    /// A process dies while its plain function is under way.
    async fn crash_once(&self) {
        self.world.replies([Reply::EffectThenHang]);
        let process = Process::start(self.bare()).await.unwrap();
        let (executor, world) = (process.executor(), self.world.clone());
        process.spawn(async move { once(&executor, &world).await });
        self.world.requested(1).await;
        process.kill();
    }

    fn seen(&self) -> (usize, usize) {
        (self.world.count(), self.world.requests())
    }
}

/// The plain function, under its key.
async fn once(executor: &Executor, world: &Arc<World>) -> Result<Outcome, ExecError> {
    let world = world.clone();
    let mail = || async move { Ok(world.request("mail", json!("hi")).await?.output) };
    executor.execute_once(&acme(), Key::of("welcome").target("ann"), "hello", mail).await
}

fn welcome() -> OperationKey {
    Key::of("welcome").target("ann").render().unwrap()
}

fn pay_out() -> OperationKey {
    Key::of("pay_out").target("c1").render().unwrap()
}

/// Ends in order, when what a start takes up is finished, and says what is then listed.
async fn listed(process: Process) -> Vec<Question> {
    let executor = process.executor();
    process.spawn(process.executor().shutdown(SETTLE * 1000)).await.unwrap();
    executor.questions(&acme()).await.unwrap()
}

async fn restarted(builder: ExecutorBuilder) -> Vec<Question> {
    listed(Process::start(builder).await.unwrap()).await
}

// R-REC-7, invariant 8: nobody asks for it again, and it is listed all the same; once, however many lives follow.
#[tokio::test]
async fn a_plain_function_that_died_is_listed_unasked() {
    let scene = Scene::new();
    scene.crash_once().await;
    let asked = restarted(scene.bare()).await;
    assert_eq!((asked.len(), asked[0].kind), (1, QuestionKind::UnknownTool), "{asked:?}");
    assert!(asked[0].question.contains("no tool named \"welcome\" is registered"), "{}", asked[0].question);
    assert_eq!(restarted(scene.bare()).await, asked);

    // Whoever comes back is told, and is not asked anew.
    let process = Process::start(scene.bare()).await.unwrap();
    let (executor, world) = (process.executor(), scene.world.clone());
    let outcome = process.spawn(async move { once(&executor, &world).await }).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::NeedsDecision { question: asked[0].id });
    assert_eq!(listed(process).await, asked);
    assert_eq!(scene.seen(), (1, 1));
}

// Invariant 8: the answers of people count as for any other call.
#[tokio::test]
async fn a_person_settles_a_plain_function_that_died() {
    let scene = Scene::new();
    scene.crash_once().await;
    let asked = restarted(scene.bare()).await;
    let executor = scene.bare().open().await.unwrap();
    let withdrawn = executor.answer(&acme(), asked[0].id, Resolution::Withdrawn, "ann").await;
    assert!(matches!(withdrawn, Err(ExecError::Unanswerable { .. })), "{withdrawn:?}");
    let happened = Resolution::Happened(json!("she has it"));
    executor.answer(&acme(), asked[0].id, happened, "ann").await.unwrap();
    let outcome = once(&executor, &scene.world).await.unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!((answer.response.as_str(), answer.basis), ("\"she has it\"", Basis::Decision));
    assert_eq!(scene.seen(), (1, 1));
    assert!(executor.questions(&acme()).await.unwrap().is_empty());
}

// R-REC-3: the restart and a caller who comes back at once. One of them has it in hand, and asks one question.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_comes_back_at_once_is_not_asked_twice() {
    for round in 0..20 {
        let scene = Scene::new();
        scene.crash_once().await;
        let executor = scene.bare().open().await.unwrap();
        let callers = (0..3).map(|_| {
            let (executor, world) = (executor.clone(), scene.world.clone());
            tokio::spawn(async move { once(&executor, &world).await.unwrap() })
        });
        let callers: Vec<_> = callers.collect();
        let mut outcomes = Vec::new();
        for caller in callers {
            outcomes.push(caller.await.unwrap());
        }
        executor.clone().shutdown(SETTLE).await;
        let asked = executor.questions(&acme()).await.unwrap();
        assert_eq!(asked.len(), 1, "round {round}: {asked:?}");
        let parked = Outcome::NeedsDecision { question: asked[0].id };
        assert!(outcomes.iter().all(|outcome| *outcome == parked), "round {round}: {outcomes:?}");
        assert_eq!(scene.seen(), (1, 1), "round {round}");
    }
}

// Invariant 8: the tool was not registered for a while. Then it is, and the engine answers its own question.
#[tokio::test]
async fn a_question_goes_when_its_tool_is_back() {
    let scene = Scene::new();
    scene.crash(ContractClass::Lookup, Reply::EffectThenHang).await;
    let asked = restarted(scene.bare()).await;
    assert_eq!((asked.len(), asked[0].kind), (1, QuestionKind::UnknownTool), "{asked:?}");

    let process = Process::start(scene.with(ContractClass::Lookup)).await.unwrap();
    let executor = process.executor();
    assert_eq!(listed(process).await, []);
    let record = executor.record(&acme(), &pay_out()).await.unwrap().unwrap().0;
    assert!(matches!(record.state, State::Committed { .. }), "{record:?}");
    assert_eq!((scene.seen(), scene.world.lookups().len()), ((1, 1), 1), "found, not sent again");

    // It stays on the books, with the reason why it is not open.
    let store = {
        drop(executor);
        Sqlite::open(scene.dir.path().join("agents.db")).await.unwrap()
    };
    let closed = store.escalation_find(&acme(), asked[0].id).await.unwrap().unwrap().answer.unwrap();
    assert_eq!((closed.by.as_str(), closed.resolution), ("counterfoil", Resolution::Withdrawn));
}

// The same by a caller, where the engine itself has not got to it yet.
#[tokio::test]
async fn a_caller_with_the_tool_is_not_kept_waiting_by_the_question() {
    let scene = Scene::new();
    scene.crash(ContractClass::Lookup, Reply::EffectThenHang).await;
    assert_eq!(restarted(scene.bare()).await.len(), 1);
    let process = Process::start(scene.with(ContractClass::Lookup)).await.unwrap();
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
    assert_eq!((listed(process).await, scene.seen()), (vec![], (1, 1)));
}

// A tool that can find out no more than its absence is no reason to ask anew: the question keeps its name.
#[tokio::test]
async fn a_question_stands_if_its_tool_cannot_tell_either() {
    let scene = Scene::new();
    scene.crash(ContractClass::Blind, Reply::EffectThenHang).await;
    let asked = restarted(scene.bare()).await;
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(restarted(scene.with(ContractClass::Blind)).await, asked);
    let process = Process::start(scene.with(ContractClass::Blind)).await.unwrap();
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::NeedsDecision { question: asked[0].id });
    assert_eq!((listed(process).await, scene.seen()), (asked, (1, 1)));
}

fn known() -> Stored {
    Stored::Inline(Payload::of(&json!({"id": "effect-1"})).unwrap())
}

/// What a fenced worker learned too late about the plain function.
async fn learns(store: &Sqlite, response: Stored) {
    let record = store.record_find(&acme(), &welcome()).await.unwrap().unwrap();
    let evidence = Evidence {
        tenant: acme(),
        record: record.id,
        fence: counterfoil::Fence(1),
        attempt: 1,
        response,
        external_ref: Some("effect-1".into()),
        at: record.updated_at,
    };
    let change = Change { evidence: Some(Box::new(evidence)), ..Change::default() };
    assert!(store.commit(&[change]).await.unwrap()[0].is_admitted());
}

fn on(scene: &Scene, store: &Arc<Sqlite>) -> ExecutorBuilder {
    ExecutorBuilder::store(store.clone()).clock(scene.clock.clone()).entropy(Chance::least())
}

async fn is_settled(scene: &Scene, executor: &Executor) {
    assert_eq!(executor.questions(&acme()).await.unwrap(), []);
    let record = executor.record(&acme(), &welcome()).await.unwrap().unwrap().0;
    assert!(matches!(record.state, State::Committed { .. }), "{record:?}");
    assert_eq!((record.external_ref.as_deref(), record.basis), (Some("effect-1"), Basis::Lookup));
    assert_eq!(scene.seen(), (1, 1));
}

// R-REC-9: what a fenced worker has learned settles it before anybody is asked, although its function is gone.
#[tokio::test]
async fn late_evidence_settles_what_no_tool_is_there_for() {
    let scene = Scene::new();
    scene.crash_once().await;
    let store = Arc::new(Sqlite::open(scene.dir.path().join("agents.db")).await.unwrap());
    store.commit(&[fence_others(counterfoil::Fence(2))]).await.unwrap();
    learns(&store, known()).await;
    let executor = on(&scene, &store).open().await.unwrap();
    executor.clone().shutdown(SETTLE).await;
    is_settled(&scene, &executor).await;
    let asked = store.escalation_open(&acme(), QuestionId(i64::MIN), 10).await.unwrap();
    assert_eq!(asked, []);
}

// R-REC-9: it may also come when the question is open already. Then it answers it: to whoever asks again, and at
// the next start.
#[tokio::test]
async fn late_evidence_answers_an_open_question() {
    for asks in [true, false] {
        let scene = Scene::new();
        scene.crash_once().await;
        assert_eq!(restarted(scene.bare()).await.len(), 1);
        let store = Arc::new(Sqlite::open(scene.dir.path().join("agents.db")).await.unwrap());
        let mut executor = on(&scene, &store).open().await.unwrap();
        if asks {
            assert!(matches!(once(&executor, &scene.world).await.unwrap(), Outcome::NeedsDecision { .. }));
        }
        learns(&store, known()).await;
        if asks {
            let outcome = once(&executor, &scene.world).await.unwrap();
            assert_eq!(outcome.answer().unwrap().response.as_str(), r#"{"id":"effect-1"}"#);
        } else {
            executor.shutdown(SETTLE).await;
            executor = on(&scene, &store).open().await.unwrap();
            executor.clone().shutdown(SETTLE).await;
        }
        is_settled(&scene, &executor).await;
    }
}

// Of a response that was over the limit the fenced worker has left digest and size.
#[tokio::test]
async fn late_evidence_over_the_limit_settles_the_call() {
    let scene = Scene::new();
    scene.crash_once().await;
    let store = Arc::new(Sqlite::open(scene.dir.path().join("agents.db")).await.unwrap());
    store.commit(&[fence_others(counterfoil::Fence(2))]).await.unwrap();
    let oversized = Oversized { digest: Payload::of(&1).unwrap().digest(), bytes: 5 << 20 };
    learns(&store, Stored::Oversized(oversized)).await;
    let executor = on(&scene, &store).open().await.unwrap();
    let outcome = once(&executor, &scene.world).await.unwrap();
    let Outcome::ResponseTooLarge(response) = outcome else { panic!("{outcome:?}") };
    assert_eq!((response.bytes, response.external_ref.as_deref()), (5 << 20, Some("effect-1")));
    is_settled(&scene, &executor).await;
}

/// A tool whose input type may change.
struct Mail<I>(Arc<World>, PhantomData<fn() -> I>);

impl<I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> Tool for Mail<I> {
    const NAME: &'static str = "mail";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = I;
    type Output = serde_json::Value;

    fn key(&self, _: &I) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann"))
    }

    async fn call(&self, call: &Call, _: &I) -> Result<Done<serde_json::Value>, ToolError> {
        self.0.request(call.key(), json!("hi")).await
    }
}

// Invariant 8: its tool is there, and does not read what it was asked then.
#[tokio::test]
async fn a_call_whose_request_cannot_be_read_any_more_is_listed() {
    let scene = Scene::new();
    scene.world.replies([Reply::EffectThenHang]);
    let old = scene.bare().tool(Mail::<String>(scene.world.clone(), PhantomData));
    let process = Process::start(old).await.unwrap();
    let executor = process.executor();
    process.spawn(async move { executor.call::<Mail<String>>(&acme(), "hello".into(), None).await });
    scene.world.requested(1).await;
    process.kill();
    let new = scene.bare().tool(Mail::<Vec<u32>>(scene.world.clone(), PhantomData));
    let asked = restarted(new).await;
    assert_eq!((asked.len(), asked[0].kind), (1, QuestionKind::UnknownTool), "{asked:?}");
    assert!(asked[0].question.contains("does not take its stored request"), "{}", asked[0].question);
}
