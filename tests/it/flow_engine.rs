//! FLOW-8: an engine with many runs, of which some panic, misuse their context, or have lost their code.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::exec::StartError;
use counterfoil::flow::{FailureCode, RunError};
use counterfoil::store::{EscalationKind, OpenError, Resolution, StoreError};
use counterfoil::{Ctx, Engine, Failure};
use futures_util::future::join_all;

use crate::flow;
use crate::flow_tools::{Post, post};
use crate::flow_world::{Process, World, counted};

#[test]
fn a_panic_halts_its_run_and_no_other() {
    // HAZARDS A11 for the workflow's own code: a clear question, and everything before the panic stands.
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        post(&ctx, "before").await?;
        ctx.step("boom", &n, |n| {
            assert!(*n != 1 || world.count("boom") > 1, "the cat sat on the keyboard");
            *n
        })
        .await
    });
    let process = Process::start(&world, world.engine().workflow("boom", 1, flow.clone()));
    process.on(async {
        let acme = process.acme();
        let panics = acme.run(flow.clone(), 1).start().await.unwrap();
        let halted = panics.result().await;
        assert!(
            matches!(&halted, Err(RunError::Halted { message, .. }) if message.contains("the cat sat")),
            "{halted:?}"
        );
        assert_eq!(acme.run(flow.clone(), 2).await.unwrap(), 2, "others go on");
        let question = process.question(EscalationKind::Quarantined).await;
        assert_eq!(question.run, Some(panics.id()));
        acme.resolve(question.id, Resolution::NotCommitted, "ann").await.unwrap();
        assert_eq!(panics.result().await.unwrap(), 1);
    });
    assert_eq!(world.effects("post").len(), 2);
}

#[test]
fn a_panic_before_the_first_await_halts_the_run_too() {
    // A workflow may be any function that returns a future: its body before that is the run's code as well.
    let world = World::new();
    let flow = |_ctx: Ctx, n: u32| {
        assert!(n != 1, "not even started");
        async move { Ok::<_, Failure>(n) }
    };
    let process = Process::start(&world, world.engine().workflow("early", 1, flow));
    process.on(async {
        let halted = process.acme().run(flow, 1).await;
        assert!(
            matches!(&halted, Err(RunError::Halted { message, .. }) if message.contains("not even")),
            "{halted:?}"
        );
        assert_eq!(process.acme().run(flow, 2).await.unwrap(), 2);
    });
}

#[test]
fn the_context_is_refused_inside_a_step_and_after_its_run() {
    let world = World::new();
    let kept: Arc<Mutex<Option<Ctx>>> = Arc::default();
    let flow = flow!(kept, |ctx, n: u32| {
        *kept.lock().unwrap() = Some(ctx.clone());
        let inner = ctx.clone();
        let work = || async move { inner.step("inner", &1, |n| *n).await.unwrap_err().code };
        let code: FailureCode = ctx.step_async("outer", &n, work).await?;
        let inner = ctx.clone();
        let work = || async move { inner.call::<Post>("inside".into()).await.unwrap_err().code };
        assert_eq!(ctx.step_async("calls", &n, work).await?, FailureCode::Misuse);
        ctx.step("outer too", &n, |_| ctx.run_id().0).await?; // reading the run's name is no use of it
        Ok::<_, Failure>(code)
    });
    let process = Process::start(&world, world.engine().workflow("misuse", 1, flow.clone()));
    process.on(async {
        assert_eq!(process.acme().run(flow, 1).await.unwrap(), FailureCode::Misuse);
        let ctx = kept.lock().unwrap().take().unwrap();
        let refused = ctx.step("late", &1, |n| *n).await.unwrap_err();
        assert!(refused.code == FailureCode::Misuse && refused.message.contains("ended"), "{refused}");
        assert_eq!(post(&ctx, "late").await.unwrap_err().code, FailureCode::Misuse);
    });
    assert_eq!(world.effects("post").len(), 0);
}

#[test]
fn names_that_cannot_be_stored_are_refused_and_the_run_goes_on() {
    // "What bad input gets": a clear error, and nothing is lost.
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        for name in ["", "a\0b", "line\nbreak", &"long".repeat(1000)] {
            let refused = ctx.step(name, &n, |n| *n).await.unwrap_err();
            assert_eq!(refused.code, FailureCode::Invalid, "{name:?}");
            if !name.is_empty() {
                let refused = ctx.step(("ok", name), &n, |n| *n).await.unwrap_err();
                assert_eq!(refused.code, FailureCode::Invalid, "{name:?} as an id");
            }
        }
        let odd = "'; DROP TABLE step; -- \u{202e}\u{1f980}";
        ctx.step((odd, odd), &n, |n| *n).await?;
        post(&ctx, "a\0b").await
    });
    let process = Process::start(&world, world.engine().workflow("names", 1, flow.clone()));
    assert_eq!(process.on(async { process.acme().run(flow, 1).await.unwrap() }), 1);
    assert_eq!(world.effects("post"), ["a\0b"]);
}

#[test]
fn a_run_whose_workflow_is_unknown_waits_for_it() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        counted(&world, &ctx, "s", n).await?;
        post(&ctx, "x").await
    });
    world.hold("post after");
    let process = Process::start(&world, world.engine().workflow("renamed", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.reached("post after").await;
        run
    });
    process.crash();
    world.release("post after");
    let process = Process::start(&world, world.engine());
    process.on(async {
        let halted = process.acme().handle::<u32>(run).result().await;
        assert!(matches!(halted, Err(RunError::Halted { .. })), "{halted:?}");
        let question = process.question(EscalationKind::UnknownWorkflow).await.question;
        assert!(question.contains("\"renamed\""), "says which is missing: {question}");
    });
    process.crash();
    let process = Process::start(&world, world.engine().workflow("renamed", 1, flow));
    process.on(async {
        let question = process.question(EscalationKind::UnknownWorkflow).await;
        process.acme().resolve(question.id, Resolution::NotCommitted, "ann").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
    });
    assert_eq!((world.counted("s"), world.effects("post").len()), (1, 1));
}

#[test]
fn a_tool_that_is_not_registered_is_named_and_nothing_is_sent() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| post(&ctx, "x").await);
    let process = Process::start(&world, Engine::sqlite(world.path()).workflow("bare", 1, flow.clone()));
    process.on(async {
        match process.acme().run(flow, 1).await {
            Err(RunError::Failed { failure, .. }) => {
                assert_eq!(failure.code, FailureCode::Misuse);
                assert!(failure.message.contains("\"post\""), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(world.counted("post called"), 0);
}

#[test]
fn a_second_engine_is_refused_while_the_first_lives() {
    // A14, DESIGN 4.7
    let world = World::new();
    let process = Process::start(&world, world.engine());
    match Process::try_start(&world, world.engine()).map(|_| ()) {
        Err(StartError::Store(StoreError::Open(OpenError::Owned { owner, .. }))) => {
            assert!(owner.contains(&std::process::id().to_string()), "says whose it is: {owner}");
        }
        other => panic!("{other:?}"),
    }
    process.crash();
    Process::start(&world, world.engine()).shut_down();
    Process::start(&world, world.engine()).crash();
}

#[test]
fn two_hundred_runs_at_once_have_exact_counts() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        for call in 0..5 {
            counted(&world, &ctx, "s", call).await?;
            post(&ctx, &format!("{n}.{call}")).await?;
        }
        Ok::<_, Failure>(n)
    });
    let process = Process::start(&world, world.engine().workflow("many", 1, flow.clone()));
    process.on(async {
        let acme = process.acme();
        let runs = (0..200).map(|n| acme.run(flow.clone(), n).key(format!("k{n}")).into_future());
        for (n, result) in join_all(runs).await.into_iter().enumerate() {
            assert_eq!(result.unwrap() as usize, n);
        }
        assert_eq!(acme.runs(None).await.unwrap().len(), 200);
        assert_eq!(acme.escalations().await.unwrap(), []);
    });
    let mut effects = world.effects("post");
    effects.sort_unstable();
    effects.dedup();
    assert_eq!((effects.len(), world.effects("post").len(), world.counted("s")), (1000, 1000, 1000));
    process.shut_down();
    let process = Process::start(&world, world.engine());
    assert_eq!(process.on(async { process.acme().runs(None).await.unwrap().len() }), 200);
    process.on(process.engine().clone().shutdown(Duration::ZERO));
}
