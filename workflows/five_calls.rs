//! Five guarded calls in a row, at a desk that takes no key and can be asked: simulated, and what the figure of
//! schedules per second is measured with.
//!
//! ```text
//! cargo run --release --features sim --example five_calls
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which `counterfoil simulate` includes as a module"
)]

use counterfoil::ledger::LookupResult;
use counterfoil::sim::{End, Offer, Options, Service, Simulation, Suite};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde_json::Value;

/// What a new colleague needs.
const THINGS: [&str; 5] = ["account", "mailbox", "badge", "laptop", "desk"];

/// Orders something for somebody.
struct Order(Service);

impl Tool for Order {
    const NAME: &'static str = "order";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, what).await
    }
}

impl Reconcile for Order {
    async fn reconcile(&self, call: &Call, what: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, what).await
    }
}

async fn welcome(ctx: Ctx, name: String) -> Result<usize, Failure> {
    for thing in THINGS {
        ctx.call::<Order>(format!("{thing} for {name}")).await?;
    }
    Ok(THINGS.len())
}

pub fn simulation() -> Simulation {
    Simulation::of(welcome, "ann".to_owned())
        .engine(|engine, world| engine.tool(Order(world.service("desk", Offer::Lookup))))
        .check("each thing once", each_thing_once)
        .restores()
        .random(100)
}

fn each_thing_once(end: &End<'_>) -> Result<(), String> {
    THINGS.iter().try_for_each(|thing| end.exactly_once_if_succeeded("desk", &format!("{thing} for ann")))
}

#[allow(dead_code, reason = "`counterfoil simulate` has a main of its own")]
fn main() -> std::process::ExitCode {
    Suite::new().with("five_calls", simulation).run(&Options::default())
}
