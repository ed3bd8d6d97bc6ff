//! Children and commands (FLOW-4, FLOW-5): begun once, waited for without memory, cancelled with their parent; a run is
//! cancelled, paused and let go on by commands that survive whoever gave them.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{Failure, FailureCode, RunError, RunState, Sent, WorkflowFn};
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, RunId};
use futures_util::future::Either;
use tracing::Level;

use crate::flow;
use crate::flow::tools::Post;
use crate::flow::wait::{HOUR, MINUTE, begin, park, result, settle};
use crate::flow::world::{Process, World};
use crate::world::{Log, TestClock};

/// A workflow that begins children of this kind.
macro_rules! parent {
    ($world:ident, $child:ident, |$ctx:ident, $kind:ident, $input:ident| $body:expr) => {{
        let ($world, $kind) = ($world.clone(), $child.clone());
        move |$ctx: Ctx, $input: u32| {
            let ($world, $kind) = ($world.clone(), $kind.clone());
            async move {
                let _ = (&$world, $input);
                $body
            }
        }
    }};
}

/// An engine that knows a parent and its child.
fn family(
    world: &Arc<World>,
    hands: &TestClock,
    parent: &(impl WorkflowFn<u32, String> + Clone),
    child: &(impl WorkflowFn<u32, String> + Clone),
) -> Process {
    let engine = world.engine_on(hands.clone());
    Process::start(world, engine.workflow("parent", 1, parent.clone()).workflow("child", 1, child.clone()))
}

fn failure(process: &Process, run: RunId) -> Failure {
    match process.on(process.acme().handle::<String>(run).result()) {
        Err(RunError::Failed { failure, .. }) => failure,
        other => panic!("not failed: {other:?}"),
    }
}

async fn child_of(process: &Process, parent: RunId) -> RunId {
    loop {
        let runs = process.acme().runs(None).await.unwrap();
        if let Some(child) = runs.iter().find(|run| run.parent == Some(parent)) {
            return child.id;
        }
        tokio::task::yield_now().await;
    }
}

/// Posts something, and sleeps before it says so.
async fn post(ctx: &Ctx, world: &World, what: u32) -> Result<String, Failure> {
    ctx.call::<Post>(format!("letter {what}")).await?;
    world.count("posted");
    ctx.sleep(HOUR).await?;
    if what == 13 { Err(Failure::new("unlucky")) } else { Ok(format!("posted {what}")) }
}

#[test]
fn a_child_is_begun_once_and_waited_for_as_a_row() {
    for what in [7, 13] {
        let (world, hands) = (World::new(), TestClock::default());
        let child = flow!(world, |ctx, what: u32| post(&ctx, &world, what).await);
        let parent = parent!(world, child, |ctx, kind, what| ctx.child(kind, what).await);
        let mut process = family(&world, &hands, &parent, &child);
        let run = begin(&process, &parent, what);
        process.on(async {
            world.counts("posted", 1).await;
            hands.asleep_for(HOUR).await;
            park(&process, &hands, run).await;
        });
        process.crash();
        hands.advance(HOUR);
        process = family(&world, &hands, &parent, &child);
        if what == 7 {
            assert_eq!(result(&process, run), "posted 7");
        } else {
            let failure = failure(&process, run);
            assert_eq!(failure.code, FailureCode::ChildFailed);
            assert!(failure.message.ends_with("unlucky"), "{failure}");
        }
        assert_eq!(world.effects("post").len(), 1, "one child, one letter");
        assert_eq!(process.on(process.acme().runs(None)).unwrap().len(), 2);
    }
}

#[test]
fn several_children_run_at_once_and_their_first_is_waited_for() {
    let (world, hands) = (World::new(), TestClock::default());
    let child = flow!(world, |ctx, minutes: u32| {
        ctx.sleep(minutes * MINUTE).await?;
        Ok::<_, Failure>(format!("{minutes}"))
    });
    let parent = parent!(world, child, |ctx, kind, _input| {
        let kind = |minutes: u32| ctx.child(kind.clone(), minutes).id(minutes);
        let (long, short) = tokio::try_join!(kind(30).start(), kind(20).start())?;
        let first = match ctx.select("first", long.result(), short.result()).await? {
            Either::Left(first) | Either::Right(first) => first?,
        };
        world.count("first");
        let last = long.result().await?;
        assert_eq!(long.result().await?, last, "as often as one likes");
        Ok::<_, Failure>(format!("{first} {last}"))
    });
    let process = family(&world, &hands, &parent, &child);
    let run = begin(&process, &parent, 0);
    process.on(async {
        hands.asleep_for(30 * MINUTE).await;
        hands.asleep_for(20 * MINUTE).await;
        hands.advance(20 * MINUTE);
        world.counts("first", 1).await;
        // The other child and its parent may be lying down meanwhile: time goes by for as long as they take.
        let handle = process.acme().handle::<String>(run);
        let time = async {
            loop {
                hands.advance(MINUTE);
                settle().await;
            }
        };
        tokio::select! {
            result = handle.result() => assert_eq!(result.unwrap(), "20 30"),
            () = time => unreachable!("time does not end"),
        }
    });
}

#[test]
fn who_cancels_a_run_cancels_its_children_and_not_those_that_stand_alone() {
    for restart in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let child = flow!(world, |ctx, what: u32| post(&ctx, &world, what).await);
        let parent = parent!(world, child, |ctx, kind, _input| {
            ctx.child(kind.clone(), 1).id("alone").detach().await?;
            ctx.child(kind, 2).id("mine").await
        });
        let mut process = family(&world, &hands, &parent, &child);
        let run = begin(&process, &parent, 0);
        let mine = process.on(async {
            world.counts("posted", 2).await;
            hands.asleep_for(HOUR).await;
            if restart {
                park(&process, &hands, run).await;
            }
            child_of(&process, run).await
        });
        if restart {
            process.crash();
            process = family(&world, &hands, &parent, &child);
        }
        let handle = process.acme().handle::<String>(run);
        let cancel = || async { handle.cancel("ann", "the customer left").key("c1").await };
        let key_of_engine = async { handle.cancel("ann", "the customer left").key(format!("~{run}")).await };
        assert!(matches!(process.on(key_of_engine), Err(RunError::Id(_))), "the engine's own form of key");
        assert_eq!(process.on(cancel()).unwrap(), Sent::New);
        for run in [run, mine] {
            let failure = failure(&process, run);
            assert_eq!(failure.code, FailureCode::Cancelled);
            assert_eq!(failure.message, "ann cancelled the run: the customer left");
        }
        assert_eq!(process.on(cancel()).unwrap(), Sent::Before, "the same command again");
        // Invariant 7: what the child had posted is somebody's question now.
        let open = process.on(process.acme().questions()).unwrap();
        assert_eq!(
            open.iter().map(|q| (q.kind, q.run)).collect::<Vec<_>>(),
            [(QuestionKind::Orphaned, Some(mine))]
        );
        hands.advance(HOUR);
        process.on(async {
            let runs = process.acme().runs(None).await.unwrap();
            let alone = runs.iter().find(|other| other.id != run && other.id != mine).unwrap().id;
            process.state(alone, "succeeded").await;
        });
    }
}

// A parent that fails cancels its children. Those of a parent that was cancelled itself were told so before, in other words.
#[test]
fn a_child_that_is_already_cancelled_is_no_trouble() {
    let (world, hands, log) = (World::new(), TestClock::default(), Log::default());
    let _here = log.listen();
    let child = flow!(world, |ctx, _n: u32| {
        ctx.cancelled().await?;
        ctx.sleep(MINUTE).await?;
        Ok::<_, Failure>("done".to_owned())
    });
    let parent = parent!(world, child, |ctx, kind, _input| {
        let child = ctx.child(kind, 1).start().await?;
        child.result().await
    });
    let engine = world.engine_on(hands.clone());
    let engine = engine.workflow("parent", 1, parent.clone()).workflow("child", 1, child);
    let process = Process::start_logged(&world, engine, &log);
    let run = begin(&process, &parent, 0);
    process.on(async {
        child_of(&process, run).await;
        process.acme().handle::<String>(run).cancel("ann", "enough").grace(HOUR).await.unwrap();
        hands.asleep_for(MINUTE).await;
        hands.asleep_for(Duration::from_secs(1)).await; // the parent waits for its child to end
        hands.advance(MINUTE);
    });
    assert_eq!(failure(&process, run).message, "ann cancelled the run: enough");
    process.shut_down();
    assert!(!log.counts(Level::WARN).contains_key("child run not cancelled"));
}

#[test]
fn a_run_that_listens_may_end_by_itself_until_its_grace_is_over() {
    for obeys in [true, false] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, obeys: u32| {
            let reason = match ctx.select("work", ctx.sleep(HOUR), ctx.cancelled()).await? {
                Either::Left(_) => return Ok("done".to_owned()),
                Either::Right(command) => command?.reason,
            };
            world.count("told");
            ctx.step("tidy up", &(), |()| world.count("tidied")).await?;
            if obeys == 0 {
                ctx.sleep_named("stubborn", HOUR).await?;
            }
            Ok::<_, Failure>(format!("tidied up: {reason}"))
        });
        let mut process = crate::flow::wait::life(&world, &hands, &flow);
        let run = begin(&process, &flow, u32::from(obeys));
        process.on(async {
            park(&process, &hands, run).await;
            let handle = process.acme().handle::<String>(run);
            handle.cancel("ann", "enough").grace(MINUTE).await.unwrap();
            world.counts("told", 1).await;
        });
        if obeys {
            assert_eq!(result(&process, run), "tidied up: enough");
            continue;
        }
        process.on(async {
            hands.asleep_for(HOUR).await;
            park(&process, &hands, run).await;
        });
        process.crash();
        process = crate::flow::wait::life(&world, &hands, &flow);
        process.on(async {
            settle().await;
            assert!(!process.acme().handle::<String>(run).status().await.unwrap().state.is_final());
            hands.advance(MINUTE);
        });
        assert_eq!(failure(&process, run).code, FailureCode::Cancelled, "by force");
        assert_eq!(world.counted("tidied"), 1);
    }
}

#[test]
fn a_paused_run_does_nothing_until_it_may_go_on() {
    for parked in [false, true] {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, _input: u32| {
            ctx.sleep(MINUTE).await?;
            world.count("awake");
            Ok::<_, Failure>("over".to_owned())
        });
        let mut process = crate::flow::wait::life(&world, &hands, &flow);
        let run = begin(&process, &flow, 0);
        process.on(async {
            hands.asleep_for(MINUTE).await;
            if parked {
                park(&process, &hands, run).await;
            }
            let handle = process.acme().handle::<String>(run);
            assert!(matches!(handle.resume("ann", "early").await, Err(RunError::NotPaused { .. })));
            handle.pause("ann", "the bank is closed").key("p1").await.unwrap();
            process.state(run, "blocked").await;
            assert_eq!(process.question(QuestionKind::Paused).await.run, Some(run));
            assert!(matches!(handle.result().await, Err(RunError::Blocked { .. })));
        });
        process.crash();
        process = crate::flow::wait::life(&world, &hands, &flow);
        hands.advance(HOUR);
        process.on(async {
            settle().await;
            assert_eq!(world.counted("awake"), 0, "its time has come, and it is paused");
            let handle = process.acme().handle::<String>(run);
            assert_eq!(handle.pause("ann", "the bank is closed").key("p1").await.unwrap(), Sent::Before);
            let resume = async |why: &str| handle.resume("bob", why).key("g1").await;
            assert_eq!(resume("the bank has opened").await.unwrap(), Sent::New);
            assert_eq!(resume("the bank has opened").await.unwrap(), Sent::Before, "the same command again");
            let another = resume("for another reason").await;
            assert!(matches!(another, Err(RunError::CommandConflict { .. })), "{another:?}");
            assert!(matches!(handle.resume("bob", "twice").await, Err(RunError::NotPaused { .. })));
        });
        assert_eq!(result(&process, run), "over");
        let history = process.on(process.acme().handle::<String>(run).history(None)).unwrap();
        assert!(format!("{history:?}").contains("the bank has opened"), "{history:?}");
    }
}

// A command that is given again does not end a pause that came after it.
#[test]
fn a_later_pause_is_not_ended_by_an_earlier_command() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        ctx.sleep(MINUTE).await?;
        Ok::<_, Failure>("over".to_owned())
    });
    let process = crate::flow::wait::life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(MINUTE).await;
        let handle = process.acme().handle::<String>(run);
        handle.pause("ann", "lunch").await.unwrap();
        process.state(run, "blocked").await;
        assert_eq!(handle.resume("ann", "back").key("g1").await.unwrap(), Sent::New);
        handle.pause("ann", "the dentist").await.unwrap();
        process.state(run, "blocked").await;
        assert_eq!(handle.resume("ann", "back").key("g1").await.unwrap(), Sent::Before);
        assert_eq!(handle.status().await.unwrap().state.name(), "blocked");
        assert_eq!(handle.resume("ann", "back again").key("g2").await.unwrap(), Sent::New);
        hands.advance(MINUTE);
    });
    assert_eq!(result(&process, run), "over");
}

#[test]
fn a_blocked_run_can_be_cancelled() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        ctx.sleep(MINUTE).await?;
        Ok::<_, Failure>("over".to_owned())
    });
    let process = crate::flow::wait::life(&world, &hands, &flow);
    let run = begin(&process, &flow, 0);
    process.on(async {
        hands.asleep_for(MINUTE).await;
        let handle = process.acme().handle::<String>(run);
        handle.pause("ann", "wait").await.unwrap();
        process.state(run, "blocked").await;
        handle.cancel("bob", "never mind").grace(Duration::ZERO).await.unwrap();
        let state = handle.status().await.unwrap().state;
        let RunState::Failed { failure } = state else { panic!("{state:?}") };
        assert_eq!(failure.code, FailureCode::Cancelled);
        assert_eq!(failure.message, "bob cancelled the run: never mind");
        assert!(matches!(handle.cancel("bob", "again").await, Err(RunError::Over { .. })));
    });
}
