//! ⑥ The rims: each behind a feature of its own; they may use everything, and nothing uses them.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "_doors")]
pub mod door;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "sink-http")]
pub(crate) mod http_sink;
#[cfg(feature = "nonce")]
pub mod nonce;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "_doors")]
mod sealed;
