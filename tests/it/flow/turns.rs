//! FLOW-4: loops of durable turns, resumed in the last one; runs that go on as new; what is kept of finished turns.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, RunState, WorkflowFn};
use counterfoil::sim::{Offer, Simulation};
use counterfoil::store::{
    Change, History, QuestionKind, Resolution, StepKind, Store, StoreFuture, Turns, Verdict,
};
use counterfoil::{Ctx, Engine, Failure, RunId, Tenant, Turn};
use futures_util::future::{join, try_join};

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, stand};
use crate::flow::tools::{Bill, Pay, post};
use crate::flow::wait::{self, HOUR, MINUTE, begin, park, settle};
use crate::flow::world::{Process, World, counted};
use crate::sim::{Looks, Replays, quick};
use crate::store::postgres::Schema;
use crate::world::TestClock;

/// Counts the rows that resumes read.
#[derive(Debug)]
struct Read(Arc<dyn Store>, Arc<AtomicUsize>);

impl Store for Read {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.0.commit(changes)
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> StoreFuture<'a, History> {
        Box::pin(async move {
            let history = self.0.run_history(tenant, id, turns).await?;
            let rows = history.steps.len() + history.calls.len() + history.uses.len();
            self.1.fetch_add(rows, Ordering::Relaxed);
            Ok(history)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

/// The next life of the run, its result, and how many rows it read to resume.
fn resumed<W: WorkflowFn<(), u32>>(world: &Arc<World>, run: RunId, code: W) -> (u32, usize) {
    let read = Arc::new(AtomicUsize::new(0));
    let counting = read.clone();
    let engine = world.engine().wrap_store(move |store| Arc::new(Read(store, counting)));
    let process = Process::start(world, engine.workflow(NAME, 1, code));
    let result = process.on(process.acme().handle::<u32>(run).result()).unwrap();
    process.shut_down();
    (result, read.load(Ordering::Relaxed))
}

/// The run of this code is blocked, and its question says this.
fn blocks<W: WorkflowFn<(), u32> + Clone>(code: W, world: &Arc<World>, says: &str) {
    let process = life(world, code.clone());
    let blocked = process.on(async { process.acme().run(code, ()).await });
    let Err(RunError::Blocked { message, .. }) = blocked else { panic!("{blocked:?}") };
    assert!(message.contains(says), "{message}");
    process.shut_down();
}

/// Counts up to `turns`, with a step and an effect in each turn, and stands in the last one.
fn counting(world: &Arc<World>, turns: u32) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "before", 0).await?;
        let sum = ctx.turns("count", (1, 0), |(n, sum), ctx: Ctx| {
            let world = world.clone();
            async move {
                let next = counted(&world, &ctx, "work", n).await?;
                let sum = sum + post(&ctx, &format!("turn {n}")).await?;
                if n < turns {
                    return Ok(Turn::Next((next, sum)));
                }
                stand(&ctx, &world).await?;
                Ok(Turn::Done(sum))
            }
        });
        let sum: u32 = sum.await?;
        counted(&world, &ctx, "after", sum).await
    })
}

// FLOW-4: neither executed nor read again, however many there were.
#[test]
fn a_loop_is_resumed_in_its_last_turn() {
    let mut read = Vec::new();
    for turns in [3, 300] {
        let world = World::new();
        let run = died_at(&world, "stand", counting(&world, turns));
        let (result, rows) = resumed(&world, run, counting(&world, turns));
        assert_eq!(result, turns * (turns + 1) / 2 + 1, "each turn's own effect, once");
        let counts = ["before", "work", "post called", "after"].map(|what| world.counted(what));
        assert_eq!(counts, [1, turns, turns, 1]);
        read.push(rows);
    }
    assert_eq!(read[0], read[1], "a resume costs the same");
    assert!(read[0] <= 5, "the step before, the turn's state, its step and its call: {read:?}");
}

// A finished loop is one row of the resume, whatever it did.
#[test]
fn a_finished_loop_is_skipped_as_a_whole() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let mut sum = 0;
        for label in ["first", "second"] {
            let turns = ctx.turns(label, 0, |n, ctx: Ctx| {
                let world = world.clone();
                async move {
                    let n = counted(&world, &ctx, label, n).await?;
                    post(&ctx, label).await?;
                    if label == "second" && n == 2 {
                        stand(&ctx, &world).await?;
                    }
                    Ok(if n == 5 { Turn::Done(n) } else { Turn::Next(n) })
                }
            });
            sum += turns.await?;
        }
        Ok::<u32, Failure>(sum)
    });
    let run = died_at(&world, "stand", code.clone());
    let (result, rows) = resumed(&world, run, code);
    assert_eq!(result, 10);
    assert_eq!(["first", "second", "post called"].map(|what| world.counted(what)), [5, 5, 10]);
    assert!(rows <= 4, "the result of the first, and the second turn of the second: {rows}");
}

// A loop that failed leaves its failure; its effects are not taken for another path when a resume skips it.
#[test]
fn a_failed_loop_stays_failed_and_another_may_follow() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let failed = ctx.turns("fails", 0, |n, ctx: Ctx| {
            let world = world.clone();
            async move {
                let n = counted(&world, &ctx, "fails", n).await?;
                ctx.call::<Pay>(Bill::new(&n.to_string(), 100)).await?;
                if n == 3 { Err(Failure::new("enough")) } else { Ok(Turn::<_, ()>::Next(n)) }
            }
        });
        assert_eq!(failed.await.unwrap_err(), Failure::new("enough"));
        let turns = ctx.turns("works", 0, |n, ctx: Ctx| {
            let world = world.clone();
            async move {
                let n = counted(&world, &ctx, "works", n).await?;
                if n == 2 {
                    stand(&ctx, &world).await?;
                }
                Ok(if n == 3 { Turn::Done(n) } else { Turn::Next(n) })
            }
        });
        turns.await
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!(resumed(&world, run, code.clone()).0, 3);
    assert_eq!(["fails", "works", "pay called"].map(|what| world.counted(what)), [3, 3, 3]);

    // Directly behind the failed one, before the other has begun.
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let failed = ctx.turns("fails", (), |(), ctx: Ctx| async move {
            ctx.call::<Pay>(Bill::new("once", 100)).await?;
            Err::<Turn<(), ()>, _>(Failure::new("enough"))
        });
        assert_eq!(failed.await.unwrap_err(), Failure::new("enough"));
        stand(&ctx, &world).await?;
        Ok::<u32, Failure>(7)
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!(resumed(&world, run, code).0, 7);
    assert_eq!(world.effects("pay").len(), 1);
}

// KEY-1: a key is one effect in all turns, and that is no other path.
#[test]
fn a_keyed_call_of_an_earlier_turn_is_answered_from_its_record() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let turns = ctx.turns("pay", 0, |n, ctx: Ctx| {
            let world = world.clone();
            async move {
                let number = ctx.call::<Pay>(Bill::new("rent", 100)).await?;
                assert_eq!(number, 1, "the first result");
                if n == 2 {
                    stand(&ctx, &world).await?;
                }
                let again = ctx.call::<Pay>(Bill::new("rent", 100)).await?;
                Ok(if n == 4 { Turn::Done(again) } else { Turn::Next(n + 1) })
            }
        });
        turns.await
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!(resumed(&world, run, code).0, 1);
    assert_eq!(world.effects("pay"), ["rent 100"]);
}

// FLOW-3, invariant 7: at the end of a turn, before anything of the next one goes out.
#[test]
fn another_path_is_found_at_the_end_of_the_turn() {
    let world = World::new();
    let code = |bills: &'static [&'static str]| {
        flow!(world, |ctx, _input: ()| {
            let turns = ctx.turns("pay", 0, |n: u32, ctx: Ctx| {
                let world = world.clone();
                async move {
                    counted(&world, &ctx, "work", n).await?;
                    for bill in bills {
                        ctx.call::<Pay>(Bill::new(&format!("{bill} {n}"), 100)).await?;
                    }
                    if n == 1 && !bills.is_empty() {
                        stand(&ctx, &world).await?;
                    }
                    Ok(if n == 2 { Turn::Done(n) } else { Turn::Next(n + 1) })
                }
            });
            turns.await
        })
    };
    let run = died_at(&world, "stand", code(&["rent"]));
    assert_eq!(world.effects("pay"), ["rent 0 100", "rent 1 100"]);
    // The edited code asks for nothing: the effect of turn 1 has no owner any more; that of turn 0 was settled.
    let process = life(&world, code(&[]));
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Diverged));
    assert!(asked.question.contains("rent 1"), "{}", asked.question);
    assert_eq!(world.counted("work"), 2, "turn 2 has not begun");
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "bob").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
    });
    assert_eq!((world.effects("pay").len(), world.counted("work")), (2, 3));
    process.shut_down();
}

// What a tool's policy adopts is listed all the same.
#[test]
fn an_adopted_effect_of_a_turn_is_listed() {
    let world = World::new();
    let code = |posts: bool| {
        flow!(world, |ctx, _input: ()| {
            let turns = ctx.turns("post", 0, |n: u32, ctx: Ctx| {
                let world = world.clone();
                async move {
                    if posts {
                        post(&ctx, "note").await?;
                        stand(&ctx, &world).await?;
                    }
                    Ok(if n == 1 { Turn::Done(n) } else { Turn::Next(n + 1) })
                }
            });
            turns.await
        })
    };
    let run = died_at(&world, "stand", code(true));
    let process = life(&world, code(false));
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 1);
    let asked = process.on(process.question(QuestionKind::Orphaned));
    assert!(asked.question.contains("post"), "{}", asked.question);
    process.shut_down();
}

// Invariant 7: that a turn is over does not settle what becomes of its effects if the run fails.
#[test]
fn a_failed_run_asks_about_the_effects_of_all_its_turns() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let turns = ctx.turns("pay", 0, |n: u32, ctx: Ctx| async move {
            ctx.call::<Pay>(Bill::new(&n.to_string(), 100)).await?;
            if n == 2 { Err(Failure::new("no")) } else { Ok(Turn::<_, u32>::Next(n + 1)) }
        });
        turns.await
    });
    let process = life(&world, code.clone());
    let result = process.on(async { process.acme().run(code, ()).await });
    assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
    assert_eq!(process.on(process.questions(QuestionKind::Orphaned)).len(), 3);
    process.shut_down();
}

// A loop that lost a select asks for nothing any more.
#[test]
fn a_loop_may_lose_a_select() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let forever = ctx.turns("tick", 0_u32, |n, ctx: Ctx| {
            let world = world.clone();
            async move {
                ctx.call::<Pay>(Bill::new(&n.to_string(), 100)).await?;
                if n == 2 {
                    ctx.sleep(Duration::from_secs(3600)).await?;
                }
                world.count("turns");
                Ok(Turn::<_, ()>::Next(n + 1))
            }
        });
        let deadline = async {
            world.counts("turns", 2).await;
            ctx.sleep_named("deadline", Duration::from_millis(1)).await
        };
        let won = ctx.select("either", forever.into_future(), deadline).await?;
        assert!(matches!(won, futures_util::future::Either::Right(Ok(()))));
        stand(&ctx, &world).await?;
        let turns = ctx.turns("again", 0, |n: u32, ctx: Ctx| async move {
            Ok(if n == 2 { Turn::Done(post(&ctx, "last").await?) } else { Turn::Next(n + 1) })
        });
        turns.await
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!(resumed(&world, run, code).0, 1);
    assert!(world.effects("pay").len() <= 3, "{:?}", world.effects("pay"));
}

async fn double(_: Ctx, n: u32) -> Result<u32, Failure> {
    Ok(n * 2)
}

// What is known by its identity outside of the run's own history: under the same name in each turn another one.
#[test]
fn signals_and_children_of_turns_are_told_apart() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let turns = ctx.turns("talk", 0, |n: u32, ctx: Ctx| {
            let world = world.clone();
            async move {
                assert_eq!(ctx.child(double, n).await?, n * 2);
                ctx.send(ctx.run_id(), "note", &n).await?;
                assert_eq!(ctx.signal::<u32>("note").await?, n);
                if n == 2 {
                    stand(&ctx, &world).await?;
                }
                Ok(if n == 4 { Turn::Done(n) } else { Turn::Next(n + 1) })
            }
        });
        turns.await
    });
    let start = || {
        let engine = world.engine().workflow(NAME, 1, code.clone()).workflow("double", 1, double);
        Process::start(&world, engine)
    };
    world.hold("stand");
    let process = start();
    let run = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.crash();
    world.release("stand");
    let process = start();
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 4);
    assert_eq!(process.on(process.acme().runs(None)).unwrap().len(), 6, "five children");
    process.shut_down();
}

// The receipt belongs to a turn that no resume reads again.
#[test]
fn the_grace_of_a_run_that_was_told_in_a_turn_goes_on_in_the_next_one() {
    let (world, hands) = (World::new(), TestClock::default());
    let code = flow!(world, |ctx, _input: u32| {
        let turns = ctx.turns("work", false, |told, ctx: Ctx| async move {
            if told {
                ctx.sleep(HOUR).await?;
                return Ok(Turn::Done("stubborn".to_owned()));
            }
            ctx.cancelled().await?;
            Ok(Turn::Next(true))
        });
        turns.await
    });
    let process = wait::life(&world, &hands, &code);
    let run = begin(&process, &code, 0);
    process.on(async {
        park(&process, &hands, run).await;
        process.acme().handle::<String>(run).cancel("ann", "enough").grace(MINUTE).await.unwrap();
        hands.asleep_for(HOUR).await;
        park(&process, &hands, run).await;
    });
    process.crash();
    let process = wait::life(&world, &hands, &code);
    process.on(async {
        let handle = process.acme().handle::<String>(run);
        settle().await;
        assert!(!handle.status().await.unwrap().state.is_final());
        hands.advance(MINUTE);
        let cancelled = handle.result().await;
        let Err(RunError::Failed { failure, .. }) = cancelled else { panic!("{cancelled:?}") };
        assert_eq!(failure.code, FailureCode::Cancelled);
        assert_eq!(failure.message, "ann cancelled the run: enough");
    });
}

#[test]
fn one_loop_at_a_time() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let nested = ctx.turns("outer", (), |(), ctx: Ctx| async move {
            ctx.turns("inner", (), |(), _| async { Ok(Turn::<(), _>::Done(1)) })
                .await
                .map(Turn::<(), _>::Done)
        });
        nested.await
    });
    blocks(code, &world, "inside a turn of another");
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let quick = |label: &'static str| {
            ctx.turns(label, (), |(), _: Ctx| async {
                tokio::task::yield_now().await; // so that the other one begins meanwhile
                Ok(Turn::<(), _>::Done(1))
            })
        };
        let (first, second) = join(quick("a").into_future(), quick("b").into_future()).await;
        Ok::<u32, Failure>(first? + second?)
    });
    blocks(code, &world, "while another is open");
}

#[test]
fn the_context_of_a_turn_and_that_of_its_run_are_used_where_they_belong() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let turns = ctx.turns("count", (), |(), _: Ctx| async {
            ctx.step("outside", &(), |()| 1).await.map(Turn::<(), u32>::Done)
        });
        turns.await
    });
    blocks(code, &world, "inside a turn");
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let kept = std::sync::Mutex::new(None);
        let turns = ctx.turns("count", (), |(), ctx: Ctx| {
            let before = kept.lock().unwrap().replace(ctx);
            async move {
                match before {
                    None => Ok(Turn::<_, u32>::Next(())),
                    Some(before) => Ctx::step(&before, "late", &(), |()| 1).await.map(Turn::Done),
                }
            }
        });
        turns.await
    });
    blocks(code, &world, "after the turn had ended");
}

#[test]
fn a_turn_has_a_context_of_its_own() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        assert_eq!(ctx.turn(), None);
        let turns = ctx.turns("count", 0, |n: u32, ctx: Ctx| async move {
            assert_eq!(ctx.turn(), Some(n + 1));
            Ok(if n == 1 { Turn::Done(n) } else { Turn::Next(n + 1) })
        });
        let n = turns.await?;
        // Beside a loop, the run's own context is used as ever.
        let beside = async { ctx.step("beside", &(), |()| 10).await };
        let again = ctx.turns("again", (), |(), ctx: Ctx| async move {
            ctx.sleep(Duration::from_millis(1)).await?;
            Ok(Turn::<(), u32>::Done(100))
        });
        let (beside, again) = try_join(beside, again.into_future()).await?;
        Ok::<u32, Failure>(n + beside + again)
    });
    let process = life(&world, code.clone());
    assert_eq!(process.on(async { process.acme().run(code, ()).await }).unwrap(), 111);
    process.shut_down();
}

#[test]
fn a_future_does_not_outlive_its_turn() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let kept = std::sync::Mutex::new(None);
        let turns = ctx.turns("keeps", 0, |n: u32, ctx: Ctx| {
            let kept = &kept;
            async move {
                let mut sleep = Box::pin(async move { ctx.sleep(Duration::from_secs(60)).await });
                assert!(futures_util::poll!(&mut sleep).is_pending());
                *kept.lock().unwrap() = Some(sleep);
                Ok(Turn::<_, u32>::Next(n + 1))
            }
        });
        turns.await
    });
    blocks(code, &world, "ended while futures of its context are open");
}

/// A loop that keeps little of what is over.
fn keeping(world: &Arc<World>, turns: u32, keep: u32) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _input: ()| {
        let count = ctx.turns("count", 1, |n: u32, ctx: Ctx| {
            let world = world.clone();
            async move {
                counted(&world, &ctx, "work", n).await?;
                post(&ctx, "note").await?;
                Ok(if n == turns { Turn::Done(n) } else { Turn::Next(n + 1) })
            }
        });
        count.keep_turns(keep).await
    })
}

async fn all_turns(process: &Process, run: RunId) -> Vec<(u32, usize, usize)> {
    let handle = process.acme().handle::<u32>(run);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = handle.history(after).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = Some(last.turn);
        assert!(page.len() <= 100, "{}", page.len());
        let work = |step: &&counterfoil::flow::PastStep| step.kind == StepKind::Step;
        all.extend(page.iter().map(|t| (t.turn, t.steps.iter().filter(work).count(), t.calls.len())));
    }
}

#[test]
fn finished_turns_are_shown_page_by_page_and_pruned_by_policy() {
    for (keep, kept) in [(u32::MAX, 0), (3, 247), (0, 250)] {
        let world = World::new();
        let code = keeping(&world, 250, keep);
        let process = life(&world, code.clone());
        let run = process.on(async {
            let run = process.acme().run(code, ()).start().await.unwrap();
            assert_eq!(run.result().await.unwrap(), 250);
            run.id()
        });
        let turns = process.on(all_turns(&process, run));
        let expected = (1..=250).map(|turn| (turn, usize::from(turn > kept), 1));
        let expected: Vec<_> = std::iter::once((0, 0, 0)).chain(expected).collect();
        assert_eq!(turns, expected, "keep {keep}");
        let shown = process.on(async { process.acme().handle::<u32>(run).history(Some(249)).await.unwrap() });
        if let Some(step) = shown[0].steps.iter().find(|step| step.kind == StepKind::Step) {
            let handle = process.acme().handle::<u32>(run);
            let value = process.on(handle.value(step.value.as_ref().unwrap())).unwrap();
            assert_eq!(value.as_str(), "251");
        }
        process.shut_down();
    }
}

/// Counts three turns, goes on as new with the sum, and so on up to `lives` times.
fn renewing(world: &Arc<World>, lives: u32) -> impl WorkflowFn<u32, u32> + Clone + use<> {
    flow!(world, |ctx, lived: u32| {
        ctx.call::<Pay>(Bill::new(&format!("life {lived}"), 100)).await?;
        let name = counted(&world, &ctx, "own", lived).await?;
        post(&ctx, &format!("life {lived}")).await?;
        let turns = ctx.turns("count", 0, |n: u32, ctx: Ctx| {
            let world = world.clone();
            async move {
                post(&ctx, &format!("turn {n} of {lived}")).await?;
                if n == 1 && lived == 1 {
                    stand(&ctx, &world).await?;
                }
                Ok(if n == 2 { Turn::Done(n) } else { Turn::Next(n + 1) })
            }
        });
        turns.await?;
        if lived < lives { ctx.continue_as_new(&name).await } else { Ok(lived) }
    })
}

#[test]
fn a_run_goes_on_as_new_under_its_id_and_key() {
    let world = World::new();
    let code = renewing(&world, 2);
    world.hold("stand");
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    let run = process.on(async {
        let run = process.acme().run(code.clone(), 0).key("k").start().await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.crash();
    world.release("stand");
    let read = Arc::new(AtomicUsize::new(0));
    let counting = read.clone();
    let engine = world.engine().wrap_store(move |store| Arc::new(Read(store, counting)));
    let process = Process::start(&world, engine.workflow(NAME, 1, code.clone()));
    process.on(async {
        let acme = process.acme();
        let same = acme.run(code.clone(), 0).key("k").start().await.unwrap();
        assert_eq!(same.id(), run, "its key is bound to its first input");
        assert_eq!(same.result().await.unwrap(), 2);
        assert!(matches!(acme.run(code.clone(), 1).key("k").await, Err(RunError::Conflict { .. })));
        assert_eq!(same.status().await.unwrap().state, RunState::Succeeded);
    });
    assert_eq!((world.effects("pay").len(), world.effects("post").len(), world.counted("own")), (3, 12, 3));
    // Resumed once in the second life, and begun once for the third: never what was before.
    assert!(read.load(Ordering::Relaxed) <= 8, "{read:?}");
    let turns = process.on(all_turns(&process, run));
    assert_eq!(turns.iter().map(|(_, _, calls)| calls).sum::<usize>(), 15, "all is kept: {turns:?}");
    assert!(process.on(process.acme().questions()).unwrap().is_empty(), "finished history, and no question");
    process.shut_down();
}

#[test]
fn a_run_does_not_go_on_with_an_input_that_it_does_not_take() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| ctx.continue_as_new::<str, u32>("text").await);
    blocks(code, &world, "does not fit");
}

// What nothing asked for is asked about before the run leaves its history behind.
#[test]
fn another_path_is_found_before_a_run_goes_on_as_new() {
    let world = World::new();
    let code = |pays: bool| {
        flow!(world, |ctx, _input: ()| {
            let lives = ctx.step("lives", &(), |()| world.count("lives")).await?;
            if pays {
                ctx.call::<Pay>(Bill::new("rent", 100)).await?;
                stand(&ctx, &world).await?;
            }
            if lives < 2 { ctx.continue_as_new(&()).await } else { Ok::<u32, Failure>(lives) }
        })
    };
    let run = died_at(&world, "stand", code(true));
    let process = life(&world, code(false));
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Diverged));
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "bob").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
    });
    assert_eq!(world.effects("pay").len(), 1);
    process.shut_down();
}

/// Two lives of two loops, with a timer, steps, keyed calls that come again, and a result of both.
async fn rounds(ctx: Ctx, life: u32) -> Result<u32, Failure> {
    let first = ctx.turns(("round", life), 0, |n: u32, ctx: Ctx| async move {
        let case = ctx.step("case", &n, |n| format!("{life}/{n}")).await?;
        ctx.call::<Looks>(case).await?;
        ctx.call::<Replays>("shared".to_owned()).await?;
        ctx.sleep(Duration::from_secs(30)).await?;
        Ok(if n == 2 { Turn::Done(n) } else { Turn::Next(n + 1) })
    });
    let n = first.keep_turns(1).await?;
    let second = ctx.turns("close", n, |n: u32, ctx: Ctx| async move {
        ctx.call::<Looks>(format!("{life}/close {n}")).await?;
        Ok(if n == 0 { Turn::Done(life) } else { Turn::Next(n - 1) })
    });
    second.await?;
    if life < 1 { ctx.continue_as_new(&(life + 1)).await } else { Ok(life) }
}

fn rounds_simulated() -> Simulation {
    let cases = (0..2)
        .flat_map(|life| (0..3).flat_map(move |n| [format!("{life}/{n}"), format!("{life}/close {n}")]));
    let simulation = Simulation::of(rounds, 0).engine(|engine, world| {
        let (desk, till) = (world.service("desk", Offer::Lookup), world.service("till", Offer::ReplaysKey));
        engine.tool(Looks(desk)).tool(Replays(till))
    });
    let simulation = simulation.check("shared once", |end| end.exactly_once_if_succeeded("till", "shared"));
    cases.fold(simulation, |simulation, case| {
        let name = format!("{case} once");
        simulation.check(&name, move |end| end.exactly_once_if_succeeded("desk", &case))
    })
}

// SIM-1: wherever a process can die, in whatever turn: no duplicate and no loss.
#[test]
fn no_crash_in_any_turn_repeats_or_loses_an_effect() {
    let report = quick(rounds_simulated()).explore();
    report.assert_ok();
    assert!(report.schedules() > 300, "only {} schedules", report.schedules());
}

#[test]
fn a_loop_is_resumed_in_its_last_turn_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let code = counting(&world, 40);
    let start = || {
        let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
        Process::start(&world, engine.workflow(NAME, 1, code.clone()))
    };
    world.hold("stand");
    let process = start();
    let run = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.shut_down();
    world.release("stand");
    let process = start();
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 821);
    assert_eq!(["work", "post called"].map(|what| world.counted(what)), [40, 40]);
    process.shut_down();
}

#[test]
fn finished_turns_are_pruned_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let code = keeping(&world, 30, 3);
    let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let process = Process::start(&world, engine.workflow(NAME, 1, code.clone()));
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 30);
        let turns = all_turns(&process, run.id()).await;
        let expected = (1..=30).map(|turn| (turn, usize::from(turn > 27), 1));
        assert_eq!(turns[1..], expected.collect::<Vec<_>>());
    });
    process.shut_down();
}
