//! The errors of a gateway.

use crate::exec::StartError;
use crate::rim::policy::PolicyFinding;

/// The reason why a gateway did not start, or a client was not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The configuration cannot be used. Holds the findings about it, in the order of the file.
    #[error("the configuration of the gateway cannot be used: {} [configuration]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Config(Vec<PolicyFinding>),
    /// The ledger was refused.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The client did not speak MCP.
    #[error("the client was not served: {reason} [invalid]")]
    Client {
        /// The reason, in words.
        reason: String,
    },
}
