//! The reasons why a run has no result, or why a request about a run was refused.

use super::failure::Failure;
use crate::exec::ExecError;
use crate::id::{IdError, RunId};
use crate::ledger::Diff;
use crate::payload::PayloadError;
use crate::store::{Refusal, StoreError};
use crate::tool::debug_in_full;

/// The reason why a run has no result (yet), or why a start, a signal or a command was refused.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow returned an error. Effects that it had committed and that are not undone are open questions now.
    #[error("{run} failed: {}", failure.with_code())]
    Failed {
        /// The id of the run.
        run: RunId,
        /// The error that the workflow returned.
        failure: Failure,
    },
    /// The run waits for a decision: see the open questions.
    #[error(
        "{run} is blocked by a question; what it did stands, and nothing new is sent before the question is answered: {} [open_question]",
        without_run(*run, message)
    )]
    Blocked {
        /// The id of the run.
        run: RunId,
        /// The text of the question.
        message: String,
    },
    /// The start key was used before with another input: nothing was started.
    #[error(
        "the start key {key:?} belongs to {run}, which has another input: nothing was started; use another key [conflict]"
    )]
    Conflict {
        /// The start key.
        key: String,
        /// The run that has the start key.
        run: RunId,
        /// The difference between the two inputs.
        diff: Diff,
    },
    /// The start key was used before, and the start was [not to give the existing run](super::StartRun::reject_duplicate).
    #[error(
        "the start key {key:?} belongs to {run}: nothing was started; use `run_of(..)` for that run, or another key for a new one [conflict]"
    )]
    Duplicate {
        /// The start key.
        key: String,
        /// The run that has the start key.
        run: RunId,
    },
    /// No queue of that name is declared with this engine. Nothing was started.
    #[error(
        "no queue {queue:?} is declared with this engine (there are {declared:?}): nothing was started; add \
         `.queue(Queue::new({queue:?}))` [unregistered]"
    )]
    UnknownQueue {
        /// The name that was asked for.
        queue: String,
        /// The names of the declared queues.
        declared: Vec<String>,
    },
    /// The schedule makes no sense, or was refused. Nothing was changed.
    #[cfg(feature = "schedule")]
    #[error("the schedule {name:?} was refused: {reason}; nothing was changed [declaration]")]
    Schedule {
        /// The name of the schedule.
        name: String,
        /// The reason for the refusal.
        reason: String,
    },
    /// There is no schedule of this name.
    #[cfg(feature = "schedule")]
    #[error("there is no schedule {name:?} of this tenant [not_found]")]
    NoSchedule {
        /// The name that was asked for.
        name: String,
    },
    /// A queue key or a priority was given without a queue. Nothing was started.
    #[error(
        "a queue key or a priority was given and no queue: nothing was started; choose one by `.queue(name)` [invalid]"
    )]
    NoQueue,
    /// The function is not registered with this engine. Nothing was started.
    #[error(
        "this workflow is not registered with the engine: nothing was started; add `.workflow(name, version, function)` [unregistered]"
    )]
    Unregistered,
    /// A [`Client`](super::Client) knows no functions. Nothing was started.
    #[error(
        "a client has no workflows and knows them by name only: nothing was started; use `run_named(name, input)` and \
         `run_of_named(name, key)` [unregistered]"
    )]
    NoCode,
    /// There is no such run of this tenant.
    #[error("there is no {run} of this tenant [not_found]")]
    Unknown {
        /// The id that was asked for.
        run: RunId,
    },
    /// No run of this workflow was started under this key.
    #[error(
        "no run of the workflow {workflow:?} was started under the key {key:?}: nothing was done; start it, or check the key [not_found]"
    )]
    UnknownKey {
        /// The workflow.
        workflow: String,
        /// The start key.
        key: String,
    },
    /// An input or a result has no JSON form, or not the expected type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refused a write.
    #[error(
        "{run}: this write was refused ({refusal}), and nothing of it is durable; ask again [write_refused]"
    )]
    Refused {
        /// The id of the run.
        run: RunId,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// The run has ended, and its retention is over: only a tombstone is left of it, so that its start key stays taken.
    #[error(
        "{run} has expired: it ended, and what it was given, did and returned is no longer kept; nothing was begun or sent. Keep the \
         runs of its workflow for longer (`.retention(..)`), or use another start key [gone]"
    )]
    Expired {
        /// The id of the run.
        run: RunId,
    },
    /// The run has ended, and receives nothing any more.
    #[error(
        "{run} is over and receives nothing any more: the signal or command was not recorded; start another run if it is still to be acted on \
         [invalid]"
    )]
    Over {
        /// The id of the run.
        run: RunId,
    },
    /// The run cannot go on from a step.
    #[error("{run} {why}: it was left as it is; fork it, and the fork goes on from that step [invalid]")]
    NotRetryable {
        /// The id of the run.
        run: RunId,
        /// The reason, as the rest of a sentence about the run.
        why: &'static str,
    },
    /// The run has recorded no step of this name. Nothing was begun again.
    #[error(
        "{run} has recorded nothing under {step}: nothing was begun again; see what it did with `history` [not_found]"
    )]
    NoSuchStep {
        /// The id of the run.
        run: RunId,
        /// The name that was asked for.
        step: String,
    },
    /// The run has no operation under this key whose outcome is known. Nothing was begun again.
    #[error("{run} has no operation {key} whose outcome is known: nothing was begun again [not_found]")]
    NoSuchEffect {
        /// The id of the run.
        run: RunId,
        /// The key that was asked for.
        key: String,
    },
    /// A fork was to ask the models anew, and an effect rests on their answers. Nothing was begun.
    #[error(
        "{run} was not forked: its effect {key} rests on what its models have said, so they are not asked again; fork it from a step \
         behind that effect, or without `explore` [invalid]"
    )]
    EffectRests {
        /// The id of the run.
        run: RunId,
        /// The key of the effect.
        key: String,
    },
    /// An effect that was to be undone first is not undone. The run was not begun again.
    #[error(
        "{run} was not begun again: {key} was to be undone first, and is not: {why}; what was undone before it stays undone. Give the \
         command again when it is undone, or without undoing it [invalid]"
    )]
    NotCompensated {
        /// The id of the run.
        run: RunId,
        /// The key of the effect.
        key: String,
        /// The reason why it is not undone.
        why: String,
    },
    /// A child of the run is under way, and would not tell a fork of its end. Nothing was begun.
    #[error("{run} has a child that is under way, {child}: wait for it or cancel it, then fork [invalid]")]
    ChildRunning {
        /// The id of the run.
        run: RunId,
        /// The id of the child.
        child: RunId,
    },
    /// Another command was given under this key. The first one counts.
    #[error(
        "{run} was given another command under the key {key:?}: the first one stands; give this one another key [conflict]"
    )]
    CommandConflict {
        /// The id of the run.
        run: RunId,
        /// The key of the command.
        key: String,
    },
    /// The run is not paused, because nobody has paused it or because it goes on already.
    #[error("{run} is not paused: nothing was changed [invalid]")]
    NotPaused {
        /// The id of the run.
        run: RunId,
    },
    /// The run was sent another signal under this name and id. The first one counts.
    #[error(
        "{run} was sent another signal {name:?} under the id {id:?}: the first one stands; give this one another id [conflict]"
    )]
    SignalConflict {
        /// The id of the run.
        run: RunId,
        /// The name of the signal.
        name: String,
        /// The id of the signal.
        id: String,
    },
    /// A name is empty, too long, or not for users.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The engine is shutting down. The run goes on when an engine is started on the same store.
    #[error("the engine was shut down before {run} ended: it goes on with the next one [closed]")]
    Closed {
        /// The id of the run.
        run: RunId,
    },
    /// The executor failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

debug_in_full!(RunError);

/// The text of a run's question without the run, which the text of the error names before.
fn without_run(run: RunId, question: &str) -> &str {
    question.strip_prefix(&format!("{run}: ")).unwrap_or(question)
}
