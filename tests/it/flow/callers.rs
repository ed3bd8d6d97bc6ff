//! A10, A13: callers that go away, and a shutdown that does not wait for everything.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use counterfoil::exec::{ExecError, StartError};
use counterfoil::flow::{RunError, RunState};
use counterfoil::store::{OpenError, QuestionKind, Resolution, StoreError};
use counterfoil::{Executor, Failure};

use crate::flow;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};
use crate::world::acme;

#[test]
fn shutdown_drains_and_a_restart_resumes() {
    // A10: the call under way ends and is recorded, the next one is not begun.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        post(&ctx, "one").await?;
        post(&ctx, "two").await
    });
    world.hold("post after one");
    let process = Process::start(&world, world.engine().workflow("drains", 1, flow.clone()));
    let run = process.on(async {
        let handle = process.acme().run(flow.clone(), 1).start().await.unwrap();
        world.reached("post after one").await;
        let down = tokio::spawn(process.engine().clone().shutdown(Duration::from_secs(60)));
        assert!(matches!(handle.result().await, Err(RunError::Closed { .. })), "its caller is told");
        assert!(!down.is_finished(), "a call is under way");
        world.release("post after one");
        down.await.unwrap();
        handle.id()
    });
    process.crash();
    let process = Process::start(&world, world.engine().workflow("drains", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("post"), ["one", "two"]);
    assert_eq!(world.counted("post looked up"), 0, "the first call's answer was recorded");
}

#[test]
fn what_is_under_way_after_the_drain_is_ambiguous_and_asked_about() {
    // A10: it takes too long; the record stays started, and the next engine asks the world.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| post(&ctx, "slow").await);
    world.hold("post after slow");
    let process = Process::start(&world, world.engine().workflow("drains", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.reached("post after slow").await;
        process.engine().clone().shutdown(Duration::ZERO).await;
        run
    });
    process.crash();
    let process = Process::start(&world, world.engine().workflow("drains", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 1);
    assert_eq!((world.effects("post").len(), world.counted("post looked up")), (1, 1));
}

#[test]
fn a_start_whose_caller_goes_away_is_a_run_all_the_same() {
    // A13: the row becomes durable although nobody waits for it, so somebody must carry the run out.
    for key in [None, Some("k")] {
        let world = World::new();
        let flow = flow!(world, |ctx, _n: u32| post(&ctx, "x").await);
        let process = Process::start(&world, world.engine().workflow("left", 1, flow.clone()));
        process.on(async {
            world.tap.hold(|change| change.run.is_some());
            let acme = process.acme();
            let run = acme.run(flow.clone(), 1);
            let starting = match key {
                Some(key) => run.key(key).start(),
                None => run.start(),
            };
            tokio::select! {
                _ = starting => panic!("the write is held"),
                () = world.tap.until(|tap| tap.held > 0) => {}
            }
            world.tap.release();
            process.until(async |acme| !acme.runs(None).await.unwrap().is_empty()).await;
            let run = acme.runs(None).await.unwrap().remove(0);
            assert_eq!(acme.handle::<u32>(run.id).result().await.unwrap(), 1);
        });
        assert_eq!(world.effects("post").len(), 1);
    }
}

#[test]
fn an_answer_whose_giver_goes_away_still_moves_the_run() {
    // A13 for `answer`: the answer becomes durable, so the run it lets go on must go on.
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        ctx.step("s", &n, |_| assert!(world.count("boom") > 1, "once")).await?;
        Ok::<_, Failure>(n)
    });
    let process = Process::start(&world, world.engine().workflow("left", 1, flow.clone()));
    process.on(async {
        let acme = process.acme();
        let handle = acme.run(flow, 1).start().await.unwrap();
        handle.result().await.unwrap_err();
        let question = process.question(QuestionKind::Quarantined).await;
        world.tap.hold(|change| change.escalations.iter().any(|e| e.answer.is_some()));
        tokio::select! {
            _ = acme.answer(question.id, Resolution::Resume, "ann") => panic!("the write is held"),
            () = world.tap.until(|tap| tap.held > 0) => {}
        }
        world.tap.release();
        process
            .until(async |_| !matches!(handle.status().await.unwrap().state, RunState::Blocked { .. }))
            .await;
        assert_eq!(handle.result().await.unwrap(), 1);
    });
}

// Invariant 8: a question about a run can be answered through the executor of its engine, and through no other: it
// would be closed, and the run would stay where it is.
#[test]
fn a_blocked_run_goes_on_by_the_executor_of_its_engine_alone() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        post(&ctx, "one").await?;
        assert_ne!(world.count("lives"), 1, "the first one panics");
        post(&ctx, "two").await
    });
    let process = Process::start(&world, world.engine().workflow("known", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap();
        run.result().await.unwrap_err();
        run.id()
    });
    let asked = process.on(process.question(QuestionKind::Quarantined));
    process.crash();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let alone = Executor::sqlite(world.path()).open().await.unwrap();
        for answer in [Resolution::Resume, Resolution::Abandon] {
            let refused = alone.answer(&acme(), asked.id, answer, "ann").await.unwrap_err();
            assert!(matches!(refused, ExecError::Unanswerable { .. }), "{refused:?}");
        }
        assert_eq!(alone.questions(&acme()).await.unwrap(), std::slice::from_ref(&asked));
        alone.shutdown(Duration::ZERO).await;
    });
    drop(runtime);

    let process = Process::start(&world, world.engine().workflow("known", 1, flow));
    let executor = process.engine().executor();
    process.on(executor.answer(&acme(), asked.id, Resolution::Resume, "ann")).unwrap();
    drop(executor);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 2);
    assert_eq!(world.effects("post"), ["one", "two"]);
}

// A10: whatever handles are left, the next engine need not wait for them to go.
#[test]
fn a_shutdown_gives_the_file_free_when_it_returns() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| post(&ctx, "one").await);
    for life in 1..=20 {
        let process = Process::start(&world, world.engine().workflow("posts", 1, flow.clone()));
        let (acme, executor) = (process.acme(), process.engine().executor());
        let handle = process.on(async {
            let handle = acme.run(flow.clone(), 1).key("first").start().await.unwrap();
            assert_eq!(handle.result().await.unwrap(), 1);
            process.engine().clone().shutdown(Duration::from_secs(10)).await;
            handle
        });
        let next = Process::start(&world, world.engine().workflow("posts", 1, flow.clone()));
        assert_eq!(process.on(handle.result()).unwrap(), 1, "life {life}: what is recorded can be read");
        let late = process.on(acme.run(flow.clone(), 2).start()).map(drop);
        assert!(matches!(late, Err(RunError::Store(StoreError::Closed))), "life {life}: {late:?}");
        drop(executor);
        next.shut_down();
    }
    assert_eq!(world.effects("post"), ["one"]);
}

// A10, invariant 3: who holds the lock may still send. A call that goes on after the shutdown keeps it, for the
// next process would count the settle time from the moment it has it.
#[test]
fn a_call_that_outlives_its_engine_keeps_the_file_locked() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| post(&ctx, "slow").await);
    world.hold("post after slow");
    let engine = || world.engine().workflow("posts", 1, flow.clone());
    let process = Process::start(&world, engine());
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.reached("post after slow").await;
        process.engine().clone().shutdown(Duration::ZERO).await;
        run
    });
    let is_owned = |error: &StartError| {
        matches!(error, StartError::Store(StoreError::Open(OpenError::OwnedHere { .. })))
    };
    let refused = Process::try_start(&world, engine()).map(drop).unwrap_err();
    assert!(is_owned(&refused), "{refused}");
    world.release("post after slow");
    let next = loop {
        match Process::try_start(&world, engine()) {
            Ok(next) => break next,
            Err(refused) => assert!(is_owned(&refused), "{refused}"),
        }
    };
    assert_eq!(next.on(next.acme().handle::<u32>(run).result()).unwrap(), 1);
    assert_eq!((world.effects("post").len(), world.counted("post looked up")), (1, 1));
    process.crash();
}

// Code that waits by polling, as some libraries do, for somebody who needs the same thread.
#[test]
fn a_body_that_wakes_itself_lets_others_have_their_turn() {
    static READY: AtomicBool = AtomicBool::new(false);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let world = World::new();
        let flow = flow!(world, |ctx, _n: u32| {
            tokio::spawn(async { READY.store(true, Ordering::Release) });
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if READY.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            post(&ctx, "one").await
        });
        let process = Process::start(&world, world.engine().workflow("polls", 1, flow.clone()));
        done.send(process.on(async { process.acme().run(flow, 1).await.unwrap() })).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(1), "it has the thread for itself");
}
