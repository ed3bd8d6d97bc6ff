//! What a model is given and what it gives back: plain values, in no provider's format.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::usage::Usage;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// What the model is to be.
    System {
        /// The instructions.
        text: String,
    },
    /// What somebody says to it.
    User {
        /// The words.
        text: String,
    },
    /// What the model said, and the calls that it proposed.
    Assistant {
        /// The words; often empty beside calls.
        text: String,
        /// The calls, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Proposal>,
    },
    /// What became of a call that it proposed.
    Tool {
        /// The model's id for the call.
        call_id: String,
        /// The tool.
        tool: String,
        /// The result, or what went wrong.
        text: String,
        /// It went wrong.
        #[serde(default)]
        failed: bool,
    },
}

impl Message {
    /// Instructions.
    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into() }
    }

    /// A question or a task.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into() }
    }

    /// Something that the model is to have said.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new() }
    }
}

/// A tool call as a model proposes it. Nothing in it is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The model's id for it: handed back with the result, and part of no key.
    #[serde(default)]
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// JSON text, if the model got it right.
    pub arguments: String,
    /// Why it was not even looked at: it was too large, or one of too many. Set by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Proposal {
    /// A call of this tool with these arguments, for models that are written in Rust.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` makes a value")]
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self { id: String::new(), tool: tool.into(), arguments: arguments.to_string(), refused: None }
    }

    /// With an id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }
}

/// What a model is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// What it may call.
    pub tools: Vec<ToolOffer>,
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOffer {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments, which is an object's.
    pub schema: Value,
}

/// What a model answers: words, or calls, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The words.
    pub text: String,
    /// The calls, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Proposal>,
    /// How it came to its end.
    #[serde(default)]
    pub finish: Finish,
    /// What it took.
    #[serde(default)]
    pub usage: Usage,
}

/// How a reply came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model was done.
    #[default]
    Done,
    /// It ran into the limit of tokens: what is there is the beginning.
    CutOff,
    /// The provider's filter stopped it.
    Filtered,
}

impl Reply {
    /// Words, and no calls: the end of an agent's run.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Calls, all to be carried out at once.
    pub fn calls(calls: impl IntoIterator<Item = Proposal>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::default() }
    }

    /// Adds what it took.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}
