//! ③ One operation, from request to seal, without any workflow.
//!
//! The way of a tool call: [`Executor::execute`] → `operation` (key, hash) → `carry`: the ledger decides → `attempt`
//! (begin), `dispatch`, `seal` → `reconcile` if its outcome is unknown → `escalate` if nobody can tell.

mod agenda;
mod answer;
pub(crate) mod approval;
mod asked;
mod attempt;
mod attendance;
mod builder;
mod carry;
mod ceased;
mod close;
mod compare;
mod core;
mod decided;
mod declarations;
mod declared;
mod dispatch;
#[cfg(feature = "_doors")]
mod doors;
mod enrol;
mod erase;
mod escalate;
mod executor;
pub mod inbox;
mod inflight;
mod lasting;
mod late;
mod lease;
mod lift;
mod looks;
mod lookup;
mod needs;
mod noting;
mod operation;
mod orphans;
pub mod outbox;
mod outcome;
mod oversized;
mod peers;
mod pulse;
mod questions;
mod quiet;
mod reconcile;
mod recorded;
mod request;
mod resend;
mod resolve;
mod restored;
mod restores;
mod result;
mod retire;
mod reviewers;
mod seal;
#[cfg(feature = "_sealed")]
mod sealing;
mod shield;
mod sleeper;
mod standing;
mod store_clock;
mod surplus;
mod throttle;
mod unattended;
mod undo;

pub(crate) use self::core::Core;
pub(crate) use agenda::{Due, More};
pub(crate) use answer::answer as answer_escalation;
pub(crate) use carry::{Answered, Expect, carry_out, look_only};
pub(crate) use decided::Said;
pub(crate) use escalate::{may_undo, note_use, orphaned as escalation_of_orphan, withdrawn};
pub(crate) use lasting::last;
pub(crate) use operation::{Asker, Operation, Requested};
pub(crate) use orphans::{follow_dropped, take_up_orphans};
pub(crate) use pulse::beat;
pub(crate) use questions::count as count_questions;
pub(crate) use resolve::Answers;
pub(crate) use shield::to_the_end;
pub(crate) use sleeper::run as run_agenda;
pub(crate) use throttle::Purse;
pub(crate) use undo::{due_for, undo};

pub use crate::store::own::OwnConnection;
pub use builder::{ExecutorBuilder, StartError};
pub use erase::EraseError;
pub use executor::Executor;
pub use looks::Audit;
pub use outcome::{Answer, ExecError, Outcome, ResponseTooLarge};
pub use questions::Questions;
pub use request::{ToolRequest, Wait};
pub use resolve::Resolve;
pub use reviewers::Reviewers;
pub use throttle::{BreakerState, GateReport};
pub use undo::Compensated;
