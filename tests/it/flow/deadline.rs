//! The deadline of a run (FLOW-5): at that instant it is cancelled, whatever it does or waits for, and by whichever process is there.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, Failure, FailureCode, RunError, Workflow, WorkflowFn};
use counterfoil::store::{QuestionKind, Queue};
use counterfoil::{Ctx, Engine, RunId};

use crate::flow;
use crate::flow::store::Tapped;
use crate::flow::tools::{Post, Ring};
use crate::flow::wait::{HOUR, MINUTE, begin, life, park, settle};
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;
use crate::world::TestClock;

const GRACE: Duration = Duration::from_secs(30);
const PASSED: &str = "the engine cancelled the run: its deadline, 3600s after its start, has passed";

fn failure(process: &Process, run: RunId) -> Failure {
    match process.on(process.acme().handle::<String>(run).result()) {
        Err(RunError::Failed { failure, .. }) => failure,
        other => panic!("not failed: {other:?}"),
    }
}

fn cancelled(process: &Process, run: RunId, why: &str) {
    process.on(process.until(async |acme| {
        acme.handle::<()>(run).status().await.unwrap().state.is_final() // and not blocked, which is an end to whoever waits
    }));
    let failure = failure(process, run);
    assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Cancelled, why));
}

/// A run that may take an hour.
fn begin_within_an_hour(
    process: &Process,
    flow: &(impl WorkflowFn<u32, String> + Clone),
    input: u32,
) -> RunId {
    process.on(process.acme().run(flow.clone(), input).deadline(HOUR).start()).unwrap().id()
}

/// What a run is about when its deadline comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Timer,
    ParkedTimer,
    Signal,
    Question,
    Pause,
    Panic,
}

async fn busy(ctx: Ctx, at: At) -> Result<String, Failure> {
    match at {
        At::Timer | At::ParkedTimer | At::Pause => ctx.sleep(24 * HOUR).await?,
        At::Signal => ctx.signal::<()>("never").await?,
        At::Question => _ = ctx.call::<Ring>("bell".to_owned()).await?,
        At::Panic => panic!("as told"),
    }
    ctx.call::<Post>("late".to_owned()).await?;
    Ok("over".to_owned())
}

/// Brings a run to where its deadline is to find it, and says in which process that is.
fn brought(
    world: &Arc<World>,
    hands: &TestClock,
    flow: &(impl WorkflowFn<u32, String> + Clone),
    at: At,
) -> (Process, RunId) {
    if at == At::Question {
        world.hold("ring after");
    }
    let mut process = life(world, hands, flow);
    let run = begin_within_an_hour(&process, flow, 0);
    if at == At::Question {
        process.on(world.reached("ring after"));
        process.crash(); // it rang, and nobody knows
        world.release("ring after");
        process = life(world, hands, flow);
    }
    process.on(async {
        match at {
            At::Timer => hands.asleep_for(24 * HOUR).await,
            At::ParkedTimer | At::Signal => park(&process, hands, run).await,
            At::Question => {
                process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
                park(&process, hands, run).await;
            }
            At::Pause => {
                hands.asleep_for(24 * HOUR).await;
                process.acme().handle::<()>(run).pause("ann", "lunch").await.unwrap();
                process.state(run, "blocked").await;
            }
            At::Panic => process.state(run, "blocked").await,
        }
    });
    (process, run)
}

#[test]
fn a_run_is_cancelled_at_its_deadline_whatever_it_waits_for() {
    for at in [At::Timer, At::ParkedTimer, At::Signal, At::Question, At::Pause, At::Panic] {
        for restart in [false, true] {
            let (world, hands) = (World::new(), TestClock::default());
            let flow = flow!(world, |ctx, _input: u32| busy(ctx, at).await);
            let (mut process, run) = brought(&world, &hands, &flow, at);
            process.on(async {
                hands.advance(HOUR / 2);
                settle().await;
                let status = process.acme().handle::<()>(run).status().await.unwrap();
                assert!(!status.state.is_final(), "{at:?}: too early");
            });
            if restart {
                process.crash();
                hands.advance(30 * HOUR); // what it slept for is over as well
                process = life(&world, &hands, &flow);
            } else {
                hands.advance(HOUR / 2);
            }
            cancelled(&process, run, PASSED);
            assert!(world.effects("post").is_empty(), "{at:?}, restart: {restart}: it went on");
        }
    }
}

#[test]
fn a_queued_run_is_cancelled_at_its_deadline() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| busy(ctx, At::Timer).await);
    let engine = || {
        let engine = world.engine_on(hands.clone()).workflow("wait", 1, flow.clone());
        engine.queue(Queue::new("narrow").concurrency(1))
    };
    for restart in [false, true] {
        let mut process = Process::start(&world, engine());
        let queued = || process.acme().run(flow.clone(), 0).queue("narrow");
        process.on(queued().start()).unwrap();
        let run = process.on(queued().deadline(HOUR).start()).unwrap().id();
        process.on(process.state(run, "queued"));
        if restart {
            process.crash();
            process = Process::start(&world, engine());
        }
        hands.advance(HOUR);
        cancelled(&process, run, PASSED);
        process.crash();
    }
}

fn is_told(tapped: &Tapped) -> bool {
    tapped.batches.iter().flatten().any(|change| change.signal.is_some())
}

// Invariant 7: what the call did is known before the run has ended, and nobody else's.
#[test]
fn a_call_under_way_is_followed_to_its_end_first() {
    let (world, hands) = (World::new(), TestClock::breathing());
    let flow = flow!(world, |ctx, _input: u32| {
        let number = ctx.call::<Post>("letter".to_owned()).await?;
        world.count("went on");
        Ok::<_, Failure>(number.to_string())
    });
    world.hold("post before");
    let process = life(&world, &hands, &flow);
    // An attempt of the tool may take an hour: it is not cut off meanwhile.
    let run = process.on(process.acme().run(flow.clone(), 0).deadline(HOUR / 2).start()).unwrap().id();
    process.on(async {
        world.reached("post before").await;
        hands.advance(HOUR / 2);
        world.tap.until(is_told).await;
        hands.advance(GRACE);
        settle().await;
        let status = process.acme().handle::<()>(run).status().await.unwrap();
        assert!(!status.state.is_final(), "it ended before its call");
        world.release("post before");
    });
    cancelled(&process, run, &PASSED.replace("3600s", "1800s"));
    assert_eq!((world.effects("post").len(), world.counted("went on")), (1, 0));
    let asked = process.on(process.question(QuestionKind::Orphaned));
    assert_eq!(asked.run, Some(run));
}

#[test]
fn a_run_that_listens_is_told_and_may_tidy_up() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        let told = ctx.cancelled().await?;
        ctx.call::<Post>("tidied up".to_owned()).await?;
        Ok::<_, Failure>(format!("{}: {}", told.by, told.reason))
    });
    let process = life(&world, &hands, &flow);
    let run = begin_within_an_hour(&process, &flow, 0);
    process.on(park(&process, &hands, run));
    hands.advance(HOUR);
    let told = process.on(process.acme().handle::<String>(run).result()).unwrap();
    assert_eq!(told, "the engine: its deadline, 3600s after its start, has passed");
    assert_eq!(world.effects("post").len(), 1, "what it calls then goes out");
}

// EXE-11: the instant is looked at directly before the send. The run has not heard of its cancellation by then.
#[test]
fn what_was_about_to_be_sent_at_the_deadline_is_not_sent() {
    for restart in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, _input: u32| {
            let sent = ctx.call::<Post>("letter".to_owned()).await;
            world.count("went on");
            Ok::<_, Failure>(format!("{sent:?}"))
        });
        let mut process = life(&world, &hands, &flow);
        world.tap.hold(|change| change.record.is_some());
        let run = begin_within_an_hour(&process, &flow, 0);
        process.on(world.tap.until(|tapped| tapped.held > 0));
        if restart {
            process.crash(); // its record is not there, or is `started` and nothing was sent
            world.tap.release();
            hands.advance(HOUR);
            process = life(&world, &hands, &flow);
        } else {
            hands.advance(HOUR);
            world.tap.release();
        }
        cancelled(&process, run, PASSED);
        assert_eq!((world.effects("post").len(), world.counted("went on")), (0, 0), "restart: {restart}");
    }
}

/// Two workflows, of which the parent's runs may take half an hour and the child's a whole one.
fn family(
    world: &Arc<World>,
    hands: &TestClock,
    own: bool,
) -> (Process, impl WorkflowFn<u32, String> + Clone) {
    let child = flow!(world, |ctx, _input: u32| busy(ctx, At::Timer).await);
    let inner = child.clone();
    let parent = move |ctx: Ctx, _input: u32| {
        let child = inner.clone();
        async move { ctx.child(child, 0).await }
    };
    let parents = Workflow::new("parent", parent.clone());
    let parents = if own { parents } else { parents.deadline(HOUR / 2) };
    let engine = world.engine_on(hands.clone()).register(parents);
    (Process::start(world, engine.register(Workflow::new("child", child).deadline(HOUR))), parent)
}

#[test]
fn a_child_ends_with_its_parent_or_at_its_own_deadline() {
    for own in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let (process, parent) = family(&world, &hands, own);
        let run = begin(&process, &parent, 0);
        let child = process.on(async {
            hands.asleep_for(24 * HOUR).await;
            let runs = process.acme().runs(None).await.unwrap();
            runs.iter().find(|child| child.parent == Some(run)).unwrap().id
        });
        hands.advance(if own { HOUR } else { HOUR / 2 });
        if own {
            assert_eq!(failure(&process, run).code, FailureCode::ChildFailed);
            cancelled(&process, child, PASSED);
        } else {
            for run in [run, child] {
                cancelled(&process, run, &PASSED.replace("3600s", "1800s"));
            }
        }
    }
}

#[test]
fn a_start_says_more_than_its_workflow_and_the_run_knows() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        let deadline = ctx.deadline();
        ctx.sleep(MINUTE).await?;
        assert_eq!(ctx.deadline(), deadline);
        Ok::<_, Failure>(format!("{deadline:?}"))
    });
    let engine = world.engine_on(hands.clone()).register(Workflow::new("wait", flow.clone()).deadline(HOUR));
    let process = Process::start(&world, engine);
    let start = counterfoil::Clock::now(&hands);
    let run = || process.acme().run(flow.clone(), 0);
    let runs = [
        (run(), Some(start.after(HOUR))),
        (run().deadline(2 * HOUR), Some(start.after(2 * HOUR))),
        (run().deadline_at(start.after(3 * HOUR)), Some(start.after(3 * HOUR))),
        (run().deadline(Duration::MAX), None),
    ];
    let begun: Vec<_> =
        runs.into_iter().map(|(run, deadline)| (process.on(run.start()).unwrap(), deadline)).collect();
    process.on(async {
        hands.asleep(begun.len(), MINUTE..=MINUTE).await;
        hands.advance(MINUTE);
    });
    for (run, deadline) in &begun {
        assert_eq!(process.on(run.result()).unwrap(), format!("{deadline:?}"), "it ended in time");
    }
    drop(begun);
}

#[test]
fn a_deadline_counts_once_and_for_a_fork_anew() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        ctx.sleep(2 * HOUR).await?;
        Ok::<_, Failure>("slept".to_owned())
    });
    let process = life(&world, &hands, &flow);
    let run = begin_within_an_hour(&process, &flow, 0);
    process.on(park(&process, &hands, run));
    hands.advance(HOUR);
    cancelled(&process, run, PASSED);
    let handle = process.acme().handle::<String>(run);
    let fork = process.on(handle.fork("ann", "once more").into_future()).unwrap().id();
    process.on(handle.retry("ann", "let it take its time").into_future()).unwrap();
    process.on(async {
        let grace = Duration::from_millis(200);
        hands.asleep(2, grace..=grace).await;
        hands.advance(grace);
        process.state(fork, "waiting").await;
        process.state(run, "waiting").await;
        hands.advance(HOUR);
    });
    cancelled(&process, fork, PASSED);
    assert_eq!(process.on(handle.result()).unwrap(), "slept");
}

// DESIGN 4.9: an idle engine costs the database next to nothing.
#[test]
fn runs_with_deadlines_ask_the_store_nothing() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| busy(ctx, At::Signal).await);
    let process = life(&world, &hands, &flow);
    let runs: Vec<_> = (0..20).map(|_| begin_within_an_hour(&process, &flow, 0)).collect();
    process.on(async {
        hands.asleep(runs.len(), Duration::from_millis(200)..=Duration::from_millis(200)).await;
        hands.advance(Duration::from_millis(200));
        for run in &runs {
            process.state(*run, "waiting").await;
        }
        settle().await;
        let asked = world.tap.see(|tapped| tapped.asked);
        for _ in 0..50 {
            hands.advance(MINUTE);
            settle().await;
        }
        assert_eq!(world.tap.see(|tapped| tapped.asked), asked);
        hands.advance(HOUR);
    });
    for run in runs {
        cancelled(&process, run, PASSED);
    }
}

/// A worker of a shared store that knows this code.
fn worker(world: &Arc<World>, schema: &Schema, flow: &(impl WorkflowFn<u32, String> + Clone)) -> Process {
    let engine: EngineBuilder = Engine::postgres_with(crate::server::url(), schema.options());
    let engine = world.equip(engine, &world.tap).lease(Duration::from_secs(2));
    Process::start(world, engine.workflow("wait", 1, flow.clone()).queue(Queue::new("narrow").concurrency(1)))
}

#[test]
fn workers_of_a_shared_store_see_to_deadlines() {
    const SHORT: Duration = Duration::from_millis(300);
    let (world, schema) = (World::new(), Schema::new());
    let flow = flow!(world, |ctx, paused: u32| {
        let _posted = ctx.call::<Post>(format!("letter {paused}")).await?;
        busy(ctx, At::Signal).await
    });
    let one = worker(&world, &schema, &flow);
    let start = |input: u32| one.acme().run(flow.clone(), input).deadline(SHORT);
    let waiting = one.on(start(0).start()).unwrap().id();
    let first = one.on(start(1).queue("narrow").start()).unwrap().id();
    let queued = one.on(start(2).queue("narrow").start()).unwrap().id();
    let blocked = one.on(async {
        let run = start(3).deadline(Duration::from_secs(3)).start().await.unwrap();
        run.pause("ann", "lunch").await.unwrap();
        one.state(run.id(), "blocked").await;
        run.id()
    });
    for run in [waiting, first, queued] {
        cancelled(&one, run, "the engine cancelled the run: its deadline, 300ms after its start, has passed");
    }
    one.crash();
    let other = worker(&world, &schema, &flow);
    cancelled(&other, blocked, "the engine cancelled the run: its deadline, 3s after its start, has passed");
    other.shut_down();
}
