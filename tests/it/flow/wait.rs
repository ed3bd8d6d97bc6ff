//! Waiting: durable sleeps, parked runs, and answers (FLOW-4, DESIGN 4.8).

#![allow(clippy::unchecked_time_subtraction, reason = "of constants, the smaller from the larger")]

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use counterfoil::flow::{Failure, RunState, WorkflowFn};
use counterfoil::store::{QuestionKind, Resolution, StepKind};
use counterfoil::{Ctx, RunId};
use futures_util::future::Either;
use serde_json::json;

use crate::flow;
use crate::flow::store::Tapped;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World, counted};
use crate::world::{TestClock, acme, soon};

const MOMENT: Duration = Duration::from_millis(1);
/// So long a write that nobody waits for stays in the queue.
pub(crate) const LINGER: Duration = TICK.saturating_mul(2);
const TICK: Duration = Duration::from_micros(1500);
/// So long a run that only waits is kept in memory.
const GRACE: Duration = Duration::from_millis(200);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);

pub(crate) fn life(
    world: &Arc<World>,
    hands: &TestClock,
    flow: &(impl WorkflowFn<u32, String> + Clone),
) -> Process {
    Process::start(world, world.engine_on(hands.clone()).workflow("wait", 1, flow.clone()))
}

#[track_caller]
pub(crate) fn begin(process: &Process, flow: &(impl WorkflowFn<u32, String> + Clone), input: u32) -> RunId {
    process.on(process.acme().run(flow.clone(), input).start()).unwrap().id()
}

#[track_caller]
pub(crate) fn result(process: &Process, run: RunId) -> String {
    let handle = process.acme().handle::<String>(run);
    process.on(handle.result()).unwrap()
}

/// What is ready to go on has gone on, as far as it comes without the disk: there is one worker, and it is fair.
pub(crate) async fn settle() {
    let turns = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::spawn(turns).await.unwrap();
}

pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn has_timer(tapped: &Tapped) -> bool {
    let steps = tapped.batches.iter().flatten().flat_map(|change| &change.steps);
    steps.into_iter().any(|step| step.kind == StepKind::Timer)
}

/// Lets the grace period of a run that only waits go by.
pub(crate) async fn park(process: &Process, hands: &TestClock, run: RunId) {
    hands.asleep_for(GRACE).await;
    hands.advance(GRACE);
    process.state(run, "waiting").await;
}

/// A value in the memory of a workflow.
pub(crate) struct Memory(pub(crate) Arc<World>);

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.count("forgotten");
    }
}

// FLOW-4
#[test]
fn a_sleep_that_a_crash_interrupts_is_neither_lost_nor_shortened() {
    for parked in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, input: u32| {
            counted(&world, &ctx, "before", input).await?;
            ctx.sleep(HOUR).await?;
            counted(&world, &ctx, "after", input).await?;
            Ok::<_, Failure>("slept".to_owned())
        });
        let first = life(&world, &hands, &flow);
        let run = begin(&first, &flow, 0);
        first.on(async {
            hands.asleep_for(HOUR).await;
            if parked {
                park(&first, &hands, run).await;
            } else {
                for _ in 0..2 {
                    hands.asleep_for(TICK).await;
                    hands.advance(TICK);
                }
                world.tap.until(has_timer).await;
            }
        });
        first.crash();
        hands.advance(30 * MINUTE);
        let left = HOUR - 30 * MINUTE - if parked { GRACE } else { LINGER };
        let second = life(&world, &hands, &flow);
        second.on(async {
            hands.asleep_for(left).await;
            hands.advance(left - MOMENT);
            settle().await;
            assert_eq!(world.counted("after"), 0, "woken too early (parked: {parked})");
            hands.advance(MOMENT);
        });
        assert_eq!(result(&second, run), "slept");
        assert_eq!((world.counted("before"), world.counted("after")), (1, 1), "parked: {parked}");
    }
}

/// Waits for an hour, in different ways.
async fn hour(ctx: &Ctx, way: u32) -> Result<(), Failure> {
    let (long, short) = (ctx.sleep_named("long", 2 * HOUR), ctx.sleep_named("short", HOUR));
    match way {
        0 => short.await,
        1 => match ctx.select("first", long, short).await? {
            Either::Left(over) | Either::Right(over) => over,
        },
        _ => tokio::try_join!(short, ctx.sleep_named("third", 30 * MINUTE)).map(drop),
    }
}

// FLOW-4: no task and no memory.
#[test]
fn a_long_wait_is_a_row_and_nothing_else() {
    const RUNS: u32 = 20;
    for way in 0..3 {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, way: u32| {
            let memory = Memory(world.clone());
            world.count("begun");
            hour(&ctx, way).await?;
            drop(memory);
            Ok::<_, Failure>("waited".to_owned())
        });
        let process = life(&world, &hands, &flow);
        let runs: Vec<_> = (0..RUNS).map(|_| begin(&process, &flow, way)).collect();
        let soonest = if way == 2 { 30 * MINUTE } else { HOUR };
        process.on(async {
            world.counts("begun", RUNS).await;
            settle().await;
            assert!(tasks() >= RUNS as usize, "way {way}: runs that may go on soon have a task each");
            assert_eq!(world.counted("forgotten"), 0, "way {way}");
            hands.advance(GRACE);
            for run in &runs {
                process.state(*run, "waiting").await;
            }
            assert_eq!(world.counted("forgotten"), RUNS, "way {way}: their memory is free");
            while tasks() >= RUNS as usize {
                tokio::task::yield_now().await; // they have just said that they end
            }
            hands.asleep_for(soonest - GRACE).await;
            hands.advance(soonest - GRACE - MOMENT);
            settle().await;
            assert!(tasks() < RUNS as usize, "way {way}: woken too early");
            hands.advance(MOMENT);
            if way == 2 {
                world.counts("begun", 2 * RUNS).await;
                settle().await;
                hands.advance(30 * MINUTE);
            }
        });
        for run in runs {
            assert_eq!(result(&process, run), "waited", "way {way}");
        }
        assert_eq!(world.counted("forgotten"), 2 * RUNS, "way {way}");
    }
}

// DESIGN 4.9: an idle engine costs the database next to nothing.
#[test]
fn sleeping_runs_ask_the_store_nothing() {
    const RUNS: u32 = 300; // more than are woken in one batch
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, way: u32| {
        world.count("lies down");
        hour(&ctx, way).await?;
        world.count("gets up");
        Ok::<_, Failure>(String::new())
    });
    let process = life(&world, &hands, &flow);
    let runs: Vec<_> = (0..RUNS).map(|_| begin(&process, &flow, 0)).collect();
    process.on(async {
        world.counts("lies down", RUNS).await;
        settle().await;
        hands.advance(GRACE);
        for run in &runs {
            process.state(*run, "waiting").await;
        }
        settle().await;
        let asked = world.tap.see(|tapped| tapped.asked);
        for _ in 0..59 {
            hands.advance(MINUTE);
            settle().await;
        }
        assert_eq!(world.tap.see(|tapped| tapped.asked), asked, "while {RUNS} runs slept");
        hands.advance(MINUTE);
    });
    for run in runs {
        result(&process, run);
    }
    assert_eq!(world.counted("gets up"), RUNS);
}

/// When the answer to a question comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    WhileInMemory,
    WhileParked,
    AfterARestart,
}

// FLOW-4, APR: a question that nobody answers for days costs a row.
#[test]
fn a_run_that_waits_for_an_answer_is_parked_and_goes_on_with_it() {
    let times = [Answered::WhileInMemory, Answered::WhileParked, Answered::AfterARestart];
    for (when, by_executor) in times.into_iter().flat_map(|when| [(when, false), (when, true)]) {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, input: u32| {
            let memory = Memory(world.clone());
            counted(&world, &ctx, "before", input).await?;
            let number = ctx.call::<Ring>("bell".to_owned()).await?;
            drop(memory);
            Ok::<_, Failure>(format!("rang {number}"))
        });
        world.hold("ring after");
        let first = life(&world, &hands, &flow);
        let run = begin(&first, &flow, 0);
        first.on(world.reached("ring after"));
        first.crash(); // it rang, and nobody knows
        world.release("ring after");
        let mut process = life(&world, &hands, &flow);
        let forgotten = world.counted("forgotten");
        process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
        if when != Answered::WhileInMemory {
            process.on(park(&process, &hands, run));
            assert_eq!(world.counted("forgotten"), forgotten + 1, "{when:?}: its memory is free");
            hands.advance(72 * HOUR);
        }
        if when == Answered::AfterARestart {
            process.crash();
            process = life(&world, &hands, &flow);
        }
        process.on(async {
            let question = process.question(QuestionKind::Ambiguous).await;
            let answer = Resolution::Happened(json!(7));
            if by_executor {
                process.engine().executor().answer(&acme(), question.id, answer, "ann").await.unwrap();
            } else {
                process.acme().answer(question.id, answer, "ann").await.unwrap();
            }
        });
        assert_eq!(result(&process, run), "rang 7", "{when:?}, by its executor: {by_executor}");
        assert_eq!(world.counted("ring called"), 1, "{when:?}: called again");
        assert_eq!(world.counted("before"), 1, "{when:?}");
    }
}

// DESIGN 4.8: outside the context a workflow waits for nothing; one that does so all the same is not parked again and again.
#[test]
fn a_run_that_waits_for_something_else_is_kept_in_memory() {
    for foreign in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, _n: u32| {
            world.count("lives");
            let other = async {
                if foreign {
                    world.pass("elsewhere").await;
                } else {
                    std::future::pending::<()>().await;
                }
                ctx.sleep_named("other", Duration::ZERO).await
            };
            match ctx.select("first", ctx.sleep_named("long", 2 * HOUR), other).await? {
                Either::Left(_) => Ok::<_, Failure>("slept".to_owned()),
                Either::Right(_) => Ok("passed".to_owned()),
            }
        });
        world.hold("elsewhere");
        let process = life(&world, &hands, &flow);
        let run = begin(&process, &flow, 0);
        process.on(async {
            hands.asleep_for(GRACE).await;
            settle().await; // it is at rest
            world.count("something that wakes it");
            settle().await;
            hands.advance(GRACE);
            settle().await;
            if foreign {
                hands.advance(HOUR);
                settle().await;
                let row = process.acme().handle::<String>(run).status().await.unwrap();
                assert_eq!(row.state, RunState::Active, "it was parked");
                world.release("elsewhere");
            } else {
                process.state(run, "waiting").await;
                hands.asleep_for(2 * HOUR - GRACE).await;
                hands.advance(2 * HOUR);
            }
        });
        assert_eq!(result(&process, run), if foreign { "passed" } else { "slept" });
        assert_eq!(world.counted("lives"), if foreign { 1 } else { 2 });
    }
}

/// Work on a thread of its own, which can be slow to wake up whoever waits for the result.
#[derive(Default)]
struct Elsewhere {
    done: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Elsewhere {
    fn work(&self, world: &World, cx: &Context<'_>) -> Poll<u32> {
        if self.done.load(Ordering::Acquire) {
            return Poll::Ready(7);
        }
        *self.waiting.lock().unwrap() = Some(cx.waker().clone());
        world.count("waited for");
        Poll::Pending
    }
}

/// Lets the grace period go by, after which the run must be parked.
async fn parks(process: &Process, hands: &TestClock, run: RunId) {
    settle().await;
    hands.advance(GRACE);
    let parked = async {
        process.state(run, "waiting").await;
        Ok::<_, ()>(())
    };
    soon("it is kept in memory".to_owned(), parked).await;
}

// FLOW-4: under load a thread hands its result over, and wakes the run up only when the run has gone on.
#[test]
fn a_run_that_is_woken_late_for_work_that_is_over_is_parked_all_the_same() {
    let (world, hands, elsewhere) = (World::new(), TestClock::default(), Arc::new(Elsewhere::default()));
    let known = (world.clone(), elsewhere.clone());
    let flow = move |ctx: Ctx, input: u32| {
        let (world, elsewhere) = known.clone();
        async move {
            ctx.step_async("work", &input, || poll_fn(move |cx| elsewhere.work(&world, cx))).await?;
            ctx.sleep(2 * HOUR).await?;
            Ok::<_, Failure>("slept".to_owned())
        }
    };
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        world.counts("waited for", 1).await;
        let waker = elsewhere.waiting.lock().unwrap().take().unwrap();
        elsewhere.done.store(true, Ordering::Release);
        waker.wake_by_ref();
        hands.asleep_for(GRACE).await;
        waker.wake();
        parks(&process, &hands, run).await;
    });
    process.crash();
}

/// A waker as a combinator in the user's code has it: it hands a wake-up on, and on the thread `clock` once more, when the
/// run has come to its next rest.
struct Detour {
    outer: Waker,
    hands: TestClock,
    runtime: tokio::runtime::Handle,
}

impl Wake for Detour {
    fn wake(self: Arc<Self>) {
        self.outer.wake_by_ref();
        if std::thread::current().name() == Some("clock") {
            self.runtime.block_on(self.hands.asleep_for(GRACE));
            self.outer.wake_by_ref();
        }
    }
}

// FLOW-4: two timers that end together wake the run twice, and it may have gone on in between.
#[test]
fn a_run_that_one_of_its_timers_wakes_on_a_detour_is_parked_all_the_same() {
    let (world, hands) = (World::new(), TestClock::default());
    let clock = hands.clone();
    let flow = move |ctx: Ctx, _n: u32| {
        let hands = clock.clone();
        async move {
            let mut short = Box::pin(ctx.sleep_named("short", GRACE / 2));
            poll_fn(|cx| {
                let (outer, runtime) = (cx.waker().clone(), tokio::runtime::Handle::current());
                let detour = Waker::from(Arc::new(Detour { outer, hands: hands.clone(), runtime }));
                short.as_mut().poll(&mut Context::from_waker(&detour))
            })
            .await?;
            ctx.sleep(2 * HOUR).await?;
            Ok::<_, Failure>("slept".to_owned())
        }
    };
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(GRACE / 2).await;
        settle().await; // it is at rest
    });
    let clock = hands.clone();
    let ticks = std::thread::Builder::new().name("clock".to_owned()).spawn(move || clock.advance(GRACE / 2));
    ticks.unwrap().join().unwrap();
    process.on(parks(&process, &hands, run));
    process.crash();
}
