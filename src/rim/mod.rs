//! ⑥ The rims: each behind a feature of its own; they may use everything, and nothing uses them.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(any(feature = "_doors", feature = "fence"))]
pub mod door;
#[cfg(feature = "fence")]
pub mod fence;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "sink-http")]
pub(crate) mod http_sink;
#[cfg(any(feature = "sink-http", all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres"))))]
mod in_order;
#[cfg(feature = "nonce")]
pub mod nonce;
#[cfg(feature = "_doors")]
mod sealed;
#[cfg(all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres")))]
pub(crate) mod sql_sink;
