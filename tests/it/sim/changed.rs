//! Changed code in the simulator: a build is deployed while a run is under way, taken back and deployed again, with a crash wherever
//! there can be one. No change of it stops the run.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, RunError};
use counterfoil::sim::{End, Offer, Simulation, World};
use counterfoil::store::{Change, QuestionKind, RunState, StepKind, Store, StoreFuture, Verdict};
use counterfoil::{Ctx, Engine, Failure};
use serde::Serialize;

use crate::sim::command::asked;
use crate::sim::versions::asks;
use crate::sim::{Looks, quick};

const NAME: &str = "order";

#[derive(Serialize)]
struct Order {
    item: String,
    /// The later build knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    gift: Option<String>,
}

async fn call(ctx: &Ctx, what: String) -> Result<(), Failure> {
    ctx.call::<Looks>(what).await.map(drop)
}

/// Computes what it charges, charges it, and ships a day later.
async fn ordered(ctx: &Ctx, order: &Order) -> Result<(), Failure> {
    let charge = ctx.step("charge", order, |order| format!("charge {}", order.item)).await?;
    call(ctx, charge).await?;
    ctx.sleep(Duration::from_hours(24)).await?;
    call(ctx, "ship".to_owned()).await
}

async fn before(ctx: Ctx, item: String) -> Result<String, Failure> {
    ordered(&ctx, &Order { item, gift: None }).await?;
    Ok("plain".to_owned())
}

/// The order has another field, and a fee comes in front of the charge.
async fn after(ctx: Ctx, item: String) -> Result<String, Failure> {
    let takes_fee = ctx.patched("fee").await?;
    if takes_fee {
        call(&ctx, "fee".to_owned()).await?;
    }
    ordered(&ctx, &Order { item, gift: Some("none".to_owned()) }).await?;
    Ok(if takes_fee { "with fee" } else { "plain" }.to_owned())
}

/// In which lives of the process the earlier build is deployed.
type EarlierIn = fn(u32) -> bool;

fn deployed(engine: EngineBuilder, world: &World, earlier_in: EarlierIn) -> EngineBuilder {
    let engine = engine.tool(Looks(world.service("shop", Offer::Lookup)));
    if earlier_in(world.life()) { engine.workflow(NAME, 1, before) } else { engine.workflow(NAME, 1, after) }
}

async fn client(engine: Engine, world: World, is_earlier: bool) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let told = asked(&world, || async {
        let item = "lamp".to_owned();
        let result = if is_earlier {
            tenant.run(before, item).key("one").await
        } else {
            tenant.run(after, item).key("one").await
        };
        match result {
            Err(RunError::Failed { .. }) => Some("failed".to_owned()),
            result => result.ok(),
        }
    });
    told.await.unwrap_or_default()
}

fn simulation(earlier_in: EarlierIn) -> Simulation {
    async fn nothing(_: Ctx, input: String) -> Result<String, Failure> {
        Ok(input)
    }
    Simulation::of(nothing, String::new())
        .engine(move |engine, world| deployed(engine, world, earlier_in))
        .with_actor("client", move |engine, world| {
            let is_earlier = earlier_in(world.life());
            client(engine, world, is_earlier)
        })
        .check("no change stops the run", |end| {
            let stopped = end.questions().into_iter().find(|asked| asked.kind == QuestionKind::Diverged);
            stopped.map_or(Ok(()), |asked| Err(asked.question))
        })
        .check("a fee that the run does not ask for again is listed", |end| match succeeded(end) {
            Some(result) if result == "with fee" && end.count("shop", "fee") == 0 => Err("no fee".into()),
            Some(result)
                if result == "plain"
                    && end.count("shop", "fee") > 0
                    && !asks(end, QuestionKind::Orphaned) =>
            {
                Err("it paid the fee, ended by the path without one, and says nothing of it".into())
            }
            _ => Ok(()),
        })
}

/// What the run returned.
fn succeeded(end: &End<'_>) -> Option<String> {
    end.rows().into_iter().filter(|run| run.workflow.as_str() == NAME).find_map(|run| match run.state {
        RunState::Succeeded { .. } => {
            end.heard("client").iter().rev().find(|told| !told.is_empty()).map(ToString::to_string)
        }
        _ => None,
    })
}

#[test]
fn a_build_that_is_deployed_goes_on_with_the_run_wherever_the_earlier_one_died() {
    quick(simulation(|life| life == 1)).explore().assert_ok();
}

/// A run that the later build began has paid the fee. Taken back, the earlier build does not ask for it, and says so at the end.
#[test]
fn a_build_that_is_taken_back_and_deployed_again_stops_no_run() {
    quick(simulation(|life| life % 2 == 1)).explore().assert_ok();
}

/// A store that loses the answers to patches.
#[derive(Debug)]
struct Mutant(Arc<dyn Store>);

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let mut changes = changes.to_vec();
            for change in &mut changes {
                change.steps.retain(|step| step.kind != StepKind::Patch);
            }
            self.0.commit(&changes).await
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

/// The later build alone, from the beginning: it leaves nothing behind.
fn alone() -> Simulation {
    simulation(|_| false).check("nothing is left behind", |end| {
        if succeeded(end).is_some() && asks(end, QuestionKind::Orphaned) {
            Err("a fee that nobody asks for".into())
        } else {
            Ok(())
        }
    })
}

#[test]
fn a_run_takes_the_part_that_its_patch_chose_wherever_it_dies() {
    quick(alone()).explore().assert_ok();
}

#[test]
fn an_engine_that_does_not_record_the_answer_to_a_patch_is_found() {
    let mutant = alone().engine(|engine, world| {
        deployed(engine, world, |_| false).wrap_store(|store| Arc::new(Mutant(store)))
    });
    let report = quick(mutant).explore();
    assert!(!report.is_ok(), "it ended by the path without the fee that it had paid");
}
