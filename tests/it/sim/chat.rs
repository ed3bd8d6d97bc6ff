//! The long-running chat, crashed everywhere: in each turn, between turns, and where it goes on as new.

#[path = "../../../workflows/chat.rs"]
#[allow(dead_code, reason = "its program is not what is simulated")]
mod chat;

use counterfoil::Key;
use counterfoil::ledger::Finding;
use counterfoil::sim::{Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use serde_json::Value;

use chat::{Chat, Reply};

use crate::sim::quick;

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
    async fn reconcile(&self, call: &Call, reply: &Reply) -> Result<Finding<Value>, ToolError> {
        self.0.find(call, &reply.number.to_string()).await
    }
}

// FLOW-4, SIM-2: six messages are two lives of the run.
#[test]
fn every_message_is_answered_once_wherever_the_chat_is_crashed() {
    let messages = ["a lamp", "a bulb", "a warm one", "its price", "the office", "thanks"];
    let simulation = Simulation::of(chat::chat::<Deliver>, Chat::of("c1", &messages))
        .engine(|engine, world| engine.tool(Deliver(world.service("mail", Offer::Lookup))))
        .check("one reply each", move |end| {
            (0..messages.len()).try_for_each(|n| end.exactly_once_if_succeeded("mail", &n.to_string()))
        })
        .check("nothing is forgotten", |end| match end.results().as_slice() {
            [Some(Value::String(memory))] if memory != "thanks" => Err(format!("it remembers {memory:?}")),
            _ => Ok(()),
        });
    let report = quick(simulation).explore();
    report.assert_ok();
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
}
