//! Calls that outlive their run although nobody dropped them: they are left to a task of their own, or kept somewhere. They are
//! followed like dropped ones, and a restart finds out what became of them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::sim::{Offer, Simulation};
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Failure, Key, Tenant};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::flow;
use crate::flow::tools::{Bill, Pay, Ring};
use crate::flow::world::{Process, World};
use crate::sim::{Blind, Looks, quick};
use crate::world::TestClock;

/// The run ends, and its process dies while a call of it is under way at `point`.
fn outlive<W, F>(world: &Arc<World>, point: &str, flow: W)
where
    W: Fn(Ctx, u32) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold(point);
    let process = Process::start(world, world.engine().workflow("w", 1, flow.clone()));
    process.on(async { process.acme().run(flow, 1).await.unwrap() });
    process.crash();
    world.release(point);
}

async fn is_paid(process: &Process) -> bool {
    let key = Key::of("pay").target("ann").operation("june").render().unwrap();
    let tenant = Tenant::new("acme").unwrap();
    let found = process.engine().executor().record(&tenant, &key).await.unwrap();
    found.is_some_and(|(record, _)| record.state.name() == "committed")
}

/// The next process finds the payment, asks nobody, and sends nothing.
fn is_found(world: &Arc<World>) {
    let process = Process::start(world, world.engine());
    process.on(process.until(async |_| is_paid(&process).await));
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (1, 1), "found, not sent again");
}

#[test]
fn a_call_in_a_join_set_that_outlives_its_run_is_looked_up() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        let mut calls = JoinSet::new();
        let slow = ctx.clone();
        calls.spawn(async move { drop(slow.call::<Pay>(Bill::new("june", 100)).await) });
        world.counts("pay called", 1).await;
        Ok::<_, Failure>(n)
    });
    outlive(&world, "pay after", flow);
    is_found(&world);
}

#[test]
fn a_call_in_a_task_that_outlives_its_run_is_looked_up() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        let slow = ctx.clone();
        drop(tokio::spawn(async move { slow.call::<Pay>(Bill::new("june", 100)).await }));
        world.counts("pay called", 1).await;
        Ok::<_, Failure>(n)
    });
    outlive(&world, "pay after", flow);
    is_found(&world);
}

#[test]
fn a_call_that_nobody_can_tell_about_and_that_outlives_its_run_becomes_a_question() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        let slow = ctx.clone();
        drop(tokio::spawn(async move { slow.call::<Ring>("bell".into()).await }));
        world.counts("ring called", 1).await;
        Ok::<_, Failure>(n)
    });
    outlive(&world, "ring after", flow);
    let process = Process::start(&world, world.engine());
    process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    let question = process.on(process.question(QuestionKind::Ambiguous)).question;
    assert!(question.contains("ring"), "{question}");
}

// It is cut off without an answer when its run is long over: the process that lives finds out what its restart would.
#[test]
fn a_call_in_a_task_that_outlives_its_run_is_followed_in_its_own_process() {
    let (world, hands) = (World::new(), TestClock::default());
    world.hold("pay after");
    let flow = flow!(world, |ctx, n: u32| {
        let slow = ctx.clone();
        drop(tokio::spawn(async move { slow.call::<Pay>(Bill::new("june", 100)).await }));
        world.counts("pay called", 1).await;
        Ok::<_, Failure>(n)
    });
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    process.on(async {
        process.acme().run(flow, 1).await.unwrap();
        world.reached("pay after").await;
        hands.advance(Duration::from_secs(3600));
        // What nobody waits for is written a moment later, by a clock that stands still until it is turned.
        while !is_paid(&process).await {
            hands.advance(Duration::from_millis(10));
        }
    });
    assert_eq!(
        (world.counted("pay called"), world.counted("pay looked up")),
        (1, 1),
        "found, not sent again"
    );
    world.release("pay after");
}

/// It leaves its call to a task, and ends while that is under way.
pub(crate) async fn spawns_looks(ctx: Ctx, case: String) -> Result<String, Failure> {
    let (slow, of) = (ctx.clone(), case.clone());
    drop(tokio::spawn(async move { slow.call::<Looks>(of).await }));
    ctx.sleep(Duration::from_millis(8)).await?;
    Ok(case)
}

async fn spawns_blind(ctx: Ctx, case: String) -> Result<String, Failure> {
    let mut calls: JoinSet<Result<Value, Failure>> = JoinSet::new();
    let (slow, of) = (ctx.clone(), case.clone());
    calls.spawn(async move { slow.call::<Blind>(of).await });
    ctx.sleep(Duration::from_millis(8)).await?;
    Ok(case)
}

pub(crate) fn spawning() -> Simulation {
    Simulation::of(spawns_looks, "case".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("desk", Offer::Lookup))))
}

#[test]
fn a_call_that_outlives_its_run_is_settled_or_asked_about_wherever_it_is_crashed() {
    quick(spawning()).explore().assert_ok();
    let blind = Simulation::of(spawns_blind, "case".to_owned())
        .engine(|engine, world| engine.tool(Blind(world.service("desk", Offer::Blind))));
    quick(blind).explore().assert_ok();
}

async fn sleeps(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.sleep(Duration::from_hours(48)).await
}

// The call was looked up and was not there when its run ended. Its sender goes on a day later: the store asks about its late answer,
// and the next process finds that the answer settles the record. Another run keeps the processes busy until then.
#[test]
fn a_call_that_outlives_its_run_and_is_sent_a_day_later_is_settled_by_its_answer() {
    let settled = Arc::new(AtomicU32::new(0));
    let counted = settled.clone();
    let simulation = spawning()
        .engine(|engine, _| engine.workflow("sleeps", 1, sleeps))
        .with_run("other", "sleeper", sleeps, ())
        .check("settled", move |end| {
            let committed = end.records().iter().all(|record| record.state.name() == "committed");
            if let [asked] = end.asked()[..].as_ref()
                && committed
                && asked.answer.as_ref().is_some_and(|answer| answer.by == "counterfoil")
            {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    for crossing in 1..90 {
        let schedule = format!("pause+100000@1.13 crash@2.{crossing}").parse().unwrap();
        let replay = simulation.replay(&schedule);
        assert!(replay.violations.is_empty(), "{}\n{:?}", replay.timeline(), replay.violations);
    }
    assert!(settled.load(Ordering::Relaxed) > 0);
}
