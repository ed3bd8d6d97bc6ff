//! The agent loop: ask the model, carry out its proposals, show it the results.

use futures_util::future::join_all;

use super::bounds::{ERROR, RESULT, cut};
use super::builder::{Agent, AgentAnswer, misuse};
use super::message::{Message, Prompt, Proposal, Reply};
use super::model::{Place, Route, operation};
use super::toolbox::{Ready, Toolbox};
use super::usage::Usage;
use crate::exec::output_text;
use crate::flow::{Failure, FailureCode};
use crate::payload::Payload;
use crate::tool::ToolOffer;

/// An agent while it runs.
pub(super) struct Conversation<'a> {
    agent: &'a Agent,
    /// The agent's name in the run.
    name: String,
    route: &'a Route,
    tools: Toolbox<'a>,
    offers: Vec<ToolOffer>,
    messages: Vec<Message>,
    usage: Usage,
}

/// The result of a call as the model sees it.
type Told = Result<Payload, String>;

impl<'a> Conversation<'a> {
    pub(super) fn new(agent: &'a Agent, name: String, messages: Vec<Message>) -> Result<Self, Failure> {
        let registry = agent.ctx.registry();
        let route = registry.find(&operation(&agent.route)).and_then(|tool| tool.typed().downcast_ref());
        let Some(route) = route else {
            return Err(misuse(format!("no model is registered under the route {:?}", agent.route)));
        };
        let tools = Toolbox::find(registry, agent.ctx.core().0.limits, &agent.tools)?;
        let offers = tools.offers();
        Ok(Self { agent, name, route, tools, offers, messages, usage: Usage::default() })
    }

    pub(super) async fn carry_on(mut self) -> Result<AgentAnswer, Failure> {
        for turn in 0..self.agent.max_turns {
            let Reply { text, calls, finish, usage } = self.ask(turn).await?;
            self.usage += usage;
            self.messages.push(Message::Assistant { text: text.clone(), calls: calls.clone() });
            if calls.is_empty() {
                let Self { messages, usage, .. } = self;
                return Ok(AgentAnswer { text, finish, messages, turns: turn + 1, usage });
            }
            let results = self.carry_out(&calls, turn).await?;
            self.messages.extend(results);
        }
        let Self { agent, name, .. } = &self;
        let message = format!("the agent {name} came to no end in {} turns", agent.max_turns);
        Err(Failure::coded(FailureCode::TurnsUsedUp, message))
    }

    /// Asks the model, or takes the recorded reply to the same question.
    async fn ask(&self, turn: u32) -> Result<Reply, Failure> {
        let messages = match &self.agent.compact {
            Some(compact) => compact(&self.messages),
            None => self.messages.clone(),
        };
        let prompt = Prompt { messages, tools: self.offers.clone() };
        let place = Place { agent: &self.name, turn, prompt_version: &self.agent.prompt_version };
        let asking = self.route.asking(&place, prompt)?;
        let ctx = &self.agent.ctx;
        let key = asking.key(ctx);
        let asking = ctx.registry().hand_out(std::sync::Arc::new(asking));
        let reply = ctx.call_prepared(&self.name, asking, key, None).await?;
        // The record was written by this engine, so an unreadable one is damage.
        reply
            .decode()
            .map_err(|error| misuse(format!("the recorded reply of {} is damaged: {error}", self.name)))
    }

    /// Carries out all calls of a turn concurrently. The results are in the order of the calls.
    async fn carry_out(&self, calls: &[Proposal], turn: u32) -> Result<Vec<Message>, Failure> {
        let run = (self.agent.ctx.effect_name(), self.agent.ctx.scope());
        let read = calls.iter().map(|call| self.tools.ready(call, run, &self.name, turn));
        let (once, places) = without_repeats(read.collect());
        let told: Result<Vec<Told>, Failure> =
            join_all(once.into_iter().map(|ready| self.one(ready))).await.into_iter().collect();
        let told = told?;
        Ok(calls.iter().zip(places).map(|(call, place)| message(call, &told[place])).collect())
    }

    async fn one(&self, ready: Result<Ready, String>) -> Result<Told, Failure> {
        let Ready { tool, key, approval, .. } = match ready {
            Ok(ready) => ready,
            Err(told) => return Ok(Err(told)),
        };
        match self.agent.ctx.call_prepared(&self.name, tool, key, approval).await {
            Ok(output) => Ok(Ok(output)),
            // A mistake in the workflow's code, which no model can correct.
            Err(failure) if failure.code.is_mendable() => Err(failure),
            Err(failure) if failure.detail.is_null() => Ok(Err(failure.message)),
            Err(Failure { message, detail, .. }) => Ok(Err(format!("{message} {detail}"))),
        }
    }
}

/// The distinct calls of a turn, and for each proposal the index of its result: a model that proposes the same call
/// twice in one turn means one call.
fn without_repeats(read: Vec<Result<Ready, String>>) -> (Vec<Result<Ready, String>>, Vec<usize>) {
    let mut once: Vec<Result<Ready, String>> = Vec::with_capacity(read.len());
    let mut places = Vec::with_capacity(read.len());
    for ready in read {
        let same = |known: &Result<Ready, String>| match (known, &ready) {
            (Ok(known), Ok(ready)) => known.same == ready.same,
            _ => false,
        };
        let known = once.iter().position(same);
        places.push(known.unwrap_or(once.len()));
        if known.is_none() {
            once.push(ready);
        }
    }
    (once, places)
}

fn message(call: &Proposal, told: &Told) -> Message {
    let text = match told {
        Ok(output) => cut(output_text(output), RESULT),
        Err(error) => cut(format!("error: {error}"), ERROR),
    };
    Message::Tool { call_id: call.id.clone(), tool: call.tool.clone(), text, failed: told.is_err() }
}
