//! Retry and fork in the simulator: whatever dies, a command is carried out once, what happened in the world stands, and
//! what was computed is computed again.

use std::time::Duration;

use counterfoil::flow::{RunError, RunHandle, WorkflowFn};
use counterfoil::sim::{CrashPoint, End, Offer, Report, Simulation, World};
use counterfoil::store::{Run, RunState};
use counterfoil::{Clock as _, Timestamp};
use counterfoil::{Ctx, Engine, Failure};

use crate::sim::command::asked;
use crate::sim::{Looks, quick};

const NAME: &str = "errand";
const HOUR: Duration = Duration::from_hours(1);
/// An hour after the world begins.
const OPENS: Timestamp = Timestamp(1_767_225_600_000_000 + 3_600_000_000);
/// More commands than any schedule makes necessary.
const COMMANDS: u32 = 8;

/// Pays the rent, asks whether the shop is open, and buys what was wanted.
fn errand(world: &World) -> impl WorkflowFn<String, String> + Clone {
    let clock = world.clock().clone();
    move |ctx: Ctx, wanted: String| {
        let clock = clock.clone();
        async move {
            ctx.call::<Looks>("rent".to_owned()).await?;
            let open = ctx.step("open", &wanted, move |_| clock.now() >= OPENS).await?;
            if !open {
                return Err(Failure::new("the shop is closed"));
            }
            ctx.call::<Looks>(wanted.clone()).await?;
            Ok(wanted)
        }
    }
}

/// The run, as a client finds it.
async fn found(engine: &Engine, world: &World) -> Option<RunHandle<String>> {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    asked(world, || {
        let start = tenant.run(errand(world), "milk".to_owned()).key("errand").start();
        async { start.await.ok() }
    })
    .await
}

/// Waits for a result; `None` if nobody can give one.
async fn ended(world: &World, run: &RunHandle<String>) -> Option<Result<String, String>> {
    asked(world, || async {
        match run.result().await {
            Ok(result) => Some(Ok(result)),
            Err(RunError::Failed { failure, .. }) => Some(Err(failure.to_string())),
            Err(_) => None,
        }
    })
    .await
}

/// Retries the run until it has succeeded, and then tries another outcome beside it: the same commands in each life of the
/// process. Says what each came to.
async fn manager(engine: Engine, world: World) -> String {
    let Some(run) = found(&engine, &world).await else { return "nothing".to_owned() };
    let mut told = Vec::new();
    for number in 1..=COMMANDS {
        match ended(&world, &run).await {
            None => return told.join(", "),
            Some(Ok(_)) => break,
            Some(Err(_)) => world.sleep(2 * HOUR).await,
        }
        let retry = || async {
            let retry = || run.retry("ann", "it is open now").key(format!("retry {number}"));
            match retry().from_step("open").await {
                Err(RunError::NoSuchStep { .. }) => retry().await.ok(), // a provider has refused it before
                sent => sent.ok(),
            }
        };
        if let Some(sent) = asked(&world, retry).await {
            told.push(format!("retry {number}: {sent:?}"));
        }
    }
    let fork = || async { run.fork("ann", "what if").from_step("open").key("fork").await.ok() };
    if let Some(fork) = asked(&world, fork).await {
        told.push(format!("fork: {:?}", ended(&world, &fork).await));
    }
    told.join(", ")
}

/// Each command is a new one once, in whichever life that was told.
fn new_once(end: &End<'_>) -> Result<(), String> {
    let heard = end.heard("manager");
    for number in 1..=COMMANDS {
        let new = format!("retry {number}: New");
        if heard.iter().filter(|told| told.contains(&new)).count() > 1 {
            return Err(format!("a command was taken for a new one twice: {heard:?}"));
        }
    }
    Ok(())
}

fn errands(end: &End<'_>) -> Vec<Run> {
    end.rows().into_iter().filter(|run| run.workflow.as_str() == NAME).collect()
}

/// What happened stands, for the run and for its fork.
fn once(end: &End<'_>) -> Result<(), String> {
    let succeeded = errands(end).iter().any(|run| matches!(run.state, RunState::Succeeded { .. }));
    ["rent", "milk"].into_iter().try_for_each(|bought| match end.count("shop", bought) {
        1 => Ok(()),
        0 if !succeeded => Ok(()),
        n if n > 1 && !end.questions().is_empty() => Ok(()),
        n => Err(format!("{bought} was bought {n} times")),
    })
}

/// A command under one key begins one run.
fn one_fork(end: &End<'_>) -> Result<(), String> {
    match errands(end).len() {
        0..=2 => Ok(()),
        n => Err(format!("{n} runs of one start key and one fork")),
    }
}

fn simulation() -> Simulation {
    async fn nothing(_: Ctx, input: String) -> Result<String, Failure> {
        Ok(input)
    }
    Simulation::of(nothing, String::new())
        .engine(|engine, world| {
            let engine = engine.tool(Looks(world.service("shop", Offer::Lookup)));
            engine.workflow(NAME, 1, errand(world))
        })
        .with_actor("manager", manager)
        .check("each effect once", once)
        .check("each command once", new_once)
        .check("one fork", one_fork)
}

fn every(simulation: Simulation) -> Report {
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    report
}

// FLOW-5, DESIGN 4.11: a run that failed is begun again from a step, and forked, wherever a process dies.
#[test]
fn what_is_begun_again_repeats_nothing_wherever_it_is_crashed() {
    let report = every(simulation());
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterCheckpoint));
}

// Without a crash, all of it takes place: the shop is closed once, and open then.
#[test]
fn a_clean_run_is_retried_once_and_forked() {
    let simulation = simulation().check("all of it", |end| match end.heard("manager").as_slice() {
        [told] if *told == "retry 1: New, fork: Some(Ok(\"milk\"))" => Ok(()),
        told => Err(format!("{told:?}")),
    });
    let replay = simulation.replay(&"".parse().unwrap());
    assert_eq!(replay.violations, [], "{}", replay.timeline());
}
