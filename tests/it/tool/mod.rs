//! The tools: lookups, declared HTTP tools, and what an HTTP request comes back with.

mod command_tool;
mod http;
mod http_tool;
mod lookup;
