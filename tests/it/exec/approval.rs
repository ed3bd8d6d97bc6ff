//! Effects that need an approval, at the executor's door and directly before each dispatch.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::RequestError;
use counterfoil::ledger::{
    ApprovalError, Basis, Contract, ContractClass, EffectClass, ErrorKind, Key, State,
};
use counterfoil::tool::DynamicTool;
use counterfoil::{Approval, ApprovalSubject, Executor, Outcome, ToolRequest};
use counterfoil::{Clock as _, Timestamp};
use serde_json::{Value, json};

use crate::world::{Keys, Process, Reply, TestClock, World, acme, brief, executor, settle};

const HOUR: Duration = Duration::from_hours(1);

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    class: ContractClass,
}

impl Scene {
    fn new(keys: Keys, class: ContractClass) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(keys), class }
    }

    fn tool(&self) -> DynamicTool {
        self.world.tool("notify", EffectClass::Notification, Contract::new(self.class)).retry(brief())
    }

    fn builder(&self) -> counterfoil::exec::ExecutorBuilder {
        executor(&self.dir, &self.clock)
            .dynamic_tool(self.tool().package(|input| ApprovalSubject::of("notice", input)))
    }

    fn in_an_hour(&self) -> Timestamp {
        self.clock.now().after(HOUR)
    }
}

fn notice(text: &str) -> Value {
    json!({"case": "c1", "text": text})
}

fn request(text: &str) -> ToolRequest {
    ToolRequest::new(acme(), "notify", notice(text))
}

fn approval(text: &str) -> Approval {
    Approval::of("ann", &ApprovalSubject::of("notice", &notice(text))).unwrap()
}

async fn recorded(executor: &Executor) -> Option<State> {
    let key = Key::of("notify").target("c1").render().unwrap();
    executor.record(&acme(), &key).await.unwrap().map(|(record, _)| record.state)
}

/// Why an approval was refused.
fn refusal(outcome: Outcome) -> ApprovalError {
    match outcome {
        Outcome::Refused(error) => match *error {
            RequestError::Approval(error) => error,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Refused, with nothing recorded and nothing sent.
async fn refused(scene: &Scene, executor: &Executor, request: ToolRequest) -> ApprovalError {
    let outcome = executor.execute(request).await.unwrap();
    let error = refusal(outcome);
    assert_eq!((recorded(executor).await, scene.world.requests()), (None, 0));
    error
}

// DESIGN 4.4: what types enforce for typed tools is checked when a dynamic one is registered.
#[tokio::test]
async fn without_a_package_it_is_not_registered() {
    for effect in [EffectClass::Notification, EffectClass::Deletion] {
        let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
        let tool = scene.world.tool("notify", effect, Contract::new(scene.class));
        let error = executor(&scene.dir, &scene.clock).dynamic_tool(tool).open().await.unwrap_err();
        assert!(error.to_string().contains("needs an approval: give it a `.package(…)`"), "{error}");
    }
}

// I03: bound to exactly this content.
#[tokio::test]
async fn without_a_valid_approval_nothing_is_recorded_or_sent() {
    let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
    let executor = scene.builder().open().await.unwrap();
    let missing = refused(&scene, &executor, request("Dear Ann")).await;
    assert!(matches!(missing, ApprovalError::Missing { class: "notification" }), "{missing:?}");

    let other = refused(&scene, &executor, request("Dear Bob").approved_by(&approval("Dear Ann"))).await;
    assert!(matches!(other, ApprovalError::OtherContent { .. }), "{other:?}");

    let expired = approval("Dear Ann").expires_at(scene.clock.now());
    let expired = refused(&scene, &executor, request("Dear Ann").approved_by(&expired)).await;
    assert!(matches!(expired, ApprovalError::Expired { .. }), "{expired:?}");

    let outcome = executor.execute(request("Dear Ann").approved_by(&approval("Dear Ann"))).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(scene.world.count(), 1);
}

// DESIGN 4.4: decide first. What was sent stays sent, whatever became of its approval.
#[tokio::test]
async fn a_committed_send_is_answered_after_its_approval_has_expired() {
    let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
    let executor = scene.builder().open().await.unwrap();
    let approval = approval("Dear Ann").expires_at(scene.in_an_hour());
    let first = executor.execute(request("Dear Ann").approved_by(&approval)).await.unwrap();
    scene.clock.advance(HOUR);
    for again in [request("Dear Ann").approved_by(&approval), request("Dear Ann")] {
        let again = executor.execute(again).await.unwrap();
        assert_eq!(again.answer().unwrap().response, first.answer().unwrap().response);
    }
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// DESIGN 4.4: an ambiguous one whose approval has expired is looked up, and not sent again.
#[tokio::test]
async fn an_ambiguous_send_is_looked_up_after_its_approval_has_expired() {
    for (reply, happened) in [(Reply::EffectThenHang, true), (Reply::Hang, false)] {
        let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
        let process = Process::start(scene.builder()).await.unwrap();
        let approval = approval("Dear Ann").expires_at(scene.in_an_hour());
        scene.world.replies([reply]);
        let call = process.execute(request("Dear Ann").approved_by(&approval));
        scene.world.requested(1).await;
        scene.clock.advance(HOUR);
        let (outcome, _) = settle(&scene.clock, call).await;
        assert_eq!(scene.world.requests(), 1, "happened: {happened}");
        if happened {
            assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
            continue;
        }
        let Outcome::NeedsDecision { question: escalation } = outcome else { panic!("{outcome:?}") };
        let open = process.executor().questions(&acme()).await.unwrap();
        assert_eq!(open[0].id, escalation);
        assert!(open[0].question.contains("its approval is no longer valid"), "{}", open[0].question);
    }
}

// DESIGN 4.4: checked again directly before each dispatch, not only before the first.
#[tokio::test]
async fn an_approval_that_expires_during_the_backoff_stops_the_next_attempt() {
    let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
    let process = Process::start(scene.builder()).await.unwrap();
    let after = Duration::from_secs(30);
    let approval = approval("Dear Ann").expires_at(scene.clock.now().after(after));
    scene.world.replies([Reply::FailUntil(after)]);
    let call = process.execute(request("Dear Ann").approved_by(&approval));
    scene.clock.slept(after).await;
    scene.clock.advance(after);
    let stopped = refusal(call.await.unwrap().unwrap());
    assert!(matches!(stopped, ApprovalError::Expired { .. }), "{stopped:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (0, 1));

    // A fresh decision on the same content lets it go on, under the same key.
    let fresh = approval_of_today(&scene);
    let outcome = process.execute(request("Dear Ann").approved_by(&fresh)).await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.wire_keys().len()), (1, 1));
}

fn approval_of_today(scene: &Scene) -> Approval {
    approval("Dear Ann").expires_at(scene.in_an_hour())
}

// I05: the process died after the approval was given. A resend takes the approval, which is with its caller: the
// engine alone sends nothing.
#[tokio::test]
async fn what_a_dead_caller_left_is_not_sent_without_its_approval() {
    let scene = Scene::new(Keys::Honours, ContractClass::ReplaysKey);
    let process = Process::start(scene.builder()).await.unwrap();
    scene.world.replies([Reply::Hang]);
    drop(process.execute(request("Dear Ann").approved_by(&approval("Dear Ann"))));
    scene.world.requested(1).await;
    process.kill();

    let process = Process::start(scene.builder()).await.unwrap();
    let outcome = process.execute(request("Dear Ann")).await.unwrap();
    assert!(!matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
    assert_eq!(scene.world.requests(), 1);
}

// ErrorKind::ApprovalMissing: the provider's own four-eyes check says no.
#[tokio::test]
async fn a_provider_that_misses_an_approval_is_not_asked_again() {
    let scene = Scene::new(Keys::Ignores, ContractClass::Lookup);
    let executor = scene.builder().open().await.unwrap();
    scene.world.replies([Reply::Fail(ErrorKind::ApprovalMissing)]);
    let outcome = executor.execute(request("Dear Ann").approved_by(&approval("Dear Ann"))).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (0, 1));
}
