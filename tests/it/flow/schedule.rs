//! Schedules (FLOW-11): a tick begins one run, however many workers see it; an outage is caught up by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::flow::{EngineBuilder, Overlap, RunError, RunState, ScheduleStatus, WorkflowFn};
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::{Change, Model, Schedule, Store as _, Verdict};
use counterfoil::{Engine, Failure, Tenant};

use crate::flow;
use crate::flow::tools::{Bill, Pay};
use crate::flow::wait::{HOUR, MINUTE, settle};
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;
use crate::world::{Log, TestClock};

/// Counts its ticks, and waits at the point "work".
fn worker(world: &Arc<World>) -> impl WorkflowFn<String, i64> + Clone + use<> {
    flow!(world, |ctx, name: String| {
        let tick = ctx.tick().expect("it is begun by a schedule");
        assert_eq!(tick.schedule, name);
        world.count(&format!("{name} at {}", tick.at.0));
        world.count(&name);
        world.pass("work").await;
        Ok::<_, Failure>(tick.at.0)
    })
}

fn life(world: &Arc<World>, hands: &TestClock) -> Process {
    Process::start(world, on(world, world.engine_on(hands.clone())))
}

fn on(world: &Arc<World>, engine: EngineBuilder) -> EngineBuilder {
    engine.workflow("worker", 1, worker(world))
}

async fn set(process: &Process, world: &Arc<World>, name: &str, overlap: Overlap) -> ScheduleStatus {
    let hourly = process.acme().schedule(name).every(HOUR).overlap(overlap);
    hourly.run(worker(world), name.to_owned()).await.unwrap()
}

async fn status(process: &Process, name: &str) -> ScheduleStatus {
    process.acme().schedule(name).status().await.unwrap()
}

/// Lets the schedule's next tick come, when the engine waits for it.
async fn come(process: &Process, hands: &TestClock, name: &str) {
    let next = status(process, name).await.next.unwrap();
    let left = hands.now().until(next);
    hands.asleep_for(left).await;
    hands.advance(left);
    while status(process, name).await.next == Some(next) {
        tokio::task::yield_now().await;
    }
}

/// The same, and waits for the end of the run that it begins.
async fn done(process: &Process, hands: &TestClock, name: &str) -> i64 {
    come(process, hands, name).await;
    let run = status(process, name).await.last_run.unwrap();
    process.acme().handle::<i64>(run).result().await.unwrap()
}

#[test]
fn ticks_come_at_their_time_and_an_outage_is_caught_up_by_one() {
    let (world, hands) = (World::new(), TestClock::default());
    let first = life(&world, &hands);
    let begin = first.on(async {
        let begin = set(&first, &world, "hourly", Overlap::Skip).await.next.unwrap();
        for n in 0..2 {
            assert_eq!(done(&first, &hands, "hourly").await, begin.after(HOUR * n).0);
        }
        assert_eq!(world.counted("hourly"), 2);
        begin
    });
    first.crash();
    hands.advance(HOUR * 5);
    let second = life(&world, &hands);
    second.on(async {
        world.counts("hourly", 3).await;
        let now = status(&second, "hourly").await;
        second.acme().handle::<i64>(now.last_run.unwrap()).result().await.unwrap();
        assert_eq!((now.last, now.missed), (Some(begin.after(HOUR * 6)), 4), "{now:?}");
        assert_eq!(now.upcoming(2), [begin.after(HOUR * 7), begin.after(HOUR * 8)]);
        let again = set(&second, &world, "hourly", Overlap::Skip).await;
        assert_eq!(again.next, now.next, "said again, it stays as it is");
        done(&second, &hands, "hourly").await;
    });
    assert_eq!(world.counted("hourly"), 4);
    second.crash();
}

// Two workers see each tick at the same time.
#[test]
fn a_tick_begins_one_run_whoever_sees_it() {
    let (world, hands, schema) = (World::new(), TestClock::default(), Schema::new());
    world.tap.tells_time_of(hands.clone());
    let worker = || {
        let engine = Engine::postgres_with(crate::server::url(), schema.options()).lease(HOUR * 1000);
        let engine = world.equip(engine, &world.tap);
        Process::start(&world, on(&world, engine.clock(hands.clone())))
    };
    let (one, two) = (worker(), worker());
    one.on(async {
        let first = set(&one, &world, "hourly", Overlap::Allow).await;
        assert_eq!(set(&two, &world, "hourly", Overlap::Allow).await.next, first.next);
        for n in 1..=8 {
            come(&one, &hands, "hourly").await;
            world.counts("hourly", n).await;
        }
        let runs = one.acme().runs(None).await.unwrap();
        assert_eq!(runs.len(), 8);
        assert_eq!(status(&two, "hourly").await.missed, 0);
    });
    assert_eq!(world.counted("hourly"), 8);
    one.crash();
    two.crash();
}

// A key that is made of the tick is the same in the fork, and in the fork's own fork.
#[test]
fn a_fork_of_a_ticks_run_has_its_tick() {
    let (world, hands) = (World::new(), TestClock::default());
    let code = flow!(world, |ctx, _input: ()| {
        let tick = ctx.tick().expect("a schedule has begun it, or its origin");
        ctx.call::<Pay>(Bill::new(&tick.at.0.to_string(), 5)).await?;
        if world.counted("mended") == 0 {
            return Err(Failure::new("a bug"));
        }
        Ok::<_, Failure>(tick.at.0)
    });
    let engine = world.engine_on(hands.clone()).workflow("worker", 1, code.clone());
    let process = Process::start(&world, engine);
    process.on(async {
        process.acme().schedule("hourly").every(HOUR).run(code, ()).await.unwrap();
        come(&process, &hands, "hourly").await;
        let now = status(&process, "hourly").await;
        let run = process.acme().handle::<i64>(now.last_run.unwrap());
        assert!(matches!(run.result().await, Err(RunError::Failed { .. })));
        world.count("mended");
        let at = now.last.unwrap().0;
        let fork = run.fork("ann", "it is mended").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), at);
        let again = fork.fork("ann", "once more").await.unwrap();
        assert_eq!(again.result().await.unwrap(), at);
    });
    assert_eq!(world.effects("pay").len(), 1);
    process.crash();
}

// The schedules of another service stay due at the head of the list, and are reported to nobody. They hide no schedule behind them.
#[test]
fn schedules_of_an_unknown_workflow_hide_no_other_schedule() {
    let (world, hands, log) = (World::new(), TestClock::default(), Log::default());
    let _listening = log.listen();
    let store = Arc::new(Model::shared(Arc::new(hands.clone())));
    let engine = world.equip(Engine::store(store.clone()), &world.tap).lease(HOUR * 1000);
    let process = Process::start_logged(&world, on(&world, engine.clock(hands.clone())), &log);
    process.on(async {
        set(&process, &world, "hourly", Overlap::Skip).await;
        let row = store.schedule_find(&Tenant::new("acme").unwrap(), "hourly").await.unwrap().unwrap();
        let other = Sample::leased(&*store, "other", i64::MAX).await;
        let due = row.next_at.unwrap().0 - 1;
        let set_there = |i: i32| {
            let schedule =
                Schedule { rule: row.rule.clone(), ..other.schedule(&format!("nightly-{i}"), due) };
            Change { schedule: Some(Box::new(schedule)), ..other.change() }
        };
        let verdicts = store.commit(&(0..257).map(set_there).collect::<Vec<_>>()).await.unwrap();
        assert!(verdicts.iter().all(Verdict::is_admitted), "{verdicts:?}");
        come(&process, &hands, "hourly").await;
        world.counts("hourly", 1).await;
    });
    assert_eq!(log.counts(tracing::Level::ERROR), BTreeMap::new());
    process.crash();
}

#[test]
fn runs_that_overlap_are_skipped_or_not_or_wait() {
    for (overlap, begun, missed) in [(Overlap::Skip, 1, 3), (Overlap::Allow, 4, 0), (Overlap::After, 1, 2)] {
        let (world, hands) = (World::new(), TestClock::default());
        let process = life(&world, &hands);
        process.on(async {
            world.hold("work");
            let next = set(&process, &world, "hourly", overlap).await.next.unwrap();
            come(&process, &hands, "hourly").await;
            world.counts("hourly", 1).await;
            for _ in 0..3 {
                come(&process, &hands, "hourly").await;
            }
            let now = status(&process, "hourly").await;
            assert_eq!(now.missed, missed, "{overlap:?}");
            if overlap == Overlap::Allow {
                world.counts("hourly", 4).await;
            }
            assert_eq!(world.counted("hourly"), begun, "{overlap:?}");
            world.release("work");
            if overlap == Overlap::After {
                world.counts("hourly", 2).await;
                assert_eq!(world.counted(&format!("hourly at {}", next.after(HOUR).0)), 1);
            }
        });
        process.crash();
    }
}

#[test]
fn a_schedule_is_paused_resumed_changed_and_deleted() {
    let (world, hands) = (World::new(), TestClock::default());
    let process = life(&world, &hands);
    process.on(async {
        let acme = process.acme();
        let begin = set(&process, &world, "hourly", Overlap::Skip).await.next.unwrap();
        let handle = acme.schedule("hourly");
        assert!(handle.pause().await.unwrap().paused);
        hands.advance(HOUR * 3);
        settle().await;
        assert_eq!((status(&process, "hourly").await.next, world.counted("hourly")), (None, 0));
        let resumed = handle.resume().await.unwrap();
        assert_eq!(
            (resumed.next, resumed.missed),
            (Some(begin.after(HOUR * 3)), 0),
            "they are not caught up"
        );
        let daily = acme.schedule("hourly").cron("30 4 * * *").zone("Europe/Berlin");
        let daily = daily.run(worker(&world), "hourly".to_owned()).await.unwrap();
        assert_eq!(daily.when, "30 4 * * * (Europe/Berlin)");
        assert_eq!(daily.next.map(|at| at.0 / 1_000_000 % 86400), Some(3 * 3600 + 1800), "in winter");
        set(&process, &world, "another", Overlap::Skip).await;
        let names = |all: Vec<ScheduleStatus>| all.into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(acme.schedules().await.unwrap()), ["another", "hourly"]);
        handle.delete().await.unwrap();
        assert_eq!(names(acme.schedules().await.unwrap()), ["another"]);
        assert!(matches!(handle.status().await, Err(RunError::NoSchedule { .. })));
        assert!(matches!(handle.delete().await, Err(RunError::NoSchedule { .. })));
        let anew = set(&process, &world, "hourly", Overlap::Skip).await;
        assert_eq!((anew.last, anew.paused), (None, false));
        let theirs = process.engine().tenant("globex").unwrap();
        assert!(theirs.schedules().await.unwrap().is_empty());
    });
    process.crash();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (world, hands) = (World::new(), TestClock::default());
    let process = life(&world, &hands);
    process.on(async {
        let named = |name: &str| process.acme().schedule(name);
        let refused = async |set: counterfoil::flow::SetSchedule| {
            set.run(worker(&world), "x".to_owned()).await.unwrap_err().to_string()
        };
        assert!(refused(named("x").cron("61 * * * *")).await.contains("61 * * * *"));
        assert!(refused(named("x").cron("0 3 * * *").zone("Europe/Atlantis")).await.contains("Atlantis"));
        assert!(refused(named("x").every(Duration::ZERO)).await.contains("interval"));
        assert!(refused(named("").every(MINUTE)).await.contains("empty"));
        assert!(refused(named("x").every(MINUTE).queue("nowhere")).await.contains("nowhere"));
        assert!(process.acme().schedules().await.unwrap().is_empty());
        let runs = process.acme().runs(None).await.unwrap();
        assert!(runs.iter().all(|run| run.state != RunState::Active), "{runs:?}");
    });
    process.crash();
}
