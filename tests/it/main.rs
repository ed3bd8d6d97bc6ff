//! One binary for all integration tests: a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(
    clippy::duration_suboptimal_units,
    clippy::elidable_lifetime_names,
    reason = "as the tests read best"
)]

mod agent;
mod exec;
mod flow;
mod guard;
mod ledger_apply;
mod ledger_approval;
mod ledger_compensation;
mod ledger_decide;
mod ledger_declaration;
mod ledger_evidence;
mod ledger_guarantee;
mod ledger_hash;
mod ledger_key;
mod ledger_look;
mod ledger_permit;
mod ledger_resolve;
mod ledger_retry;
mod ledger_review;
mod ledger_throttle;
mod memory_form;
#[path = "../own_server/mod.rs"]
mod own_server;
mod payload;
mod rim;
mod server;
mod server_own;
mod sim;
mod store;
mod tidy;
mod tool;
mod world;
