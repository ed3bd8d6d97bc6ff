//! The chat in a simulated world: crashed in each turn, between turns, and where it goes on as new.

use counterfoil::Key;
use counterfoil::ledger::LookupResult;
use counterfoil::sim::{Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use serde_json::Value;

use super::{Chat, Reply, chat};

/// Six messages are two lives of the run.
const MESSAGES: [&str; 6] = ["a lamp", "a bulb", "a warm one", "its price", "the office", "thanks"];

/// Delivers to a simulated service.
struct Deliver(Service);

impl Tool for Deliver {
    const NAME: &'static str = "deliver";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Reply;
    type Output = Value;

    fn key(&self, reply: &Reply) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&reply.chat).operation(reply.number))
    }

    async fn call(&self, call: &Call, reply: &Reply) -> Result<Done<Value>, ToolError> {
        self.0.create(call, &reply.number.to_string()).await
    }
}

impl Reconcile for Deliver {
    async fn reconcile(&self, call: &Call, reply: &Reply) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, &reply.number.to_string()).await
    }
}

/// Each message has one reply, and the last one is remembered.
pub fn simulation() -> Simulation {
    Simulation::of(chat::<Deliver>, Chat::of("c1", &MESSAGES))
        .engine(|engine, world| engine.tool(Deliver(world.service("mail", Offer::Lookup))))
        .check("one reply each", |end| {
            (0..MESSAGES.len()).try_for_each(|n| end.exactly_once_if_succeeded("mail", &n.to_string()))
        })
        .check("nothing is forgotten", |end| match end.results().as_slice() {
            [Some(Value::String(memory))] if memory != "thanks" => Err(format!("it remembers {memory:?}")),
            _ => Ok(()),
        })
}
