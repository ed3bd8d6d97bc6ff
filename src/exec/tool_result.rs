//! An outcome in words that a model can act on.

use std::fmt;

use super::outcome::Outcome;
use super::request_error::RequestError;
use crate::ledger::ApprovalError;
use crate::payload::Payload;

/// The result of a tool call as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The tool's output, or what became of the call and what the model can do. A text output stands here without quotes.
    pub text: String,
    /// True if the call has no result. MCP's `isError` and the `is_error` of other interfaces.
    pub is_error: bool,
}

impl fmt::Display for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Outcome {
    /// The outcome in words that a model can act on: the tool's output, or what became of the call and what the model can do. It names no
    /// types of the host's code.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use counterfoil::{Executor, Tenant, ToolRequest};
    /// # use serde_json::json;
    /// let executor = Executor::in_memory().open().await?;
    /// let request = ToolRequest::new(Tenant::default(), "open_ticket", json!({ "title": "Printer on fire" }));
    /// let result = executor.execute(request).await?.for_model();
    /// assert!(result.is_error);
    /// assert_eq!(result.text, r#"Nothing was done: there is no tool "open_ticket"."#);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_model(&self) -> ToolResult {
        let text = match self {
            Self::Done(answer) => output_text(&answer.response),
            Self::ResponseTooLarge(response) => {
                format!("It was done. Its result of {} bytes is too large to be shown.", response.bytes)
            }
            Self::Pending { .. } => {
                "The call was accepted and is finished later. Do not make it again.".to_owned()
            }
            Self::Failed(failure) if failure.is_by_policy() => format!(
                "Nothing was done: {}. Do not make the same call again; go on without it, or make one that the policy allows.",
                failure.message
            ),
            Self::Failed(failure) => {
                format!("It was not done ({}): {}", failure.kind.name(), failure.message)
            }
            Self::Deferred { .. } => {
                "It is not done yet, and is tried again by itself. Make the same call later for its result."
                    .to_owned()
            }
            Self::InProgress => {
                "It is being done right now. Make the same call later for its result.".to_owned()
            }
            Self::Conflict(diff) => format!(
                "Nothing was done: this was done before with other arguments, which differ by {diff}. Make the call with the first \
                 arguments for its result."
            ),
            Self::NeedsDecision { question } => format!(
                "Nobody knows whether it was done, and a person has been asked ({question}). Do not make it again, in this way or \
                 another; go on without it."
            ),
            Self::Compensated { .. } => "It was done, and undone since. It is not done again.".to_owned(),
            Self::Abandoned { reason } => {
                format!(
                    "Nobody knows whether it was done, and it is left at that: {reason}. It is not done again."
                )
            }
            Self::Expired { was } => {
                format!(
                    "It is {} since long, and its result is no longer kept. It is not done again.",
                    was.name()
                )
            }
            Self::Refused(error) => error.for_model(),
        };
        let is_error = !matches!(self, Self::Done(_) | Self::ResponseTooLarge(_) | Self::Pending { .. });
        ToolResult { text, is_error }
    }
}

impl RequestError {
    fn for_model(&self) -> String {
        match self {
            Self::UnknownTool { tool, registered } if registered.is_empty() => {
                format!("Nothing was done: there is no tool {tool:?}.")
            }
            Self::UnknownTool { tool, registered } => {
                format!("Nothing was done: there is no tool {tool:?}; there are: {}.", registered.join(", "))
            }
            Self::NoKey { tool } => format!(
                "Nothing was done: the arguments of {tool:?} do not say what it is to be done to. Give all arguments that name it."
            ),
            Self::Key(error) => format!("Nothing was done: the arguments do not name one thing to be done: {error}."),
            Self::Input { reason, .. } => format!("Nothing was done: the arguments do not fit: {reason}."),
            Self::Payload(error) => format!("Nothing was done: the arguments cannot be recorded: {error}."),
            Self::UnboundField { source, .. } => format!("Nothing was done: {source}. Give it, as null if there is nothing."),
            Self::Approval(ApprovalError::Missing { .. } | ApprovalError::PersonNeeded { .. }) => {
                "Nothing was done: this needs a person's approval, and has none. Ask for it, or go on without.".to_owned()
            }
            Self::Approval(error) => format!("Nothing was done: {error}."),
            // The host is told by the error; a model can do nothing about it.
            Self::UnstableKey(_) | Self::Label(_) => "Nothing was done: this tool is out of order.".to_owned(),
        }
    }
}

/// A tool's output as a model reads it: a text without its quotes.
pub(crate) fn output_text(output: &Payload) -> String {
    output.decode::<String>().unwrap_or_else(|_| output.as_str().to_owned())
}
