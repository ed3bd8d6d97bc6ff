//! Several callers, callers that go away, an executor that is closed, and the answers of people.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::{ExecError, Wait};
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, Key, OperationKey, State};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{ErrorCode, Executor, Outcome, QuestionId};
use futures_util::FutureExt as _;
use serde_json::json;

use crate::world::{Keys, Process, Reply, TestClock, World, acme, brief, executor, request};

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

    fn builder(&self, class: ContractClass) -> counterfoil::exec::ExecutorBuilder {
        let tool = self.world.tool("pay_out", EffectClass::InternalMutation, Contract::new(class));
        executor(&self.dir, &self.clock).dynamic_tool(tool.retry(brief()))
    }

    async fn open(&self, class: ContractClass) -> Executor {
        self.builder(class).open().await.unwrap()
    }

    /// An open question about a call that did happen, or did not.
    async fn parked(&self, executor: &Executor, reply: Reply) -> QuestionId {
        self.world.replies([reply]);
        match executor.execute(request("pay_out")).await.unwrap() {
            Outcome::NeedsDecision { question } => question,
            other => panic!("{other:?}"),
        }
    }
}

fn key() -> OperationKey {
    Key::of("pay_out").target("c1").render().unwrap()
}

const UNSURE: Reply = Reply::EffectThenFail(counterfoil::ledger::ErrorKind::Disconnected);

// R-REC-3, A14: however many ask, there is one effect, and all get its result.
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_key_at_once_share_one_effect() {
    for round in 0..20 {
        let scene = Scene::new();
        let executor = scene.open(ContractClass::Blind).await;
        let call = |_| {
            let executor = executor.clone();
            tokio::spawn(async move { executor.execute(request("pay_out")).await.unwrap() })
        };
        let calls: Vec<_> = (0..20).map(call).collect();
        let (mut firsts, mut responses) = (0, Vec::new());
        for call in calls {
            let outcome = call.await.unwrap();
            let answer = outcome.answer().unwrap_or_else(|| panic!("round {round}: {outcome:?}"));
            firsts += u32::from(answer.first);
            responses.push(answer.response.clone());
        }
        responses.dedup();
        assert_eq!((firsts, responses.len()), (1, 1), "round {round}");
        assert_eq!((scene.world.count(), scene.world.requests()), (1, 1), "round {round}");
    }
}

// R-REC-3: the caller chooses how long it waits for another one.
#[tokio::test]
async fn a_caller_chooses_how_long_it_waits() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Lookup).await;
    scene.world.replies([Reply::EffectThenHang]);
    let (other, second) = (executor.clone(), executor.clone());
    let first = tokio::spawn(async move { other.execute(request("pay_out")).await });
    scene.world.requested(1).await;
    let at_once = executor.execute(request("pay_out").wait(Wait::No)).await.unwrap();
    assert_eq!(at_once, Outcome::InProgress);

    let limit = Duration::from_secs(3);
    let waiting =
        tokio::spawn(async move { second.execute(request("pay_out").wait(Wait::AtMost(limit))).await });
    scene.clock.slept(limit).await;
    scene.clock.advance(limit);
    assert_eq!(waiting.await.unwrap().unwrap(), Outcome::InProgress);

    scene.world.release();
    let first = first.await.unwrap().unwrap();
    let patient = executor.execute(request("pay_out").wait(Wait::No)).await.unwrap();
    assert_eq!(patient.answer().unwrap().response, first.answer().unwrap().response);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// S3: a caller keeps its call and does not poll it, although its answer is there. It blocks nobody else on its key.
#[tokio::test]
async fn a_call_that_is_kept_and_not_polled_goes_on_when_another_caller_waits_for_its_key() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let mut kept = Box::pin(executor.execute(request("pay_out")));
    assert!(kept.as_mut().now_or_never().is_none(), "its intent is on its way to the disk");
    let other = executor.clone();
    let call = tokio::spawn(async move { other.execute(request("pay_out")).await.unwrap() });
    let patience = Duration::from_secs(1);
    scene.clock.slept(patience).await;
    assert_eq!(scene.world.requests(), 0, "nobody polls it");
    scene.clock.advance(patience);
    let outcome = call.await.unwrap();
    let answer = outcome.answer().unwrap();
    assert!(!answer.first, "it is answered from the record of the one that was kept");
    let kept = kept.await.unwrap();
    assert!(kept.answer().unwrap().first);
    assert_eq!(kept.answer().unwrap().response, answer.response);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// The same, and nobody else asks.
#[tokio::test]
async fn a_call_that_is_kept_and_not_polled_goes_on_by_itself() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let mut kept = Box::pin(executor.execute(request("pay_out")));
    assert!(kept.as_mut().now_or_never().is_none(), "its intent is on its way to the disk");
    for _ in 0..2 {
        let look = Duration::from_millis(500);
        scene.clock.slept(look).await;
        assert_eq!(scene.world.requests(), 0, "nobody polls it");
        scene.clock.advance(look);
    }
    scene.world.requested(1).await;
    assert!(kept.await.unwrap().answer().unwrap().first);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// A13: the caller goes away, the call does not.
#[tokio::test]
async fn a_dropped_call_goes_on_and_is_recorded() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    scene.world.replies([Reply::EffectThenHang]);
    let caller = executor.clone();
    let call = tokio::spawn(async move { caller.execute(request("pay_out")).await });
    scene.world.requested(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(executor.record(&acme(), &key()).await.unwrap().unwrap().0.state, State::Started);

    scene.world.release();
    let outcome = executor.execute(request("pay_out")).await.unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!((answer.first, answer.basis), (false, Basis::Answer)); // its own answer, not a lookup's
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// A13: nobody wants it any more, so what came to nothing is not sent again; the next caller may.
#[tokio::test]
async fn a_dropped_call_is_not_sent_again() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::ReplaysKey).await;
    scene.world.replies([Reply::Hang]);
    let caller = executor.clone();
    let call = tokio::spawn(async move { caller.execute(request("pay_out")).await });
    scene.world.requested(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    scene.clock.advance(brief().attempt_timeout);
    let closing = executor.clone();
    closing.shutdown(Duration::from_secs(1000)).await; // waits for what is under way
    assert_eq!(scene.world.requests(), 1);
    assert_eq!(executor.record(&acme(), &key()).await.unwrap().unwrap().0.state, State::Started);
}

// A10: no new call starts, those under way are waited for, and their outcome is recorded.
#[tokio::test]
async fn closing_drains_what_is_under_way() {
    let scene = Scene::new();
    let process = Process::start(scene.builder(ContractClass::Blind)).await.unwrap();
    scene.world.replies([Reply::EffectThenHang]);
    let call = process.execute(request("pay_out"));
    scene.world.requested(1).await;
    let (executor, drain) = (process.executor(), Duration::from_secs(1000));
    let closing = process.spawn(process.executor().shutdown(drain));
    scene.clock.slept(drain).await;

    let other = request("pay_out").key(Key::of("pay_out").target("another"));
    let refused = process.execute(other).await.unwrap().unwrap_err();
    assert!(matches!(refused, ExecError::Closed { .. }), "{refused:?}");
    assert!(!closing.is_finished());

    scene.world.release();
    assert!(call.await.unwrap().unwrap().answer().is_some());
    closing.await.unwrap();
    let (record, _) = executor.record(&acme(), &key()).await.unwrap().unwrap();
    assert!(matches!(record.state, State::Committed { .. }), "{record:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
    // What is recorded is still answered; nothing else is.
    let again = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(again.answer().is_some());
}

// A10: what does not end in time is what it is.
#[tokio::test]
async fn what_is_not_drained_stays_ambiguous() {
    let scene = Scene::new();
    let process = Process::start(scene.builder(ContractClass::Lookup)).await.unwrap();
    scene.world.replies([Reply::EffectThenHang]);
    let call = process.execute(request("pay_out"));
    scene.world.requested(1).await;
    let drain = Duration::from_secs(5);
    let closing = process.spawn(process.executor().shutdown(drain));
    scene.clock.slept(drain).await;
    scene.clock.advance(drain);
    closing.await.unwrap();
    scene.world.release(); // too late: nothing is written any more
    let lost = call.await.unwrap().unwrap_err();
    assert!(matches!(lost, ExecError::Unwritten { .. }), "{lost:?}");
    assert_eq!((lost.code(), scene.world.count()), (ErrorCode::Closed, 1));
    assert!(!lost.to_string().contains("nothing was sent"), "the effect happened: {lost}");
    process.kill();

    let executor = scene.open(ContractClass::Lookup).await;
    let outcome = executor.execute(request("pay_out")).await.unwrap();
    assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// Invariant 8: the three answers.
#[tokio::test]
async fn a_person_says_that_it_happened() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let id = scene.parked(&executor, UNSURE).await;
    let result = Resolution::Happened(json!({"id": "seen in the bank's portal"}));
    executor.answer(&acme(), id, result, "ann").await.unwrap();
    let outcome = executor.execute(request("pay_out")).await.unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!(
        (answer.response.as_str(), answer.basis),
        (r#"{"id":"seen in the bank's portal"}"#, Basis::Decision)
    );
    assert_eq!(scene.world.requests(), 1);
    assert!(executor.questions(&acme()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_person_says_that_it_did_not_happen() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let id = scene.parked(&executor, Reply::Fail(counterfoil::ledger::ErrorKind::Disconnected)).await;
    executor.answer(&acme(), id, Resolution::DidNotHappen, "ann").await.unwrap();
    let outcome = executor.execute(request("pay_out")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 2));
}

#[tokio::test]
async fn a_person_leaves_it() {
    let scene = Scene::new();
    let process = Process::start(scene.builder(ContractClass::Blind)).await.unwrap();
    let id = scene.parked(&process.executor(), UNSURE).await;
    process.executor().answer(&acme(), id, Resolution::Abandon, "ann").await.unwrap();
    process.kill();
    let executor = scene.open(ContractClass::Blind).await; // the answer is durable
    let Outcome::Abandoned { reason } = executor.execute(request("pay_out")).await.unwrap() else {
        panic!("not abandoned")
    };
    assert!(reason.contains("ann"), "{reason}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// M05, I01: one answer counts; a second, a stranger's and one to no question are errors that say so.
#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let id = scene.parked(&executor, UNSURE).await;
    let stranger = counterfoil::Tenant::new("globex").unwrap();
    let says = async |tenant: counterfoil::Tenant, id| {
        let answered = executor.answer(&tenant, id, Resolution::Abandon, "eve").await;
        match answered {
            Err(ExecError::Unanswerable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(says(stranger, id).await, "there is none of that name");
    assert_eq!(says(acme(), QuestionId(id.0 + 1)).await, "there is none of that name");
    assert_eq!(executor.questions(&acme()).await.unwrap()[0].kind, QuestionKind::Ambiguous);

    executor.answer(&acme(), id, Resolution::DidNotHappen, "ann").await.unwrap();
    assert_eq!(says(acme(), id).await, "it has been answered");
    let state = executor.record(&acme(), &key()).await.unwrap().unwrap().0.state;
    assert!(matches!(state, State::Failed { .. }), "{state:?}"); // ann's answer stands
}

// I01: two people at once. One answer is recorded, the other is told.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_once_one_counts() {
    let scene = Scene::new();
    let executor = scene.open(ContractClass::Blind).await;
    let id = scene.parked(&executor, UNSURE).await;
    let answer = |by: &'static str, resolution| {
        let executor = executor.clone();
        tokio::spawn(async move { executor.answer(&acme(), id, resolution, by).await })
    };
    let (ann, bob) = (answer("ann", Resolution::Abandon), answer("bob", Resolution::DidNotHappen));
    let (ann, bob) = (ann.await.unwrap(), bob.await.unwrap());
    let told = |other: &Result<(), ExecError>| matches!(other, Err(ExecError::Unanswerable { .. }));
    assert!((ann.is_ok() && told(&bob)) || (bob.is_ok() && told(&ann)), "{ann:?} {bob:?}");
    let state = executor.record(&acme(), &key()).await.unwrap().unwrap().0.state;
    assert_eq!(matches!(state, State::Abandoned { .. }), ann.is_ok(), "{state:?}");
}
