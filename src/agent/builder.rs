//! An agent as a workflow puts it together.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::message::{Finish, Message};
use super::toolbox::Offered;
use super::turn::Conversation;
use super::usage::Usage;
use crate::flow::{Ctx, Failure, FailureCode, Label};
use crate::ledger::Approval;
use crate::tool::{NeedsApproval, Tool, effect};

/// So many turns, unless the agent is given more.
const TURNS: u32 = 32;

type Compact = dyn Fn(&[Message]) -> Vec<Message> + Send + Sync;

/// An agent to be run. Nothing happens before.
#[must_use = "an agent does nothing until it is run"]
pub struct Agent {
    pub(super) ctx: Ctx,
    pub(super) route: String,
    pub(super) label: Label,
    pub(super) prompt_version: String,
    pub(super) tools: Vec<Offered>,
    pub(super) max_turns: u32,
    pub(super) compact: Option<Arc<Compact>>,
}

/// What an agent came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// What the model said last.
    pub text: String,
    /// How that came to its end.
    pub finish: Finish,
    /// The whole conversation, this answer included: to be gone on with.
    pub messages: Vec<Message>,
    /// How often the model was asked.
    pub turns: u32,
    /// What that took.
    pub usage: Usage,
}

impl Ctx {
    /// An agent: a loop in which a model proposes tool calls and gets their results, until it proposes none.
    ///
    /// The model is the one that the engine has under this [route](crate::flow::EngineBuilder::model).
    ///
    /// # Crash
    /// Recorded replies are not asked for again, recorded tool calls are not made again. What had started is
    /// reconciled as in every workflow; where nobody can tell, the run waits.
    pub fn agent(&self, route: &str) -> Agent {
        Agent {
            ctx: self.clone(),
            route: route.to_owned(),
            label: Label::from(route),
            prompt_version: "1".to_owned(),
            tools: Vec::new(),
            max_turns: TURNS,
            compact: None,
        }
    }
}

impl Agent {
    /// Its name in the run, by which its calls are told from another agent's; that of its model's route unless it
    /// is said. Agents that are open at once need an id: `.named(("reader", &page))`.
    pub fn named(mut self, label: impl Into<Label>) -> Self {
        self.label = label.into();
        self
    }

    /// The version of its prompt: part of what its model calls are recorded under. Replies to another version are
    /// not used; runs that are under way ask again.
    pub fn prompt_version(mut self, version: impl Into<String>) -> Self {
        self.prompt_version = version.into();
        self
    }

    /// Lets it call a registered tool. What its model is told is the tool's name, and documentation and schema of
    /// its input type.
    ///
    /// A tool without a [`key`](Tool::key) is called once for the same arguments, however often that is proposed.
    pub fn tool<T>(self) -> Self
    where
        T: Tool<Input: JsonSchema, Effect: effect::Unapproved>,
    {
        self.offer(Offered::typed::<T>())
    }

    /// Lets it call a tool whose effect needs an approval: with this one, for the content that was approved.
    pub fn approved_tool<T: NeedsApproval<Input: JsonSchema>>(self, approval: &Approval) -> Self {
        self.offer(Offered::typed::<T>().approved_by(approval))
    }

    /// Lets it read again what may have changed: the same arguments in a later turn are another call.
    pub fn reading_tool<T>(self) -> Self
    where
        T: Tool<Input: JsonSchema, Effect = effect::ReadOnly>,
    {
        self.offer(Offered::typed::<T>().anew())
    }

    /// Lets it call a tool that is registered by its name alone, and [describes](crate::tool::DynamicTool::describe)
    /// itself. One that needs an approval asks the people of the tool for it, and the run waits.
    pub fn tool_named(self, name: &str) -> Self {
        self.offer(Offered::named(name))
    }

    fn offer(mut self, tool: Offered) -> Self {
        self.tools.push(tool);
        self
    }

    /// How often its model is asked; 32 times unless it is said. Then the agent fails with
    /// [`TurnsUsedUp`](FailureCode::TurnsUsedUp).
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.max_turns = turns;
        self
    }

    /// Shortens the conversation for the model, before each turn. It must be a pure function. What it leaves out is
    /// forgotten by the model alone: a call that it proposes again is still answered from its record.
    pub fn compact(mut self, shorten: impl Fn(&[Message]) -> Vec<Message> + Send + Sync + 'static) -> Self {
        self.compact = Some(Arc::new(shorten));
        self
    }

    /// Runs it with these messages, until its model proposes no more calls.
    ///
    /// # Errors
    /// If the model cannot be asked, or the turns are used up. A tool that fails is told to the model, which may
    /// find another way.
    pub async fn run(self, messages: impl Into<Vec<Message>>) -> Result<AgentAnswer, Failure> {
        let (ctx, label) = (self.ctx.clone(), self.label.clone());
        let messages = messages.into();
        let scope = async move |name| Conversation::new(&self, name, messages)?.carry_on().await;
        let answered = ctx.scoped(label, scope).await;
        ctx.unless_mendable(answered).await
    }
}

pub(super) fn misuse(message: impl Into<String>) -> Failure {
    Failure::coded(FailureCode::Misuse, message)
}
