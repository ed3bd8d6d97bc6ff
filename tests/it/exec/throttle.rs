//! Throttles and budgets as a provider sees them (EXE-4, EXE-9; HAZARDS K01, K05, K06, K09, K10): what arrives is counted
//! on the wire, at the instants of a clock that the test turns.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::exec::BreakerState;
use counterfoil::flow::{EngineBuilder, FailureCode, RunError, Workflow};
use counterfoil::ledger::{
    self, Breaker, Budget, ContractClass, ErrorKind, LookupResult, Price, Quota, Rate, RetryPolicy, State,
    Throttle,
};
use counterfoil::store::Model;
use counterfoil::tool::{
    Call, Done, DynamicTool, Reconcile, RegisterError, Tool, ToolError, contract, effect,
};
use counterfoil::{Clock as _, Timestamp};
use counterfoil::{Ctx, Engine, Executor, Failure, Key, Outcome, RunId, Tenant, ToolRequest};
use serde_json::json;

use crate::flow::wait::settle;
use crate::world::{TestClock, acme};

const MOMENT: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);

/// A provider that honours keys, is away as often as it is told, and writes down when what arrives.
#[derive(Default)]
struct Provider {
    hands: TestClock,
    /// So many of the next requests and lookups are refused.
    away_for: AtomicU32,
    wire: Mutex<Vec<(Timestamp, String)>>,
    effects: Mutex<Vec<String>>,
    /// From the first request on, what is written to this store is not durable.
    holds: Mutex<Option<Arc<Model>>>,
}

impl Provider {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn away(&self, requests: u32) {
        self.away_for.store(requests, Ordering::SeqCst);
    }

    fn arrives(&self, what: &str) -> Result<(), ToolError> {
        self.wire.lock().unwrap().push((self.hands.now(), what.to_owned()));
        let left = |left: u32| left.checked_sub(1);
        match self.away_for.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(_) => Err(ToolError::new(ErrorKind::Unreachable, "away")),
            Err(_) => Ok(()),
        }
    }

    fn send(&self, key: &str) -> Result<Done<u32>, ToolError> {
        self.arrives(key)?;
        if let Some(store) = self.holds.lock().unwrap().take() {
            store.hold();
        }
        let mut effects = self.effects.lock().unwrap();
        if !effects.iter().any(|effect| effect == key) {
            effects.push(key.to_owned());
        }
        Ok(Done::new(7))
    }

    fn wire(&self) -> Vec<(Timestamp, String)> {
        self.wire.lock().unwrap().clone()
    }

    /// The most that arrived in any time as long as this.
    fn most_in(&self, time: Duration) -> usize {
        let wire = self.wire();
        let in_time = |first: usize| {
            let end = wire[first].0.after(time);
            wire[first..].iter().filter(|(at, _)| *at < end).count()
        };
        (0..wire.len()).map(in_time).max().unwrap_or(0)
    }

    /// Lets time go by until something has happened.
    fn until<'a, T: 'a>(&'a self, happened: impl Future<Output = T> + 'a) -> impl Future<Output = T> + 'a {
        self.flowing(Box::pin(happened))
    }

    #[allow(clippy::disallowed_methods, reason = "a watchdog for tests that hang, not a synchronisation")]
    async fn flowing<T>(&self, happened: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                self.hands.advance(MOMENT);
                settle().await;
            }
        };
        let flowing = async {
            tokio::select! {
                happened = happened => happened,
                () = time => unreachable!("time does not end"),
            }
        };
        tokio::time::timeout(Duration::from_secs(60), flowing)
            .await
            .expect("what is waited for does not happen")
    }

    async fn pass(&self, by: Duration) {
        self.until(self.hands.sleep(by)).await;
    }

    fn engine(&self, store: &Arc<Model>) -> EngineBuilder {
        Engine::store(store.clone()).clock(self.hands.clone())
    }

    /// A tool of this quota, for executors.
    fn tool(self: &Arc<Self>, name: &str, quota: Quota) -> DynamicTool {
        let (kind, provider) = (name.to_owned(), self.clone());
        DynamicTool::new(
            name,
            ledger::EffectClass::InternalMutation,
            ledger::Contract::new(ContractClass::ReplaysKey),
        )
        .key(move |input| Some(Key::of(&kind).target(input["case"].as_str()?)))
        .call(move |call, _| {
            let sent = provider.send(call.key()).map(|done| Done::new(json!(done.output)));
            Box::pin(std::future::ready(sent))
        })
        .retry(patient())
        .quota(quota)
    }

    async fn executor(self: &Arc<Self>, tool: DynamicTool) -> Executor {
        let store = Arc::new(Model::new());
        let opening =
            counterfoil::exec::ExecutorBuilder::store(store).clock(self.hands.clone()).dynamic_tool(tool);
        self.until(opening.open()).await.unwrap()
    }
}

fn patient() -> RetryPolicy {
    RetryPolicy { attempts: 40, attempt_timeout: Duration::from_hours(1), ..RetryPolicy::default() }
}

/// Posts letters, with whatever quota the test wants.
struct Post(Arc<Provider>, Quota, RetryPolicy);

impl Tool for Post {
    const NAME: &'static str = "post";
    type Effect = effect::InternalMutation;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = u32;
    type Output = u32;

    fn key(&self, letter: &u32) -> Option<Key> {
        Some(Key::of(Self::NAME).target(letter.to_string()))
    }

    fn retry(&self) -> RetryPolicy {
        self.2
    }

    fn quota(&self) -> Quota {
        self.1.clone()
    }

    async fn call(&self, call: &Call, _: &u32) -> Result<Done<u32>, ToolError> {
        self.0.send(call.key())
    }
}

impl Reconcile for Post {
    async fn reconcile(&self, call: &Call, _: &u32) -> Result<LookupResult<u32>, ToolError> {
        self.0.arrives(&format!("lookup of {}", call.key()))?;
        let is_there = self.0.effects.lock().unwrap().iter().any(|effect| effect == call.key());
        Ok(if is_there {
            LookupResult::Committed { output: 7, external_ref: None }
        } else {
            LookupResult::NotFound
        })
    }
}

async fn letter(ctx: Ctx, number: u32) -> Result<u32, Failure> {
    ctx.call::<Post>(number).await
}

// K01, K07: two hundred runs resume after an outage, and the provider is away for a while yet.
#[tokio::test]
async fn a_storm_of_resumed_runs_arrives_at_the_declared_rate() {
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let quota = Quota::default().provider(
        "letters",
        Throttle { rate: Some(Rate::per_second(20)), breaker: Some(Breaker::default()) },
    );
    let engine = || {
        let post = Post(provider.clone(), quota.clone(), patient());
        provider.engine(&store).workflow("letter", 1, letter).tool(post).start()
    };
    provider.away(u32::MAX);
    let first = provider.until(engine()).await.unwrap();
    let tenant = first.tenant("acme").unwrap();
    let mut runs = Vec::new();
    for number in 0..200 {
        runs.push(provider.until(tenant.run(letter, number).start()).await.unwrap().id());
    }
    provider.pass(2 * SECOND).await;
    drop(tenant);
    provider.until(first.shutdown(SECOND)).await;
    let before = provider.wire().len();

    let second = provider.until(engine()).await.unwrap();
    provider.pass(30 * SECOND).await;
    let gate = second.executor().throttles().remove(0);
    assert_eq!((gate.name.as_str(), gate.is_provider), ("letters", true));
    assert_ne!(gate.state, BreakerState::Closed, "it is visible: {gate:?}");
    let waiting = store.runs().iter().filter(|run| run.state.name() == "waiting").count();
    assert!(waiting > 190, "whoever waits for long holds no memory: {waiting} of 200 are parked");
    let in_vain = provider.wire().len() - before;
    assert!(in_vain < 20, "a sick provider is left alone: {in_vain} calls in half a minute");

    provider.away(0);
    let tenant = second.tenant("acme").unwrap();
    for run in runs {
        let result = provider.until(tenant.handle::<u32>(run).result()).await;
        assert_eq!(result.unwrap(), 7);
    }
    assert_eq!(second.executor().throttles()[0].state, BreakerState::Closed);
    assert_eq!(provider.effects.lock().unwrap().len(), 200);
    assert!(provider.most_in(SECOND) <= 20, "{} in one second", provider.most_in(SECOND));
    let in_all = provider.wire().len();
    assert!(in_all < 250, "{in_all} calls for 200 letters");
}

// K05: a loop around a call that is tried again: in all no more arrives than the run's budget, and it says so.
#[tokio::test]
async fn retries_of_retries_end_with_the_budget_of_the_run_and_a_crash_gives_nothing_back() {
    async fn stubborn(ctx: Ctx, number: u32) -> Result<u32, Failure> {
        for again in 0..100 {
            match ctx.call::<Post>(number + again).await {
                Err(failure) if failure.code == FailureCode::ToolFailed => {}
                over => return over,
            }
            ctx.sleep(SECOND).await?;
        }
        Ok(0)
    }
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    provider.away(u32::MAX);
    let retry = RetryPolicy { attempts: 3, ..patient() };
    let engine = || {
        let post = Post(provider.clone(), Quota::default(), retry);
        let stubborn = Workflow::new("stubborn", stubborn).budget(Budget::default().attempts(10));
        provider.engine(&store).register(stubborn).tool(post).start()
    };
    let first = provider.until(engine()).await.unwrap();
    let tenant = first.tenant("acme").unwrap();
    let run = provider.until(tenant.run(stubborn, 0).start()).await.unwrap().id();
    provider
        .until(async {
            while provider.wire().len() < 5 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    drop(tenant);
    provider.until(first.shutdown(SECOND)).await;

    let second = provider.until(engine()).await.unwrap();
    let result = provider.until(second.tenant("acme").unwrap().handle::<u32>(run).result()).await;
    let RunError::Failed { failure, .. } = result.unwrap_err() else { panic!("it failed") };
    assert_eq!(failure.code, FailureCode::BudgetExceeded, "{failure:?}");
    assert_eq!(failure.detail["detail"]["budget"], "run.attempts");
    assert_eq!(provider.wire().len(), 10);
}

// EXE-4: cost in a unit that the user names; calls that are made at once do not spend the same twice.
#[tokio::test]
async fn a_run_spends_no_more_than_it_has() {
    async fn five(ctx: Ctx, _: u32) -> Result<u32, Failure> {
        let calls = (0..5).map(|number| ctx.call::<Post>(number));
        let done = futures_util::future::join_all(calls).await;
        for failure in done.iter().filter_map(|done| done.as_ref().err()) {
            assert_eq!(failure.detail["detail"]["budget"], "run.cost");
        }
        Ok(u32::try_from(done.iter().filter(|done| done.is_ok()).count()).unwrap())
    }
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let post = Post(provider.clone(), Quota::default().price(Price::new(30, "cent")), patient());
    let engine = provider.engine(&store);
    let engine = engine.register(Workflow::new("five", five).budget(Budget::default().cost("cent", 100)));
    let engine = provider.until(engine.tool(post).start()).await.unwrap();
    let run = engine.tenant("acme").unwrap().run(five, 0);
    let made = provider.until(async { run.start().await.unwrap().result().await.unwrap() }).await;
    assert_eq!((made, provider.wire().len()), (3, 3));
}

fn request(tenant: &Tenant, tool: &str, case: &str) -> ToolRequest {
    ToolRequest::new(tenant.clone(), tool, json!({"case": case}))
}

// K09: a deadline that passes while a call waits for its turn: it is not sent, and its record says why.
#[tokio::test]
async fn what_has_no_turn_in_time_has_expired_and_is_recorded_so() {
    let provider = Provider::new();
    let quota = Quota::default().rate(Rate::per_minute(1)).timeout(10 * SECOND);
    let executor = provider.executor(provider.tool("mail", quota)).await;
    let first = provider.until(executor.execute(request(&acme(), "mail", "one"))).await;
    assert!(matches!(first, Ok(Outcome::Done(_))), "{first:?}");
    let late = provider.until(executor.execute(request(&acme(), "mail", "two"))).await.unwrap();
    let Outcome::Failed(failure) = late else { panic!("{late:?}") };
    assert_eq!(
        (failure.kind, &failure.detail["budget"]),
        (ErrorKind::BudgetExceeded, &json!("operation.time"))
    );
    assert_eq!(provider.wire().len(), 1);
    let key = Key::of("mail").target("two").render().unwrap();
    let (record, _) = provider.until(executor.record(&acme(), &key)).await.unwrap().unwrap();
    assert_eq!((record.state.name(), record.attempts), ("failed", 0));
    provider.pass(60 * SECOND).await;
    let again = provider.until(executor.execute(request(&acme(), "mail", "two"))).await;
    assert!(matches!(again, Ok(Outcome::Done(_))), "whoever asks again may: nothing was sent: {again:?}");
}

// K09: a parked run does not forget since when its call waits.
#[tokio::test]
async fn a_waiting_call_of_a_parked_run_expires_although_its_process_was_gone() {
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let engine = || {
        let quota = Quota::default().rate(Rate::per_minute(1)).timeout(Duration::from_mins(5));
        let post = Post(provider.clone(), quota, patient());
        provider.engine(&store).workflow("letter", 1, letter).tool(post).start()
    };
    let first = provider.until(engine()).await.unwrap();
    let tenant = first.tenant("acme").unwrap();
    let mut runs: Vec<RunId> = Vec::new();
    for number in 0..2 {
        runs.push(provider.until(tenant.run(letter, number).start()).await.unwrap().id());
    }
    provider.pass(3 * SECOND).await;
    let held =
        store.records().into_iter().find(|record| record.attempts == 0).expect("that it waits is recorded");
    assert!(matches!(held.state, State::Failed { .. }) && held.not_before.is_some(), "{held:?}");
    drop(tenant);
    provider.until(first.shutdown(SECOND)).await;

    provider.hands.advance(Duration::from_mins(6));
    let second = provider.until(engine()).await.unwrap();
    let tenant = second.tenant("acme").unwrap();
    let mut failures = Vec::new();
    for run in runs {
        failures.extend(provider.until(tenant.handle::<u32>(run).result()).await.err());
    }
    assert!(failures.len() == 1 && failures[0].to_string().contains("expired"), "{failures:?}");
    assert_eq!(provider.wire().len(), 1);
}

// K10: one tenant's flood holds up nobody else.
#[tokio::test]
async fn tenants_take_turns_before_a_gate() {
    let provider = Provider::new();
    let executor =
        provider.executor(provider.tool("mail", Quota::default().rate(Rate::per_second(10)))).await;
    let (flood, calm) = (Tenant::new("flood").unwrap(), Tenant::new("calm").unwrap());
    let send = |tenant: &Tenant, case: String| {
        let (executor, request) = (executor.clone(), request(tenant, "mail", &case));
        tokio::spawn(async move { executor.execute(request).await })
    };
    let flooding: Vec<_> = (0..100).map(|n| send(&flood, format!("flood {n}"))).collect();
    provider.pass(SECOND).await;
    let before = provider.wire().len();
    assert!((8..=12).contains(&before), "{before}");
    for n in 0..3 {
        let done = provider.until(send(&calm, format!("calm {n}"))).await.unwrap();
        assert!(matches!(done, Ok(Outcome::Done(_))));
    }
    let passed = provider.wire().len() - before;
    assert!(passed <= 10, "three calls of the calm tenant wait for {passed} of all");
    assert!(executor.throttles()[0].waiting > 50);
    let closing = tokio::spawn(executor.clone().shutdown(SECOND));
    for call in flooding {
        let _answered_or_closed = provider.until(call).await.unwrap();
    }
    provider.until(closing).await.unwrap();
}

// The same for the call of a run, which is parked if its wait would be long: what counts is its own turn, not the length of the
// queue.
#[tokio::test]
async fn the_call_of_a_run_takes_its_turn_before_a_gate_too() {
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let post = Post(provider.clone(), Quota::default().rate(Rate::per_second(10)), patient());
    let starting = provider.engine(&store).workflow("letter", 1, letter).tool(post).start();
    let engine = provider.until(starting).await.unwrap();
    let executor = engine.executor();
    let send = |n: u32| {
        let (executor, flood) = (executor.clone(), Tenant::new("flood").unwrap());
        let call = ToolRequest::new(flood, "post", json!(n));
        tokio::spawn(async move { executor.execute(call).await })
    };
    let flooding: Vec<_> = (0..100).map(send).collect();
    provider.pass(SECOND).await;
    let began = provider.hands.now();
    let run = engine.tenant("calm").unwrap().run(letter, 1000);
    provider.until(async { run.start().await.unwrap().result().await.unwrap() }).await;
    let lasted = began.until(provider.hands.now());
    assert!(lasted <= 2 * SECOND, "{lasted:?}");
    assert!(executor.throttles()[0].waiting > 50);
    let closing = tokio::spawn(async move { engine.shutdown(SECOND).await });
    for call in flooding {
        let _answered_or_closed = provider.until(call).await.unwrap();
    }
    provider.until(closing).await.unwrap();
}

// An ambiguous call waits for a sick provider to come back: it is neither forgotten nor sent again, and no person is asked.
#[tokio::test]
async fn an_open_circuit_keeps_an_ambiguous_call_waiting() {
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let engine = |store: &Arc<Model>| {
        let (open_for, at_most) = (SECOND, 4 * SECOND);
        let breaker = Breaker { failures: 2, open_for, at_most, ..Breaker::default() };
        let quota = Quota::default().breaker(breaker);
        let post = Post(provider.clone(), quota, patient());
        provider.engine(store).workflow("letter", 1, letter).tool(post).start()
    };
    // The first process dies behind the effect and before its answer is durable.
    *provider.holds.lock().unwrap() = Some(store.clone());
    let first = provider.until(engine(&store)).await.unwrap();
    let run = provider.until(first.tenant("acme").unwrap().run(letter, 1).start()).await.unwrap().id();
    provider
        .until(async {
            while provider.wire().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    let crashed = Arc::new(store.crash());
    let _gone = first;

    provider.away(8); // more lookups than a person would be asked after
    let second = provider.until(engine(&crashed)).await.unwrap();
    let tenant = second.tenant("acme").unwrap();
    let result = provider.until(tenant.handle::<u32>(run).result()).await;
    assert_eq!(result.unwrap(), 7);
    assert!(crashed.escalations().is_empty(), "{:?}", crashed.escalations());
    assert_eq!(provider.effects.lock().unwrap().len(), 1);
    let sends = provider.wire().iter().filter(|(_, what)| !what.starts_with("lookup")).count();
    assert_eq!(sends, 1, "{:?}", provider.wire());
}

// The run ends while the next attempt of its call waits before an open circuit. Nobody would undo the effect of that attempt,
// and nobody would ask about it.
#[tokio::test]
async fn an_attempt_that_waits_for_its_turn_is_not_sent_after_the_end_of_its_run() {
    async fn hasty(ctx: Ctx, number: u32) -> Result<u32, Failure> {
        let in_vain = async {
            ctx.sleep(SECOND).await?;
            Err::<u32, _>(Failure::new("something else is in the way"))
        };
        tokio::try_join!(ctx.call::<Post>(number), in_vain).map(|(posted, _)| posted)
    }
    let (provider, store) = (Provider::new(), Arc::new(Model::new()));
    let breaker = Breaker { failures: 1, open_for: 2 * SECOND, ..Breaker::default() };
    let post = Post(provider.clone(), Quota::default().breaker(breaker), patient());
    let starting = provider.engine(&store).workflow("hasty", 1, hasty).tool(post).start();
    let engine = provider.until(starting).await.unwrap();
    provider.away(1);
    let run = engine.tenant("acme").unwrap().run(hasty, 1);
    let result = provider.until(async { run.start().await.unwrap().result().await }).await;
    assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
    assert_eq!(engine.executor().throttles()[0].state, BreakerState::Open);
    provider.pass(3 * SECOND).await;
    assert_eq!(provider.wire().len(), 1, "{:?}", provider.wire());
}

// EXE-4: workers that share a store share the rate.
#[tokio::test]
async fn each_of_several_workers_has_its_part_of_the_rate() {
    let provider = Provider::new();
    let store = Arc::new(Model::shared(Arc::new(provider.hands.clone())));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let tool = provider.tool("mail", Quota::default().rate(Rate::per_second(8)));
        let worker = counterfoil::exec::ExecutorBuilder::store(store.clone());
        let opening = worker.clock(provider.hands.clone()).dynamic_tool(tool).open();
        workers.push(provider.until(opening).await.unwrap());
    }
    provider.pass(10 * SECOND).await; // each has heard of all others
    let calls: Vec<_> = (0..80)
        .map(|n| {
            let (worker, request) = (workers[n % 4].clone(), request(&acme(), "mail", &n.to_string()));
            tokio::spawn(async move { worker.execute(request).await })
        })
        .collect();
    for call in calls {
        assert!(matches!(provider.until(call).await.unwrap(), Ok(Outcome::Done(_))));
    }
    // Each has its own burst of one.
    assert!(provider.most_in(SECOND) <= 8 + 4, "{}", provider.most_in(SECOND));
    let wire = provider.wire();
    let lasted = wire[0].0.until(wire[79].0);
    assert!(lasted >= 9 * SECOND, "eighty calls at eight a second took {lasted:?}");
}

#[test]
fn a_provider_is_declared_alike_by_all_its_tools() {
    let provider = Provider::new();
    let mut registry = counterfoil::tool::Registry::default();
    let at = |calls| Quota::default().provider("mail.example", Throttle::rate(Rate::per_second(calls)));
    provider.tool("mail", at(1)).register(&mut registry).unwrap();
    provider.tool("draft", at(1)).register(&mut registry).unwrap();
    let refused = provider.tool("list", at(2)).register(&mut registry);
    assert!(matches!(refused, Err(RegisterError::OtherThrottle { .. })), "{refused:?}");
}
