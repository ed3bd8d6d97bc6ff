//! ⑥ The rims: each behind a feature of its own. They may use every module, and no module uses them.

#[cfg(feature = "api")]
pub mod api;
#[cfg(any(feature = "http", all(feature = "webhook", any(feature = "sqlite", feature = "postgres"))))]
mod body;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "dashboard")]
pub mod dashboard;
#[cfg(feature = "_doors")]
pub mod door;
#[cfg(feature = "api")]
mod events;
#[cfg(feature = "html")]
mod evidence_page;
#[cfg(feature = "fence")]
pub mod fence;
#[cfg(feature = "api")]
mod figures;
#[cfg(feature = "guard-service")]
pub mod guard_service;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "sink-http")]
pub(crate) mod http_sink;
#[cfg(any(feature = "sink-http", all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres"))))]
mod in_order;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
pub mod mcp;
#[cfg(feature = "nonce")]
pub mod nonce;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(any(feature = "http", all(feature = "webhook", any(feature = "sqlite", feature = "postgres"))))]
mod problem;
#[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
pub mod queue;
#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
mod reaction;
#[cfg(any(feature = "api", feature = "cli"))]
mod record_list;
#[cfg(any(feature = "api", feature = "cli"))]
mod run_filter;
#[cfg(feature = "_sealed")]
mod sealed;
#[cfg(any(feature = "api", feature = "cli"))]
mod set_aside;
#[cfg(all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres")))]
pub(crate) mod sql_sink;
#[cfg(feature = "tool-file")]
pub mod tool_file;
#[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
pub mod webhook;
