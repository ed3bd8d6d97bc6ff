//! Workers of one PostgreSQL whose wall clocks are wrong: what they compare with one another's rows goes by the
//! database's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::{self, Backoff, ContractClass, ErrorKind, RetryPolicy};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Boot, Clock, SystemClock, Timestamp};
use counterfoil::{Ctx, Engine, Failure};
use futures_util::future::BoxFuture;
use tokio::join;

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::store::Tap;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// This machine's clocks, with a wall clock that is wrong by so many seconds.
#[derive(Clone, Debug, Default)]
struct Wrong(Arc<AtomicI64>);

impl Wrong {
    fn by(seconds: i64) -> Self {
        let clock = Self::default();
        clock.set(seconds);
        clock
    }

    fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst) * 1_000_000)
    }

    fn boot(&self) -> Boot {
        SystemClock.boot()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(by)
    }
}

/// A transfer whose bank replays a key for an hour and cannot be asked about it. "busy" is refused the first time.
struct Transfer(Arc<World>);

impl Tool for Transfer {
    const NAME: &'static str = "transfer";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn contract(&self) -> ledger::Contract {
        ledger::Contract::new(ContractClass::ReplaysKey).key_window(Duration::from_hours(1))
    }

    fn retry(&self) -> RetryPolicy {
        let pause = Duration::from_millis(100);
        let backoff = Backoff { base: pause, cap: pause };
        RetryPolicy { backoff, retry_after_cap: pause, ..RetryPolicy::default() } // its keys are good for an hour
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        let calls = self.0.count("transfers asked for");
        if what == "busy" && calls == 1 {
            return Err(ToolError::new(ErrorKind::Unreachable, "try again"));
        }
        let number = self.0.happen("transfer", call.key(), what);
        self.0.pass("answered").await;
        Ok(Done::new(number))
    }
}

/// A worker whose wall clock is wrong.
fn worker(world: &Arc<World>, schema: &Schema, clock: &Wrong, tap: &Tap) -> EngineBuilder {
    let engine = Engine::postgres_with(crate::server::url(), schema.options());
    let engine = world.equip(engine, tap).tool(Transfer(world.clone()));
    engine.clock(clock.clone()).lease(Duration::from_secs(2))
}

/// Resolves when the worker behind this tap has moved its lease on so often from now on.
async fn beats(tap: &Tap, count: usize) {
    use counterfoil::store::WorkerChange::Renew;
    let so_far = |tap: &Tap| {
        tap.see(|tapped| {
            let changes = tapped.batches.iter().flatten();
            changes.filter(|change| matches!(change.worker, Some(Renew { .. }))).count()
        })
    };
    let before = so_far(tap);
    let mut commits = tap.watch();
    while so_far(tap) < before + count {
        commits.changed().await.unwrap();
    }
}

#[test]
fn a_worker_two_hours_fast_ends_no_sleep_and_begins_no_tick_before_its_time() {
    let (world, schema) = (World::new(), Schema::new());
    let sleeps = flow!(world, |ctx, _n: ()| {
        ctx.sleep(Duration::from_hours(1)).await?;
        Ok::<_, Failure>(world.count("slept"))
    });
    let tells = |ctx: Ctx, (): ()| async move { Ok::<_, Failure>(ctx.now().await?.0) };
    let ticks = flow!(world, |_ctx, _n: ()| Ok::<_, Failure>(world.count("ticked")));
    let start = |clock: Wrong, tap: &Tap| {
        let engine = worker(&world, &schema, &clock, tap).workflow(NAME, 1, sleeps.clone());
        Process::start(&world, engine.workflow("tells", 1, tells).workflow("ticks", 1, ticks.clone()))
    };
    let tap = Tap::default();
    let right = start(Wrong::default(), &world.tap);
    let run = right.on(async {
        let acme = right.acme();
        acme.schedule("hourly").every(Duration::from_hours(1)).run(ticks.clone(), ()).await.unwrap();
        let run = acme.run(sleeps.clone(), ()).start().await.unwrap();
        right.state(run.id(), "waiting").await;
        run.id()
    });
    let fast = start(Wrong::by(2 * HOUR), &tap);
    let by_the_fast = fast.on(async {
        beats(&tap, 3).await;
        assert_eq!(fast.acme().handle::<u32>(run).status().await.unwrap().state.name(), "waiting");
        fast.acme().run(tells, ()).await.unwrap()
    });
    assert_eq!((world.counted("slept"), world.counted("ticked")), (0, 0));
    let by_the_right = right.on(async { right.acme().run(tells, ()).await.unwrap() });
    let apart = Duration::from_micros(by_the_fast.abs_diff(by_the_right));
    assert!(apart < Duration::from_mins(1), "`ctx.now` is {apart:?} apart");
    right.shut_down();
    fast.shut_down();
}

#[test]
fn a_wall_clock_set_back_a_day_delays_neither_a_sleep_nor_a_retry() {
    let (world, schema, clock) = (World::new(), Schema::new(), Wrong::default());
    let code = flow!(world, |ctx, _n: ()| {
        let (slept, _) = join!(ctx.sleep(Duration::from_millis(500)), async { world.count("asleep") });
        slept?;
        ctx.call::<Transfer>("busy".to_owned()).await
    });
    let process =
        Process::start(&world, worker(&world, &schema, &clock, &world.tap).workflow(NAME, 1, code.clone()));
    process.on(async {
        world.tap.hold(|change| change.record.as_ref().is_some_and(|record| record.not_before.is_some()));
        let run = process.acme().run(code, ()).start().await.unwrap();
        world.counts("asleep", 1).await;
        clock.set(-DAY);
        world.tap.until(|tapped| tapped.held > 0).await; // it has slept, and its retry is about to be noted
        clock.set(-2 * DAY);
        world.tap.release();
        assert_eq!(run.result().await.unwrap(), 1);
    });
    process.shut_down();
}

#[test]
fn the_age_of_a_key_does_not_hang_on_the_clock_of_the_worker_that_sent_it() {
    for wrong in [-2 * HOUR, 2 * HOUR] {
        let (world, schema) = (World::new(), Schema::new());
        let code = flow!(world, |ctx, _n: ()| ctx.call::<Transfer>("rent".to_owned()).await);
        let start = |clock: Wrong, tap: &Tap| {
            Process::start(&world, worker(&world, &schema, &clock, tap).workflow(NAME, 1, code.clone()))
        };
        world.hold("answered");
        let first = start(Wrong::by(wrong), &world.tap);
        let run = first.on(async {
            let run = first.acme().run(code.clone(), ()).start().await.unwrap();
            world.reached("answered").await;
            run.id()
        });
        first.crash();
        world.release("answered");
        let second = start(Wrong::default(), &Tap::default());
        second.on(async {
            let result = second.acme().handle::<u32>(run).result().await;
            assert_eq!(result.unwrap(), 2, "the key is minutes old: it is sent again under it");
            assert!(second.acme().questions().await.unwrap().is_empty());
        });
        let keys = world.see(|seen| seen.effects.iter().map(|(_, key, _)| key.clone()).collect::<Vec<_>>());
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0], keys[1]);
        second.shut_down();
    }
}
