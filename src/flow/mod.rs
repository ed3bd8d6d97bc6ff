//! ④ Durable workflows: plain `async fn`s over a context, resumed by key from their records.
//!
//! The way of a run: `start` or `claim` → `driver` (its task) → `run` (one activation: load the history, poll the body,
//! end or park) → `ctx`, `call`, `select`, `transaction` (the actions of the body) → `resume` (the records that the
//! body no longer asks for). Actions on a run from outside: `signal`, `command` (cancel, pause), `answer`, `again`
//! (retry, fork).
//!
//! `inner` is shared by all runs, and `live` belongs to one activation. Neither imports the modules that build on it:
//! `inner` is handed the driver, and `live` knows no engine.

mod again;
#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
mod along;
mod answer;
mod approval;
mod begun;
mod budget;
mod builder;
mod call;
#[cfg(feature = "api")]
mod catalogue;
mod changed;
pub mod check;
mod child;
mod claim;
mod client;
mod command;
mod ctx;
mod deadline;
mod doubt;
mod driver;
mod due;
mod emit;
mod ends;
mod engine;
mod error;
mod failure;
mod family;
mod guarantees;
mod guarded;
mod handle;
mod history;
mod host_values;
mod identity;
mod inbox;
mod inner;
#[cfg(feature = "api")]
mod input_schema;
mod keyed;
mod label;
mod labelled;
mod live;
mod named_call;
mod oversized;
mod past_call;
mod publish;
mod queue;
mod recordable;
mod replay;
mod resume;
mod row;
mod run;
mod runs;
mod saga;
#[cfg(feature = "schedule")]
mod schedule;
#[cfg(feature = "agent")]
mod scope;
mod select;
mod signal;
mod start;
mod state;
mod status;
mod tenant;
mod told;
mod transaction;
mod try_step;
mod turns;
mod unregistered;
mod unstable_key;
mod unwanted;
mod voted;
mod waiters;
mod wake;
mod workflow;

pub use again::{BeginAgain, Fork, Resume, Retry};
#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
pub(crate) use along::Along;
pub use approval::AskApproval;
pub(crate) use approval::{Told, heard_as};
pub use builder::EngineBuilder;
pub use call::{MayGoOut, ToolCall, With, Without};
#[cfg(feature = "api")]
pub(crate) use catalogue::{PublishedWorkflow, find as find_workflow, list as list_workflows};
pub use child::{Child, ChildRun};
pub use client::{Client, ClientBuilder};
pub use command::{Command, GiveCommand};
pub use ctx::Ctx;
pub use engine::Engine;
pub use error::RunError;
pub use failure::{EffectEnd, EffectOutcome, Failure, FailureCode};
pub use guarantees::{Guarantees, OwnGuarantee, WorkflowGuarantees};
pub(crate) use guarded::{Guarded, Guess, Guessed, Proposal, exec_in_run};
pub use handle::RunHandle;
pub use history::{PastCall, PastStep, PastTurn, PastUse};
#[cfg(feature = "api")]
pub(crate) use input_schema::InputSchema;
pub use keyed::RunOf;
pub use label::Label;
pub use named_call::NamedCall;
pub use publish::Watch;
pub use queue::QueueStatus;
pub use recordable::Recordable;
#[cfg(feature = "schedule")]
pub use schedule::{Overlap, ScheduleHandle, ScheduleStatus, SetSchedule, Tick};
pub use select::Elapsed;
pub use signal::{NamesSignal, SendSignal, Sent, SignalName, SignalWait};
#[cfg(any(feature = "api", feature = "cli"))]
pub use start::StartRun;
pub use status::{QueuePlace, RunState, RunStatus};
pub use tenant::TenantClient;
pub use try_step::TryStep;
pub use turns::{Loop, Turn};
#[cfg(feature = "agent")]
pub(crate) use unregistered::Unregistered;
pub use workflow::{Workflow, WorkflowFn};

pub use crate::store::{RunCursor, RunFilter, RunPage, RunStateName};
