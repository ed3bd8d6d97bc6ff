//! Pipelined durability (DESIGN 4.5): how few commits a run costs, what never waits for the disk, what always
//! does, and what a write that fails holds up.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::RunId;
use counterfoil::flow::{Failure, RunError, WorkflowFn};
use counterfoil::ledger::State;
use counterfoil::store::{Change, RunState, Store, StoreError, StoreFuture, Verdict};

use crate::flow;
use crate::flow::tools::post;
use crate::flow::wait::{HOUR, park};
use crate::flow::world::{Process, World, counted};
use crate::world::TestClock;

/// The engine's pauses between tries of a write.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];
/// After a write failed for good, the run is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);

/// On a clock that stands still nothing goes out by itself: what is written is what somebody waits for.
fn life(world: &Arc<World>, hands: &TestClock, flow: &(impl WorkflowFn<u32, u32> + Clone)) -> Process {
    Process::start(world, world.engine_on(hands.clone()).workflow("pipeline", 1, flow.clone()))
}

fn run(process: &Process, flow: &(impl WorkflowFn<u32, u32> + Clone), input: u32) -> Result<u32, RunError> {
    process.on(async { process.acme().run(flow.clone(), input).await })
}

fn begin(process: &Process, flow: &(impl WorkflowFn<u32, u32> + Clone), input: u32) -> RunId {
    process.on(process.acme().run(flow.clone(), input).start()).unwrap().id()
}

fn result(process: &Process, run: RunId) -> u32 {
    let handle = process.acme().handle::<u32>(run);
    process.on(handle.result()).unwrap()
}

/// What is ready to go on has gone on: there is one worker, and it is fair.
async fn settle() {
    let turns = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::spawn(turns).await.unwrap();
}

fn writes(change: &Change) -> bool {
    change.run.is_some()
        || !change.steps.is_empty()
        || change.record.is_some()
        || !change.escalations.is_empty()
}

fn starts_call(change: &Change) -> bool {
    change.record.as_ref().is_some_and(|record| record.state == State::Started)
}

fn seals_call(change: &Change) -> bool {
    change.record.as_ref().is_some_and(|record| matches!(record.state, State::Committed { .. }))
}

fn ends_run(change: &Change) -> bool {
    change.run.as_ref().is_some_and(|run| matches!(run.state, RunState::Succeeded { .. }))
}

fn records_step(change: &Change) -> bool {
    !change.steps.is_empty()
}

/// How often each of these happens in each transaction since the first `skip` that wrote anything.
fn commits(world: &World, skip: usize) -> Vec<[usize; 4]> {
    let count = |batch: &[Change], picks: fn(&Change) -> bool| batch.iter().filter(|c| picks(c)).count();
    world.tap.see(|tapped| {
        let batches = tapped.batches[skip..].iter().filter(|batch| batch.iter().any(writes));
        batches
            .map(|b| [seals_call, records_step, starts_call, ends_run].map(|picks| count(b, picks)))
            .collect()
    })
}

// DESIGN 4.5: n+1 waits for the disk, not 2n.
#[test]
fn sequential_calls_cost_one_commit_each_and_one_more() {
    const CALLS: u32 = 10;
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, calls: u32| {
        for n in 0..calls {
            post(&ctx, &format!("letter {n}")).await?;
        }
        Ok::<_, Failure>(calls)
    });
    let process = life(&world, &hands, &flow);
    let before = world.tap.see(|tapped| tapped.batches.len());
    assert_eq!(run(&process, &flow, CALLS).unwrap(), CALLS);
    let mut wanted = vec![[0, 0, 1, 0]];
    wanted.extend((1..CALLS).map(|_| [1, 0, 1, 0])); // the seal of one and the start of the next, together
    wanted.push([1, 0, 0, 1]);
    assert_eq!(commits(&world, before), wanted, "seals, steps, starts and ends per transaction");
    assert_eq!(world.effects("post").len(), CALLS as usize);
}

#[test]
fn steps_without_the_world_ride_along() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, steps: u32| {
        for n in 0..steps {
            counted(&world, &ctx, "step", n).await?;
        }
        post(&ctx, "one").await
    });
    let process = life(&world, &hands, &flow);
    let before = world.tap.see(|tapped| tapped.batches.len());
    run(&process, &flow, 100).unwrap();
    assert_eq!(commits(&world, before), [[0, 100, 1, 0], [1, 0, 0, 1]]);
}

#[test]
fn a_step_that_may_do_anything_waits_for_the_disk() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, input: u32| {
        let input = counted(&world, &ctx, "before", input).await?;
        let work = async { world.count("polled") + input };
        ctx.step_async("anything", &input, || work).await
    });
    let process = life(&world, &hands, &flow);
    world.tap.hold(records_step);
    let run = begin(&process, &flow, 0);
    process.on(async {
        world.tap.until(|tapped| tapped.held > 0).await;
        settle().await;
        assert_eq!((world.counted("before"), world.counted("polled")), (1, 0));
        world.tap.release();
    });
    assert_eq!(result(&process, run), 2);
    assert_eq!(world.counted("polled"), 1);
}

// Invariant 1.
#[test]
fn a_call_waits_for_its_intent() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| post(&ctx, "one").await);
    let process = life(&world, &hands, &flow);
    world.tap.hold(starts_call);
    let run = begin(&process, &flow, 0);
    process.on(async {
        world.tap.until(|tapped| tapped.held > 0).await;
        settle().await;
        assert_eq!(world.counted("post called"), 0);
        world.tap.release();
    });
    assert_eq!(result(&process, run), 1);
}

// Invariant 2.
#[test]
fn a_result_is_not_delivered_before_it_is_durable() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| post(&ctx, "one").await);
    let first = life(&world, &hands, &flow);
    world.tap.hold(ends_run);
    world.hold("post after");
    let run = begin(&first, &flow, 0);
    first.on(async {
        world.reached("post after").await;
        let handle = first.acme().handle::<u32>(run);
        let seen = world.clone();
        tokio::spawn(async move {
            handle.result().await.unwrap();
            seen.count("delivered");
        });
        settle().await; // so that somebody waits for it
        world.release("post after");
        world.tap.until(|tapped| tapped.held > 0).await;
        settle().await;
    });
    first.crash();
    assert_eq!(world.counted("delivered"), 0, "of a run whose end was lost");
    world.tap.release();
    let second = life(&world, &hands, &flow);
    assert_eq!(result(&second, run), 1);
    assert_eq!(world.effects("post"), ["one"]);
}

#[test]
fn a_refused_write_stops_the_run_where_it_is_durable() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, input: u32| {
        counted(&world, &ctx, "before", input).await?;
        let posted = post(&ctx, "one").await?;
        counted(&world, &ctx, "after", posted).await
    });
    let process = life(&world, &hands, &flow);
    world.tap.refuse(starts_call);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(RETRY).await;
        settle().await;
        assert_eq!(world.counted("post called"), 0, "without its intent");
        assert_eq!(world.counted("after"), 0);
        hands.advance(RETRY);
    });
    assert_eq!(result(&process, run), 2);
    assert_eq!((world.counted("before"), world.counted("post called")), (1, 1), "what was durable stands");
}

/// Lets the store's writer use up its tries.
async fn give_up(hands: &TestClock) {
    for pause in PAUSES {
        hands.asleep_for(pause).await;
        hands.advance(pause);
    }
}

// The seal of the first call is lost with the intent of the second: the first is looked up, not repeated.
#[test]
fn a_run_goes_on_when_the_disk_has_room_again() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, input: u32| {
        post(&ctx, "one").await?;
        counted(&world, &ctx, "between", input).await?;
        post(&ctx, "two").await
    });
    let process = life(&world, &hands, &flow);
    world.hold("post after one");
    let run = begin(&process, &flow, 0);
    process.on(async {
        world.reached("post after one").await;
        world.tap.fail(Some(StoreError::Full { detail: "no room".into() }));
        world.release("post after one");
        give_up(&hands).await;
        hands.asleep_for(RETRY).await;
        settle().await;
        assert_eq!(world.effects("post"), ["one"], "the second one has no durable intent");
        world.tap.fail(None);
        hands.advance(RETRY);
    });
    assert_eq!(result(&process, run), 2);
    assert_eq!(world.effects("post"), ["one", "two"]);
    assert_eq!(world.counted("post called"), 2);
}

fn claims_run(change: &Change) -> bool {
    change.run.as_ref().is_some_and(|run| run.state == RunState::Active)
}

// The run is active and this worker's, and no worker looks for such a run: this one looks until it can read.
#[test]
fn a_run_whose_claim_was_written_without_an_answer_goes_on_when_the_store_can_be_read() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        ctx.sleep(HOUR).await?;
        post(&ctx, "one").await
    });
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(HOUR).await;
        park(&process, &hands, run).await;
        world.tap.lose(claims_run);
        hands.advance(HOUR);
        give_up(&hands).await;
        hands.asleep_for(RETRY).await;
        world.tap.fail(None);
        world.tap.unread(1);
        hands.advance(RETRY);
        hands.asleep_for(2 * RETRY).await;
        hands.advance(2 * RETRY);
    });
    assert_eq!(result(&process, run), 1);
    assert_eq!(world.effects("post"), ["one"]);
}

/// Awaits a run while the store takes no writes of it.
fn cannot_begin(
    process: &Process,
    hands: &TestClock,
    flow: &(impl WorkflowFn<u32, u32> + Clone),
) -> RunError {
    let meanwhile = async {
        give_up(hands).await;
        hands.asleep_for(RETRY).await;
        hands.advance(RETRY);
        std::future::pending::<()>().await;
    };
    process.on(async {
        tokio::select! {
            error = process.acme().run(flow.clone(), 0_u32) => error.unwrap_err(),
            () = meanwhile => unreachable!(),
        }
    })
}

#[test]
fn a_run_that_could_not_be_begun_is_an_error_and_nothing_happened() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| post(&ctx, "one").await);
    let process = life(&world, &hands, &flow);
    world.tap.fail(Some(StoreError::Full { detail: "no room".into() }));
    let error = cannot_begin(&process, &hands, &flow);
    assert!(matches!(error, RunError::Store(StoreError::Full { .. })), "{error}");
    assert_eq!(world.counted("post called"), 0);
}

/// A store that cannot take new runs: every transaction with one fails.
#[derive(Debug)]
struct NoNewRuns(Arc<dyn Store>);

impl Store for NoNewRuns {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        let spoils = |change: &Change| change.run.as_ref().is_some_and(|run| run.revision == 1);
        if changes.iter().any(spoils) {
            return Box::pin(async { Err(StoreError::Io { detail: "a bad page".into() }) });
        }
        self.0.commit(changes)
    }
    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// A batch that fails is cut in two. What the run queued behind its own row must not go out without it.
#[test]
fn no_effect_goes_out_for_a_run_that_is_not_there() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| post(&ctx, "one").await);
    let engine = world.engine_on(hands.clone()).wrap_store(|store| Arc::new(NoNewRuns(store)));
    let process = Process::start(&world, engine.workflow("pipeline", 1, flow.clone()));
    let error = cannot_begin(&process, &hands, &flow);
    assert!(matches!(error, RunError::Store(StoreError::Io { .. })), "{error}");
    assert_eq!(world.counted("post called"), 0, "an effect of a run that is not there");
}
