//! Retry and fork from a step (FLOW-5, FLOW-9, DESIGN 4.11): what was computed is done again, what happened in the world
//! stands, and is repeated only where somebody says so.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, RunError, RunHandle, RunState, Sent, Turn, WorkflowFn};
use counterfoil::ledger::OperationKey;
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Engine, Failure, Key, RunId};

use crate::flow;
use crate::flow::lives::{NAME, died_at, life};
use crate::flow::tools::{Bill, Pay, post};
use crate::flow::world::{Process, World, counted};
use crate::store::postgres::Schema;
use crate::world::TestClock;

async fn pay(ctx: &Ctx, reference: &str) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new(reference, 100)).await
}

fn paid(reference: &str) -> OperationKey {
    Key::of("pay").target("ann").operation(reference).render().unwrap()
}

/// A run of this code that failed.
fn failed<W: WorkflowFn<(), u32> + Clone>(process: &Process, code: W) -> RunHandle<u32> {
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        let result = run.result().await;
        assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
        run
    })
}

/// Pays between two steps, and then makes a call that fails for certain twice before it succeeds.
fn errand(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone {
    flow!(world, |ctx, _n: ()| {
        counted(&world, &ctx, "first", 1).await?;
        ctx.step_async("second", &1, || async { world.count("second") }).await?;
        pay(&ctx, "rent").await?;
        ctx.step_async("third", &1, || async { world.count("third") }).await?;
        post(&ctx, "broke twice").await
    })
}

fn counts(world: &World) -> [u32; 3] {
    ["first", "second", "third"].map(|step| world.counted(step))
}

#[test]
fn a_retry_goes_on_from_what_failed() {
    let world = World::new();
    let code = errand(&world);
    let process = life(&world, code.clone());
    let run = failed(&process, code);
    process.on(async {
        let asked = process.questions(QuestionKind::Orphaned).await;
        assert_eq!(asked.len(), 1, "the payment of the failed run");
        let key_of_engine = run.retry("ann", "they have money now").key("~0").await;
        assert!(matches!(key_of_engine, Err(RunError::Id(_))), "the engine's own form of key");
        assert_eq!(run.retry("ann", "they have money now").key("1").await.unwrap(), Sent::New);
        assert!(run.result().await.is_err(), "not yet");
        // Given again, it is not a second command: not even when the run has failed again.
        assert_eq!(run.retry("ann", "they have money now").key("1").await.unwrap(), Sent::Before);
        let other = run.retry("bob", "why not").key("1").await;
        assert!(matches!(other, Err(RunError::CommandConflict { .. })), "{other:?}");
        assert!(matches!(run.status().await.unwrap().state, RunState::Failed { .. }));

        run.retry("ann", "and now?").await.unwrap();
        run.result().await.unwrap();
        assert_eq!(process.questions(QuestionKind::Orphaned).await, [], "the run has its effects again");
    });
    assert_eq!((counts(&world), world.counted("post called")), ([1, 1, 1], 3));
    assert_eq!(world.effects("pay"), ["rent 100"]);
    process.shut_down();
}

#[test]
fn a_retry_from_a_step_computes_again_and_repeats_no_effect() {
    let world = World::new();
    let code = errand(&world);
    let process = life(&world, code.clone());
    let run = failed(&process, code);
    process.on(async {
        let retry = run.retry("ann", "it was a wrong computation").from_step("second");
        let effects = retry.effects().await.unwrap();
        assert_eq!(effects.iter().map(|record| record.key.clone()).collect::<Vec<_>>(), [paid("rent")]);
        retry.await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(counts(&world), [1, 2, 2]);
        assert_eq!(run.retry("ann", "").from_step("third").effects().await.unwrap(), []);
        let none = run.retry("ann", "").from_step("fourth").await;
        assert!(matches!(none, Err(RunError::NoSuchStep { .. })), "{none:?}");

        // On purpose: a second payment, beside the first.
        let none = run.retry("ann", "twice").reissue(&paid("water")).await;
        assert!(matches!(none, Err(RunError::NoSuchEffect { .. })), "{none:?}");
        run.retry("ann", "pay twice").from_step("pay").reissue(&paid("rent")).await.unwrap();
        run.result().await.unwrap();
    });
    // The payment is older than what was computed again before: so that is computed again once more.
    assert_eq!((counts(&world), world.counted("post called")), ([1, 3, 3], 3));
    assert_eq!(world.effects("pay"), ["rent 100", "rent 100"]);
    process.shut_down();
}

#[test]
fn a_retried_run_survives_its_process() {
    let world = World::new();
    let code = errand(&world);
    let process = life(&world, code.clone());
    let run = failed(&process, code.clone());
    world.hold("post before");
    process.on(async {
        run.retry("ann", "from the start").from_step("first").await.unwrap();
        run.result().await.unwrap_err();
        run.retry("ann", "from the start").from_step("first").await.unwrap();
        world.reached("post before").await;
    });
    assert_eq!(counts(&world), [3, 3, 3]);
    let id = run.id();
    drop(run); // it keeps the engine
    process.crash();
    world.release("post before");
    let process = life(&world, code);
    process.on(async { process.acme().handle::<u32>(id).result().await.unwrap() });
    assert_eq!(
        (counts(&world), world.effects("pay").len()),
        ([3, 3, 3], 1),
        "what was done again is recorded"
    );
    process.shut_down();
}

#[test]
fn a_blocked_run_is_retried_from_the_step_that_changed() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let lives = world.count("lives");
        ctx.step("unstable", &lives, |lives| *lives).await?;
        post(&ctx, "x").await
    });
    let run = died_at(&world, "post after", code.clone());
    let process = life(&world, code);
    process.on(async {
        process.state(run, "blocked").await;
        let handle = process.acme().handle::<u32>(run);
        handle.retry("ann", "the input was unstable").from_step("unstable").await.unwrap();
        handle.result().await.unwrap();
        assert_eq!(process.acme().questions().await.unwrap(), []);
    });
    assert_eq!(world.effects("post"), ["x"]);
    process.shut_down();
}

#[test]
fn what_cannot_be_retried_says_why() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| post(&ctx, "x").await);
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        run.result().await.unwrap();
        let over = run.retry("ann", "again").await;
        assert!(matches!(over, Err(RunError::NotRetryable { why: "has succeeded", .. })), "{over:?}");
        let none = process.acme().handle::<u32>(RunId(7)).retry("ann", "what?").await;
        assert!(matches!(none, Err(RunError::Unknown { .. })), "{none:?}");
        let foreign = process.engine().tenant("globex").unwrap().handle::<u32>(run.id());
        assert!(matches!(foreign.retry("ann", "?").await, Err(RunError::Unknown { .. })));
        assert!(matches!(foreign.fork("ann", "?").await, Err(RunError::Unknown { .. })));
    });
    process.shut_down();
}

#[test]
fn a_child_that_failed_is_begun_again_and_one_that_ended_well_is_not() {
    let world = World::new();
    let child = flow!(world, |ctx, what: String| {
        counted(&world, &ctx, "begun", 0).await?;
        post(&ctx, &what).await
    });
    let kind = child.clone();
    let code = move |ctx: Ctx, _n: ()| {
        let kind = kind.clone();
        async move {
            let well = ctx.child(kind.clone(), "well".to_owned()).id("well").await?;
            Ok::<_, Failure>(well + ctx.child(kind, "broke twice".to_owned()).id("broke").await?)
        }
    };
    let engine = world.engine().workflow("child", 1, child).workflow(NAME, 1, code.clone());
    let process = Process::start(&world, engine);
    let run = failed(&process, code);
    process.on(async {
        let children = process.acme().runs(None).await.unwrap();
        let child = children
            .iter()
            .find(|child| matches!(child.state, RunState::Failed { .. }) && child.parent.is_some());
        let alone = process.acme().handle::<u32>(child.unwrap().id).retry("ann", "again").await;
        assert!(matches!(alone, Err(RunError::NotRetryable { .. })), "its parent was told: {alone:?}");
        run.retry("ann", "again").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(
        (world.counted("begun"), world.effects("post")),
        (3, vec!["well".into(), "broke twice".into()])
    );
    process.shut_down();
}

/// Sends a letter.
fn inner(world: &Arc<World>) -> impl WorkflowFn<String, u32> + Clone {
    flow!(world, |ctx, to: String| post(&ctx, &format!("first to {to}")).await)
}

/// Has a child of its own send a letter, sends another one, and fails the first time.
fn posts(world: &Arc<World>) -> impl WorkflowFn<String, u32> + Clone {
    let (world, first) = (world.clone(), inner(world));
    move |ctx: Ctx, to: String| {
        let (world, first) = (world.clone(), first.clone());
        async move {
            let number = ctx.child(first, to.clone()).await?;
            post(&ctx, &format!("second to {to}")).await?;
            match world.count("tries") {
                1 => Err(Failure::new("the printer jams")),
                _ => Ok(number),
            }
        }
    }
}

/// Has such a child write to somebody, where that one lives now.
fn writes(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone {
    let (world, child) = (world.clone(), posts(world));
    move |ctx: Ctx, _n: ()| {
        let (world, child) = (world.clone(), child.clone());
        async move {
            let moved = world.counted("moved") > 0;
            let to = ctx.step("address", &(), |&()| if moved { "bob" } else { "ann" }.to_owned()).await?;
            ctx.child(child, to).await
        }
    }
}

fn postal(world: &Arc<World>, engine: EngineBuilder) -> Process {
    let engine = engine.workflow("inner", 1, inner(world)).workflow("child", 1, posts(world));
    Process::start(world, engine.workflow(NAME, 1, writes(world)))
}

// A12, S10: a child that its parent begins again meets what was done in its place before, although its calls have no key.
#[test]
fn what_a_child_did_without_a_key_is_not_done_again_when_it_is_begun_again() {
    for (postgres, fork) in [(false, false), (false, true), (true, false), (true, true)] {
        let (world, schema) = (World::new(), Schema::new());
        let engine = if postgres {
            world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap)
        } else {
            world.engine()
        };
        let process = postal(&world, engine);
        let run = failed(&process, writes(&world));
        process.on(async {
            assert_eq!(run.retry("ann", "look").effects().await.unwrap().len(), 2, "they are not repeated");
            let again = if fork {
                run.fork("ann", "the printer works").await.unwrap()
            } else {
                run.retry("ann", "the printer works").await.unwrap();
                run
            };
            again.result().await.unwrap();
        });
        assert_eq!(world.effects("post"), ["first to ann", "second to ann"], "{postgres} {fork}");
        process.shut_down();
    }
}

// What stands of it is bound to what was sent: another content is a conflict, and is sent only if somebody says so.
#[test]
fn a_child_that_is_begun_again_with_another_input_sends_nothing_unless_somebody_says_so() {
    let world = World::new();
    let process = postal(&world, world.engine());
    let run = failed(&process, writes(&world));
    world.count("moved");
    process.on(async {
        run.retry("ann", "she has moved").from_step("address").await.unwrap();
        let refused = run.result().await.unwrap_err().to_string();
        assert!(refused.contains("with another payload"), "{refused}");
        assert_eq!(world.effects("post").len(), 2, "nothing was sent");
        let mut again = run.retry("ann", "send them once more").from_step("address");
        for effect in again.effects().await.unwrap() {
            again = again.reissue(&effect.key);
        }
        again.await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("post")[2..], ["first to bob", "second to bob"]);
    process.shut_down();
}

#[test]
fn a_fork_goes_on_beside_its_origin_and_repeats_nothing() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        counted(&world, &ctx, "first", 1).await?;
        let letter = post(&ctx, "a letter").await?;
        let id = ctx.uuid().await?;
        pay(&ctx, &id.to_string()).await?;
        let said: u32 = ctx.signal("go").await?;
        ctx.send(ctx.signal::<RunId>("to").await?, "hello", &said).await?;
        counted(&world, &ctx, "second", 1).await?;
        Ok::<_, Failure>(letter + said)
    });
    let other = flow!(world, |ctx, _n: u32| {
        let said = ctx.signal::<u32>("hello").await?;
        Ok::<_, Failure>(
            said + ctx
                .timeout("more", Duration::ZERO, ctx.signal::<u32>("hello"))
                .await?
                .map_or(Ok(0), |m| m)?,
        )
    });
    let engine = world.engine().workflow(NAME, 1, code.clone()).workflow("other", 1, other.clone());
    let process = Process::start(&world, engine);
    process.on(async {
        let listener = process.acme().run(other, 0).start().await.unwrap();
        let run = process.acme().run(code, ()).start().await.unwrap();
        run.signal("go", 40).await.unwrap();
        run.signal("to", listener.id()).await.unwrap();
        let first = run.result().await.unwrap();
        let fork = run.fork("ann", "what if").from_step("first").key("f").await.unwrap();
        assert_ne!(fork.id(), run.id());
        assert_eq!(fork.result().await.unwrap(), first);
        assert_eq!(run.fork("ann", "what if").from_step("first").key("f").await.unwrap().id(), fork.id());
        assert_eq!(counts(&world)[..2], [2, 2]);
        // From its end nothing is computed again; and a fork of a fork is one of the first.
        let last = fork.fork("ann", "once more").await.unwrap();
        assert_eq!((last.result().await.unwrap(), &counts(&world)[..2]), (first, &[2, 2][..]));
        assert_eq!(listener.result().await.unwrap(), 40, "told once");
    });
    assert_eq!((world.effects("post"), world.effects("pay").len()), (vec!["a letter".to_owned()], 1));
    process.shut_down();
}

// While the clock stands still, the record of the payment has an earlier instant than the step before it.
#[test]
fn a_retry_keeps_the_effects_behind_its_step_also_if_the_clock_stood_still() {
    let world = World::new();
    let code = errand(&world);
    let engine = world.engine_on(TestClock::default()).workflow(NAME, 1, code.clone());
    let process = Process::start(&world, engine);
    let run = failed(&process, code);
    process.on(async {
        run.retry("ann", "again").from_step("second").await.unwrap();
        let failed = run.result().await.unwrap_err();
        assert!(matches!(failed, RunError::Failed { .. }), "{failed}");
    });
    assert_eq!((counts(&world), world.effects("pay")), ([1, 2, 2], vec!["rent 100".to_owned()]));
    process.crash();
}

#[test]
fn runs_are_begun_again_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let code = errand(&world);
    let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let process = Process::start(&world, engine.workflow(NAME, 1, code.clone()));
    let run = failed(&process, code);
    process.on(async {
        run.retry("ann", "again").from_step("second").await.unwrap();
        run.result().await.unwrap_err();
        run.retry("ann", "again").await.unwrap();
        let number = run.result().await.unwrap();
        let fork = run.fork("ann", "what if").from_step("third").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), number);
        assert_eq!(process.acme().questions().await.unwrap(), []);
    });
    assert_eq!((counts(&world), world.counted("post called")), ([1, 2, 3], 3));
    assert_eq!(world.effects("pay"), ["rent 100"]);
    process.shut_down();
}

#[test]
fn an_effect_of_a_fork_is_issued_anew_where_somebody_says_so() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        post(&ctx, "a letter").await?;
        pay(&ctx, "rent").await
    });
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        run.result().await.unwrap();
        let fork = run.fork("ann", "it was lost in the mail").from_step("post");
        let effects = fork.effects().await.unwrap();
        let letter = effects.iter().find(|call| call.tool == "post").unwrap();
        let fork = fork.reissue(&letter.key).await.unwrap();
        fork.result().await.unwrap();
        // A fork of that one finds the second letter.
        fork.fork("ann", "and again").from_step("post").await.unwrap().result().await.unwrap();
    });
    assert_eq!((world.effects("post").len(), world.effects("pay").len()), (2, 1));
    process.shut_down();
}

#[test]
fn a_loop_is_forked_from_a_turn_that_is_over_and_not_retried_from_there() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let world = &world;
        let sum = ctx.turns("loop", 0, |sum: u32, ctx| {
            Box::pin(async move {
                let step = counted(world, &ctx, "turn", sum).await?;
                post(&ctx, &format!("letter {sum}")).await?;
                ctx.uuid().await?;
                Ok(if step < 5 { Turn::Next(step) } else { Turn::Done(step) })
            })
        });
        let sum = sum.await?;
        if world.count("ends") < 3 { Err(Failure::new("not yet")) } else { Ok(sum) }
    });
    let process = life(&world, code.clone());
    let run = failed(&process, code);
    process.on(async {
        let letter =
            run.history(None).await.unwrap().into_iter().find(|turn| turn.turn == 3).unwrap().calls.remove(0);
        let back = run.retry("ann", "go back").from_step(("post", &letter.step)).await;
        assert!(back.is_err(), "{back:?}");
        let back = run.retry("ann", "go back").from_step("loop").await;
        assert!(matches!(back, Err(RunError::NotRetryable { .. })), "{back:?}");
        assert_eq!(world.counted("turn"), 5);
        // The last turn that has the step is the fifth.
        let fork = run.fork("ann", "again").from_step("turn").await.unwrap();
        assert!(fork.result().await.is_err());
        assert_eq!(world.counted("turn"), 6);
        let fork = run.fork("ann", "all of it").from_step("loop").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), 5);
        assert_eq!(world.counted("turn"), 11);
    });
    assert_eq!(world.effects("post").len(), 5, "{:?}", world.effects("post"));
    process.shut_down();
}
