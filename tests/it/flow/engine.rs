//! What an engine does when code or processes are bad: the run concerned stops with a clear question, the
//! others go on, and nothing is lost (FLOW-8, K06, A10).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Ctx, Failure};
use futures_util::future::{join, join_all};

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, stand};
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

#[test]
fn a_panic_blocks_its_run_alone_and_mended_code_ends_it() {
    let world = World::new();
    let code = |mended: bool| {
        flow!(world, |ctx, input: String| {
            post(&ctx, &input).await?;
            ctx.step("parse", &input, |text| {
                world.count("parsed");
                assert!(mended || text != "bad", "cannot parse {text:?}");
            })
            .await?;
            post(&ctx, &format!("{input} parsed")).await
        })
    };
    let broken = code(false);
    let process = Process::start(&world, world.engine().workflow(NAME, 1, broken.clone()));
    let run = process.on(async {
        let bad = process.acme().run(broken.clone(), "bad".to_owned()).start().await.unwrap();
        let blocked = bad.result().await.unwrap_err();
        assert!(
            matches!(&blocked, RunError::Blocked { message, .. } if message.contains("cannot parse \"bad\""))
        );
        process.acme().run(broken, "good".to_owned()).await.unwrap(); // the others go on
        bad.id()
    });
    let asked = process.on(process.question(QuestionKind::Quarantined));
    assert!(asked.run == Some(run) && asked.question.contains("panicked"), "{asked:?}");
    process.shut_down();

    let process = Process::start(&world, world.engine().workflow(NAME, 1, code(true)));
    process.on(async {
        let blocked = process.acme().handle::<u32>(run);
        assert_eq!(
            blocked.status().await.unwrap().state.name(),
            "blocked",
            "nobody has said that it may go on"
        );
        process.acme().answer(asked.id, Resolution::Resume, "bob").await.unwrap();
        assert_eq!(blocked.result().await.unwrap(), 4);
    });
    assert_eq!(world.effects("post"), ["bad", "good", "good parsed", "bad parsed"]);
    assert_eq!(world.counted("parsed"), 3);
    process.shut_down();
}

#[test]
fn the_context_is_refused_after_its_run() {
    let world = World::new();
    let kept: Arc<Mutex<Option<Ctx>>> = Arc::default();
    let code = flow!(kept, |ctx, _input: ()| {
        *kept.lock().unwrap() = Some(ctx.clone());
        post(&ctx, "between").await
    });
    let process = life(&world, code.clone());
    process.on(async {
        assert_eq!(process.acme().run(code, ()).await.unwrap(), 1);
        let late = kept.lock().unwrap().take().unwrap();
        for refused in [
            late.step("late", &(), |()| world.count("late")).await.unwrap_err(),
            post(&late, "late").await.unwrap_err(),
        ] {
            assert_eq!(refused.code, FailureCode::Misuse);
            assert!(refused.message.contains("after its run had ended"), "{refused}");
        }
    });
    assert_eq!((world.effects("post"), world.counted("late")), (vec!["between".to_owned()], 0));
    process.shut_down();
}

#[test]
fn a_run_of_an_unknown_workflow_waits_until_it_is_registered() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let number = post(&ctx, "note").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(number)
    });
    let run = died_at(&world, "stand", code.clone());
    let process = Process::start(&world, world.engine());
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Unregistered));
    assert!(asked.run == Some(run) && asked.question.contains(&format!("{NAME:?}")), "{asked:?}");
    let unregistered = process.on(async { process.acme().run(code.clone(), ()).await });
    assert!(matches!(unregistered, Err(RunError::Unregistered)), "{unregistered:?}");
    process.shut_down();

    let process = life(&world, code);
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1, "without being asked");
        assert_eq!(process.acme().questions().await.unwrap(), [], "the question is withdrawn");
        let late = process.acme().answer(asked.id, Resolution::Abandon, "bob").await.unwrap_err();
        assert!(late.to_string().contains("it has been answered"), "{late}");
    });
    assert_eq!(world.effects("post"), ["note"]);
    process.shut_down();
}

// K06
#[test]
fn a_run_that_kills_its_process_each_time_is_quarantined() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        world.count("lives");
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(7)
    });
    let run = died_at(&world, "stand", code.clone());
    let engine = || world.engine().max_recovery_attempts(2).workflow(NAME, 1, code.clone());
    world.hold("stand");
    for _ in 0..2 {
        let process = Process::start(&world, engine());
        process.on(world.reached("stand"));
        process.crash();
    }
    let process = Process::start(&world, engine());
    process.on(process.state(run, "blocked"));
    assert_eq!(world.counted("lives"), 3, "its code is not run again");
    let asked = process.on(process.question(QuestionKind::Quarantined));
    assert!(asked.run == Some(run) && asked.question.contains("died 3 times"), "{asked:?}");
    world.release("stand");
    process.on(process.acme().answer(asked.id, Resolution::Resume, "bob")).unwrap();
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 7);
    process.shut_down();
}

// K06: many deaths are no crash loop if the run gets somewhere in between.
#[test]
fn a_run_that_makes_progress_is_not_quarantined() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        for leg in 0..6 {
            let (world, point) = (world.clone(), format!("leg {leg}"));
            ctx.step_async(("leg", leg), &leg, || async move { world.pass(&point).await }).await?;
        }
        Ok::<_, Failure>(7)
    });
    let run = died_at(&world, "leg 0", code.clone());
    let engine = || world.engine().max_recovery_attempts(1).workflow(NAME, 1, code.clone());
    for leg in 1..6 {
        let point = format!("leg {leg}");
        world.hold(&point);
        let process = Process::start(&world, engine());
        process.on(world.reached(&point));
        process.crash();
        world.release(&point);
    }
    let process = Process::start(&world, engine());
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 7);
    process.shut_down();
}

// A10: what is under way ends and is recorded, nothing new starts, and the next process goes on from there.
#[test]
fn a_shutdown_drains_and_the_next_engine_goes_on() {
    let world = World::new();
    let code =
        flow!(world, |ctx, _input: ()| Ok::<_, Failure>(post(&ctx, "a").await? + post(&ctx, "b").await?));
    world.hold("post before a");
    let process = life(&world, code.clone());
    let run = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("post before a").await;
        let shut_down = process.engine().clone().shutdown(Duration::from_secs(10));
        join(shut_down, async { world.release("post before a") }).await; // polled in this order
        assert!(matches!(run.result().await, Err(RunError::Closed { .. })));
        run.id()
    });
    assert_eq!(world.effects("post"), ["a"], "drained, and no new call");
    process.crash();
    let process = life(&world, code);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 3);
    assert_eq!(world.effects("post"), ["a", "b"]);
    assert_eq!(world.counted("post looked up"), 0, "what was drained is recorded, not ambiguous");
    process.shut_down();
}

// Whoever waits for a run that waits itself is told that this engine is done with it.
#[test]
fn a_shutdown_tells_those_who_wait_for_a_parked_run() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| ctx.sleep(Duration::from_secs(3600)).await.map(|()| 7));
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        process.state(run.id(), "waiting").await;
        let shut_down = process.engine().clone().shutdown(Duration::from_secs(10));
        let (told, ()) = join(run.result(), shut_down).await;
        assert!(matches!(told, Err(RunError::Closed { .. })), "{told:?}");
    });
    process.crash();
}

#[test]
fn a_second_engine_on_the_same_file_is_refused_while_the_first_lives() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| post(&ctx, "note").await);
    let first = life(&world, code.clone());
    let refused = Process::try_start(&world, world.engine()).err().expect("two owners").to_string();
    assert!(refused.contains("is open in this process already"), "{refused}");
    assert_eq!(
        first.on(async { first.acme().run(code, ()).await }).unwrap(),
        1,
        "the first is not disturbed"
    );
    first.shut_down();
    Process::start(&world, world.engine()).shut_down();
}

#[test]
fn two_hundred_runs_at_once_end_with_exact_counts() {
    let world = World::new();
    let code = flow!(world, |ctx, name: u32| {
        for call in 0..5 {
            post(&ctx, &format!("{name} {call}")).await?;
        }
        Ok::<_, Failure>(name)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    let acme = process.acme();
    let results = process.on(join_all((0..200).map(|name| acme.run(code.clone(), name).into_future())));
    assert_eq!(results.into_iter().map(Result::unwrap).collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    let mut effects = world.effects("post");
    assert_eq!((effects.len(), world.counted("post called")), (1000, 1000));
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 1000, "each content once");
    let listed = process.on(acme.runs(None)).unwrap();
    assert_eq!(listed.iter().filter(|run| run.state.name() == "succeeded").count(), 200);
    assert!(process.on(acme.questions()).unwrap().is_empty());
    drop(acme);
    process.shut_down();
}
