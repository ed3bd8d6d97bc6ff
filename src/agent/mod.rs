//! ⑤ Agents: a model proposes tool calls, the executor carries them out under its guards, the results go back.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::agent::{Message, Proposal, Reply, Scripted};
//! use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
//! use counterfoil::{Ctx, Engine, Failure, Key};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! /// Opens a ticket about a case. (What the model is told of the tool.)
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Ticket { case: String, title: String }
//!
//! struct OpenTicket;
//!
//! impl Tool for OpenTicket {
//!     const NAME: &'static str = "open_ticket";
//!     type Effect = effect::InternalMutation;
//!     type Contract = contract::ReplaysKey;
//!     type Input = Ticket;
//!     type Output = String;
//!
//!     fn key(&self, ticket: &Ticket) -> Option<Key> {
//!         Some(Key::of(Self::NAME).target(&ticket.case)) // one ticket for each case, however it is worded
//!     }
//!
//!     async fn call(&self, call: &Call, _: &Ticket) -> Result<Done<String>, ToolError> {
//!         // POST /tickets, with `Idempotency-Key: call.key()` …
//!         Ok(Done::new(format!("opened as {}", &call.key()[..4])))
//!     }
//! }
//!
//! async fn triage(ctx: Ctx, report: String) -> Result<String, Failure> {
//!     let clerk = ctx.agent("clerk").prompt_version("v1").tool::<OpenTicket>().max_turns(8);
//!     let answer = clerk.run([Message::system("You are a clerk."), Message::user(report)]).await?;
//!     Ok(answer.text)
//! }
//!
//! // In production a `ChatCompletions`; here one that always says the same.
//! let script = Scripted::turns([
//!     Reply::calls([Proposal::new("open_ticket", json!({ "case": "C-17", "title": "Printer on fire" }))]),
//!     Reply::text("A ticket is open."),
//! ]);
//! let engine = Engine::sqlite(dir.path().join("agents.db"))
//!     .workflow("triage", 1, triage)
//!     .tool(OpenTicket)
//!     .model("clerk", script)
//!     .start()
//!     .await?;
//! let answer = engine.tenant("acme")?.run(triage, "the printer of C-17 is on fire".to_owned()).await?;
//! assert_eq!(answer, "A ticket is open.");
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is recorded
//!
//! A model call is an operation of the ledger, of effect class [`ModelCall`](crate::ledger::EffectClass::ModelCall),
//! under (run, agent and turn, messages, prompt version, model route). A recorded call is never made again: a resumed
//! run sees the same reply as before. A call of unknown outcome is made again, which costs money and does no harm. A
//! record holds the reply and a digest of the messages, so that the records of a conversation grow linearly with its
//! length and not quadratically.
//!
//! A tool call is identified by the tool's own [`key`](crate::tool::Tool::key), or else by the agent and the
//! canonical arguments. The model's id for a call is only returned to the model, and is part of no key.
//!
//! # Crash
//! At any point: the workflow runs again from the top, replies and results come from their records, and the first
//! call without a record is reconciled like every other call.

mod bounds;
mod builder;
#[cfg(feature = "agent-http")]
mod http;
mod message;
mod model;
mod scripted;
mod toolbox;
mod turn;
mod usage;

pub use crate::tool::ToolOffer;
pub use builder::{Agent, AgentAnswer};
#[cfg(feature = "agent-http")]
pub use http::{ChatCompletions, EndpointError, Prices};
pub use message::{Finish, Message, Prompt, Proposal, Reply};
pub use model::Model;
pub use scripted::Scripted;
pub use usage::Usage;
