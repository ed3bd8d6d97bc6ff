//! FLOW-1, FLOW-2, FLOW-3: start keys, and a resumed run that finds what it recorded by name and not by place.

use std::sync::Arc;

use counterfoil::flow::{FailureCode, RunError, Workflow};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Ctx, Failure, Timestamp};
use tokio::join;

use crate::flow;
use crate::flow::tools::{Bill, Pay, Post, post};
use crate::flow::world::{Process, World, counted};

#[test]
fn one_start_key_is_one_run() {
    // FLOW-1
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        post(&ctx, "a").await?;
        Ok::<_, Failure>(n * 2)
    });
    let process = Process::start(&world, world.engine().workflow("double", 1, flow.clone()));
    process.on(async {
        let acme = process.acme();
        let first = acme.run(flow.clone(), 21).key("k").start().await.unwrap();
        let second = acme.run(flow.clone(), 21).key("k").start().await.unwrap();
        assert_eq!(first.id(), second.id());
        assert_eq!((first.result().await.unwrap(), second.result().await.unwrap()), (42, 42));
        // Over, it still answers with its result.
        assert_eq!(acme.run(flow.clone(), 21).key("k").await.unwrap(), 42);
        match acme.run(flow.clone(), 22).key("k").await {
            Err(RunError::Conflict { key, run, diff }) => {
                assert_eq!((key.as_str(), run), ("k", first.id()));
                assert!(diff.0.to_string().contains("22"), "shows what differs: {diff:?}");
            }
            other => panic!("another input under the same key is a conflict: {other:?}"),
        }
        assert_eq!(acme.run(flow.clone(), 22).key("other").await.unwrap(), 44);
    });
    assert_eq!(world.effects("post").len(), 2, "two runs, one effect each");
}

#[test]
fn a_failed_run_says_what_its_function_returned() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        counted(&world, &ctx, "s", n).await?;
        Err::<(), _>(Failure::new("no such case").detail(n))
    });
    let process = Process::start(&world, world.engine().workflow("fails", 1, flow.clone()));
    let look = |result| match result {
        Err(RunError::Failed { failure, .. }) => {
            assert_eq!(failure, Failure::new("no such case").detail(7));
        }
        other => panic!("{other:?}"),
    };
    look(process.on(async { process.acme().run(flow.clone(), 7).key("k").await }));
    look(process.on(async { process.acme().run(flow.clone(), 7).key("k").await }));
    assert_eq!(world.counted("s"), 1);
}

#[test]
fn what_is_recorded_is_executed_once_over_crashes() {
    // FLOW-2, FLOW-8: a loop of steps and calls, and a process that dies in each of its calls.
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        let mut sum = 0;
        for i in 0..n {
            sum += counted(&world, &ctx, "s", i).await?;
            sum += post(&ctx, &i.to_string()).await?;
        }
        Ok::<_, Failure>(sum)
    });
    let mut run = None;
    for life in 0..4 {
        world.hold(&format!("post after {life}"));
        let process = Process::start(&world, world.engine().workflow("loop", 1, flow.clone()));
        process.on(async {
            let started = process.acme().run(flow.clone(), 4).key("k").start().await.unwrap();
            assert_eq!(*run.get_or_insert(started.id()), started.id());
            world.reached(&format!("post after {life}")).await;
        });
        process.crash();
    }
    let process = Process::start(&world, world.engine().workflow("loop", 1, flow.clone()));
    let sum = process.on(async { process.acme().run(flow.clone(), 4).key("k").await.unwrap() });
    assert_eq!(sum, (1 + 2 + 3 + 4) + (1 + 2 + 3 + 4));
    assert_eq!(world.effects("post"), ["0", "1", "2", "3"]);
    assert_eq!(world.counted("s"), 4, "each step was durable with the call behind it");
}

#[test]
fn code_between_steps_may_change_and_steps_may_be_added() {
    // FLOW-3, D07
    let world = World::new();
    let old = flow!(world, |ctx, n: u32| {
        let a = counted(&world, &ctx, "a", n).await?;
        let b = counted(&world, &ctx, "b", a).await?;
        post(&ctx, "x").await?;
        Ok::<_, Failure>(vec![a, b])
    });
    let new = flow!(world, |ctx, n: u32| {
        let zero = counted(&world, &ctx, "zero", 0).await?;
        let a = counted(&world, &ctx, "a", n).await?;
        let between = counted(&world, &ctx, "between", a + zero).await?;
        let b = counted(&world, &ctx, "b", a).await?;
        post(&ctx, "x").await?;
        let y = post(&ctx, "y").await?;
        Ok::<_, Failure>(vec![a, between, b, y])
    });
    world.hold("post after");
    let process = Process::start(&world, world.engine().workflow("edited", 1, old.clone()));
    let run = process.on(async {
        let run = process.acme().run(old, 10).start().await.unwrap().id();
        world.reached("post after").await;
        run
    });
    process.crash();
    world.release("post after");
    let process = Process::start(
        &world,
        world.engine().register(Workflow::new("edited", new).version(2).replaces([1])),
    );
    let result = process.on(async { process.acme().handle::<Vec<u32>>(run).result().await.unwrap() });
    assert_eq!(result, [11, 13, 12, 2]);
    assert_eq!(world.effects("post"), ["x", "y"]);
    let counts = ["a", "b", "zero", "between"].map(|step| world.counted(step));
    assert_eq!(counts, [1, 1, 1, 1]);
}

/// Runs `old` until its call hangs, dies, and goes on as `new`.
fn edited<A, B, Fa, Fb>(world: &Arc<World>, old: A, new: B) -> (Process, counterfoil::RunId)
where
    A: Fn(Ctx, u32) -> Fa + Clone + Send + Sync + 'static,
    B: Fn(Ctx, u32) -> Fb + Clone + Send + Sync + 'static,
    Fa: Future<Output = Result<u32, Failure>> + Send + 'static,
    Fb: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold("post after last");
    let process = Process::start(world, world.engine().workflow("edited", 1, old.clone()));
    let run = process.on(async {
        let run = process.acme().run(old, 1).start().await.unwrap().id();
        world.reached("post after last").await;
        run
    });
    process.crash();
    world.release("post after last");
    (Process::start(world, world.engine().workflow("edited", 1, new)), run)
}

#[test]
fn a_step_that_gives_another_result_blocks_the_run_until_its_code_is_restored() {
    // FLOW-3, D07: the same name with another input and another result is a conflict that shows what differs.
    let world = World::new();
    let old = flow!(world, |ctx, n: u32| {
        counted(&world, &ctx, "s", n).await?;
        post(&ctx, "last").await
    });
    let new = flow!(world, |ctx, n: u32| {
        counted(&world, &ctx, "s", n + 100).await?;
        post(&ctx, "last").await
    });
    let (process, run) = edited(&world, old.clone(), new.clone());
    process.on(async {
        let blocked = process.acme().handle::<u32>(run).result().await;
        assert!(matches!(blocked, Err(RunError::Blocked { .. })), "{blocked:?}");
        let question = process.question(QuestionKind::Diverged).await;
        for words in ["\"s\"", "\"value\":102"] {
            assert!(question.question.contains(words), "{}", question.question);
        }
        // Going on without mending the code blocks it again.
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        let again = process.acme().handle::<u32>(run).result().await;
        assert!(matches!(again, Err(RunError::Blocked { .. })), "{again:?}");
    });
    process.crash();
    // With the code restored it goes on from where it was.
    let process = Process::start(&world, world.engine().workflow("edited", 1, old));
    process.on(async {
        let question = process.question(QuestionKind::Diverged).await;
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
    });
    assert_eq!(world.effects("post").len(), 1);
}

#[test]
fn a_stored_result_of_another_type_blocks_the_run() {
    // DESIGN 4.11: a result that no longer parses is never executed again.
    let world = World::new();
    let old = flow!(world, |ctx, n: u32| {
        counted(&world, &ctx, "s", n).await?;
        post(&ctx, "last").await
    });
    let new = flow!(world, |ctx, n: u32| {
        let _: String = ctx
            .step("s", &n, |_| {
                world.count("s");
                String::new()
            })
            .await?;
        post(&ctx, "last").await
    });
    let (process, run) = edited(&world, old, new);
    process.on(async {
        let blocked = process.acme().handle::<u32>(run).result().await;
        assert!(matches!(blocked, Err(RunError::Blocked { .. })), "{blocked:?}");
        let question = process.question(QuestionKind::Damaged).await.question;
        assert!(question.contains("\"s\""), "names the step: {question}");
        assert_eq!(process.acme().handle::<()>(run).status().await.unwrap().state.name(), "blocked");
    });
    assert_eq!((world.counted("s"), world.effects("post").len()), (1, 1));
}

#[test]
fn what_was_drawn_is_the_same_on_resume() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let drawn: (Timestamp, _, _) = (ctx.now().await?, ctx.uuid().await?, ctx.random().await?);
        let other = (ctx.uuid().await?, ctx.random().await?);
        assert_ne!((drawn.1, drawn.2), other, "two draws are two draws");
        let what = format!("{:?} {} {}", drawn.0, drawn.1, drawn.2);
        post(&ctx, "last").await?;
        post(&ctx, &what).await.map(|_| 0)
    });
    let (process, run) = edited(&world, flow.clone(), flow);
    process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() });
    let first = world.effects("post")[1].clone();
    process.crash();
    // The content of the second post is its request: had a draw changed, this would be a conflict.
    assert_eq!(world.effects("post"), ["last".to_owned(), first]);
}

#[test]
fn branches_that_change_places_find_their_own_records() {
    // D06: the order of parallel branches varies on replay.
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| {
        let call = |what: &'static str| ctx.call::<Post>(what.into()).id(what).into_future();
        let (a, b, c) = join!(call("a"), call("b"), call("c"));
        for (what, number) in [("a", a?), ("b", b?), ("c", c?)] {
            assert_eq!(world.effects("post")[number as usize - 1], what, "each has its own answer");
        }
        post(&ctx, "last").await
    });
    let new = flow!(world, |ctx, _n: u32| {
        let call = |what: &'static str| ctx.call::<Post>(what.into()).id(what).into_future();
        let (c, a, d, b) = join!(call("c"), call("a"), call("d"), call("b"));
        for (what, number) in [("a", a?), ("b", b?), ("c", c?), ("d", d?)] {
            assert_eq!(world.effects("post")[number as usize - 1], what, "each has its own answer");
        }
        post(&ctx, "last").await
    });
    let (process, run) = edited(&world, old, new);
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 4);
    let mut effects = world.effects("post");
    assert_eq!(effects.split_off(3), ["last", "d"]);
    effects.sort_unstable();
    assert_eq!(effects, ["a", "b", "c"]);
}

#[test]
fn two_open_at_once_need_ids() {
    // DESIGN 4.1: in a row, or with ids, all is well. Without them the run is blocked: see `mendable`.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let call = || ctx.call::<Post>("same".into());
        for _ in 0..2 {
            call().await?;
        }
        let (third, fourth) = join!(call().id("x").into_future(), call().id("y").into_future());
        Ok::<_, Failure>(third? + fourth?)
    });
    let process = Process::start(&world, world.engine().workflow("twice", 1, flow.clone()));
    process.on(async { process.acme().run(flow, 0).await.unwrap() });
    assert_eq!(world.effects("post").len(), 4);
}

#[test]
fn equal_calls_are_one_effect_with_a_key_and_two_without() {
    // D05, FLOW-2
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let mut answers = Vec::new();
        for _ in 0..2 {
            answers.push(ctx.call::<Pay>(Bill::new("june", 100)).await?);
            answers.push(ctx.call::<Post>("x".into()).await?);
        }
        let at_once = || ctx.call::<Pay>(Bill::new("july", 100)).into_future();
        let (a, b) = join!(at_once(), at_once());
        answers.extend([a?, b?]);
        post(&ctx, "last").await?;
        Ok::<_, Failure>(answers.iter().fold(0, |all, answer| all * 10 + answer))
    });
    let (process, run) = edited(&world, flow.clone(), flow);
    let answers = process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() });
    assert_eq!(answers, 111_222, "pay, post, pay, post, pay, pay");
    assert_eq!(world.effects("pay"), ["june 100", "july 100"]);
    assert_eq!(world.effects("post"), ["x", "x", "last"]);
}

#[test]
fn a_call_that_failed_may_be_asked_for_again() {
    // FLOW-2, FLOW-3: a loop around a keyed call, as workflows write it. What failed stays failed on resume,
    // what was done in a later round stays done, and neither answers for the other.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let mut rounds = 0;
        while let Err(failure) = ctx.call::<Pay>(Bill::new("broke twice", 5)).await {
            assert_eq!(failure.code, FailureCode::ToolFailed);
            rounds += 1;
            assert!(rounds < 5, "a later round is a new attempt");
        }
        post(&ctx, "last").await?;
        Ok::<_, Failure>(rounds)
    });
    let (process, run) = edited(&world, flow.clone(), flow);
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("pay"), ["broke twice 5"]);
    assert_eq!(world.counted("pay called"), 3);
}
