//! DESIGN 4.1, dropped futures: what the run's code drops never becomes ready on replay, the winner of a select
//! stays the winner, and a call that was dropped is settled and not forgotten.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::store::{EscalationKind, StepKind};
use counterfoil::{Failure, RunId};
use futures_util::future::Either;

use crate::flow;
use crate::flow_clock::Hands;
use crate::flow_tools::{Bill, Pay, Ring, post};
use crate::flow_world::{Process, World};

const HOUR: Duration = Duration::from_secs(3600);

/// The checkpoints of this kind that became durable.
fn marks(world: &World, kind: StepKind) -> Vec<String> {
    world.tap.see(|tap| {
        let steps = tap.batches.iter().flatten().filter_map(|change| change.step.as_ref());
        steps.filter(|step| step.kind == kind).map(|step| step.name.clone()).collect()
    })
}

/// Starts a run of a registered workflow, and lets the process die where it waits at `point`.
fn die_at<W, F>(world: &Arc<World>, hands: &Hands, point: &str, flow: W) -> RunId
where
    W: Fn(counterfoil::Ctx, u32) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold(point);
    let process = Process::start(world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow, 1).start().await.unwrap().id();
        world.reached(point).await;
        run
    });
    process.crash();
    world.release(point);
    run
}

#[test]
fn a_dropped_future_never_becomes_ready_on_replay() {
    // `tokio::select!` with a timeout: the short sleep wins. On resume both times have passed, and the long
    // sleep is polled first: without its mark it would win this time.
    let (world, hands) = (World::new(), Hands::default());
    let flow = flow!(world, |ctx, _n: u32| {
        let winner = tokio::select! {
            biased;
            slept = ctx.sleep_named("long", 2 * HOUR) => slept.map(|()| "long"),
            slept = ctx.sleep_named("short", Duration::ZERO) => slept.map(|()| "short"),
        };
        post(&ctx, winner?).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &hands, "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Abandoned), ["timer/long"]);
    hands.turn(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("post"), ["short", "last"]);
}

#[test]
fn select_records_its_winner() {
    // The same with `ctx.select`, where the loser is also polled first and ready first on resume.
    let (world, hands) = (World::new(), Hands::default());
    let flow = flow!(world, |ctx, n: u32| {
        let long = ctx.sleep_named("long", 2 * HOUR);
        let short = async { ctx.step("short", &n, |n| *n).await };
        let winner = match ctx.select("race", long, short).await? {
            Either::Left(_) => "long",
            Either::Right(_) => "short",
        };
        post(&ctx, winner).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &hands, "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Select), ["race"]);
    hands.turn(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("post"), ["short", "last"]);
}

#[test]
fn select_keeps_its_winner_although_the_losers_mark_was_lost() {
    // The winner is durable, the mark of the loser not. On resume the loser, polled first, is ready at once.
    let (world, hands) = (World::new(), Hands::default());
    world.tap.cut(|change| change.step.as_ref().is_some_and(|step| step.kind == StepKind::Abandoned));
    let flow = flow!(world, |ctx, n: u32| {
        let long = ctx.sleep_named("long", 2 * HOUR);
        let short = async { ctx.step("short", &n, |n| *n).await };
        let winner = match ctx.select("race", long, short).await? {
            Either::Left(_) => "long",
            Either::Right(_) => "short",
        };
        post(&ctx, winner).await
    });
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.tap.until(|tap| tap.held > 0).await;
        run
    });
    process.crash();
    world.tap.mend();
    hands.turn(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 1);
    assert_eq!(world.effects("post"), ["short"]);
}

#[test]
fn a_crash_leaves_no_mark() {
    let (world, hands) = (World::new(), Hands::default());
    let flow = flow!(world, |ctx, _n: u32| {
        let (slept, posted) = tokio::join!(ctx.sleep_named("nap", HOUR), post(&ctx, "x"));
        slept?;
        posted
    });
    let run = die_at(&world, &hands, "post after", flow.clone());
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow));
    process.on(async {
        let handle = process.acme().handle::<u32>(run);
        let result = handle.result();
        tokio::pin!(result);
        tokio::select! {
            result = &mut result => panic!("slept too short: {result:?}"),
            () = hands.asleep_for(HOUR) => hands.turn(HOUR),
        }
        assert_eq!(result.await.unwrap(), 1, "both branches become ready");
    });
    assert_eq!(marks(&world, StepKind::Abandoned), [""; 0]);
}

#[test]
fn a_dropped_call_goes_on_and_is_recorded() {
    // A13: the run gives up waiting; the request is not cut off, and its outcome is known later.
    let world = World::new();
    world.hold("pay before");
    let flow = flow!(world, |ctx, _n: u32| {
        let pay = ctx.call::<Pay>(Bill::new("june", 100)).into_future();
        let timeout = async { world.reached("pay before").await };
        let won = tokio::select! { _ = pay => "paid", () = timeout => "timeout" };
        post(&ctx, won).await
    });
    let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
    process.on(async {
        process.acme().run(flow, 1).await.unwrap();
        world.release("pay before");
        let tenant = counterfoil::Tenant::new("acme").unwrap();
        let executor = process.engine().executor();
        let again = executor.call::<Pay>(&tenant, Bill::new("june", 100), None).await.unwrap();
        assert!(again.answer().is_some_and(|answer| !answer.first), "{again:?}");
    });
    assert_eq!(
        (world.effects("pay"), world.effects("post")),
        (vec!["june 100".into()], vec!["timeout".into()])
    );
}

#[test]
fn a_dropped_call_whose_process_died_is_settled_and_no_other_path() {
    // The run asks for the payment again, and drops it again: that is not another path. Nobody waits for its
    // answer, so the engine finds out by itself what became of it.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let pay = ctx.call::<Pay>(Bill::new("june", 100)).into_future();
        let timeout = async {
            if world.counted("pay called") == 0 {
                world.hold("pay after");
            }
            world.counts("pay called", 1).await;
        };
        let won = tokio::select! { biased; _ = pay => "paid", () = timeout => "timeout" };
        post(&ctx, won).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &Hands::default(), "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Abandoned), ["call/pay"]);
    world.release("pay after");
    let process = Process::start(&world, world.engine().workflow("w", 1, flow));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
        assert_eq!(process.questions(EscalationKind::Diverged).await, []);
        process
            .until(async |_| {
                world.tap.see(|tap| {
                    let records = tap.batches.iter().flatten().filter_map(|change| change.record.as_ref());
                    let mut pays = records.filter(|record| record.operation.as_str() == "pay");
                    pays.any(|record| record.state.name() == "committed")
                })
            })
            .await;
    });
    assert_eq!(world.counted("pay called"), 1, "it was found, not sent again");
    assert_eq!(world.effects("post"), ["timeout", "last"]);
}

#[test]
fn a_dropped_call_that_nobody_can_tell_about_becomes_a_question() {
    // Invariant 7: also an effect that its run has dropped is not forgotten.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let ring = ctx.call::<Ring>("bell".into()).into_future();
        let timeout = async {
            if world.counted("ring called") == 0 {
                world.hold("ring after");
            }
            world.counts("ring called", 1).await;
        };
        tokio::select! { biased; _ = ring => {}, () = timeout => {} };
        post(&ctx, "last").await
    });
    let run = die_at(&world, &Hands::default(), "post after last", flow.clone());
    world.release("ring after");
    let process = Process::start(&world, world.engine().workflow("w", 1, flow));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
        process.until(async |acme| !acme.escalations().await.unwrap().is_empty()).await;
        let open = process.acme().escalations().await.unwrap();
        assert!(open.iter().all(|question| question.question.contains("ring")), "{open:#?}");
    });
    assert_eq!(world.counted("ring called"), 1);
}
