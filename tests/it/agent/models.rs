//! Models for the tests of agents, in the world of the workflow tests: they count how often they are asked, and wait
//! where the test wants them to.

use std::sync::Arc;

use counterfoil::agent::{Message, Model, Prompt, Proposal, Reply, Usage};
use counterfoil::flow::EngineBuilder;
use counterfoil::tool::{Call, ToolError};
use serde_json::{Value, json};

use crate::flow::world::World;

type Script = dyn Fn(&Prompt) -> Result<Reply, ToolError> + Send + Sync;

/// A model that follows a script, and is counted as `asked`.
pub(crate) struct Asked {
    world: Arc<World>,
    script: Box<Script>,
}

impl Asked {
    pub(crate) fn by(
        world: &Arc<World>,
        script: impl Fn(&Prompt) -> Result<Reply, ToolError> + Send + Sync + 'static,
    ) -> Self {
        Self { world: world.clone(), script: Box::new(script) }
    }

    /// Says these in turn.
    pub(crate) fn turns(world: &Arc<World>, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::by(world, move |prompt| Ok(replies[spoken(prompt)].clone()))
    }
}

impl Model for Asked {
    async fn complete(&self, _: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        self.world.count("asked");
        let reply = (self.script)(prompt);
        self.world.pass(&format!("answer {}", spoken(prompt))).await;
        reply.map(|reply| reply.usage(Usage { cost_micros: 5, ..Usage::tokens(100, 10) }))
    }
}

/// How often the model has spoken, as far as it is shown.
pub(crate) fn spoken(prompt: &Prompt) -> usize {
    prompt.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count()
}

/// What the model has been told of its calls.
pub(crate) fn told(messages: &[Message]) -> Vec<String> {
    let told = messages.iter().filter_map(|message| match message {
        Message::Tool { text, .. } => Some(text.clone()),
        _ => None,
    });
    told.collect()
}

/// The engine of a world with this model under the route `m`.
pub(crate) fn engine(world: &Arc<World>, replies: impl IntoIterator<Item = Reply>) -> EngineBuilder {
    world.engine().model("m", Asked::turns(world, replies))
}

/// Calls of `post`, which has no key.
pub(crate) fn posts<'a>(whats: impl IntoIterator<Item = &'a str>) -> Reply {
    Reply::calls(whats.into_iter().map(|what| call("post", json!({ "input": what }))))
}

/// A call, under an id that says nothing.
pub(crate) fn call(tool: &str, arguments: Value) -> Proposal {
    Proposal::new(tool, arguments).id("call")
}

pub(crate) fn bill(reference: &str, cents: u32) -> Value {
    json!({ "reference": reference, "cents": cents })
}
