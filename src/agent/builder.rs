//! The builder with which a workflow configures an agent.

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

/// The default maximum number of turns.
const TURNS: u32 = 32;

type Compact = dyn Fn(&[Message]) -> Vec<Message> + Send + Sync;

/// An agent that is configured and not yet run. Only [`run`](Self::run) has effects.
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

/// The result of an agent's run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// The text of the model's last reply.
    pub text: String,
    /// The reason why the last reply ended.
    pub finish: Finish,
    /// The whole conversation with this answer, as input for a follow-up run.
    pub messages: Vec<Message>,
    /// The number of turns, that is of replies by the model.
    pub turns: u32,
    /// The tokens and the cost of all model calls.
    pub usage: Usage,
}

impl Ctx {
    /// An agent: a loop in which a model proposes tool calls and gets their results, until it proposes none.
    ///
    /// The model is the one that the engine has under this [route](crate::flow::EngineBuilder::model).
    ///
    /// # Crash
    /// Recorded replies are not requested again, and recorded tool calls are not made again. A call that had started
    /// is reconciled as in every workflow; if its outcome cannot be found out, the run waits for a person.
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
    /// Sets the agent's name in the run, which distinguishes its calls from those of another agent. Default: the name
    /// of the model's route. Agents that run concurrently need an id: `.named(("reader", &page))`.
    pub fn named(mut self, label: impl Into<Label>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the version of the prompt, which is part of the key of the agent's model calls. Replies that were
    /// recorded under another version are not used; runs in progress ask the model again.
    pub fn prompt_version(mut self, version: impl Into<String>) -> Self {
        self.prompt_version = version.into();
        self
    }

    /// Offers a registered tool to the model. The model sees the tool's name, and the documentation and the schema of
    /// its input type.
    ///
    /// A tool without a [`key`](Tool::key) is called once for the same arguments, however often the model proposes
    /// the call.
    pub fn tool<T>(self) -> Self
    where
        T: Tool<Input: JsonSchema, Effect: effect::Unapproved>,
    {
        self.offer(Offered::typed::<T>())
    }

    /// Offers a tool whose effect needs an approval. Its calls use this approval, and only for the approved content.
    pub fn approved_tool<T: NeedsApproval<Input: JsonSchema>>(self, approval: &Approval) -> Self {
        self.offer(Offered::typed::<T>().approved_by(approval))
    }

    /// Offers a read-only tool whose result may change: the same arguments in a later turn are another call.
    pub fn reading_tool<T>(self) -> Self
    where
        T: Tool<Input: JsonSchema, Effect = effect::ReadOnly>,
    {
        self.offer(Offered::typed::<T>().anew())
    }

    /// Offers a tool that is registered by name alone and [describes](crate::tool::DynamicTool::describe) itself. If
    /// the tool needs an approval, the tool's reviewers are asked, and the run waits.
    pub fn tool_named(self, name: &str) -> Self {
        self.offer(Offered::named(name))
    }

    fn offer(mut self, tool: Offered) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the maximum number of turns. Default: 32. An agent that exceeds the maximum fails with
    /// [`TurnsUsedUp`](FailureCode::TurnsUsedUp).
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.max_turns = turns;
        self
    }

    /// Shortens the conversation for the model, before each turn. The function must be pure. Only the model forgets
    /// the messages that the function removes: a call that the model proposes again is still answered from its
    /// record.
    pub fn compact(mut self, shorten: impl Fn(&[Message]) -> Vec<Message> + Send + Sync + 'static) -> Self {
        self.compact = Some(Arc::new(shorten));
        self
    }

    /// Runs the agent with these messages, until the model proposes no more calls.
    ///
    /// # Errors
    /// If the model cannot be asked, or the turns are used up. The failure of a tool is shown to the model, which may
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
