//! The metrics of calls: each moves with what it tells of.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{Breaker, Contract, ContractClass, EffectClass, ErrorKind, Quota};
use counterfoil::tool::approval::Verdict;
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{Key, ToolRequest};
use serde_json::json;

use super::recorder::Recorded;
use crate::world::{
    Keys, Log, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, settle,
};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    seen: Recorded,
}

impl Scene {
    fn new(keys: Keys) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(keys), seen: Recorded::default() }
    }

    /// A payment at a provider with this contract.
    fn pay(&self, class: ContractClass) -> DynamicTool {
        self.world.tool("pay", EffectClass::Payment, Contract::new(class)).retry(brief())
    }

    fn with(&self, tool: DynamicTool) -> ExecutorBuilder {
        executor(&self.dir, &self.clock).metrics(self.seen.metrics()).dynamic_tool(tool)
    }

    async fn process(&self, tool: DynamicTool) -> Process {
        Process::start(self.with(tool)).await.unwrap()
    }
}

// The recorder is the program's: its panic costs a number, and neither the call nor the writer.
#[tokio::test]
async fn a_recorder_that_panics_costs_no_call() {
    let scene = Scene::new(Keys::Honours);
    let log = Log::default();
    let _listening = log.listen();
    let executor = scene.with(scene.pay(ContractClass::ReplaysKey)).open().await.unwrap();
    let pays = async || executor.execute(request("pay")).await.unwrap();
    scene.seen.panics(true);
    let outcome = pays().await;
    assert!(outcome.answer().is_some_and(|answer| answer.first), "{outcome:?}");
    assert!(pays().await.answer().is_some());
    scene.seen.panics(false);
    assert!(pays().await.answer().is_some());
    assert_eq!(scene.world.count(), 1);
    scene.seen.shows(&[("counterfoil_decisions_total{tool=pay,decision=answer from the record}", 1.0)]);
    let told = log.about("metric", &[]);
    assert_eq!(told.len(), 1, "it is told once: {told:?}");
    assert!(told[0].contains("a panic that was asked for"), "{told:?}");
}

#[tokio::test]
async fn a_call_is_counted_with_its_decisions_attempts_and_times() {
    let scene = Scene::new(Keys::Honours);
    let process = scene.process(scene.pay(ContractClass::ReplaysKey)).await;
    scene.seen.shows(&[("counterfoil_duplicates_total", 0.0)]);
    scene.world.replies([Reply::Fail(ErrorKind::Unreachable)]);
    drop(process.execute(request("pay")).await.unwrap().unwrap());
    drop(process.execute(request("pay")).await.unwrap().unwrap());
    let other = ToolRequest::new(acme(), "pay", json!({"case": "c1", "cents": 5}));
    drop(process.execute(other).await.unwrap().unwrap());
    scene.seen.shows(&[
        ("counterfoil_decisions_total{tool=pay,decision=begin}", 1.0),
        ("counterfoil_decisions_total{tool=pay,decision=retry}", 1.0),
        ("counterfoil_decisions_total{tool=pay,decision=answer from the record}", 1.0),
        ("counterfoil_decisions_total{tool=pay,decision=conflict}", 1.0),
        ("counterfoil_conflict_changes{tool=pay}", 1.0),
        ("counterfoil_attempts_total{tool=pay,attempt=first,result=unreachable}", 1.0),
        ("counterfoil_attempts_total{tool=pay,attempt=again,result=answered}", 1.0),
        ("counterfoil_attempt_seconds{tool=pay,attempt=first}", 1.0),
        ("counterfoil_attempt_seconds{tool=pay,attempt=again}", 1.0),
        ("counterfoil_call_seconds{tool=pay,basis=answer}", 1.0),
        ("counterfoil_retries_exhausted_total{tool=pay}", 0.0),
    ]);
}

#[tokio::test]
async fn a_call_that_fails_for_good_is_counted_with_its_kind() {
    let scene = Scene::new(Keys::Honours);
    let process = scene.process(scene.pay(ContractClass::ReplaysKey)).await;
    scene.world.replies([(); 3].map(|()| Reply::Fail(ErrorKind::Unreachable)));
    drop(process.execute(request("pay")).await.unwrap().unwrap());
    scene.seen.shows(&[
        ("counterfoil_retries_exhausted_total{tool=pay}", 1.0),
        ("counterfoil_calls_failed_total{tool=pay,kind=unreachable}", 1.0),
        ("counterfoil_attempts_total{tool=pay,attempt=again,result=unreachable}", 2.0),
    ]);
}

#[tokio::test]
async fn a_call_of_unknown_outcome_is_counted_with_its_lookup_and_its_end() {
    let scene = Scene::new(Keys::Ignores);
    let process = scene.process(scene.pay(ContractClass::Lookup)).await;
    scene.world.replies([Reply::EffectThenFail(ErrorKind::TimeoutDuringEffect)]);
    scene.world.looks([Look::Hang]);
    let call = process.execute(request("pay"));
    scene.world.looked_up(1).await;
    scene.seen.until("counterfoil_ambiguous_open", |open| open == 1.0).await;
    scene.clock.advance(Duration::from_secs(10)); // the first lookup has no answer in time
    drop(settle(&scene.clock, call).await);
    scene.seen.shows(&[
        ("counterfoil_attempts_total{tool=pay,attempt=first,result=timeout_during_effect}", 1.0),
        ("counterfoil_ambiguous_total{tool=pay}", 1.0),
        ("counterfoil_lookups_total{tool=pay,result=no answer}", 1.0),
        ("counterfoil_lookups_total{tool=pay,result=committed}", 1.0),
        ("counterfoil_reconciled_total{tool=pay,result=committed,basis=lookup}", 1.0),
    ]);
    scene.seen.until("counterfoil_ambiguous_open", |open| open == 0.0).await;
}

#[tokio::test]
async fn a_duplicate_is_counted_and_its_question_has_an_age() {
    let scene = Scene::new(Keys::Ignores);
    let process = scene.process(scene.pay(ContractClass::Lookup)).await;
    scene.world.replies([Reply::Twice]);
    drop(process.execute(request("pay")).await.unwrap().unwrap());
    let key = Key::of("pay").target("c1").render().unwrap();
    while process.executor().next_look(&acme(), &key).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    scene.clock.advance(SETTLE);
    scene.seen.until("counterfoil_duplicates_total", |found| found == 1.0).await;
    scene.seen.until("counterfoil_questions_open{kind=duplicated}", |open| open == 1.0).await;
    scene.seen.shows(&[("counterfoil_questions_total{kind=duplicated,event=asked}", 1.0)]);
    scene.clock.advance(Duration::from_hours(1));
    let oldest = "counterfoil_question_oldest_seconds{kind=duplicated}";
    scene.seen.until(oldest, |age| (3600.0..3700.0).contains(&age)).await;
    let executor = process.executor();
    let question = executor.questions(&acme()).await.unwrap().remove(0);
    executor.answer(&acme(), question.id, counterfoil::store::Resolution::Keep, "ann").await.unwrap();
    scene.seen.shows(&[("counterfoil_questions_total{kind=duplicated,event=answered}", 1.0)]);
    scene.seen.until("counterfoil_questions_open{kind=duplicated}", |open| open == 0.0).await;
    scene.seen.until(oldest, |age| age == 0.0).await;
}

#[tokio::test]
async fn a_call_that_a_policy_refuses_is_counted_as_withheld() {
    let scene = Scene::new(Keys::Honours);
    let tool = scene.world.tool("tell", EffectClass::Notification, Contract::new(ContractClass::ReplaysKey));
    let process = scene.process(tool.policy("mail", 1, |_| Verdict::refuse("not today"))).await;
    drop(process.execute(request("tell")).await.unwrap().unwrap());
    scene.seen.shows(&[("counterfoil_calls_withheld_total{tool=tell,why=policy}", 1.0)]);
}

#[tokio::test]
async fn the_cost_of_an_attempt_is_added_up() {
    let scene = Scene::new(Keys::Honours);
    let tool = DynamicTool::new("rent", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey));
    let tool = tool
        .key(|input| Some(Key::of("rent").target(input["case"].as_str()?)))
        .call(|_, _| async { Ok(Done::new(json!(1)).cost(5)) });
    let process = scene.process(tool).await;
    drop(process.execute(request("rent")).await.unwrap().unwrap());
    let second = ToolRequest::new(acme(), "rent", json!({"case": "c2"}));
    drop(process.execute(second).await.unwrap().unwrap());
    scene.seen.shows(&[("counterfoil_attempt_cost_total{tool=rent,attempt=first}", 10.0)]);
}

#[tokio::test]
async fn an_open_breaker_shows() {
    let scene = Scene::new(Keys::Honours);
    let breaker = Breaker { failures: 1, open_for: SETTLE, ..Breaker::default() };
    let tool = scene.pay(ContractClass::ReplaysKey).quota(Quota::default().breaker(breaker));
    let process = scene.process(tool).await;
    scene.seen.until("counterfoil_breaker_open{gate=pay}", |open| open == 0.0).await;
    scene.world.replies([Reply::Fail(ErrorKind::Unreachable)]);
    let call = process.execute(request("pay"));
    scene.seen.until("counterfoil_breaker_open{gate=pay}", |open| open == 1.0).await;
    scene.clock.advance(SETTLE);
    drop(call.await.unwrap().unwrap());
    scene.seen.until("counterfoil_breaker_open{gate=pay}", |open| open == 0.0).await;
}
