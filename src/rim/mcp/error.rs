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
    /// The keys of the ledger, or the secret of its chain of evidence, cannot be read.
    #[error("the keys of the ledger cannot be used: {reason}; nothing was started [configuration]")]
    Keys {
        /// The reason.
        reason: String,
    },
    /// The way to a server is not known, for example because an environment variable is not set.
    #[error("the server {name:?} cannot be reached: {reason}; nothing was started [configuration]")]
    Server {
        /// The name of the server.
        name: String,
        /// The reason, in words.
        reason: String,
    },
    /// Another process is the gateway on this ledger, and does not take this one's client.
    #[error(
        "the gateway on this ledger does not take the client: {reason}; nothing was started [configuration]"
    )]
    Joined {
        /// The reason, in words.
        reason: String,
    },
    /// The socket at which other processes find the gateway on a ledger cannot be used.
    #[error(
        "the socket {path} beside the ledger cannot be used: {reason}; nothing was started [configuration]"
    )]
    Socket {
        /// The path of the socket.
        path: String,
        /// The reason, in words.
        reason: String,
    },
    /// The client did not speak MCP.
    #[error("the client was not served: {reason} [invalid]")]
    Client {
        /// The reason, in words.
        reason: String,
    },
}
