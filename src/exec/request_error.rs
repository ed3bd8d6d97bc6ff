//! Why a request was refused before anything was recorded or sent.

use crate::id::IdError;
use crate::ledger::{ApprovalError, KeyError, UnboundField};
use crate::payload::PayloadError;
use crate::tool::UnstableKey;

/// Why a request was refused. Nothing was sent for it.
///
/// A request by name that is refused is an [outcome](super::Outcome::Refused): whoever wrote it, a model for example, is told by
/// [`Outcome::for_model`](super::Outcome::for_model). A typed call that is refused is an error of the code that makes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No tool of this name is registered.
    #[error("no tool named {tool:?} is registered: nothing was recorded or sent; register it [unregistered]")]
    UnknownTool {
        /// The name.
        tool: String,
        /// The names of the tools that are registered.
        registered: Vec<String>,
    },
    /// Neither the request nor the tool names the operation.
    #[error(
        "the call of {tool:?} has no key: nothing was recorded or sent; give the request or the tool one (a call's own id is no key: models reuse them) [key]"
    )]
    NoKey {
        /// The tool.
        tool: String,
    },
    /// The key was refused.
    #[error("nothing was recorded or sent: {0}")]
    Key(#[from] KeyError),
    /// The labels were refused.
    #[error("nothing was recorded or sent: {0}")]
    Label(#[from] IdError),
    /// The tool made two keys of one input.
    #[error("nothing was recorded or sent: {0}")]
    UnstableKey(#[from] UnstableKey),
    /// The tool does not take the input.
    #[error("nothing was recorded or sent: the input of {tool:?} does not fit: {reason} [input]")]
    Input {
        /// The tool.
        tool: String,
        /// The reason, in terms of the input and not of the tool's code.
        reason: String,
    },
    /// The input has no JSON form that can be recorded: it is too large, too deep, or holds a number that JSON would round.
    #[error("nothing was recorded or sent: {0}")]
    Payload(#[from] PayloadError),
    /// The tool's key is bound to a field that the input lacks.
    #[error(
        "nothing was recorded or sent: the key of {tool:?} is bound to some fields of its input, and {source}: always give it, as `null` \
         where there is nothing, or raise the version of `BoundFields` and take it out [input]"
    )]
    UnboundField {
        /// The tool.
        tool: String,
        /// The missing field.
        source: UnboundField,
    },
    /// The effect needs an approval that counts.
    #[error("nothing was sent: {0}")]
    Approval(#[from] ApprovalError),
}
