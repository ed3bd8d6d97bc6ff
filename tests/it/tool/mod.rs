//! The tools: lookups, and what an HTTP request comes back with.

mod http;
mod lookup;
