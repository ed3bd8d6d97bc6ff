//! The premiere in a simulated world: the studio finishes a film hours after it has accepted the job, and calls back in each life of the
//! process; wherever that dies, a film is rendered once.

use std::time::Duration;

use counterfoil::ledger::{self, LookupResult};
use counterfoil::sim::{End, Offer, Service, Simulation, World};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Completion, Engine, Tenant};
use serde_json::{Value, json};

use super::{LONGEST, premiere};

const FILM: &str = "Metropolis";
const WORK: Duration = Duration::from_hours(1);

/// Renders at a simulated studio.
struct Render(Service);

impl Tool for Render {
    const NAME: &'static str = "render";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    fn contract(&self) -> ledger::Contract {
        <Self::Contract as contract::Contract>::declaration().completes_within(LONGEST)
    }

    async fn call(&self, call: &Call, film: &String) -> Result<Done<String>, ToolError> {
        Ok(self.0.create(call, film).await?.map(|output| url(&output["id"])))
    }
}

impl Reconcile for Render {
    async fn reconcile(&self, call: &Call, film: &String) -> Result<LookupResult<String>, ToolError> {
        self.0.find(call, film).await?.try_map(|found| Ok(url(&found["id"])))
    }
}

fn url(job: &Value) -> String {
    format!("https://studio.example/{}", job.as_str().unwrap_or_default())
}

/// The studio calls back about all that it has finished.
async fn calls_back(engine: Engine, world: World) -> String {
    world.sleep(WORK + Duration::from_mins(1)).await;
    let Ok(tenant) = Tenant::new(Simulation::TENANT) else { return "of no tenant".to_owned() };
    let mut told = 0;
    for job in world.effects() {
        let done = Completion::done(Render::NAME, job.id.as_str(), json!(url(&json!(job.id))));
        told += u32::from(engine.executor().complete(&tenant, done).await.is_ok());
    }
    format!("called back {told} times")
}

/// Callback and poll come after one another, in either order.
pub fn simulation() -> Simulation {
    Simulation::of(premiere::<Render>, FILM.to_owned())
        .engine(|engine, world| {
            engine.tool(Render(world.service("studio", Offer::Lookup).finishes_after(WORK)))
        })
        .with_actor("the studio", calls_back)
        .check("rendered once", |end| end.exactly_once_if_succeeded("studio", FILM))
        .check("shown from the studio", shown_from_the_studio)
}

fn shown_from_the_studio(end: &End<'_>) -> Result<(), String> {
    let is_there = |shown: &str| end.effects().iter().any(|job| shown.ends_with(&url(&json!(job.id))));
    match end.results().as_slice() {
        [Some(Value::String(shown))] if end.succeeded() && !is_there(shown) => Err(shown.clone()),
        _ => Ok(()),
    }
}
