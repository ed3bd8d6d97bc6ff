//! One binary for all integration tests: a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(
    clippy::duration_suboptimal_units,
    clippy::elidable_lifetime_names,
    reason = "as the tests read best"
)]

mod agent;
mod canary;
mod exec;
mod flow;
mod guard;
mod log;
mod metrics;
#[path = "../own_server/mod.rs"]
mod own_server;
mod place;
mod programs;
mod provider;
mod rim;
mod server;
mod server_own;
mod sim;
mod store;
mod tidy;
mod tls;
mod tool;
mod trace;
mod wire;
mod world;
