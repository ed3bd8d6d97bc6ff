//! Records whose time is over (REC-6, REC-8, DESIGN 4.10; HAZARDS G15): what is left of them, and what a late retry is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::exec::{Compensated, ExecutorBuilder};
use counterfoil::ledger::{
    Contract, ContractClass, EffectClass, ErrorKind, FinalState, LookupResult, OperationKey, Record,
    Retention, RetryPolicy, State, Undone,
};
use counterfoil::store::Resolution;
use counterfoil::tool::{
    Call, Compensate, Done, DynamicTool, OriginalCall, Registry, Tool, ToolError, contract, effect,
};
use counterfoil::{Executor, Key, Outcome, Tenant, ToolRequest};
use serde_json::json;

use crate::store::postgres::{Schema, url};
use crate::world::{Keys, Log, Look, Reply, TestClock, World, acme, brief, executor, request, soon, until};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

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

    /// Pays out by a provider that can be asked, and rings by one that cannot; and has a bell that is soon forgotten.
    fn tools(&self, retention: Retention) -> ExecutorBuilder {
        executor(&self.dir, &self.clock)
            .dynamic_tool(self.tool("pay", ContractClass::Lookup, retention))
            .dynamic_tool(self.tool("ring", ContractClass::Blind, retention))
            .dynamic_tool(self.tool("bell", ContractClass::Blind, Retention::forget_after(HOUR)))
    }

    fn tool(&self, name: &str, class: ContractClass, retention: Retention) -> DynamicTool {
        let tool = self.world.tool(name, EffectClass::InternalMutation, Contract::new(class));
        tool.retry(brief()).retention(retention)
    }

    async fn open(&self, retention: Retention) -> Executor {
        self.tools(retention).open().await.unwrap() // it sweeps unless it is told not to
    }

    /// Lets hours go by until the record is as it should be.
    async fn until(&self, executor: &Executor, key: &OperationKey, is: impl Fn(Option<&Record>) -> bool) {
        let becomes = async {
            while !is(record(executor, key).await.as_ref()) {
                self.clock.advance(HOUR);
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon(format!("{key} does not become what it should"), becomes).await;
    }

    async fn until_gone(&self, executor: &Executor, key: &OperationKey) {
        let gone = |record: Option<&Record>| record.is_some_and(|r| matches!(r.state, State::Gone { .. }));
        self.until(executor, key, gone).await;
    }

    /// A sweep passes over all whose time is over by now: the bell rings, and is forgotten an hour later in its turn.
    async fn sweeps(&self, executor: &Executor) {
        assert!(first(&executor.execute(request("bell")).await.unwrap()));
        self.clock.slept(HOUR).await;
        self.clock.advance(HOUR);
        let forgotten = async {
            while record(executor, &key("bell")).await.is_some() {
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon("nobody sweeps".to_owned(), forgotten).await;
    }
}

async fn record(executor: &Executor, key: &OperationKey) -> Option<Record> {
    executor.record(&acme(), key).await.unwrap().map(|(record, _)| record)
}

fn key(tool: &str) -> OperationKey {
    Key::of(tool).target("c1").render().unwrap()
}

fn first(outcome: &Outcome) -> bool {
    outcome.answer().unwrap_or_else(|| panic!("{outcome:?}")).first
}

// R-REC-6, R-REC-8: digests are left, and a retry that comes later than anyone planned is told so and not executed again.
#[tokio::test]
async fn a_late_retry_is_told_that_it_is_gone() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(30 * DAY)).await;
    let mut call = request("pay").call_id("call 1");
    call.input["iban"] = json!("DE02");
    assert!(first(&executor.execute(call.clone()).await.unwrap()));
    scene.clock.advance(29 * DAY);
    assert!(!first(&executor.execute(call.clone()).await.unwrap()), "it is kept for thirty days");
    scene.until_gone(&executor, &key("pay")).await;

    let text = format!("{:?}", executor.record(&acme(), &key("pay")).await.unwrap());
    for said in ["DE02", "effect-1", "call 1"] {
        assert!(!text.contains(said), "{said} is still there: {text}");
    }
    assert_eq!(
        executor.execute(call.clone()).await.unwrap(),
        Outcome::Expired { was: FinalState::Committed }
    );
    let other = executor.execute(request("pay")).await.unwrap();
    assert!(matches!(other, Outcome::Conflict(_)), "{other:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
    let again = call.clone().key(Key::of("pay").target("c1").revision(1));
    assert!(first(&executor.execute(again).await.unwrap()), "what is asked for on purpose is done");

    // The next process knows it, too.
    executor.shutdown(Duration::ZERO).await;
    let executor = scene.open(Retention::tombstone_after(30 * DAY)).await;
    assert_eq!(executor.execute(call).await.unwrap(), Outcome::Expired { was: FinalState::Committed });
    assert_eq!(scene.world.count(), 2);
}

// R-REC-6: inside the window for which the provider remembers the key, nothing is touched.
#[tokio::test]
async fn a_record_is_whole_for_as_long_as_the_provider_knows_its_key() {
    let scene = Scene::new();
    let contract = Contract::new(ContractClass::ReplaysKey).key_window(3 * DAY);
    let retention = Retention::tombstone_after(HOUR);
    let pay = scene.world.tool("pay", EffectClass::Payment, contract).retry(brief()).retention(retention);
    let bell = scene.tool("bell", ContractClass::Blind, Retention::forget_after(HOUR));
    let builder = executor(&scene.dir, &scene.clock).dynamic_tool(pay).dynamic_tool(bell);
    let executor = builder.open().await.unwrap();
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
    for _ in 0..3 {
        scene.sweeps(&executor).await;
    }
    assert!(!first(&executor.execute(request("pay")).await.unwrap()), "it is answered from its record");
    scene.until_gone(&executor, &key("pay")).await;
    let gone = record(&executor, &key("pay")).await.unwrap();
    assert!(gone.created_at.until(scene.clock.now()) >= 3 * DAY, "too early");
}

// R-REC-6: a tool whose retries last for longer than what its class says is kept for as long as they do.
#[test]
fn what_a_class_says_covers_the_retries_of_its_tool() {
    let (scene, mut registry) = (Scene::new(), Registry::default());
    let patient = RetryPolicy { attempts: 100, ..RetryPolicy::default() };
    let read =
        scene.world.tool("read", EffectClass::ReadOnly, Contract::new(ContractClass::Blind)).retry(patient);
    read.register(&mut registry).unwrap();
    let retention = registry.guarantees().remove(0).retention;
    assert!(retention.starts_with("for ") && retention != "for 24 h, then its key is new", "{retention}");
}

// R-REC-6: a window after which the key is new, as nonces want.
#[tokio::test]
async fn a_forgotten_key_is_new() {
    let scene = Scene::new();
    let executor = scene.open(Retention::forget_after(DAY)).await;
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
    scene.clock.advance(23 * HOUR);
    assert!(!first(&executor.execute(request("pay")).await.unwrap()));
    scene.until(&executor, &key("pay"), |record| record.is_none()).await;
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
    assert_eq!(scene.world.count(), 2);
}

/// Holds a seat, and gives it back.
struct Seat(Arc<AtomicUsize>);

impl Tool for Seat {
    const NAME: &'static str = "seat";
    type Effect = effect::Undoable<effect::InternalMutation>;
    type Contract = contract::ReplaysKey;
    type Input = ();
    type Output = ();

    fn key(&self, (): &()) -> Option<Key> {
        Some(Key::of(Self::NAME).target("c1"))
    }

    fn retry(&self) -> RetryPolicy {
        brief()
    }

    fn retention(&self) -> Retention {
        Retention::forget_after(HOUR)
    }

    async fn call(&self, _: &Call, (): &()) -> Result<Done<()>, ToolError> {
        Ok(Done::new(()))
    }
}

impl Compensate for Seat {
    async fn compensate(&self, _: &Call, _: &OriginalCall<(), ()>) -> Result<Done<Undone>, ToolError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<(), ()>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

// R-REC-6: an undoing is newer than its call. The key of the call is not new before the record of the undoing has gone, or
// the undoing of a later call would be answered from it.
#[tokio::test]
async fn a_forgotten_key_is_new_only_when_its_undoing_is_forgotten() {
    let (scene, given_back) = (Scene::new(), Arc::new(AtomicUsize::new(0)));
    let builder = scene.tools(Retention::keep()).tool(Seat(given_back.clone()));
    let executor = builder.open().await.unwrap();
    let hold = async || executor.call::<Seat>(&acme(), (), None).await.unwrap();
    assert!(first(&hold().await));
    assert!(first(&executor.execute(request("bell")).await.unwrap()));
    scene.clock.slept(HOUR).await;
    scene.clock.advance(Duration::from_mins(50));
    let undone = executor.compensate(&acme(), &key("seat")).await.unwrap();
    assert_eq!(undone, Compensated::Undone(Undone::whole()));

    // The bell is as old as the seat, and its key is new again.
    scene.clock.advance(Duration::from_mins(11));
    until("the sweep", async || record(&executor, &key("bell")).await.is_none()).await;
    let taken = hold().await;
    assert!(matches!(taken, Outcome::Compensated { .. }), "{taken:?}");

    scene.until(&executor, &key("seat"), |record| record.is_none()).await;
    assert!(first(&hold().await));
    let undone = executor.compensate(&acme(), &key("seat")).await.unwrap();
    assert_eq!(undone, Compensated::Undone(Undone::whole()));
    assert_eq!(given_back.load(Ordering::SeqCst), 2, "each seat was given back");
}

// R-REC-6: kept is kept, and without anybody who sweeps everything is.
#[tokio::test]
async fn what_is_kept_stays() {
    for sweeps in [true, false] {
        let scene = Scene::new();
        let retention = if sweeps { Retention::keep() } else { Retention::forget_after(DAY) };
        let builder = scene.tools(retention);
        let executor = builder.sweep(sweeps).open().await.unwrap();
        assert!(first(&executor.execute(request("pay")).await.unwrap()));
        scene.clock.advance(1000 * DAY);
        if sweeps {
            scene.sweeps(&executor).await;
        }
        assert!(!first(&executor.execute(request("pay")).await.unwrap()));
    }
}

// R-REC-6: counted from last access, whoever is asked for is not forgotten.
#[tokio::test]
async fn time_may_be_counted_from_the_last_access() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(30 * DAY).from_last_access()).await;
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
    for _ in 0..10 {
        scene.clock.advance(20 * DAY);
        scene.sweeps(&executor).await;
        assert!(!first(&executor.execute(request("pay")).await.unwrap()), "it was asked for 20 days ago");
    }
    scene.until_gone(&executor, &key("pay")).await;
    assert_eq!(scene.world.count(), 11, "ten times the bell, and once the payment");
}

// R-REC-6: nothing that is under way or asked about is touched, however old.
#[tokio::test]
async fn what_is_asked_about_stays() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(DAY)).await;
    scene.world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    let parked = executor.execute(request("ring")).await.unwrap();
    let Outcome::NeedsDecision { question: escalation } = parked else { panic!("{parked:?}") };
    scene.clock.advance(10 * DAY);
    scene.sweeps(&executor).await;
    assert_eq!(
        record(&executor, &key("ring")).await.unwrap().state,
        State::Started,
        "and it is still asked about"
    );
    let done = Resolution::Happened(json!(1));
    executor.answer(&acme(), escalation, done, "ann").await.unwrap();
    scene.sweeps(&executor).await;
    assert_eq!(
        executor.execute(request("ring")).await.unwrap(),
        Outcome::Expired { was: FinalState::Committed }
    );
}

// R-REC-6: a call that hangs for longer than its record is to be kept is under way.
#[tokio::test]
async fn what_is_under_way_stays() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(Duration::from_secs(1))).await;
    scene.world.replies([Reply::EffectThenHang]);
    let call = tokio::spawn({
        let executor = executor.clone();
        async move { executor.execute(request("pay")).await }
    });
    scene.world.requested(1).await;
    // It may take ten seconds.
    for _ in 0..9 {
        scene.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
        assert_eq!(record(&executor, &key("pay")).await.unwrap().state, State::Started);
    }
    scene.world.release();
    assert!(first(&call.await.unwrap().unwrap()));
}

// What for certain did not happen leaves nothing: to do it is what a retry would do.
#[tokio::test]
async fn what_failed_leaves_nothing() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(DAY)).await;
    scene.world.replies([Reply::Fail(ErrorKind::Validation)]);
    assert!(matches!(executor.execute(request("pay")).await.unwrap(), Outcome::Failed(_)));
    scene.until(&executor, &key("pay"), |record| record.is_none()).await;
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
}

// HAZARDS: what is declared now counts; and of a tool that is not here nobody knows that its keys may be taken for new.
#[tokio::test]
async fn the_declaration_of_today_counts() {
    let scene = Scene::new();
    let before = scene.open(Retention::forget_after(DAY)).await;
    for tool in ["pay", "ring"] {
        assert!(first(&before.execute(request(tool)).await.unwrap()));
    }
    before.shutdown(Duration::ZERO).await;
    scene.clock.advance(2 * DAY);
    let pay = scene.tool("pay", ContractClass::Lookup, Retention::keep());
    let executor = executor(&scene.dir, &scene.clock).dynamic_tool(pay).sweep(true).open().await.unwrap();
    scene.until_gone(&executor, &key("ring")).await;
    scene.clock.advance(1000 * DAY);
    assert!(!first(&executor.execute(request("pay")).await.unwrap()));
}

// DESIGN 4.10: digests say nothing to whoever lacks the tenant's key.
#[tokio::test]
async fn two_tenants_leave_different_digests() {
    let scene = Scene::new();
    let executor = scene.open(Retention::tombstone_after(DAY)).await;
    let globex = Tenant::new("globex").unwrap();
    assert!(first(&executor.execute(request("pay")).await.unwrap()));
    scene.world.looks([Look::NotFound]);
    let same = ToolRequest { tenant: globex.clone(), ..request("pay") };
    assert!(first(&executor.execute(same.clone()).await.unwrap()));
    scene.until_gone(&executor, &key("pay")).await;
    let ours = record(&executor, &key("pay")).await.unwrap();
    assert_eq!(executor.execute(same).await.unwrap(), Outcome::Expired { was: FinalState::Committed });
    let (theirs, _) = executor.record(&globex, &key("pay")).await.unwrap().unwrap();
    assert_ne!(ours.request_hash, theirs.request_hash);
    assert_ne!(ours.state, theirs.state);
}

// Several workers sweep one database: each record goes once, and no call is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn several_workers_sweep_one_database() {
    let (schema, world) = (Schema::new(), World::new(Keys::Ignores));
    let at_once = RetryPolicy { attempts: 1, attempt_timeout: Duration::from_millis(500), ..brief() };
    let open = || {
        let tool = world.tool("pay", EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
        let tool = tool.retry(at_once).retention(Retention::tombstone_after(Duration::from_secs(1)));
        ExecutorBuilder::postgres_with(url(), schema.options()).dynamic_tool(tool).sweep(true).open()
    };
    let workers = [open().await.unwrap(), open().await.unwrap()];
    let call = |i: usize| ToolRequest::new(acme(), "pay", json!({ "case": i.to_string() }));
    let all = futures_util::future::join_all((0..200).map(|i| workers[i % 2].execute(call(i)))).await;
    assert!(all.iter().all(|outcome| first(outcome.as_ref().unwrap())));
    let key = |i: usize| Key::of("pay").target(i).render().unwrap();
    let gone = async {
        for i in 0..200 {
            while !matches!(record(&workers[0], &key(i)).await.unwrap().state, State::Gone { .. }) {
                tokio::task::yield_now().await;
            }
        }
        Ok::<_, ()>(())
    };
    soon("not all are swept".to_owned(), gone).await;
    for i in 0..200 {
        let late = workers[1 - i % 2].execute(call(i)).await.unwrap();
        assert_eq!(late, Outcome::Expired { was: FinalState::Committed });
    }
    assert_eq!(world.count(), 200);
}

// An operator reads in the log for how long each tool's records are kept, or that they are kept for ever.
#[tokio::test]
async fn the_start_of_the_sweeper_is_logged_with_its_retentions() {
    let (scene, log) = (Scene::new(), Log::default());
    let _here = log.listen();
    let told = || {
        let lines = log.lines().into_iter().filter(|line| line.message.starts_with("retention"));
        lines.map(|line| line.to_string()).collect::<Vec<_>>()
    };
    let executor = scene.open(Retention::tombstone_after(30 * DAY)).await;
    let tools = "bell: for 60 min, then its key is new; pay: whole for 30 d, then digests; \
                 ring: whole for 30 d, then digests";
    assert_eq!(told(), [format!("INFO retention on tools={tools} workflows=")]);
    executor.shutdown(HOUR).await;
    scene.tools(Retention::tombstone_after(30 * DAY)).sweep(false).open().await.unwrap();
    assert_eq!(told()[1..], ["INFO retention off, records and runs are kept for ever"]);
}
