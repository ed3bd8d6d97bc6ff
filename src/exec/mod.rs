//! ③ One operation, from request to seal, without any workflow.
//!
//! The path of a tool call: [`Executor::execute`] → `operation` (key, hash) → `carry`: the ledger decides → `attempt`
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
mod clients;
mod close;
mod compare;
mod complete;
mod completion;
mod conflict;
mod consumers;
mod contact;
mod core;
mod decided;
mod declarations;
mod declared;
mod dispatch;
#[cfg(any(feature = "_doors", feature = "guard-service", all(feature = "mcp", feature = "sqlite")))]
mod doors;
mod enrol;
mod erase;
mod erase_labelled;
mod escalate;
mod evidence;
mod executor;
mod fate;
#[cfg(feature = "metrics")]
mod gauges;
mod guesses;
mod hand_over;
mod health;
mod history;
pub mod inbox;
mod inflight;
mod inline;
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
mod pending;
mod plain;
mod protection;
mod pulse;
mod question_view;
mod questions;
mod quiet;
mod reconcile;
mod recorded;
mod request;
mod request_error;
mod resend;
mod resolve;
mod restored;
mod restores;
mod result;
mod retire;
mod reviewed;
mod reviewers;
#[cfg(feature = "unstable-core")]
mod rows;
mod ruling;
mod seal;
#[cfg(feature = "_sealed")]
mod sealing;
mod shield;
mod sleeper;
mod standing;
mod store_clock;
mod surplus;
mod throttle;
mod tool_code;
mod tool_result;
mod toolless;
mod traced;
mod unattended;
mod undo;
mod unfinished;
mod verify;

pub(crate) use self::core::Core;
pub(crate) use agenda::{Due, More, Pages};
pub(crate) use answer::Answerable;
pub(crate) use carry::{Answered, Expect, carry_out, look_only};
#[cfg(feature = "api")]
pub(crate) use conflict::conflicts;
pub(crate) use decided::{Said, commit_answer};
pub(crate) use erase::erase_run;
#[cfg(feature = "cli")]
pub(crate) use erase::{erase as erase_record, erase_tenant};
pub(crate) use erase_labelled::erase_labelled;
pub(crate) use escalate::{may_undo, note_use, orphaned as escalation_of_orphan, withdrawn};
pub(crate) use evidence::of as view_evidence;
pub(crate) use lasting::last;
pub(crate) use operation::{Asker, Operation, Requested};
pub(crate) use orphans::{follow_dropped, take_up_orphans};
pub(crate) use pulse::beat;
pub(crate) use question_view::view as view_question;
#[cfg(any(feature = "api", feature = "cli"))]
pub(crate) use question_view::view_record;
pub(crate) use questions::count as count_questions;
pub(crate) use resolve::Answers;
pub(crate) use reviewed::review_beside;
pub(crate) use shield::to_the_end;
pub(crate) use sleeper::run as run_agenda;
pub(crate) use throttle::Purse;
#[cfg(feature = "agent")]
pub(crate) use tool_result::output_text;
pub(crate) use undo::{compensate, due_for, undo};
pub(crate) use verify::{verify_call, verify_ledger};

pub use crate::store::own::OwnConnection;
pub use builder::{ExecutorBuilder, StartError};
pub use completion::{Completed, Completion};
pub use erase::EraseError;
pub use erase_labelled::{ErasureReport, KeptCall, KeptRun};
pub use evidence::{ApprovalEvidence, AskedAbout, AskedBy, Evidence, OutcomeEvidence, VoteEvidence};
pub use executor::Executor;
pub use health::{Health, Trouble};
pub use history::{CallHistory, PastAttempt, PastLookup};
pub use inline::InlineEffect;
pub use looks::Audit;
pub(crate) use outcome::unless_panicked;
pub use outcome::{Answer, CallError, ExecError, Outcome, ResponseTooLarge};
pub use question_view::{QuestionAnswer, QuestionCall, QuestionEvidence, QuestionRun, QuestionView};
pub use questions::Questions;
pub use request::{ToolRequest, Wait};
pub use request_error::RequestError;
pub use resolve::GiveAnswer;
pub use reviewers::Reviewers;
pub use throttle::{BreakerState, ThrottleReport};
pub use tool_result::ToolResult;
pub use undo::Compensated;
