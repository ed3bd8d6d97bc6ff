//! One binary for all integration tests: a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(
    clippy::duration_suboptimal_units,
    clippy::elidable_lifetime_names,
    reason = "as the tests read best"
)]

mod agent;
mod agent_crash;
mod agent_hostile;
mod agent_http;
mod agent_server;
mod agent_world;
mod conformance;
mod differential;
mod exec_approval;
mod exec_callers;
mod exec_errors;
mod exec_late;
mod exec_orphans;
mod exec_reconcile;
mod exec_record;
mod flow_again;
mod flow_callers;
mod flow_check;
mod flow_child;
mod flow_clock;
mod flow_code;
mod flow_commit;
mod flow_damage;
mod flow_deeds;
mod flow_divergence;
mod flow_dropped;
mod flow_due;
mod flow_engine;
mod flow_guarantees;
mod flow_keys;
mod flow_lives;
mod flow_other_path;
mod flow_pipeline;
mod flow_postgres;
mod flow_replay;
mod flow_select;
mod flow_signal;
mod flow_store;
mod flow_tenant;
mod flow_tools;
mod flow_transaction;
mod flow_two_workers;
mod flow_versions;
mod flow_wait;
mod flow_world;
mod group;
mod hostile;
mod inbox;
mod lease_model;
mod ledger_apply;
mod ledger_approval;
mod ledger_decide;
mod ledger_guarantee;
mod ledger_hash;
mod ledger_key;
mod ledger_resolve;
mod ledger_retry;
mod outbox;
mod outbox_http;
#[path = "../own_server/mod.rs"]
mod own_server;
mod payload;
mod postgres;
mod programs;
mod queue;
mod schedule;
mod secrets;
mod server;
mod server_own;
mod sim;
mod sim_again;
mod sim_case_notice;
mod sim_chat;
mod sim_command;
mod sim_forgets;
mod sim_found;
mod sim_machine;
mod sim_mutants;
mod sim_nightly;
mod sim_outbox;
mod sim_saga;
mod sim_scenarios;
mod sim_signal;
mod sim_suite;
mod sim_transaction;
mod sim_versions;
mod sim_world;
mod source;
mod sqlite;
mod tenants;
mod tidy;
mod transfer;
mod turns;
mod watched;
mod workers;
mod world;
