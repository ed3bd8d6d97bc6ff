//! Input and output of a model: plain values, in no provider's format.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::usage::Usage;
use crate::tool::ToolOffer;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// The system prompt.
    System {
        /// The text of the instructions.
        text: String,
    },
    /// A message from the user.
    User {
        /// The text of the message.
        text: String,
    },
    /// A reply of the model, with the calls that it proposed.
    Assistant {
        /// The text of the reply; often empty if there are calls.
        text: String,
        /// The proposed calls, in the model's order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Proposal>,
    },
    /// The result of a call that the model proposed.
    Tool {
        /// The model's id for the call.
        call_id: String,
        /// The name of the tool.
        tool: String,
        /// The result, or the error message.
        text: String,
        /// True if the call failed.
        #[serde(default)]
        failed: bool,
    },
}

impl Message {
    /// A system message with these instructions.
    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into() }
    }

    /// A user message: a question or a task.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into() }
    }

    /// An assistant message, as an example for the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new() }
    }
}

/// A tool call as a model proposes it. None of its fields is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The model's id for the call. The id is returned to the model with the result, and is part of no key.
    #[serde(default)]
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments as JSON text, if the model wrote valid JSON.
    pub arguments: String,
    /// The reason why the engine refused the proposal unread: too large, or too many calls. Set by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Proposal {
    /// A call of this tool with these arguments, for models that are written in Rust.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` makes a value")]
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self { id: String::new(), tool: tool.into(), arguments: arguments.to_string(), refused: None }
    }

    /// Sets the model's id for the call.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }
}

/// Input of one model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolOffer>,
}

/// Output of one model call: text, calls, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text of the reply.
    pub text: String,
    /// The proposed calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Proposal>,
    /// The reason why the reply ended.
    #[serde(default)]
    pub finish: Finish,
    /// The tokens and the cost of the call.
    #[serde(default)]
    pub usage: Usage,
}

/// The reason why a reply ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model had finished.
    #[default]
    Done,
    /// The token limit was reached: the text is only the beginning.
    CutOff,
    /// The provider's content filter stopped the reply.
    Filtered,
}

impl Reply {
    /// A reply with text and no calls, which ends an agent's run.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A reply with calls, which are made concurrently.
    pub fn calls(calls: impl IntoIterator<Item = Proposal>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::default() }
    }

    /// Sets the tokens and the cost of the call.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}
