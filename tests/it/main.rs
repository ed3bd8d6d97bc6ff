//! One binary for all integration tests: a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
mod flow_clock;
mod flow_divergence;
mod flow_engine;
mod flow_lives;
mod flow_replay;
mod flow_store;
mod flow_tenant;
mod flow_tools;
mod flow_world;
mod smoke;
