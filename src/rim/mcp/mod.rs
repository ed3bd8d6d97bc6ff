//! A gateway between MCP clients and MCP servers: it records each call that writes before it is sent, answers it from
//! its record when it comes again, and finds out or asks when its fate is unknown. Feature `mcp`.
//!
//! `counterfoil mcp --config gateway.yml` is a program that takes the place of a server in a client's configuration.
//! [`McpGateway`] is the same for a program of one's own. [`McpTool`] is a tool of an MCP server that a workflow calls.

mod answer;
mod approval;
mod arguments;
mod call;
mod catalogue;
mod check;
mod config;
mod error;
mod file;
mod gateway;
#[cfg(feature = "mcp-http")]
mod http;
mod identity;
mod inner;
mod lines;
mod lists;
mod lookup;
mod open;
mod policy;
mod progress;
mod question;
mod relay;
mod remembered;
#[cfg(feature = "mcp-http")]
mod remote;
mod server;
mod session;
mod socket;
mod template;
mod together;
mod tool;
mod upstream;

pub use config::McpConfig;
pub use error::McpError;
pub use gateway::McpGateway;
pub use together::Others;
pub use tool::{McpLookup, McpServer, McpServerBuilder, McpTool, McpToolBuilder, McpToolError};
