//! The rims: what comes in by HTTP, by MCP, by webhooks and by short windows, and what goes out.

mod api;
mod cli;
mod dashboard;
mod guard_service;
mod http;
mod http_sink;
mod mcp;
mod nonce;
mod one_send;
mod tool_file;
pub(crate) mod webhook;
