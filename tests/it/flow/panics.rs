//! A panic of what the engine calls (a store, a sink, a clock, a subscriber of its log, a callback) costs one run or one
//! attempt, and not the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::flow::Turn;
use counterfoil::outbox::{Event, PublishResult, Sink, SinkError};
use counterfoil::store::{QuestionKind, Resolution, StoreError};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Boot, Clock, SystemClock, Timestamp};
use counterfoil::{Ctx, Failure, Key, RunId};
use futures_util::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::mpsc;
use tracing::Subscriber;

use crate::flow;
use crate::flow::world::{Process, World, counted};
use crate::world::Listener;

/// Panics as often as it is told to.
#[derive(Clone, Debug, Default)]
struct Fuse(Arc<AtomicU32>);

impl Fuse {
    fn arm(&self, times: u32) {
        self.0.store(times, Ordering::SeqCst);
    }

    fn burn(&self) {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a panic that was asked for");
    }

    fn is_burnt(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// Starts a run that counts two steps, and holds it between them.
fn held(
    world: &Arc<World>,
) -> impl Fn(Ctx, u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, Failure>> + Send>>
+ Clone
+ Send
+ Sync
+ 'static {
    let world = world.clone();
    move |ctx, n| {
        let world = world.clone();
        Box::pin(async move {
            let first = counted(&world, &ctx, "first", n).await?;
            world.pass("between").await;
            counted(&world, &ctx, "second", first).await
        })
    }
}

#[test]
fn a_store_that_panics_once_in_a_commit_ends_no_writer() {
    let world = World::new();
    let code = held(&world);
    world.hold("between");
    let process = Process::start(&world, world.engine().workflow("flow", 1, code.clone()));
    process.on(async {
        let run = process.acme().run(code.clone(), 0).start().await.unwrap();
        world.reached("between").await;
        world.tap.panic_once();
        world.release("between");
        assert_eq!(run.result().await.unwrap(), 2, "started over from what is durable");
        assert_eq!(process.acme().run(code, 5).await.unwrap(), 7, "the writer goes on");
    });
    process.shut_down();
}

/// Takes everything, unless it panics.
struct Moody(Fuse, mpsc::UnboundedSender<String>);

impl Sink for Moody {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        self.0.burn();
        for event in batch {
            self.1.send(event.kind.clone()).unwrap();
        }
        Ok(PublishResult::all())
    }
}

#[test]
fn a_sink_that_panics_is_tried_again() {
    let world = World::new();
    let code = flow!(world, |ctx, kind: String| ctx.emit("order/1", kind, &0).await);
    let (fuse, (said, mut heard)) = (Fuse::default(), mpsc::unbounded_channel());
    fuse.arm(2);
    let engine = world.engine().sink(Moody(fuse.clone(), said)).workflow("tell", 1, code.clone());
    let process = Process::start(&world, engine);
    process.on(async {
        for kind in ["priced", "paid"] {
            process.acme().run(code.clone(), kind.to_owned()).await.unwrap();
            assert_eq!(heard.recv().await.unwrap(), kind);
        }
        assert!(fuse.is_burnt());
    });
    process.shut_down();
}

/// The system's clock, with a fuse for what is asked for again and again.
#[derive(Clone, Debug, Default)]
struct Cuckoo([Fuse; 2]);

impl Clock for Cuckoo {
    fn now(&self) -> Timestamp {
        self.0[0].burn();
        SystemClock.now()
    }

    fn boot(&self) -> Boot {
        SystemClock.boot()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.0[1].burn();
        SystemClock.sleep(by)
    }
}

#[test]
fn a_clock_that_panics_once_ends_no_engine() {
    let (world, clock) = (World::new(), Cuckoo::default());
    let code = flow!(world, |ctx, n: u32| {
        ctx.sleep(Duration::from_millis(1)).await?;
        counted(&world, &ctx, "step", n).await
    });
    let engine = world.engine_on(clock.clone()).workflow("flow", 1, code.clone());
    let process = Process::start(&world, engine);
    for round in 0..6 {
        let fuse = clock.0[round % 2].clone();
        fuse.arm(1);
        let (acme, flow) = (process.acme(), code.clone());
        // Whoever asks may be who meets it: in a task of its own.
        drop(process.spawn(async move { acme.run(flow, 1).start().await.map(|run| run.id()) }));
        process.on(async {
            while !fuse.is_burnt() {
                tokio::task::yield_now().await;
            }
            assert_eq!(process.acme().run(code.clone(), 7).await.unwrap(), 8, "in round {round}");
        });
    }
    process.shut_down();
}

/// Whoever says anything to it is in for a panic.
fn touchy() -> impl Subscriber + Send + Sync {
    let event = |event: &tracing::Event<'_>| {
        assert!(event.metadata().level() > &tracing::Level::INFO, "nothing is to be said");
    };
    Listener { enabled: |_| true, event }
}

#[test]
fn a_subscriber_that_panics_ends_neither_runs_nor_the_writer() {
    let world = World::new();
    let code = held(&world);
    world.hold("between");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start(|| std::mem::forget(tracing::subscriber::set_default(touchy())))
        .enable_all()
        .build()
        .unwrap();
    let engine = runtime.block_on(world.engine().workflow("flow", 1, code.clone()).start()).unwrap();
    let acme = engine.tenant("acme").unwrap();
    runtime.block_on(async {
        let run = acme.run(code.clone(), 0).start().await.unwrap();
        world.reached("between").await;
        // The second write that fails is told of, by the writer.
        world.tap.fail(Some(StoreError::Busy { detail: "locked".into() }));
        world.release("between");
        world.tap.until(|tapped| tapped.failed >= 2).await;
        world.tap.fail(None);
        assert_eq!(run.result().await.unwrap(), 2);
    });
    runtime.block_on(engine.shutdown(Duration::from_secs(5)));
}

/// Its key cannot be computed.
struct Keyless;

impl Tool for Keyless {
    const NAME: &'static str = "keyless";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = ();
    type Output = ();

    fn key(&self, (): &()) -> Option<Key> {
        panic!("a panic that was asked for")
    }

    async fn call(&self, _: &Call, (): &()) -> Result<Done<()>, ToolError> {
        Ok(Done::new(()))
    }
}

#[test]
fn a_callback_that_panics_blocks_its_run_and_no_other() {
    let world = World::new();
    let code = flow!(world, |ctx, calls: bool| {
        if calls {
            ctx.call::<Keyless>(()).await?;
        }
        Ok::<_, Failure>(7_u32)
    });
    let process = Process::start(&world, world.engine().tool(Keyless).workflow("flow", 1, code.clone()));
    process.on(async {
        let run: RunId = process.acme().run(code.clone(), true).start().await.unwrap().id();
        process.state(run, "blocked").await;
        assert_eq!(process.question(QuestionKind::Quarantined).await.run, Some(run));
        assert_eq!(process.acme().run(code, false).await.unwrap(), 7);
    });
    process.shut_down();
}

/// Hands closures to the context, each with the fuse in it that has its name.
async fn closures(ctx: Ctx, fuses: &HashMap<&'static str, Fuse>) -> Result<u32, Failure> {
    ctx.step("step", &1, |_| fuses["step"].burn()).await?;
    ctx.step_async("step_async", &1, || async { fuses["step_async"].burn() }).await?;
    ctx.try_step("try_step", &1, |_| {
        fuses["try_step"].burn();
        Ok::<_, Failure>(())
    })
    .await?;
    ctx.transaction("transaction", |_: &mut SqliteConnection| {
        let fuse = fuses["transaction"].clone();
        Box::pin(async move {
            fuse.burn();
            Ok(())
        })
    })
    .await?;
    ctx.turns("turns", 0_u32, |n, _: Ctx| async move {
        fuses["turns"].burn();
        Ok(Turn::<u32, u32>::Done(n + 7))
    })
    .await
}

#[test]
fn a_closure_of_a_body_that_panics_blocks_its_run_until_it_is_mended() {
    const CLOSURES: [&str; 5] = ["step", "step_async", "try_step", "transaction", "turns"];
    let world = World::new();
    let fuses: Arc<HashMap<_, _>> = Arc::new(CLOSURES.map(|what| (what, Fuse::default())).into());
    let code = {
        let fuses = fuses.clone();
        move |ctx: Ctx, _n: u32| {
            let fuses = fuses.clone();
            async move { closures(ctx, &fuses).await }
        }
    };
    let process = Process::start(&world, world.engine().workflow("flow", 1, code.clone()));
    process.on(async {
        for what in CLOSURES {
            fuses[what].arm(1);
            let run = process.acme().run(code.clone(), 1).start().await.unwrap();
            process.state(run.id(), "blocked").await;
            assert!(fuses[what].is_burnt(), "{what}");
            assert_eq!(process.acme().run(code.clone(), 2).await.unwrap(), 7, "another run: {what}");
            let asked = process.question(QuestionKind::Quarantined).await;
            process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
            assert_eq!(run.result().await.unwrap(), 7, "{what}");
        }
    });
    process.shut_down();
}
