//! The doors against real servers: brokers, Redis, providers' own libraries.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

#[path = "own_server/mod.rs"]
mod own_server;
#[path = "doors/queue/mod.rs"]
mod queue;

#[path = "doors/dashboard/mod.rs"]
mod dashboard;
#[path = "doors/fence/mod.rs"]
mod fence;
#[path = "doors/mcp/mod.rs"]
mod mcp;
#[path = "doors/orders_service.rs"]
mod orders_service;
#[path = "doors/policy/mod.rs"]
mod policy;
#[path = "it/server.rs"]
mod server;
#[path = "doors/sinks/mod.rs"]
mod sinks;
#[path = "doors/webhook.rs"]
mod webhook;
