//! Queues (FLOW-11): limits hold over all workers, tenants take turns, nothing that is queued is lost, and nothing
//! begins twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::flow::{
    EngineBuilder, FailureCode, QueueStatus, RunError, RunHandle, RunState, TenantClient, Workflow,
};
use counterfoil::sim::{CrashPoint, Offer, Simulation};
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Engine, Failure, Queue};
use futures_util::future::{join_all, try_join_all};

use crate::flow;
use crate::flow::wait::{HOUR, MINUTE, park, settle};
use crate::flow::world::{Process, World};
use crate::sim::Looks;
use crate::store::postgres::Schema;
use crate::world::TestClock;

/// Counts those inside, and remembers how many there were at most.
#[derive(Default)]
struct Gauge {
    inside: AtomicU32,
    most: AtomicU32,
    all: AtomicU32,
}

impl Gauge {
    async fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    fn seen(&self) -> (u32, u32) {
        (self.most.load(Ordering::SeqCst), self.all.load(Ordering::SeqCst))
    }
}

/// A workflow that goes through a gauge of all, and one of its input.
macro_rules! gauged {
    ($all:ident, $each:ident) => {{
        let ($all, $each) = ($all.clone(), $each.clone());
        move |_: Ctx, which: usize| {
            let ($all, $each) = ($all.clone(), $each.clone());
            async move {
                tokio::join!($all.pass(), $each[which].pass());
                Ok::<_, Failure>(which)
            }
        }
    }};
}

fn gauges(n: usize) -> Arc<Vec<Gauge>> {
    Arc::new((0..n).map(|_| Gauge::default()).collect())
}

#[test]
fn limits_hold_on_one_worker() {
    let world = World::new();
    let (all, each) = (Arc::new(Gauge::default()), gauges(4));
    let flow = gauged!(all, each);
    let queue = Queue::new("mail").concurrency(3).per_key(1);
    let process = Process::start(&world, world.engine().workflow("mail", 1, flow.clone()).queue(queue));
    process.on(async {
        let run = |n: usize| {
            process.acme().run(flow.clone(), n % 4).queue("mail").queue_key((n % 4).to_string()).start()
        };
        let runs = try_join_all((0..24).map(run)).await.unwrap();
        for done in join_all(runs.iter().map(RunHandle::result)).await {
            done.unwrap();
        }
    });
    let (most, total) = all.seen();
    assert!(most <= 3 && total == 24, "{most} at once, {total} in all");
    assert!(each.iter().all(|one| one.seen() == (1, 6)), "one after the other for each key");
    process.shut_down();
}

// Two workers ask at the same time, and again and again.
#[test]
fn limits_hold_over_workers() {
    let (world, schema) = (World::new(), Schema::new());
    let (all, each) = (Arc::new(Gauge::default()), gauges(3));
    let flow = gauged!(all, each);
    let worker = || {
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        let queue = Queue::new("mail").concurrency(5).per_worker(3).per_tenant(2);
        Process::start(&world, engine.workflow("mail", 1, flow.clone()).queue(queue))
    };
    let (one, two) = (worker(), worker());
    let work = |process: &Process| {
        let engine = process.engine().clone();
        let flow = flow.clone();
        process.spawn(async move {
            let run = |n: usize| {
                let tenant = engine.tenant(format!("tenant{}", n % 3)).unwrap();
                tenant.run(flow.clone(), n % 3).queue("mail").start()
            };
            let runs = try_join_all((0..45).map(run)).await.unwrap();
            for done in join_all(runs.iter().map(RunHandle::result)).await {
                done.unwrap();
            }
        })
    };
    let (a, b) = (work(&one), work(&two));
    one.on(a).unwrap();
    one.on(b).unwrap();
    let (most, total) = all.seen();
    assert!(most <= 5 && total == 90, "{most} at once, {total} in all");
    for tenant in each.iter() {
        let (most, total) = tenant.seen();
        assert!(most <= 2 && total == 30, "{most} of a tenant at once, {total} in all");
    }
    one.shut_down();
    two.shut_down();
}

/// An engine on a world's file with one workflow that waits at the point "work".
fn held(world: &Arc<World>, queue: Queue) -> EngineBuilder {
    let flow = at_work(world);
    world.engine().workflow("work", 1, flow).queue(queue)
}

fn at_work(world: &Arc<World>) -> impl counterfoil::flow::WorkflowFn<String, String> + Clone + use<> {
    flow!(world, |_ctx, name: String| {
        world.count(&format!("began {name}"));
        world.count("began");
        world.pass("work").await;
        Ok::<_, Failure>(name.clone())
    })
}

async fn start(world: &Arc<World>, tenant: &TenantClient, name: &str, priority: i32) -> RunHandle<String> {
    let run = tenant.run(at_work(world), name.to_owned()).queue("work").priority(priority);
    run.start().await.unwrap()
}

#[test]
fn a_tenant_with_many_holds_up_nobody() {
    let world = World::new();
    let process = Process::start(&world, held(&world, Queue::new("work").concurrency(1)));
    process.on(async {
        world.hold("work");
        let (acme, globex) = (process.acme(), process.engine().tenant("globex").unwrap());
        for n in 0..300 {
            start(&world, &acme, &format!("a{n}"), 0).await;
        }
        let urgent = start(&world, &acme, "urgent", 7).await;
        let one = start(&world, &globex, "one", 0).await;
        world.release("work");
        one.result().await.unwrap();
        assert!(world.counted("began") <= 3, "{} began before", world.counted("began") - 1);
        urgent.result().await.unwrap();
        assert!(world.counted("began") <= 5, "the highest priority comes first among its tenant's");
        assert_eq!(world.counted("began a0"), 1);
        let queues = process.engine().queues().await.unwrap();
        assert!(queues[0].queued > 200 && queues[0].running <= 1, "{queues:?}");
    });
    process.crash();
}

#[test]
fn what_is_queued_outlives_its_process() {
    let world = World::new();
    let queue = || Queue::new("work").concurrency(2);
    let first = Process::start(&world, held(&world, queue()));
    let runs = first.on(async {
        world.hold("work");
        let mut runs = Vec::new();
        for n in 0..5 {
            runs.push(start(&world, &first.acme(), &format!("r{n}"), 0).await.id());
        }
        world.counts("began", 2).await;
        runs
    });
    first.crash();

    // A program that does not know the queue carries on what has begun, and lists what has not.
    world.release("work");
    let process = Process::start(&world, world.engine().workflow("work", 1, at_work(&world)));
    process.on(async {
        for run in &runs[..2] {
            process.acme().handle::<String>(*run).result().await.unwrap();
        }
        settle().await;
        let left = process.engine().queues().await.unwrap();
        assert_eq!(left, [QueueStatus { name: "work".into(), declared: false, queued: 3, running: 0 }]);
        let listed = process.acme().runs(None).await.unwrap();
        assert_eq!(listed.iter().filter(|run| run.state == RunState::Queued).count(), 3);
        let refused = process.acme().run(at_work(&world), "x".into()).queue("work").start().await;
        assert!(matches!(refused, Err(RunError::UnknownQueue { queue, .. }) if queue == "work"));
        let refused = process.acme().run(at_work(&world), "x".into()).priority(3).start().await;
        assert!(matches!(refused, Err(RunError::NoQueue)));
    });
    process.shut_down();

    let third = Process::start(&world, held(&world, queue()));
    third.on(async {
        for run in &runs {
            third.acme().handle::<String>(*run).result().await.unwrap();
        }
    });
    for n in 0..5 {
        let times = world.counted(&format!("began r{n}"));
        assert_eq!(times, if n < 2 { 2 } else { 1 }, "r{n}");
    }
    third.shut_down();
}

#[test]
fn queued_runs_are_cancelled_and_paused() {
    let world = World::new();
    let process = Process::start(&world, held(&world, Queue::new("work").concurrency(1)));
    process.on(async {
        world.hold("work");
        let acme = process.acme();
        let first = start(&world, &acme, "first", 0).await;
        world.counts("began", 1).await;
        let (gone, held, last) = (
            start(&world, &acme, "gone", 0).await,
            start(&world, &acme, "held", 0).await,
            start(&world, &acme, "last", 0).await,
        );
        gone.cancel("ann", "not any more").await.unwrap();
        match gone.result().await {
            Err(RunError::Failed { failure, .. }) => assert_eq!(failure.code, FailureCode::Cancelled),
            other => panic!("not cancelled: {other:?}"),
        }
        held.pause("ann", "not yet").await.unwrap();
        process.state(held.id(), "blocked").await;
        process.question(QuestionKind::Paused).await;
        world.release("work");
        first.result().await.unwrap();
        last.result().await.unwrap();
        assert_eq!(world.counted("began held"), 0, "it is paused");
        world.hold("work");
        let busy = start(&world, &acme, "busy", 0).await;
        world.counts("began busy", 1).await;
        held.resume("ann", "enough waited").await.unwrap();
        process.state(held.id(), "queued").await;
        assert_eq!(world.counted("began held"), 0, "it queues up again");
        world.release("work");
        busy.result().await.unwrap();
        held.result().await.unwrap();
        assert_eq!((world.counted("began gone"), world.counted("began held")), (0, 1));
    });
    process.shut_down();
}

#[test]
fn a_rate_lets_so_many_begin() {
    let (world, hands) = (World::new(), TestClock::default());
    let queue = Queue::new("work").rate(2, MINUTE);
    let process = Process::start(&world, held(&world, queue).clock(hands.clone()));
    process.on(async {
        for n in 0..4 {
            start(&world, &process.acme(), &format!("r{n}"), 0).await;
        }
        world.counts("began", 2).await;
        settle().await;
        assert_eq!(world.counted("began"), 2);
        // Time flows on while the disk is slow: nobody begins sooner, and perhaps later.
        let mut passed = Duration::ZERO;
        for (began, after) in [(3, MINUTE / 2), (4, MINUTE)] {
            while world.counted("began") < began {
                hands.advance(Duration::from_secs(1));
                passed += Duration::from_secs(1);
                settle().await;
            }
            assert!(passed >= after, "{began} began after {passed:?}");
        }
    });
    process.crash();
}

/// Waits for an hour and counts when it goes on.
fn sleeper(world: &Arc<World>) -> impl counterfoil::flow::WorkflowFn<String, String> + Clone + use<> {
    flow!(world, |ctx, name: String| {
        world.count(&format!("began {name}"));
        if name == "sleeper" {
            ctx.sleep(HOUR).await?;
            world.count("woke");
        }
        Ok::<_, Failure>(name.clone())
    })
}

#[test]
fn a_run_that_waits_keeps_its_place_or_gives_it_free() {
    for frees in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let queue = Queue::new("work").concurrency(1);
        let queue = if frees { queue.free_while_waiting() } else { queue };
        let sleepers = Workflow::new("sleeper", sleeper(&world)).queue("work");
        let engine = world.engine_on(hands.clone()).register(sleepers).queue(queue);
        let process = Process::start(&world, engine);
        process.on(async {
            let acme = process.acme();
            let run = acme.run(sleeper(&world), "sleeper".into()).start().await.unwrap();
            world.counts("began sleeper", 1).await;
            let next = acme.run(sleeper(&world), "next".into()).start().await.unwrap();
            park(&process, &hands, run.id()).await;
            if frees {
                next.result().await.unwrap();
            } else {
                settle().await;
                assert_eq!(world.counted("began next"), 0);
            }
            hands.advance(HOUR);
            run.result().await.unwrap();
            next.result().await.unwrap();
            assert_eq!(world.counted("woke"), 1);
        });
        process.shut_down();
    }
}

// FLOW-11: the same start again is given the run, or refused.
#[test]
fn a_duplicate_start_is_given_the_run_or_refused() {
    let world = World::new();
    let process = Process::start(&world, held(&world, Queue::new("work")));
    process.on(async {
        let start = |name: &str| process.acme().run(at_work(&world), name.to_owned()).key("k");
        let first = start("a").reject_duplicate().start().await.unwrap();
        assert_eq!(start("a").start().await.unwrap().id(), first.id());
        assert_eq!(start("a").queue("work").start().await.unwrap().id(), first.id());
        match start("a").reject_duplicate().start().await {
            Err(RunError::Duplicate { key, run }) => assert_eq!((key.as_str(), run), ("k", first.id())),
            other => panic!("not refused: {:?}", other.map(|run| run.id())),
        }
        let other = start("b").reject_duplicate().start().await;
        assert!(matches!(other, Err(RunError::Conflict { .. })));
    });
    process.shut_down();
}

#[test]
fn what_could_never_begin_is_refused_at_the_start() {
    let world = World::new();
    let refused =
        |engine: EngineBuilder| Process::try_start(&world, engine).map(drop).unwrap_err().to_string();
    let engine = || world.engine().workflow("work", 1, at_work(&world));
    assert!(refused(engine().queue(Queue::new("work").per_key(0))).contains("no run of it would ever begin"));
    let queued = Workflow::new("work", at_work(&world)).queue("work");
    assert!(refused(world.engine().register(queued)).contains("is not declared"));
    assert!(refused(engine().queue(Queue::new("a")).queue(Queue::new("a"))).contains("another queue"));
}

/// Pays one bill.
async fn bill(ctx: Ctx, what: String) -> Result<String, Failure> {
    ctx.call::<Looks>(what.clone()).await?;
    Ok(what)
}

/// Has three bills paid, one after the other for each payer.
async fn office(ctx: Ctx, _order: String) -> Result<String, Failure> {
    let bill = |n: u32| {
        let child = ctx.child(bill, format!("bill {n}")).id(n).queue("bills");
        child.queue_key((n % 2).to_string()).priority(n.try_into().unwrap_or(0))
    };
    let bills = try_join_all([1, 2, 3].map(|n| bill(n).into_future())).await?;
    Ok(bills.join(", "))
}

fn billed() -> Simulation {
    Simulation::of(office, "order".to_owned())
        .engine(|engine, world| {
            let queue = Queue::new("bills").concurrency(2).per_key(1).free_while_waiting();
            let engine = engine.tool(Looks(world.service("bank", Offer::Lookup))).queue(queue);
            engine.workflow("bill", 1, bill)
        })
        .check("each bill is paid once", |end| {
            for n in 1..=3 {
                end.exactly_once_if_succeeded("bank", &format!("bill {n}"))?;
            }
            Ok(())
        })
}

// The runs that a process takes over were given their places at an instant that has not come again.
#[test]
fn a_clock_that_is_set_back_keeps_no_queue_busy() {
    for crossing in 14..32 {
        for clock in ["clock-100@2", "clock-7000@2"] {
            let schedule = format!("crash@1.{crossing} {clock}");
            let replay = billed().replay(&schedule.parse().unwrap());
            assert!(replay.violations.is_empty(), "{}\n{:?}", replay.timeline(), replay.violations);
        }
    }
}

// No run is lost and none begins twice, wherever a process dies.
#[test]
fn queued_children_survive_every_crash() {
    let report = billed().single_crashes().random(200).explore();
    report.assert_ok();
    let missed = report.never_crossed();
    for point in [CrashPoint::BeforeAdmission, CrashPoint::AfterAdmission] {
        assert!(!missed.contains(&point), "{} was not tried", point.name());
    }
}
