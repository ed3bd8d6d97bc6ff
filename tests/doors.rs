//! The doors against real servers: brokers, Redis, providers' own libraries.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

#[path = "own_server/mod.rs"]
mod own_server;
#[cfg(all(feature = "cli", feature = "http", feature = "nonce", feature = "policy", feature = "sqlite"))]
#[path = "doors/policy/mod.rs"]
mod policy;
