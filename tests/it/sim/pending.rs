//! A provider that accepts a call and finishes it later: wherever the process dies, the call has one effect, and the run goes on with
//! the provider's result.

use std::time::Duration;

use counterfoil::sim::{Offer, Rule, Schedule, Service, Simulation, World};
use counterfoil::tool::Tool;
use counterfoil::{Completion, Ctx, Engine, Failure};
use serde_json::json;

use crate::sim::{Blind, Looks, Replays, ReplaysAndLooks, quick, simulation};

const WORK: Duration = Duration::from_mins(5);

fn slow(world: &World, offer: Offer) -> Service {
    world.service("desk", offer).finishes_after(WORK)
}

fn once(simulation: Simulation) -> Simulation {
    simulation.check("each once", |end| {
        end.exactly_once_if_succeeded("desk", "case/1")?;
        end.exactly_once_if_succeeded("desk", "case/2")
    })
}

// SIM-2, R-EXE-13
#[test]
fn a_poll_finishes_it_wherever_it_is_crashed() {
    for report in [
        once(simulation(Offer::Lookup, |desk| Looks(desk.finishes_after(WORK))))
            .single_crashes()
            .random(50)
            .explore(),
        quick(once(simulation(Offer::ReplaysKeyAndLookup, |desk| {
            ReplaysAndLooks(desk.finishes_after(WORK))
        })))
        .explore(),
    ] {
        report.assert_ok();
        assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    }
}

/// The provider calls back about all that it has finished: in each life of the process, and so more than once.
async fn calls_back(engine: Engine, world: World) -> String {
    let tenant = counterfoil::Tenant::new("simulated").unwrap();
    world.sleep(2 * WORK).await;
    let mut told = 0;
    for effect in world.effects() {
        let done = Completion::done(Blind::NAME, effect.id.as_str(), json!({ "id": effect.id }));
        told += u32::from(engine.executor().complete(&tenant, done).await.is_ok());
    }
    told.to_string()
}

// Without a lookup, the callback is the only one who knows.
#[test]
fn a_callback_finishes_it_wherever_it_is_crashed() {
    let report = once(Simulation::of(crate::sim::twice::<Blind>, "case".to_owned()))
        .engine(|engine, world| engine.tool(Blind(slow(world, Offer::Blind))))
        .with_actor("the provider", calls_back)
        .with_actor("the provider, of the second call", async |engine, world: World| {
            world.sleep(2 * WORK).await;
            calls_back(engine, world).await
        })
        .check("the result is the provider's", |end| match end.results().as_slice() {
            [Some(result)] if end.succeeded() && *result != json!("both") => Err(result.to_string()),
            _ => Ok(()),
        })
        .single_crashes()
        .random(50)
        .explore();
    report.assert_ok();
}

/// Waits a minute for the film, and fails.
async fn impatient(ctx: Ctx, case: String) -> Result<String, Failure> {
    let made = ctx.timeout("patience", Duration::from_mins(1), ctx.call::<Looks>(case)).await?;
    made.map_or_else(|_| Err(Failure::new("it takes too long")), |made| made.map(|_| "made".to_owned()))
}

// Invariant 7: the film is finished when its run has failed. Somebody is asked about it.
#[test]
fn what_is_finished_after_its_run_has_failed_is_not_forgotten() {
    let report = Simulation::of(impatient, "case/1".to_owned())
        .fails(1)
        .engine(|engine, world| engine.tool(Looks(slow(world, Offer::Lookup))))
        .check("once", |end| end.exactly_once_if_succeeded("desk", "case/1"))
        .single_crashes()
        .random(50)
        .explore();
    report.assert_ok();
    assert!(report.asked() > 0, "{report}");
}

/// Makes one effect by two tools, whose keys differ.
async fn in_two_ways(ctx: Ctx, case: String) -> Result<(), Failure> {
    ctx.call::<Blind>(case.clone()).await?;
    ctx.call::<Replays>(case).await?;
    Ok(())
}

// The row by which a call waits for its provider is no question, and does not excuse an effect that happened twice.
#[test]
fn a_call_that_waits_for_its_provider_excuses_no_duplicate() {
    let replay = Simulation::of(in_two_ways, "case/1".to_owned())
        .engine(|engine, world| {
            let replays = world.service("desk", Offer::ReplaysKey);
            engine.tool(Blind(slow(world, Offer::Blind))).tool(Replays(replays))
        })
        .with_actor("the provider", calls_back)
        .check("once", |end| end.exactly_once_if_succeeded("desk", "case/1"))
        .check("nobody is asked", |end| end.asked().first().map_or(Ok(()), |q| Err(q.question.clone())))
        .replay(&Schedule::default());
    let rules: Vec<_> = replay.violations.into_iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [Rule::Own("once".to_owned())]);
}
