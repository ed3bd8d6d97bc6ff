//! Durable workflows and guarded tool calls for processes that may die anywhere: no silent duplicate, no
//! silent loss.
//!
//! A tool call that touches the world leaves an idempotency record *before* it goes out. After a crash the run
//! resumes from its records, asks the outside world about every call whose outcome is unknown, and never repeats an
//! effect that happened. Where nobody can know, it asks a person and waits for the answer.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
//! use counterfoil::{Ctx, Engine, Failure, Key};
//!
//! struct OpenTicket;
//!
//! impl Tool for OpenTicket {
//!     const NAME: &'static str = "open_ticket";
//!     type Effect = effect::InternalMutation;
//!     type Contract = contract::ReplaysKey; // the tracker honours idempotency keys
//!     type Input = String;
//!     type Output = u64;
//!
//!     fn key(&self, title: &String) -> Option<Key> {
//!         Some(Key::of(Self::NAME).target(title).operation("open"))
//!     }
//!
//!     async fn call(&self, call: &Call, _title: &String) -> Result<Done<u64>, ToolError> {
//!         // POST /tickets, with `Idempotency-Key: call.key()` …
//!         assert!(!call.key().is_empty());
//!         Ok(Done::new(17).external_ref("ticket-17"))
//!     }
//! }
//!
//! async fn triage(ctx: Ctx, report: String) -> Result<u64, Failure> {
//!     let title = ctx.step("title", &report, |report| report.to_uppercase()).await?;
//!     ctx.call::<OpenTicket>(title).await
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db"))
//!     .workflow("triage", 1, triage)
//!     .tool(OpenTicket)
//!     .start()
//!     .await?;
//! let ticket = engine.tenant("acme")?.run(triage, "printer on fire".to_owned()).key("report-9").await?;
//! assert_eq!(ticket, 17);
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to go next
//!
//! | you want | look at |
//! | --- | --- |
//! | durable workflows | [`Engine`], [`Ctx`] |
//! | a guarded tool call in an agent loop that you have | [`Executor`], [`ToolRequest`], [`Outcome`] |
//! | to say what a tool does and what its provider offers | [`tool`] |
//! | the rules themselves, pure | [`ledger`] |
//! | to answer open questions about calls and runs | [`flow::TenantClient::answer`], [`Executor::answer`] |
//! | the guarantees of each call, before any is made | [`flow::Guarantees`] |
//! | to check edited code against recorded runs | [`flow::check::Replayer`] |
//! | people who decide before something goes out | [`Ctx::approval`], [`guard::approval`] |
//! | a failed run's effects undone | [`tool::Compensate`] |
//! | to ask a provider about a call, or to be called back | [`tool::Reconcile`], [`tool::lookup`], [`Completion`] |
//! | events published with a change, and messages processed once | [`Ctx::emit`], [`inbox`] |
//! | to remember each thing once | `guard::memory` (feature `memory`) |
//! | agents in a workflow | `agent` (feature `agent`) |
//! | to crash your own workflow wherever it can die | `sim` (feature `sim`) |
//! | another store, and the rules for one | [`store::Store`] |
//!
//! # What is promised
//!
//! *Exactly once* is said only of changes in the ledger's own database ([`Ctx::transaction`]). For everything else
//! the promise depends on what the provider offers ([`ledger::ContractClass`]), and goes no further: a duplicate is
//! prevented, or found and listed, or its record is marked as resting on the provider's word alone.

// On docs.rs each item names the features that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The codes and columns of rows are read and written by the SQL stores alone.
#![cfg_attr(all(not(feature = "sqlite"), feature = "unstable-core"), allow(dead_code))]
// Without `unstable-core` a part of the core has no users: they are tests and stores outside of this crate.
#![cfg_attr(
    not(feature = "unstable-core"),
    allow(dead_code, unreachable_pub, clippy::trivially_copy_pass_by_ref, reason = "one signature for both")
)]

#[macro_use]
mod unstable;
#[macro_use]
mod log;
#[macro_use]
mod meter;

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "unstable-core")]
pub mod clock;
#[cfg(not(feature = "unstable-core"))]
mod clock;
#[cfg_attr(
    not(feature = "sim"),
    allow(dead_code, unreachable_pub, reason = "a simulation and its watches name the points")
)]
mod crash;
mod errors;
pub mod exec;
pub mod flow;
pub mod guard;
#[cfg(all(doctest, feature = "full"))]
mod guides;
#[cfg(feature = "unstable-core")]
pub mod id;
#[cfg(not(feature = "unstable-core"))]
mod id;
pub mod ledger;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(any(feature = "cli", feature = "html"))]
mod page;
mod panics;
pub mod payload;
mod rim;
#[cfg(feature = "sim")]
pub mod sim;
pub mod store;
pub mod tool;
pub mod trace;

pub use clock::{Boot, Clock, SystemClock, Timestamp};
pub use errors::ErrorCode;
pub use exec::{Completed, Completion, Executor, Outcome, ToolRequest, inbox, outbox};
pub use flow::{Client, Ctx, Engine, Failure, Turn};
pub use id::{Fence, IdError, MemoryId, Name, QuestionId, RecordId, RunId, Tenant, client_key};
pub use ledger::{Approval, ApprovalSubject, Key, Queue};
pub use payload::{Limits, Payload, PayloadError, Secret};
#[cfg(feature = "api")]
pub use rim::api;
#[cfg(feature = "cli")]
pub use rim::cli;
#[cfg(feature = "dashboard")]
pub use rim::dashboard;
#[cfg(feature = "_doors")]
pub use rim::door;
#[cfg(feature = "fence")]
pub use rim::fence;
#[cfg(feature = "guard-service")]
pub use rim::guard_service;
#[cfg(feature = "http")]
pub use rim::http;
#[cfg(feature = "sink-http")]
pub use rim::http_sink::{DocumentSink, HttpSink, IndexDocument};
#[cfg(all(feature = "mcp", feature = "sqlite"))]
pub use rim::mcp;
#[cfg(feature = "nonce")]
pub use rim::nonce;
#[cfg(feature = "policy")]
pub use rim::policy;
#[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
pub use rim::queue;
#[cfg(all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres")))]
pub use rim::sql_sink::{EventField, SqlSink, SqlSinkError};
#[cfg(feature = "tool-file")]
pub use rim::tool_file;
#[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
pub use rim::webhook;

/// The crates whose types are in public signatures, in the versions that this crate uses: an embedder depends on none
/// of them itself.
pub mod types {
    #[cfg(all(feature = "nats", any(feature = "sqlite", feature = "postgres")))]
    pub use async_nats;
    #[cfg(feature = "api")]
    pub use axum;
    #[cfg(any(feature = "http", feature = "webhook", feature = "_queue"))]
    pub use bytes;
    /// The future type of traits that are called through `dyn`: [`Clock::sleep`](crate::Clock::sleep), a sink's
    /// `publish`.
    pub use futures_util::future::BoxFuture;
    #[cfg(any(feature = "http", feature = "webhook"))]
    pub use http;
    #[cfg(all(feature = "rabbitmq", any(feature = "sqlite", feature = "postgres")))]
    pub use lapin;
    #[cfg(feature = "metrics")]
    pub use metrics;
    #[cfg(feature = "_reqwest")]
    pub use reqwest;
    pub use serde_json;
    pub use sqlx;
    pub use uuid;
}
