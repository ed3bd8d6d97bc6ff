//! ⑥ The rims: each behind a feature of its own; they may use everything, and nothing uses them.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "http")]
mod door;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "sink-http")]
pub(crate) mod http_sink;
