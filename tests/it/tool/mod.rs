//! The tools: lookups, declared HTTP tools, and what an HTTP request comes back with.

mod http;
mod http_tool;
mod lookup;
