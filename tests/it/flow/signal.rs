//! Signals (FLOW-4): what is said to a run is received once and in order, whether or not anybody waits for it, and
//! whoever dies in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil::flow::{Failure, FailureCode, RunError, RunState, Sent, WorkflowFn};
use counterfoil::store::conformance::sample::{Sample, inline};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Change, Run, Signal, Store, StoreFuture, Verdict};
use counterfoil::{Ctx, RunId, Tenant};
use futures_util::future::{Either, join};

use crate::flow;
use crate::flow::wait::{HOUR, begin, life, park, result, settle, tasks};
use crate::flow::world::{Process, World};
use crate::world::{TestClock, acme};

/// Receives so many, and tells what they said.
async fn listen(ctx: &Ctx, times: u32) -> Result<String, Failure> {
    let mut heard = Vec::new();
    for _ in 0..times {
        heard.push(ctx.signal::<String>("say").await?);
    }
    Ok(heard.join(" "))
}

fn listener(world: &Arc<World>) -> impl WorkflowFn<u32, String> + Clone + use<> {
    flow!(world, |ctx, times: u32| {
        world.count("begun");
        listen(&ctx, times).await
    })
}

async fn say(process: &Process, run: RunId, what: &str) -> Sent {
    process.acme().handle::<String>(run).signal("say", what.to_owned()).id(what).await.unwrap()
}

/// Where a signal finds its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    InMemory,
    Parked,
    AfterARestart,
    Nowhere,
}

/// Writes a signal, and dies before its run is told.
fn untold(world: &World, run: RunId) {
    written(world, run, "say", "one".into());
}

/// Writes a signal from outside, and nothing else.
fn written(world: &World, run: RunId, name: &str, body: serde_json::Value) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Sqlite::open(&world.path()).await.unwrap();
        let sample = Sample::enrol(&store, "dies").await;
        let run = Run { id: run, ..sample.run("any") };
        let signal = Signal { body: inline(body), tenant: acme(), ..sample.signal(&run, name, "one") };
        let change = Change { signal: Some(Box::new(signal)), ..sample.change() };
        assert_eq!(store.commit(&[change]).await.unwrap(), [Verdict::Admitted]);
        store.close().await;
    });
}

#[test]
fn a_signal_is_received_wherever_it_finds_its_run() {
    for found in [Found::InMemory, Found::Parked, Found::AfterARestart, Found::Nowhere] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = listener(&world);
        let mut process = life(&world, &hands, &flow);
        let run = begin(&process, &flow, 2);
        process.on(world.counts("begun", 1));
        if found != Found::InMemory {
            process.on(park(&process, &hands, run));
        }
        if found == Found::AfterARestart {
            process.crash();
            process = life(&world, &hands, &flow);
            process.on(settle());
            assert_eq!(world.counted("begun"), 1, "who waits for a signal is not woken without one");
        }
        if found == Found::Nowhere {
            process.crash();
            untold(&world, run);
            process = life(&world, &hands, &flow);
        } else {
            assert_eq!(process.on(say(&process, run, "one")), Sent::New, "{found:?}");
        }
        assert_eq!(process.on(say(&process, run, "one")), Sent::Before, "{found:?}: the same again");
        assert_eq!(process.on(say(&process, run, "two")), Sent::New, "{found:?}");
        assert_eq!(result(&process, run), "one two", "{found:?}");
    }
}

// Whoever gave the command died before the run was ended, or the run's process died just when it had blocked the run.
#[test]
fn a_blocked_run_whose_cancellation_nobody_obeyed_is_cancelled_at_the_next_start() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = listener(&world);
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 1);
    process.on(async {
        world.counts("begun", 1).await;
        process.acme().handle::<String>(run).pause("ann", "lunch").await.unwrap();
        process.state(run, "blocked").await;
    });
    process.crash();
    let command = serde_json::json!({ "by": "bob", "reason": "never mind" });
    written(&world, run, "~!cancel", command);
    let process = life(&world, &hands, &flow);
    process.on(process.state(run, "failed"));
    let state = process.on(process.acme().handle::<String>(run).status()).unwrap().state;
    let RunState::Failed { failure } = state else { panic!("{state:?}") };
    assert_eq!(failure.message, "bob cancelled the run: never mind");
}

/// A signal, and with it the run that it wakes.
fn wakes(change: &Change) -> bool {
    change.signal.is_some() && change.run.is_some()
}

// A run that waits is woken by what is said to it, not by a hint that may be lost.
#[test]
fn a_signal_and_the_waking_of_its_run_are_one_transaction() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = listener(&world);
    let process = life(&world, &hands, &flow);
    let idle = process.on(async {
        settle().await;
        tasks()
    });
    let run = begin(&process, &flow, 1);
    process.on(async {
        world.counts("begun", 1).await;
        park(&process, &hands, run).await;
        while tasks() > idle {
            tokio::task::yield_now().await; // its row says that it waits a moment before its task is over
        }
        assert_eq!(say(&process, run, "one").await, Sent::New);
    });
    assert!(world.tap.see(|tapped| tapped.batches.iter().flatten().any(wakes)));
    assert_eq!(result(&process, run), "one");
}

/// Counts the signals that are read as pending.
#[derive(Debug)]
struct Counting(Arc<dyn Store>, Arc<AtomicUsize>);

impl Store for Counting {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.0.commit(changes)
    }

    fn signal_pending<'a>(&'a self, runs: &'a [(Tenant, RunId)]) -> StoreFuture<'a, Vec<Signal>> {
        Box::pin(async move {
            let pending = self.0.signal_pending(runs).await?;
            self.1.fetch_add(pending.len(), Ordering::Relaxed);
            Ok(pending)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// Each send asked for all that was pending, and so did each that was told twice: with 10,000 it did not end.
#[test]
fn sending_costs_the_same_however_many_signals_are_pending() {
    const SIGNALS: u32 = 200;
    let (world, read) = (World::new(), Arc::new(AtomicUsize::new(0)));
    let counting = read.clone();
    let flow = flow!(world, |ctx, times: u32| {
        world.pass("listens").await;
        listen(&ctx, times).await
    });
    world.hold("listens");
    let engine = world.engine().wrap_store(move |store| Arc::new(Counting(store, counting)));
    let process = Process::start(&world, engine.workflow("wait", 1, flow.clone()));
    let run = begin(&process, &flow, SIGNALS);
    process.on(async {
        for i in 0..SIGNALS {
            assert_eq!(say(&process, run, &i.to_string()).await, Sent::New);
            assert_eq!(say(&process, run, &i.to_string()).await, Sent::Before);
        }
        world.release("listens");
    });
    let all: Vec<_> = (0..SIGNALS).map(|i| i.to_string()).collect();
    assert_eq!(result(&process, run), all.join(" "));
    process.shut_down();
    assert_eq!(read.load(Ordering::Relaxed), 0);
}

#[test]
fn of_two_signals_at_once_one_wakes_the_run_and_both_are_received() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = listener(&world);
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 2);
    process.on(async {
        world.counts("begun", 1).await;
        park(&process, &hands, run).await;
        let both = join(say(&process, run, "one"), say(&process, run, "two")).await;
        assert_eq!(both, (Sent::New, Sent::New));
    });
    let said = result(&process, run);
    assert!(["one two", "two one"].contains(&said.as_str()), "{said}");
    assert_eq!(world.counted("begun"), 2, "woken once");
}

// Its time came, or another worker was faster.
#[test]
fn a_signal_is_sent_all_the_same_when_its_run_is_woken_meanwhile() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = listener(&world);
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 1);
    process.on(async {
        world.counts("begun", 1).await;
        park(&process, &hands, run).await;
        world.tap.refuse(wakes);
        assert_eq!(say(&process, run, "one").await, Sent::New);
    });
    assert_eq!(result(&process, run), "one");
}

// Buffered before anyone waits; in the order of their sender.
#[test]
fn signals_that_come_early_are_kept_in_their_order() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, times: u32| {
        world.pass("listens").await;
        listen(&ctx, times).await
    });
    world.hold("listens");
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 12);
    let words: Vec<_> = (0..12).map(|i| format!("w{i}")).collect();
    process.on(async {
        for word in &words {
            say(&process, run, word).await;
        }
    });
    world.release("listens");
    assert_eq!(result(&process, run), words.join(" "));
}

#[test]
fn what_was_received_is_received_again_after_a_crash() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        let first: String = ctx.signal("say").await?;
        world.count("received");
        ctx.sleep(HOUR).await?;
        let second: String = ctx.signal("say").await?;
        Ok::<_, Failure>(format!("{first} {second}"))
    });
    let mut process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        say(&process, run, "one").await;
        say(&process, run, "two").await;
        world.counts("received", 1).await;
        park(&process, &hands, run).await;
    });
    process.crash();
    hands.advance(HOUR);
    process = life(&world, &hands, &flow);
    assert_eq!(result(&process, run), "one two");
    assert_eq!(world.counted("received"), 2, "replayed");
}

// HAZARDS: a branch that lost takes nothing with it.
#[test]
fn a_signal_that_loses_a_select_is_there_for_the_next_who_waits() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        let first = ctx.select("first", ctx.signal::<String>("say"), ctx.sleep(HOUR)).await?;
        assert!(matches!(first, Either::Right(_)), "the hour was over first");
        world.count("late");
        world.pass("late").await;
        ctx.signal::<String>("say").await
    });
    world.hold("late");
    let mut process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(HOUR).await;
        hands.advance(HOUR);
        world.counts("late", 1).await;
        say(&process, run, "one").await;
    });
    process.crash();
    world.release("late");
    process = life(&world, &hands, &flow);
    assert_eq!(result(&process, run), "one");
}

#[test]
fn a_wait_may_have_a_limit() {
    for in_time in [true, false] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, _input: u32| {
            Ok(match ctx.timeout("an hour", HOUR, ctx.signal::<String>("say")).await? {
                Ok(said) => said?,
                Err(elapsed) => elapsed.to_string(),
            })
        });
        let process = life(&world, &hands, &flow);
        let run = begin(&process, &flow, 0);
        process.on(async {
            hands.asleep_for(HOUR).await;
            if in_time {
                say(&process, run, "one").await;
            } else {
                hands.advance(HOUR);
            }
        });
        let expected = if in_time { "one" } else { "the wait was given up after 3600 s" };
        assert_eq!(result(&process, run), expected);
    }
}

#[test]
fn a_run_says_something_to_another_once() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, to: u32| {
        if to == 0 {
            return listen(&ctx, 2).await;
        }
        let to = RunId(ctx.signal::<i64>("who").await?);
        for word in ["one", "two"] {
            ctx.send(to, "say", word).await?;
            world.pass(word).await;
        }
        Ok::<_, Failure>("said".to_owned())
    });
    world.hold("one");
    let mut process = life(&world, &hands, &flow);
    let (hearer, speaker) = (begin(&process, &flow, 0), begin(&process, &flow, 1));
    process.on(async {
        process.acme().handle::<String>(speaker).signal("who", hearer.0).await.unwrap();
        world.reached("one").await;
    });
    process.crash();
    world.release("one");
    process = life(&world, &hands, &flow);
    assert_eq!(result(&process, speaker), "said");
    assert_eq!(result(&process, hearer), "one two");
}

// Bad input gets a clear error and nothing is lost.
#[test]
fn what_cannot_be_a_signal_is_refused() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, times: u32| {
        let nobody = ctx.send(RunId(4711), "say", "hello").await.unwrap_err();
        assert_eq!(nobody.code, FailureCode::Invalid, "{nobody}");
        listen(&ctx, times).await
    });
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 1);
    process.on(async {
        let handle = process.acme().handle::<String>(run);
        for name in ["~child", "", "two\nlines", &"x".repeat(5000)] {
            let error = handle.signal(name, 1).await.unwrap_err();
            assert!(matches!(error, RunError::Id(_)), "{name:?}: {error}");
        }
        let stranger = process.engine().tenant("globex").unwrap().handle::<String>(run);
        let error = stranger.signal("say", "one".to_owned()).await.unwrap_err();
        assert!(matches!(error, RunError::Unknown { .. }), "another tenant's run: {error}");
        say(&process, run, "one").await;
        let error = handle.signal("say", "two".to_owned()).id("one").await.unwrap_err();
        assert!(matches!(error, RunError::SignalConflict { .. }), "{error}");
        assert_eq!(handle.result().await.unwrap(), "one");
        let error = handle.signal("say", "late".to_owned()).await.unwrap_err();
        assert!(matches!(error, RunError::Over { .. }), "{error}");
        assert_eq!(say(&process, run, "one").await, Sent::Before, "it was received");
    });
}

// Whether the first one was told to its run is looked at a moment later: an end does not wait for that moment.
#[test]
fn who_was_sent_a_signal_twice_ends_at_once() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = listener(&world);
    let process = life(&world, &hands, &flow);
    let run = begin(&process, &flow, 2);
    process.on(async {
        assert_eq!(say(&process, run, "one").await, Sent::New);
        assert_eq!(say(&process, run, "one").await, Sent::Before);
        process.engine().clone().shutdown(HOUR).await; // by a clock that stands still
    });
}
