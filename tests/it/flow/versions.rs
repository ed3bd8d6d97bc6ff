//! Versions of a workflow: a run stays with the one that began it, is taken over only where that is said, and waits
//! otherwise, listed.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::StartError;
use counterfoil::flow::{EngineBuilder, RunError, RunState, Workflow, WorkflowFn};
use counterfoil::store::{Model, QuestionKind, Resolution};
use counterfoil::{Engine, Failure, RunId};

use crate::flow;
use crate::flow::lives::{NAME, died_at, stand};
use crate::flow::tools::post;
use crate::flow::world::{Process, World};
use crate::world::TestClock;

/// Says which version it is, after a step of its own.
fn version(world: &Arc<World>, version: u32) -> impl WorkflowFn<(), u32> + Clone {
    flow!(world, |ctx, _input: ()| {
        post(&ctx, "note").await?;
        stand(&ctx, &world).await?;
        world.count(&format!("version {version}"));
        ctx.step(format!("end of {version}"), &(), |()| version).await
    })
}

/// The same code under another type: another function.
fn another(world: &Arc<World>, number: u32) -> impl WorkflowFn<(), u32> + Clone {
    let code = version(world, number);
    move |ctx, input| code.start(ctx, input)
}

fn refused(engine: EngineBuilder) -> (String, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match runtime.block_on(engine.start()) {
        Err(StartError::Workflow { name, reason }) => (name, reason),
        other => panic!("{other:?}"),
    }
}

fn row_version(process: &Process, run: RunId) -> u32 {
    process.on(async { process.acme().handle::<u32>(run).status().await.unwrap().version })
}

/// A version of a workflow, of which more is to be said.
fn versioned<W: WorkflowFn<(), u32>>(name: &str, version: u32, code: W) -> Workflow {
    Workflow::new(name, code).version(version)
}

#[test]
fn a_version_is_registered_once_and_takes_over_older_ones_only() {
    let world = World::new();
    let (one, two) = (version(&world, 1), another(&world, 2));
    let (name, reason) = refused(world.engine().workflow("x", 1, one.clone()).workflow("x", 1, two.clone()));
    assert!(name == "x" && reason.contains("version 1"), "{reason}");
    let (_, reason) = refused(world.engine().workflow("x", 1, one.clone()).workflow("x", 2, one.clone()));
    assert!(reason.contains("the same function"), "{reason}");
    for not_older in [2, 3] {
        let (_, reason) =
            refused(world.engine().register(versioned("x", 2, two.clone()).replaces([1, not_older])));
        assert!(reason.contains(&format!("not {not_older}")), "{reason}");
    }
}

#[test]
fn a_run_stays_with_its_version_for_as_long_as_it_is_registered() {
    let world = World::new();
    let (one, two) = (version(&world, 1), another(&world, 2));
    let run = died_at(&world, "stand", one.clone());
    let engine =
        world.engine().workflow(NAME, 1, one.clone()).register(versioned(NAME, 2, two.clone()).replaces([1]));
    let process = Process::start(&world, engine);
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
        // A fresh one is begun by the version whose function is named, and by that one alone.
        assert_eq!(process.acme().run(two.clone(), ()).await.unwrap(), 2);
        assert_eq!(process.acme().run(one, ()).await.unwrap(), 1);
        let versions: Vec<_> =
            process.acme().runs(None).await.unwrap().into_iter().map(|run| run.version).collect();
        assert_eq!(versions, [1, 2, 1]);
    });
}

#[test]
fn a_start_key_is_one_run_whatever_the_version() {
    let world = World::new();
    let (one, two) = (version(&world, 1), another(&world, 2));
    let process =
        Process::start(&world, world.engine().workflow(NAME, 1, one.clone()).workflow(NAME, 2, two.clone()));
    process.on(async {
        assert_eq!(process.acme().run(one, ()).key("monday").await.unwrap(), 1);
        assert_eq!(process.acme().run(two, ()).key("monday").await.unwrap(), 1);
    });
    assert_eq!(world.effects("post").len(), 1);
}

#[test]
fn a_newer_version_takes_over_where_its_author_says_so_and_writes_itself_down() {
    let world = World::new();
    let run = died_at(&world, "stand", version(&world, 1));
    world.hold("stand");
    let engine = || {
        let three = versioned(NAME, 3, another(&world, 3)).replaces([1, 2]);
        world.engine().register(three).register(versioned(NAME, 2, version(&world, 2)).replaces([1]))
    };
    let process = Process::start(&world, engine());
    process.on(world.reached("stand"));
    assert_eq!(row_version(&process, run), 3, "the newest of two that would");
    process.crash();

    // It is the newer one's run by now: the version that began it does not get it back.
    let process = Process::start(&world, world.engine().workflow(NAME, 1, version(&world, 1)));
    process.on(process.state(run, "blocked"));
    process.crash();
    world.release("stand");
    let process = Process::start(&world, engine());
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 3);
    assert_eq!((world.effects("post").len(), world.counted("version 3")), (1, 1));
}

#[test]
fn a_run_that_no_version_takes_over_waits_listed_until_one_does() {
    let world = World::new();
    let run = died_at(&world, "stand", version(&world, 1));
    let strangers = |older: &[u32]| {
        let four = versioned(NAME, 4, another(&world, 4)).replaces(older.iter().copied());
        world.engine().workflow(NAME, 2, version(&world, 2)).register(four)
    };
    let process = Process::start(&world, strangers(&[2, 3]));
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Unregistered));
    for said in ["version 1", "(2, 4)", ".replaces([1])", NAME] {
        assert!(asked.question.contains(said), "{said}: {}", asked.question);
    }
    // Told to go on all the same, it asks again: nothing else can carry it on.
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        let result = process.acme().handle::<u32>(run).result().await;
        assert!(matches!(result, Err(RunError::Blocked { .. })), "{result:?}");
    });
    let again = process.on(process.question(QuestionKind::Unregistered));
    assert_ne!(again.id, asked.id);
    process.shut_down();
    assert_eq!(world.counted("version 2") + world.counted("version 4"), 0);

    let process = Process::start(&world, strangers(&[1]));
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 4);
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    assert_eq!(row_version(&process, run), 4);
    assert_eq!(world.effects("post").len(), 1);
}

// The question of a run that was abandoned is closed: it does not come back to life with its workflow.
#[test]
fn an_abandoned_run_stays_so_when_its_version_is_back() {
    let world = World::new();
    let run = died_at(&world, "stand", version(&world, 1));
    let process = Process::start(&world, world.engine());
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Unregistered));
    process.on(process.acme().answer(asked.id, Resolution::Abandon, "ann")).unwrap();
    process.shut_down();
    let process = Process::start(&world, world.engine().workflow(NAME, 1, version(&world, 1)));
    let result = process.on(process.acme().handle::<u32>(run).result());
    assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
    assert_eq!(world.counted("version 1"), 0);
}

/// Lets time go by until something has happened.
async fn passing<T>(hands: &TestClock, happened: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            hands.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        happened = happened => happened,
        () = time => unreachable!("time does not end"),
    }
}

/// A waiting run is woken by whoever knows its version, and left alone by whoever does not.
#[test]
fn in_a_shared_store_a_version_is_left_to_workers_that_know_it() {
    const HOUR: Duration = Duration::from_hours(1);
    let (world, hands) = (World::new(), TestClock::default());
    let store = Arc::new(Model::shared(Arc::new(hands.clone())));
    let sleeper = |number: u32| {
        flow!(world, |ctx, _input: ()| {
            ctx.sleep(HOUR).await?;
            Ok::<_, Failure>(number)
        })
    };
    let engine = || {
        let engine = world.equip(Engine::store(store.clone()), &world.tap);
        engine.clock(hands.clone()).lease(1000 * HOUR) // nobody dies here
    };
    let (one, two) = (sleeper(1), sleeper(2));
    let old = Process::start(&world, engine().workflow(NAME, 1, one.clone()));
    let run = old.on(async {
        let run = old.acme().run(one, ()).start().await.unwrap().id();
        passing(&hands, old.state(run, "waiting")).await;
        run
    });
    old.shut_down();

    let strange = Process::start(&world, engine().workflow(NAME, 2, two.clone()));
    strange.on(async {
        // Its own run is due later than the strange one, which is passed over on the way.
        assert_eq!(passing(&hands, strange.acme().run(two.clone(), ()).into_future()).await.unwrap(), 2);
        let left = strange.acme().handle::<u32>(run).status().await.unwrap();
        assert!(matches!(left.state, RunState::Waiting { .. }) && left.version == 1, "{left:?}");
    });
    assert_eq!(store.escalations(), []);
    let heir = Process::start(&world, engine().register(versioned(NAME, 2, two).replaces([1])));
    heir.on(async {
        let handle = heir.acme().handle::<u32>(run);
        assert_eq!(passing(&hands, handle.result()).await.unwrap(), 2);
        assert_eq!(handle.status().await.unwrap().version, 2);
    });
}
