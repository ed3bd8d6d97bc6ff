//! Several workers on one store (DESIGN 4.7; HAZARDS B01, B03, B05, B06): each on a runtime of its own, on a clock that
//! the test turns. The store's clock is the same one, and only it says when a lease ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::exec::{ExecError, Outcome, Wait};
use counterfoil::flow::{EngineBuilder, RunError, RunState, WorkflowFn};
use counterfoil::id::Entropy;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, State};
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::{
    Model, QuestionKind, Refusal, Resolution, Store as _, Verdict, Worker, WorkerChange,
};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Completed, Completion, Ctx, Engine, Failure, Key, Tenant, ToolRequest};
use futures_util::FutureExt as _;
use serde_json::json;

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::store::Tap;
use crate::flow::tools::{Bill, Pay, Post, Ring};
use crate::flow::world::{Process, World};
use crate::world::TestClock;

const LEASE: Duration = Duration::from_secs(10);
/// Two fifths of a lease, as they are drawn here.
const BEAT: Duration = Duration::from_secs(4);
/// Hints that come within it are one.
const MOMENT: Duration = Duration::from_millis(20);

/// Chance that is the same to what takes it by the hundred, and new to what must be unique.
#[derive(Debug)]
struct Tenths;

static DRAWN: AtomicU64 = AtomicU64::new(0);

impl Entropy for Tenths {
    fn bits(&self) -> u64 {
        DRAWN.fetch_add(100, Ordering::Relaxed)
    }
}

/// A store that workers share, the world they act on, and the one clock.
struct Cluster {
    world: Arc<World>,
    hands: TestClock,
    store: Arc<Model>,
}

impl Cluster {
    fn new() -> Self {
        let hands = TestClock::default();
        Self { world: World::new(), store: Arc::new(Model::shared(Arc::new(hands.clone()))), hands }
    }

    fn worker<W: WorkflowFn<(), u32>>(&self, code: W) -> Process {
        self.tapped(code, &self.world.tap)
    }

    /// A worker that knows no workflow yet.
    fn engine(&self, tap: &Tap) -> EngineBuilder {
        let engine = self.world.equip(Engine::store(self.store.clone()), tap);
        engine.clock(self.hands.clone()).entropy(Tenths).lease(LEASE)
    }

    /// A worker behind a tap of its own.
    fn tapped<W: WorkflowFn<(), u32>>(&self, code: W, tap: &Tap) -> Process {
        Process::start(&self.world, self.engine(tap).workflow(NAME, 1, code))
    }

    async fn workers(&self) -> Vec<Worker> {
        self.store.pulse().await.unwrap().workers
    }

    /// Lets time go by, with one worker alive, until something has happened.
    async fn until<T>(&self, happened: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                self.hands.advance(MOMENT);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            happened = happened => happened,
            () = time => unreachable!("time does not end"),
        }
    }

    /// The same, with so many workers alive.
    async fn until_with<T>(&self, alive: usize, happened: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                self.pass(BEAT, alive).await;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            happened = happened => happened,
            () = time => unreachable!("time does not end"),
        }
    }

    /// Turns the clock, beat by beat, so that whoever lives stays alive.
    async fn pass(&self, by: Duration, alive: usize) {
        let mut left = by;
        while let Some(later) = left.checked_sub(BEAT) {
            left = later;
            self.turn(BEAT, alive).await;
            let until = self.hands.now().after(LEASE);
            while self.workers().await.iter().filter(|worker| worker.lease_until >= Some(until)).count()
                < alive
            {
                // Who has just been given a hint waits for more of them before it beats.
                if self.hands.asleep_for(MOMENT).now_or_never().is_some() {
                    self.hands.advance(MOMENT);
                }
                tokio::task::yield_now().await;
            }
        }
        self.turn(left, alive).await;
    }

    /// When those that live have gone to sleep: between a look at the clock and a sleep no time passes.
    async fn turn(&self, by: Duration, alive: usize) {
        self.hands.asleep(alive, MOMENT..=BEAT).await;
        self.hands.advance(by);
    }
}

fn renews(change: &counterfoil::store::Change) -> bool {
    matches!(change.worker, Some(WorkerChange::Renew { .. }))
}

fn begins(change: &counterfoil::store::Change) -> bool {
    change.record.as_ref().is_some_and(|record| record.revision == 1)
}

// SCALE-2: a dead worker's run goes on elsewhere when its lease has run out, and not before; its effect is found.
#[test]
fn a_dead_worker_is_taken_over_when_its_lease_has_run_out() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Post>("hello".into()).await);
    world.hold("post after");
    let (a, b) = (cluster.worker(code.clone()), cluster.worker(code.clone()));
    let run = a.on(async {
        let run = a.acme().run(code, ()).start().await.unwrap();
        world.reached("post after").await;
        run.id()
    });
    a.crash();
    world.release("post after");
    b.on(async {
        cluster.pass(Duration::from_secs(9), 1).await;
        assert!(cluster.workers().await.iter().all(|worker| worker.ended_at.is_none()), "its lease lasts");
        assert_eq!(world.counted("post looked up"), 0, "nobody takes over what a living worker has");
        assert_eq!(cluster.until(b.acme().handle::<u32>(run).result()).await.unwrap(), 1);
        assert_eq!((world.effects("post").len(), world.counted("post looked up")), (1, 1));
        let settled = b.until(async |_| cluster.workers().await.len() == 1); // nobody looks for it any more
        cluster.until(settled).await;
    });
}

// HAZARDS B01, invariant 6: a worker that cannot renew its lease holds its call back, and sends nothing once it is lost.
#[test]
fn a_worker_without_a_lease_sends_nothing() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Pay>(Bill::new("march", 5)).await);
    let (cut_off, tap) = (Tap::default(), Tap::default());
    let (a, b) = (cluster.tapped(code.clone(), &cut_off), cluster.tapped(code.clone(), &tap));
    cut_off.hold(renews);
    b.on(cluster.pass(Duration::from_secs(9), 1));
    let run = a.on(async {
        let run = a.acme().run(code, ()).start().await.unwrap();
        // Its intent is durable, and it is not sent.
        cut_off.until(|tapped| tapped.batches.iter().flatten().any(begins)).await;
        run.id()
    });
    b.on(async {
        assert_eq!(world.counted("pay called"), 0, "nine tenths of its lease have passed");
        cluster.hands.advance(Duration::from_millis(1_021));
        assert_eq!(b.acme().handle::<u32>(run).result().await.unwrap(), 1);
    });
    cut_off.release();
    a.on(async {
        a.engine().fenced().await;
        let late = a.acme().handle::<u32>(run).result().await;
        assert!(
            matches!(late, Ok(1) | Err(RunError::Closed { .. })),
            "what is recorded, or nothing: {late:?}"
        );
        let refused = a.engine().executor().execute(request("april")).await;
        let fenced = matches!(refused, Err(ExecError::Refused { refusal: Refusal::Fenced, .. }));
        assert!(fenced, "{refused:?}");
    });
    assert_eq!(
        (world.effects("pay").len(), world.counted("pay called")),
        (1, 1),
        "sent by the second worker alone"
    );
}

// A slow store is no death: what was held back goes out as soon as the lease is renewed (HAZARDS B07).
#[test]
fn a_lease_that_is_renewed_late_lets_the_call_go() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Pay>(Bill::new("march", 5)).await);
    let a = cluster.worker(code.clone());
    world.tap.hold(renews);
    a.on(async {
        cluster.hands.advance(Duration::from_millis(9_500));
        let run = a.acme().run(code, ()).start().await.unwrap();
        world.tap.until(|tapped| tapped.batches.iter().flatten().any(begins)).await;
        assert_eq!(world.counted("pay called"), 0);
        world.tap.release();
        // What was asked long ago says nothing of now: the next beat does.
        cluster.hands.advance(BEAT);
        assert_eq!(run.result().await.unwrap(), 1);
    });
}

// HAZARDS B03: what a zombie has computed is refused; the answer to its call is kept as evidence.
#[test]
fn a_zombies_answer_becomes_evidence() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Post>("hello".into()).await);
    let (cut_off, tap) = (Tap::default(), Tap::default());
    world.hold("post after");
    let (a, b) = (cluster.tapped(code.clone(), &cut_off), cluster.tapped(code.clone(), &tap));
    let run = a.on(async {
        let run = a.acme().run(code, ()).start().await.unwrap();
        world.reached("post after").await;
        run.id()
    });
    cut_off.hold(renews);
    b.on(async {
        cluster.pass(Duration::from_millis(10_021), 1).await;
        assert_eq!(b.acme().handle::<u32>(run).result().await.unwrap(), 1);
    });
    world.release("post after");
    a.on(async {
        let record = cluster.store.records().remove(0);
        let mut written = cut_off.watch();
        while cluster.store.record_evidence(&record.tenant, record.id).await.unwrap().is_empty() {
            written.changed().await.unwrap();
        }
        assert_eq!(cluster.store.records(), [record], "it has changed nothing else");
    });
    assert_eq!(world.effects("post").len(), 1);
}

// Who leaves in order leaves its runs to the others, and has not died of them.
#[test]
fn a_graceful_end_hands_over() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| {
        ctx.sleep(Duration::from_secs(3600)).await?;
        ctx.call::<Post>("awake".into()).await
    });
    let (a, b) = (cluster.worker(code.clone()), cluster.worker(code.clone()));
    let run = a.on(async { a.acme().run(code, ()).start().await.unwrap().id() });
    a.shut_down();
    b.on(async {
        let new = cluster.workers().await.iter().map(|worker| worker.fence).max().unwrap();
        let taken = b.until(async |acme| acme.handle::<u32>(run).row().await.unwrap().fence == new);
        cluster.until(taken).await;
        let status = b.acme().handle::<u32>(run).status().await.unwrap();
        assert_eq!(status.recovery_attempts, 0, "nobody died");
        cluster.hands.advance(Duration::from_secs(3600));
        assert_eq!(cluster.until(b.acme().handle::<u32>(run).result()).await.unwrap(), 1);
    });
}

// Two workers with one key: the second one waits for the first one's outcome.
#[test]
fn a_call_in_another_workers_hand_is_waited_for() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = |_: Ctx, (): ()| async { Ok(0) };
    let (a, b) = (cluster.worker(code), cluster.worker(code));
    world.hold("pay before");
    let first = a.engine().executor();
    let first = a.spawn(async move { first.execute(request("march")).await });
    a.on(world.reached("pay before"));
    b.on(async {
        let second = b.engine().executor();
        let at_once = second.execute(request("march").wait(Wait::No)).await.unwrap();
        assert_eq!(at_once, Outcome::InProgress);
        let second = tokio::spawn(async move { second.execute(request("march")).await });
        cluster.hands.asleep_for(Duration::from_millis(500)).await;
        world.release("pay before");
        let first = first.await.unwrap().unwrap();
        cluster.hands.advance(Duration::from_millis(500));
        let second = second.await.unwrap().unwrap();
        let response = |outcome: &Outcome| outcome.answer().unwrap().response.clone();
        assert_eq!(response(&first), response(&second));
        assert!(!second.answer().unwrap().first);
    });
    assert_eq!(world.effects("pay").len(), 1);
}

// An answer that is given at another worker lets the run go on there; whoever waits for it here is told.
#[test]
fn an_answer_given_elsewhere_wakes_the_run() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
    world.hold("ring after");
    let (a, b) = (cluster.worker(code.clone()), cluster.worker(code.clone()));
    let run = a.on(async {
        let run = a.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("ring after").await;
        run.id()
    });
    a.crash(); // nobody can tell whether it rang
    let c = cluster.worker(code);
    b.on(async {
        cluster.pass(Duration::from_millis(10_021), 2).await;
        b.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
        cluster.hands.asleep_for(Duration::from_millis(200)).await;
        cluster.hands.advance(Duration::from_millis(200));
        b.state(run, "waiting").await;
    });
    let (owner, other) = {
        let found = b.on(async { cluster.store.run_find(&Tenant::new("acme").unwrap(), run).await });
        let newest = b.on(cluster.workers()).iter().map(|worker| worker.fence).max().unwrap();
        if found.unwrap().unwrap().fence == newest { (c, b) } else { (b, c) }
    };
    let handle = owner.acme().handle::<u32>(run);
    let waiting = owner.spawn(async move { handle.result().await });
    other.on(async {
        let question = other.question(QuestionKind::Ambiguous).await;
        other.acme().answer(question.id, Resolution::Happened(json!(7)), "ann").await.unwrap();
        let told_here = other.acme().handle::<u32>(run);
        // Whichever of them carries it on, the other is told at its next beat if the hint is lost.
        assert_eq!(cluster.until_with(2, told_here.result()).await.unwrap(), 7);
        assert_eq!(cluster.until_with(2, waiting).await.unwrap().unwrap(), 7);
    });
    assert_eq!(world.effects("ring").len(), 1);
}

// HAZARDS B06: a process that starts again on the same host under the same pid is another worker.
#[test]
fn a_worker_that_starts_again_is_another_one() {
    let cluster = Cluster::new();
    let code = |_: Ctx, (): ()| async { Ok(0) };
    let (a, b) = (cluster.worker(code), cluster.worker(code));
    let workers = a.on(cluster.workers());
    assert_eq!(workers.len(), 2);
    assert!(workers[0].fence < workers[1].fence && workers[0].name != workers[1].name, "{workers:?}");
    drop(b);
}

// A run whose workflow this worker does not know is left to one that does (SCALE-6).
#[test]
fn an_unknown_workflow_is_left_to_others() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Post>("hello".into()).await);
    world.hold("post after");
    let a = cluster.worker(code.clone());
    let run = a.on(async {
        let run = a.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("post after").await;
        run.id()
    });
    a.crash();
    world.release("post after");
    let old = Process::start(&world, cluster.engine(&world.tap));
    old.on(async {
        cluster.pass(Duration::from_millis(10_021), 1).await;
        let ended = async || cluster.workers().await[0].ended_at.is_some();
        old.until(async |_| ended().await).await;
        let left = old.acme().handle::<u32>(run).status().await.unwrap();
        assert_eq!((left.state, left.recovery_attempts), (RunState::Active, 0));
    });
    let new = cluster.worker(code);
    new.on(async { assert_eq!(new.acme().handle::<u32>(run).result().await.unwrap(), 1) });
    assert_eq!(world.effects("post").len(), 1);
}

// Runs that are due and that no worker here knows stay at the head of the list. They hide no run behind them.
#[test]
fn due_runs_of_an_unknown_workflow_hide_no_other_run() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| {
        ctx.sleep(Duration::from_secs(2)).await?;
        ctx.call::<Post>("awake".into()).await
    });
    let a = cluster.worker(code.clone());
    a.on(async {
        let run = a.acme().run(code, ()).start().await.unwrap();
        cluster.hands.asleep_for(Duration::from_millis(200)).await;
        cluster.hands.advance(Duration::from_millis(200));
        a.state(run.id(), "waiting").await;
        let lease = cluster.hands.now().after(Duration::from_secs(9));
        let other = Sample::leased(&*cluster.store, "other", lease.0).await;
        let due = cluster.hands.now().0;
        let runs: Vec<_> = (0..257).map(|_| other.change().run(other.timer(due))).collect();
        let verdicts = cluster.store.commit(&runs).await.unwrap();
        assert!(verdicts.iter().all(Verdict::is_admitted), "{verdicts:?}");
        assert_eq!(cluster.until_with(1, run.result()).await.unwrap(), 1);
    });
    assert_eq!(world.effects("post").len(), 1);
}

// A signal that the run does not wait for wakes it once, and not as often as it waits.
#[test]
fn a_signal_that_nobody_waits_for_does_not_keep_its_run_awake() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let code = flow!(world, |ctx, _input: ()| {
        world.count("life");
        let said: u32 = ctx.signal("b").await?;
        Ok::<u32, Failure>(said)
    });
    let a = cluster.worker(code.clone());
    a.on(async {
        let run = a.acme().run(code, ()).start().await.unwrap();
        cluster.hands.asleep_for(Duration::from_millis(200)).await;
        cluster.hands.advance(Duration::from_millis(200));
        a.state(run.id(), "waiting").await;
        run.signal("a", 1_u32).id("s1").await.unwrap();
        cluster.pass(Duration::from_mins(1), 1).await;
        let lives = world.counted("life");
        assert!(lives <= 3, "it lived {lives} times"); // a heartbeat may begin one more
        run.signal("b", 7_u32).id("s2").await.unwrap();
        assert_eq!(cluster.until_with(1, run.result()).await.unwrap(), 7);
    });
}

fn request(reference: &str) -> ToolRequest {
    let bill = json!({"reference": reference, "cents": 5});
    ToolRequest::new(Tenant::new("acme").unwrap(), "pay", bill)
}

/// A worker with a tool whose provider accepts the call and finishes it by itself.
fn renders(cluster: &Cluster, tap: &Tap) -> Process {
    let contract = Contract::new(ContractClass::Blind);
    let render = DynamicTool::new("render", EffectClass::InternalMutation, contract)
        .key(|_| Some(Key::of("render").target("film")))
        .call(|_, _| async { Err(ToolError::accepted(Some("job-1".into()))) });
    Process::start(&cluster.world, cluster.engine(tap).dynamic_tool(render))
}

async fn send(process: &Process) {
    let call = ToolRequest::new(Tenant::new("acme").unwrap(), "render", json!({}));
    let sent = process.engine().executor().execute(call).await.unwrap();
    assert!(matches!(sent, Outcome::Pending { .. }), "{sent:?}");
}

async fn called_back(process: &Process) -> Completed {
    let (executor, tenant) = (process.engine().executor(), Tenant::new("acme").unwrap());
    executor.complete(&tenant, Completion::done("render", "job-1", json!(7))).await.unwrap()
}

/// The write that records the call as done.
fn settles(change: &counterfoil::store::Change) -> bool {
    change.record.as_ref().is_some_and(|record| matches!(record.state, State::Committed { .. }))
}

/// Resolves when the call is recorded as done.
async fn is_rendered(cluster: &Cluster, process: &Process) {
    let is_done = || matches!(cluster.store.records().remove(0).state, State::Committed { .. });
    process.until(async |_| is_done()).await;
}

// The worker that sent the call lives on. The callback reaches another one, which ends the wait and dies before it has settled
// the call.
#[test]
fn a_call_whose_wait_was_ended_by_a_worker_that_died_is_settled_by_another() {
    let cluster = Cluster::new();
    let tap = Tap::default();
    let (a, b) = (renders(&cluster, &cluster.world.tap), renders(&cluster, &tap));
    a.on(send(&a));
    tap.hold(settles);
    b.on(async {
        assert_eq!(called_back(&b).await, Completed::Taken);
        cluster.until(tap.until(|tapped| tapped.held > 0)).await;
    });
    b.crash();
    a.on(async {
        cluster.pass(Duration::from_millis(10_021), 1).await;
        cluster.until(is_rendered(&cluster, &a)).await;
    });
}

// The write that settles the call is refused. The next delivery of the callback settles it.
#[test]
fn a_callback_that_comes_again_settles_what_was_left() {
    let cluster = Cluster::new();
    let a = renders(&cluster, &cluster.world.tap);
    cluster.world.tap.refuse(settles);
    a.on(async {
        send(&a).await;
        assert_eq!(called_back(&a).await, Completed::Taken);
        cluster.until(cluster.world.tap.until(|tapped| tapped.refused > 0)).await;
        assert_eq!(called_back(&a).await, Completed::Known);
        cluster.until(is_rendered(&cluster, &a)).await;
    });
}

// The question waits for a person or for the tool. The worker that holds the call dies. The next one takes the call over once; after
// that no work of the dead worker is left, and nobody looks at the question again and again.
#[test]
fn a_call_of_an_unknown_tool_is_taken_over_once() {
    let cluster = Cluster::new();
    let world = cluster.world.clone();
    let contract = Contract::new(ContractClass::Blind);
    let paint = DynamicTool::new("paint", EffectClass::InternalMutation, contract)
        .key(|_| Some(Key::of("paint").target("wall")))
        .call(move |_, _| {
            let world = world.clone();
            async move {
                world.pass("paint").await;
                Ok(Done::new(json!(1)))
            }
        });
    let start = |engine| Process::start(&cluster.world, engine);
    let a = start(cluster.engine(&cluster.world.tap).dynamic_tool(paint));
    let b = start(cluster.engine(&cluster.world.tap));
    cluster.world.hold("paint");
    let executor = a.engine().executor();
    let call = ToolRequest::new(Tenant::new("acme").unwrap(), "paint", json!({}));
    drop(a.spawn(async move { executor.execute(call).await }));
    a.on(cluster.world.reached("paint"));
    a.crash();
    b.on(async {
        cluster.pass(Duration::from_millis(10_021), 1).await;
        cluster.until(b.until(async |acme| !acme.questions().await.unwrap().is_empty())).await;
    });
    let c = start(cluster.engine(&cluster.world.tap));
    b.crash();
    c.on(async {
        cluster.pass(Duration::from_millis(10_021), 1).await;
        cluster.until(c.until(async |_| cluster.workers().await.len() == 1)).await;
        c.question(QuestionKind::UnknownTool).await;
    });
}
