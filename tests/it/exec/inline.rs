//! Effects that are declared where they are carried out: the rules of a registered tool, without one.

use std::sync::Arc;

use counterfoil::exec::{CallError, ExecError, InlineEffect, RequestError};
use counterfoil::ledger::{Approval, ApprovalError, EffectClass, Key, State};
use counterfoil::store::QuestionKind;
use counterfoil::tool::{Done, contract};
use counterfoil::{ApprovalSubject, ErrorCode, Executor, Outcome};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{Keys, Process, Reply, TestClock, World, acme, brief, executor, settle, until};

/// A ticket of the case, with a lookup of the provider.
fn ticket(executor: &Executor, world: &Arc<World>, case: &str, title: &str) -> InlineEffect<Value, Value> {
    let finding = world.clone();
    let args = json!({ "case": case, "title": title });
    executor
        .effect(&acme(), Key::of("create_ticket").target(case), args)
        .contract(contract::Lookup)
        .retry(brief())
        .lookup(move |call, _args: Value| {
            let world = finding.clone();
            async move { world.lookup(call.key(), call.external_ref()).await }
        })
}

async fn open_ticket(
    executor: Executor,
    world: Arc<World>,
    case: &'static str,
    title: &'static str,
) -> Result<Outcome, ExecError> {
    let effect = ticket(&executor, &world, case, title);
    effect
        .outcome(move |call, args| {
            let world = world.clone();
            async move { world.request(call.key(), args).await }
        })
        .await
}

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

    async fn process(&self) -> Process {
        Process::start(executor(&self.dir, &self.clock)).await.unwrap()
    }

    fn run(
        &self,
        process: &Process,
        case: &'static str,
        title: &'static str,
    ) -> JoinHandle<Result<Outcome, ExecError>> {
        process.spawn(open_ticket(process.executor(), self.world.clone(), case, title))
    }
}

#[tokio::test]
async fn an_inline_effect_happens_once_and_a_changed_one_is_a_conflict() {
    let scene = Scene::new();
    let process = scene.process().await;
    let first = scene.run(&process, "c1", "Printer on fire").await.unwrap().unwrap();
    let second = scene.run(&process, "c1", "Printer on fire").await.unwrap().unwrap();
    let [first, second] = [first, second].map(|outcome| outcome.into_output::<Value>().unwrap());
    assert_eq!(first, second);
    let changed = scene.run(&process, "c1", "Printer still on fire").await.unwrap().unwrap();
    let changed = changed.into_output::<Value>().unwrap_err();
    let CallError::NotDone(outcome) = &changed else { panic!("{changed}") };
    assert!(matches!(**outcome, Outcome::Conflict(_)), "{changed}");
    assert!(changed.to_string().contains("Nothing was done"), "{changed}");
    assert_eq!(scene.world.count(), 1);
}

// The type of the result has changed since it was recorded. The error must not say that nothing was sent: the caller would make the
// effect in another way.
#[tokio::test]
async fn a_recorded_result_that_cannot_be_read_is_said_to_have_happened() {
    let scene = Scene::new();
    let client = executor(&scene.dir, &scene.clock).open().await.unwrap();
    let number: InlineEffect<_, u32> = client.effect(&acme(), Key::of("pay").target("c1"), json!({}));
    let world = scene.world.clone();
    let number = number.contract(contract::ReplaysKey).run(move |call, args| {
        let world = world.clone();
        async move { world.request(call.key(), args).await.map(|_| Done::new(7)) }
    });
    assert_eq!(number.await.unwrap(), 7);

    let text: InlineEffect<_, String> = client.effect(&acme(), Key::of("pay").target("c1"), json!({}));
    let text = text.contract(contract::ReplaysKey).run(|_call, _args| async { Ok(Done::new(String::new())) });
    let error = text.await.unwrap_err();
    assert!(matches!(error, CallError::Exec(ExecError::Unread { .. })), "{error}");
    assert_eq!((error.code(), scene.world.count()), (ErrorCode::Mismatch, 1));
    let text = error.to_string();
    assert!(text.starts_with("pay:c1 happened") && text.contains("nothing was sent again"), "{text}");
}

// The process dies behind the effect: the same call looks, and sends nothing.
#[tokio::test]
async fn after_a_crash_the_same_inline_effect_is_looked_up() {
    let scene = Scene::new();
    scene.world.replies([Reply::EffectThenHang]);
    let process = scene.process().await;
    drop(scene.run(&process, "c1", "Printer on fire"));
    scene.world.requested(1).await;
    process.kill();

    let process = scene.process().await;
    let found = scene.run(&process, "c1", "Printer on fire").await.unwrap().unwrap();
    let found: Value = found.into_output().unwrap();
    assert_eq!(found["body"]["title"], "Printer on fire");
    assert_eq!((scene.world.count(), scene.world.requests(), scene.world.lookups().len()), (1, 1, 1));
}

// The process dies with two effects under way: until the name is used again nobody can look, and a person is asked. The lookup of a
// third call settles both.
#[tokio::test]
async fn the_next_effect_of_a_name_settles_those_that_died() {
    let scene = Scene::new();
    scene.world.replies([Reply::EffectThenHang, Reply::EffectThenHang]);
    let process = scene.process().await;
    for case in ["c1", "c2"] {
        drop(scene.run(&process, case, "Printer on fire"));
    }
    scene.world.requested(2).await;
    process.kill();

    let process = scene.process().await;
    let client = process.executor();
    until("both calls to be asked about", async || client.questions(&acme()).await.unwrap().len() == 2).await;
    let asked = client.questions(&acme()).await.unwrap();
    assert!(asked.iter().all(|question| question.kind == QuestionKind::UnknownTool), "{asked:?}");

    let _done = scene.run(&process, "c3", "Printer on fire").await.unwrap().unwrap();
    for case in ["c1", "c2", "c3"] {
        let key = Key::of("create_ticket").target(case).render().unwrap();
        until(case, async || {
            let (record, _) = client.record(&acme(), &key).await.unwrap().unwrap();
            matches!(record.state, State::Committed { .. })
        })
        .await;
    }
    assert_eq!(client.questions(&acme()).await.unwrap(), []);
    assert_eq!((scene.world.count(), scene.world.requests()), (3, 3), "each was sent once");
}

// Nothing happened before the process died: nobody sends it without its caller, and its caller looks first.
#[tokio::test]
async fn what_did_not_happen_is_sent_by_its_caller_only() {
    let scene = Scene::new();
    scene.world.replies([Reply::Hang]);
    let process = scene.process().await;
    drop(scene.run(&process, "c1", "Printer on fire"));
    scene.world.requested(1).await;
    process.kill();

    let process = scene.process().await;
    let _done = scene.run(&process, "c2", "Printer on fire").await.unwrap().unwrap();
    assert_eq!(scene.world.count(), 1, "c2");
    let call = scene.run(&process, "c1", "Printer on fire");
    let (outcome, settled) = settle(&scene.clock, call).await;
    assert!(settled && outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (2, 3));
}

#[tokio::test]
async fn an_unsafe_or_unapproved_inline_effect_is_refused_before_anything_is_sent() {
    let scene = Scene::new();
    let client = executor(&scene.dir, &scene.clock).open().await.unwrap();
    let effect = |class| {
        let effect: InlineEffect<_, Value> =
            client.effect(&acme(), Key::of("pay").target("c1"), json!({ "cents": 5 }));
        let world = scene.world.clone();
        effect.class(class).contract(contract::ReplaysKey).run(move |call, args| {
            let world = world.clone();
            async move { world.request(call.key(), args).await }
        })
    };
    let blind: InlineEffect<_, Value> = client.effect(&acme(), Key::of("pay").target("c1"), json!({}));
    let world = scene.world.clone();
    let blind = blind.class(EffectClass::Payment).run(move |call, args| {
        let world = world.clone();
        async move { world.request(call.key(), args).await }
    });
    let error = blind.await.unwrap_err();
    assert!(matches!(error, CallError::Exec(ExecError::Register(_))), "{error}");

    let error = effect(EffectClass::Notification).await.unwrap_err();
    let CallError::Exec(ExecError::Request(RequestError::Approval(lacking))) = &error else {
        panic!("{error}")
    };
    assert!(matches!(lacking, ApprovalError::Missing { .. }), "{error}");
    assert_eq!(scene.world.requests(), 0);

    let subject = ApprovalSubject::of("notice", &"Dear Ann");
    let approval = Approval::of("ann", &subject).unwrap();
    let notice: InlineEffect<_, Value> = client.effect(&acme(), Key::of("notify").target("c1"), json!("hi"));
    let notice = notice.class(EffectClass::Notification).contract(contract::ReplaysKey);
    let world = scene.world.clone();
    notice
        .approved_by(subject, &approval)
        .run(move |call, args| {
            let world = world.clone();
            async move { world.request(call.key(), args).await }
        })
        .await
        .unwrap();
    assert_eq!(scene.world.count(), 1);
}

// A name is one operation: an inline effect cannot stand in for a registered tool.
#[tokio::test]
async fn an_inline_effect_with_the_name_of_a_tool_is_refused() {
    let scene = Scene::new();
    let contract = counterfoil::ledger::Contract::new(counterfoil::ledger::ContractClass::Lookup);
    let tool = scene.world.tool("create_ticket", EffectClass::InternalMutation, contract);
    let builder = executor(&scene.dir, &scene.clock).dynamic_tool(tool);
    let client = builder.open().await.unwrap();
    let error = open_ticket(client, scene.world.clone(), "c1", "Printer on fire").await.unwrap_err();
    assert!(error.to_string().contains("registered already"), "{error}");
    assert_eq!(scene.world.requests(), 0);
}
