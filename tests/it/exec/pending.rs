//! A provider that accepts a call and finishes it by itself: an HTTP 202, then a poll or a callback. The call waits as a row, nothing is
//! sent again, and it is settled once.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::exec::{ExecError, ExecutorBuilder};
use counterfoil::ledger::{
    Basis, Contract, ContractClass, EffectClass, ErrorKind, Key, LookupOffer, OperationKey, Record, State,
};
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::tool::{DynamicTool, ToolError};
use counterfoil::{Completed, Completion, Outcome, Timestamp};
use serde_json::json;

use crate::world::{
    Keys, LOOK_AGAIN, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, settle,
    soon,
};

const AN_HOUR: Duration = Duration::from_hours(1);
/// What the provider calls the first request.
const JOB: &str = "effect-1";

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    contract: Contract,
}

impl Scene {
    fn of(class: ContractClass, replies: impl IntoIterator<Item = Reply>) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let world = World::new(Keys::Ignores);
        world.replies(replies);
        Self { dir, clock, world, contract: Contract::new(class).completes_within(AN_HOUR) }
    }

    async fn process(&self) -> Process {
        let tool = self.world.tool("render", EffectClass::InternalMutation, self.contract.clone());
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(tool.retry(brief()))).await.unwrap()
    }

    /// A process whose call is pending.
    async fn accepted(&self) -> Process {
        let process = self.process().await;
        assert!(matches!(outcome(&process).await, Outcome::Pending { .. }));
        process
    }

    /// Waits until the next look is due after this pause, lets the pause pass, and waits until so many looks are made.
    async fn looked(&self, process: &Process, pause: Duration, looks: usize) {
        let due = self.clock.now().after(pause);
        let is_due = async {
            while next_look(process).await != Some(due) {
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon(format!("no look is due after {pause:?}"), is_due).await;
        self.clock.advance(pause);
        self.world.looked_up(looks).await;
    }
}

async fn next_look(process: &Process) -> Option<Timestamp> {
    process.executor().next_look(&acme(), &key()).await.unwrap()?.due_at
}

fn key() -> OperationKey {
    Key::of("render").target("c1").render().unwrap()
}

async fn outcome(process: &Process) -> Outcome {
    process.execute(request("render")).await.unwrap().unwrap()
}

async fn complete(process: &Process, completion: Completion) -> Result<Completed, ExecError> {
    let executor = process.executor();
    process.spawn(async move { executor.complete(&acme(), completion).await }).await.unwrap()
}

fn done() -> Completion {
    Completion::done("render", JOB, json!({"url": "https://cdn/1"}))
}

async fn record(process: &Process) -> Record {
    process.executor().record(&acme(), &key()).await.unwrap().unwrap().0
}

/// The record, once it is settled.
async fn settled(process: &Process) -> Record {
    let ended = async {
        while record(process).await.state == State::Started {
            tokio::task::yield_now().await;
        }
        Ok::<_, ()>(())
    };
    soon("the call is not settled".to_owned(), ended).await;
    record(process).await
}

async fn questions(process: &Process) -> Vec<Question> {
    process.executor().questions(&acme()).await.unwrap()
}

/// The only question, once it is open.
async fn question(process: &Process) -> Question {
    let asked = async {
        while questions(process).await.is_empty() {
            tokio::task::yield_now().await;
        }
        Ok::<_, ()>(())
    };
    soon("nobody is asked".to_owned(), asked).await;
    let [question] = questions(process).await.try_into().unwrap();
    question
}

/// The answer that callers get from now on, and that nothing was sent twice.
async fn is_done(scene: &Scene, process: &Process, response: serde_json::Value) {
    let Outcome::Done(answer) = outcome(process).await else { panic!("{:?}", record(process).await) };
    assert_eq!(answer.response.value().unwrap(), response);
    assert_eq!(answer.external_ref.as_deref(), Some(JOB));
    assert_eq!((scene.world.requests(), scene.world.count()), (1, 1));
    assert_eq!(questions(process).await, []);
}

// R-EXE-13
#[tokio::test]
async fn an_accepted_call_is_looked_up_until_it_is_finished() {
    let scene = Scene::of(ContractClass::Lookup, [Reply::Accept]);
    scene.world.looks([Look::Pending, Look::Fail]);
    let process = scene.accepted().await;
    let waiting = record(&process).await;
    assert_eq!((waiting.external_ref.as_deref(), &waiting.state), (Some(JOB), &State::Started));
    assert_eq!(questions(&process).await, [], "nobody is asked");

    scene.looked(&process, LOOK_AGAIN, 1).await;
    assert!(matches!(outcome(&process).await, Outcome::Pending { .. }));
    scene.looked(&process, LOOK_AGAIN, 2).await;
    // A look without an answer is made again after a pause of its own.
    scene.looked(&process, Duration::from_secs(10), 3).await;
    settled(&process).await;
    is_done(&scene, &process, json!({"id": JOB, "body": {"case": "c1"}})).await;
    assert!(scene.world.lookups().iter().all(|by| by.as_deref() == Some(JOB)));
}

#[tokio::test]
async fn a_callback_finishes_it_at_once_and_once() {
    for class in [ContractClass::Lookup, ContractClass::Blind, ContractClass::ReplaysKey] {
        let scene = Scene::of(class, [Reply::Accept]);
        let process = scene.accepted().await;
        assert_eq!(complete(&process, done()).await.unwrap(), Completed::Taken, "{class:?}");
        assert_eq!(settled(&process).await.basis, Basis::Answer);
        let other = Completion::done("render", JOB, json!({"url": "https://cdn/2"}));
        for again in [done(), other] {
            assert_eq!(complete(&process, again).await.unwrap(), Completed::Known);
        }
        is_done(&scene, &process, json!({"url": "https://cdn/1"})).await;
        assert_eq!(scene.world.lookups().len(), 0);
    }
}

#[tokio::test]
async fn a_callback_that_comes_before_the_202_finishes_it() {
    let scene = Scene::of(ContractClass::Blind, [Reply::Accept]);
    let process = scene.process().await;
    assert_eq!(complete(&process, done()).await.unwrap(), Completed::Kept);
    is_done(&scene, &process, json!({"url": "https://cdn/1"})).await;
}

// The process dies while the call waits; the callback reaches another one.
#[tokio::test]
async fn it_waits_as_a_row() {
    let scene = Scene::of(ContractClass::Blind, [Reply::Accept]);
    scene.accepted().await.kill();
    let process = scene.process().await;
    assert!(matches!(outcome(&process).await, Outcome::Pending { .. }));
    assert_eq!(complete(&process, done()).await.unwrap(), Completed::Taken);
    settled(&process).await;
    is_done(&scene, &process, json!({"url": "https://cdn/1"})).await;
}

// Its sender died before it heard the 202: the lookup says that the call is under way.
#[tokio::test]
async fn a_lookup_finds_out_that_it_is_pending() {
    let scene = Scene::of(ContractClass::Lookup, [Reply::EffectThenHang]);
    scene.world.looks([Look::Pending]);
    let process = scene.process().await;
    drop(process.execute(request("render")));
    scene.world.requested(1).await;
    process.kill();
    let process = scene.process().await;
    scene.world.looked_up(1).await;
    scene.looked(&process, LOOK_AGAIN, 2).await;
    settled(&process).await;
    is_done(&scene, &process, json!({"id": JOB, "body": {"case": "c1"}})).await;
}

#[tokio::test]
async fn a_callback_that_says_that_it_failed_settles_it() {
    let scene = Scene::of(ContractClass::Lookup, [Reply::Accept]);
    let process = scene.accepted().await;
    let failed = Completion::failed("render", JOB, ErrorKind::Validation, "the font is missing");
    assert_eq!(complete(&process, failed).await.unwrap(), Completed::Taken);
    let State::Failed { failure } = settled(&process).await.state else { panic!() };
    assert_eq!((failure.kind, &*failure.message), (ErrorKind::Validation, "the font is missing"));
    assert_eq!((scene.world.requests(), questions(&process).await), (1, vec![]));
}

// The answer of the next request is lost. That the first job failed says nothing about the second one.
#[tokio::test]
async fn that_a_job_failed_is_no_answer_for_the_next_request() {
    let replies = [Reply::Accept, Reply::EffectThenFail(ErrorKind::Disconnected)];
    let scene = Scene::of(ContractClass::Lookup, replies);
    let process = scene.accepted().await;
    scene.world.fails(JOB);
    let failed = Completion::failed("render", JOB, ErrorKind::Validation, "the font is missing");
    assert_eq!(complete(&process, failed).await.unwrap(), Completed::Taken);
    settled(&process).await;

    let (outcome, _) = settle(&scene.clock, process.execute(request("render"))).await;
    let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
    assert_eq!(done.external_ref.as_deref(), Some("effect-2"));
    assert_eq!((scene.world.requests(), questions(&process).await), (2, vec![]));
}

// The job failed; an earlier request of unknown fate may have had its effect all the same.
#[tokio::test]
async fn that_one_request_failed_is_no_answer_for_an_earlier_one() {
    let scene =
        Scene::of(ContractClass::Lookup, [Reply::EffectThenFail(ErrorKind::Disconnected), Reply::Accept]);
    scene.world.looks([Look::NotFound, Look::NotFound]);
    let process = scene.process().await;
    let call = process.execute(request("render"));
    scene.clock.slept(SETTLE).await;
    scene.clock.advance(SETTLE);
    assert!(matches!(call.await.unwrap().unwrap(), Outcome::Pending { .. }));
    let failed = Completion::failed("render", "effect-2", ErrorKind::Validation, "the font is missing");
    complete(&process, failed).await.unwrap();
    // The lookup finds both.
    let State::Committed { .. } = settled(&process).await.state else { panic!() };
    assert_eq!(question(&process).await.kind, QuestionKind::Duplicated);
}

#[tokio::test]
async fn after_its_longest_time_a_person_is_asked() {
    for class in [ContractClass::Lookup, ContractClass::Blind] {
        let scene = Scene::of(class, [Reply::Accept]);
        scene.world.looks([Look::Pending; 3]);
        let process = scene.accepted().await;
        if class == ContractClass::Lookup {
            scene.looked(&process, LOOK_AGAIN, 1).await;
        }
        scene.clock.advance(AN_HOUR);
        let asked = question(&process).await;
        assert_eq!(asked.kind, QuestionKind::Ambiguous);
        for says in ["has not finished it within its longest time", "It is effect-1 there."] {
            assert!(asked.question.contains(says), "{asked:?}");
        }
        assert!(matches!(outcome(&process).await, Outcome::NeedsDecision { .. }));
        // It may be finished all the same.
        assert_eq!(complete(&process, done()).await.unwrap(), Completed::Taken);
        settled(&process).await;
        is_done(&scene, &process, json!({"url": "https://cdn/1"})).await;
    }
}

// A person was wrong, or did not wait: what is finished later is not passed over in silence.
#[tokio::test]
async fn what_is_finished_after_it_was_given_up_is_asked_about() {
    for late in [Resolution::Abandon, Resolution::DidNotHappen] {
        let scene = Scene::of(ContractClass::Blind, [Reply::Accept, Reply::Accept]);
        let process = scene.accepted().await;
        let waits = record(&process).await.escalation.unwrap();
        process.executor().answer(&acme(), waits, late.clone(), "ann").await.unwrap();
        if late == Resolution::DidNotHappen {
            assert!(matches!(outcome(&process).await, Outcome::Pending { .. }), "it is sent again");
        }
        assert_eq!(complete(&process, done()).await.unwrap(), Completed::Kept);
        let asked = question(&process).await;
        assert_eq!(asked.kind, QuestionKind::Duplicated);
        assert!(asked.question.contains("has finished the call (effect-1)"), "{asked:?}");
        assert_eq!(complete(&process, done()).await.unwrap(), Completed::Known);
        assert_eq!(questions(&process).await.len(), 1, "once");
    }
}

// The same while the next request is on its way and has no id yet.
#[tokio::test]
async fn what_is_finished_while_the_next_request_is_on_its_way_is_asked_about() {
    let scene = Scene::of(ContractClass::Blind, [Reply::Accept, Reply::EffectThenHang]);
    let process = scene.accepted().await;
    let waits = record(&process).await.escalation.unwrap();
    process.executor().answer(&acme(), waits, Resolution::DidNotHappen, "ann").await.unwrap();
    let call = process.execute(request("render"));
    scene.world.requested(2).await;

    assert_eq!(complete(&process, done()).await.unwrap(), Completed::Kept);
    let asked = question(&process).await;
    assert_eq!(asked.kind, QuestionKind::Duplicated);
    assert!(asked.question.contains("has finished the call (effect-1)"), "{asked:?}");
    scene.world.release();
    let Outcome::Done(answer) = call.await.unwrap().unwrap() else { panic!() };
    assert_eq!(answer.external_ref.as_deref(), Some("effect-2"));
    assert_eq!(questions(&process).await.len(), 1, "once");
}

// A person has said that it happened. The provider knows better, and nothing else tells of it.
#[tokio::test]
async fn that_a_call_failed_which_is_recorded_as_done_is_asked_about() {
    let scene = Scene::of(ContractClass::Blind, [Reply::Accept]);
    let process = scene.accepted().await;
    let waits = record(&process).await.escalation.unwrap();
    let happened = Resolution::Happened(json!({"url": "https://cdn/1"}));
    process.executor().answer(&acme(), waits, happened, "ann").await.unwrap();

    let failed = || Completion::failed("render", JOB, ErrorKind::Validation, "the font is missing");
    assert_eq!(complete(&process, failed()).await.unwrap(), Completed::Kept);
    let asked = question(&process).await;
    assert_eq!(asked.kind, QuestionKind::Missing);
    assert!(asked.question.contains("(effect-1; validation: the font is missing)"), "{asked:?}");
    assert_eq!(complete(&process, failed()).await.unwrap(), Completed::Known);
    assert_eq!(questions(&process).await.len(), 1, "once");
    let State::Committed { .. } = record(&process).await.state else { panic!("the first result stays") };
}

#[tokio::test]
async fn a_completion_that_can_be_of_no_call_is_refused() {
    let scene = Scene::of(ContractClass::Blind, [Reply::Accept]);
    let process = scene.process().await;
    for (completion, says) in [
        (Completion::done("paint", JOB, json!(1)), "no tool named \"paint\" is registered"),
        (Completion::done("render", "", json!(1)), "0 bytes"),
        (Completion::done("render", "x".repeat(2000), json!(1)), "2000 bytes"),
        (Completion::done("render", "job\u{7}", json!(1)), "without control characters"),
        (Completion::done("render", JOB, json!("x".repeat(5_000_000))), "5000002 bytes"),
    ] {
        let refused = complete(&process, completion).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    assert!(matches!(outcome(&process).await, Outcome::Pending { .. }), "nothing was kept");
}

// Names and ids are taken apart: "a/b" with the id "c" is not "a" with the id "b/c".
#[tokio::test]
async fn a_completion_settles_no_call_of_another_tool_or_id() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let tool = |name: &'static str, job: &'static str| {
        DynamicTool::new(name, EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
            .key(move |_| Some(Key::of("any").target(name)))
            .call(move |_, _| async move { Err(ToolError::accepted(Some(job.into()))) })
    };
    let jobs = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b")];
    let tools = [tool("a/b", "c"), tool("a", "b/c"), tool("a%2Fb", "c")];
    let builder = tools.into_iter().fold(executor(&dir, &clock), ExecutorBuilder::dynamic_tool);
    let process = Process::start(builder).await.unwrap();
    for name in ["a/b", "a", "a%2Fb"] {
        let outcome = process.execute(request(name)).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Pending { .. }), "{name}: {outcome:?}");
    }
    let expected = [Completed::Taken, Completed::Taken, Completed::Taken, Completed::Kept];
    for ((name, job), expected) in jobs.into_iter().zip(expected) {
        let completed = complete(&process, Completion::done(name, job, json!([name, job]))).await.unwrap();
        assert_eq!(completed, expected, "{name} {job}");
    }
    for (name, job) in &jobs[..3] {
        let done = async {
            loop {
                if let Outcome::Done(done) = process.execute(request(name)).await.unwrap().unwrap() {
                    return done;
                }
            }
        };
        assert_eq!(done.await.response.value().unwrap(), json!([name, job]));
    }
}

// R-EXE-13: another lookup would show the same.
#[tokio::test]
async fn what_another_request_has_made_is_asked_about_at_once() {
    for class in [ContractClass::Lookup, ContractClass::ReplaysKey, ContractClass::NaturalKey] {
        let mut scene = Scene::of(class, [Reply::Fail(ErrorKind::Disconnected)]);
        scene.contract = scene.contract.lookup(LookupOffer::Strong);
        scene.world.looks([Look::Foreign]);
        let process = scene.process().await;
        assert!(matches!(outcome(&process).await, Outcome::NeedsDecision { .. }), "{class:?}");
        let asked = question(&process).await;
        let says = "The lookup shows: case c1 of another author.";
        assert!(asked.question.contains(says), "{asked:?}");
        assert_eq!((scene.world.lookups().len(), scene.world.requests()), (1, 1), "{class:?}");
        // "It did not happen" is borne out by what is there: it is another's.
        scene.world.looks([Look::Foreign, Look::Foreign]);
        let denied = Resolution::DidNotHappen;
        process.executor().answer(&acme(), asked.id, denied, "ann").await.unwrap();
        scene.clock.advance(SETTLE);
        assert!(matches!(settled(&process).await.state, State::Failed { .. }));
    }
}
