//! Why a run has no result, or could not be asked for one.

use super::failure::Failure;
use crate::exec::ExecError;
use crate::id::{IdError, RunId};
use crate::ledger::Diff;
use crate::payload::PayloadError;
use crate::store::{Refusal, StoreError};

/// Why a run has no result (yet).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow returned an error. Effects it had committed are open questions now.
    #[error("{run} failed: {failure}")]
    Failed {
        /// The run.
        run: RunId,
        /// What it returned.
        failure: Failure,
    },
    /// It waits for a decision: see the open escalations.
    #[error("{run} was blocked: {message}")]
    Blocked {
        /// The run.
        run: RunId,
        /// The question.
        message: String,
    },
    /// The start key was used before with another input: nothing was started.
    #[error(
        "the start key {key:?} belongs to {run}, which has another input: nothing was started; use another key"
    )]
    Conflict {
        /// The key.
        key: String,
        /// The run that has it.
        run: RunId,
        /// What differs.
        diff: Diff,
    },
    /// The start key was used before, and the start was [not to give the existing run](super::StartRun::reject_duplicate).
    #[error("the start key {key:?} belongs to {run}: nothing was started")]
    Duplicate {
        /// The key.
        key: String,
        /// The run that has it.
        run: RunId,
    },
    /// No queue of that name is declared with this engine.
    #[error(
        "no queue {queue:?} is declared with this engine (there are {declared:?}): nothing was started; add \
         `.queue(Queue::new({queue:?}))`"
    )]
    UnknownQueue {
        /// The name.
        queue: String,
        /// Those that are.
        declared: Vec<String>,
    },
    /// A schedule makes no sense, or was refused.
    #[cfg(feature = "schedule")]
    #[error("the schedule {name:?} was refused: {reason}; nothing was changed")]
    Schedule {
        /// The schedule.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no schedule of this name.
    #[cfg(feature = "schedule")]
    #[error("there is no schedule {name:?} of this tenant")]
    NoSchedule {
        /// The name.
        name: String,
    },
    /// A queue key or a priority was given, and no queue.
    #[error(
        "a queue key or a priority was given and no queue: nothing was started; choose one by `.queue(name)`"
    )]
    NoQueue,
    /// The function is not registered with this engine.
    #[error(
        "this workflow is not registered with the engine: nothing was started; add `.workflow(name, version, function)`"
    )]
    Unregistered,
    /// There is no such run of this tenant.
    #[error("there is no {run} of this tenant")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// No run of this workflow was started under this key.
    #[error(
        "no run of the workflow {workflow:?} was started under the key {key:?}: nothing was done; start it, or check the key"
    )]
    UnknownKey {
        /// The workflow.
        workflow: String,
        /// The start key.
        key: String,
    },
    /// Input or result have no JSON form, or not the expected type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A write was refused.
    #[error("{run}: {refusal}")]
    Refused {
        /// The run.
        run: RunId,
        /// Why.
        refusal: Refusal,
    },
    /// It ended, and its retention is over: only a tombstone is left of it, so that its start key stays taken.
    #[error(
        "{run} has expired: it ended, and what it was given, did and returned is no longer kept; nothing was begun or sent. Keep the \
         runs of its workflow for longer (`.retention(..)`), or use another start key"
    )]
    Expired {
        /// The run.
        run: RunId,
    },
    /// It has ended, and receives nothing any more.
    #[error("{run} is over: the signal was not sent")]
    Over {
        /// The run.
        run: RunId,
    },
    /// It cannot go on from a step.
    #[error("{run} {why}: it was left as it is; fork it, and the fork goes on from that step")]
    NotRetryable {
        /// The run.
        run: RunId,
        /// Why.
        why: &'static str,
    },
    /// It has recorded no step of this name: nothing was begun.
    #[error("{run} has recorded nothing under {step}: nothing was begun again; see what it did with `turns`")]
    NoSuchStep {
        /// The run.
        run: RunId,
        /// The name.
        step: String,
    },
    /// It has no operation under this key of which it is known what became of it: nothing was begun.
    #[error("{run} has no operation {key} whose outcome is known: nothing was begun again")]
    NoSuchEffect {
        /// The run.
        run: RunId,
        /// The key.
        key: String,
    },
    /// Models were to be asked anew, and an effect rests on what they have said.
    #[error(
        "{run} was not forked: its effect {key} rests on what its models have said, so they are not asked again; fork it from a step \
         behind that effect, or without `explore`"
    )]
    EffectRests {
        /// The run.
        run: RunId,
        /// The key of the effect.
        key: String,
    },
    /// An effect that was to be undone before the run is begun again is not.
    #[error(
        "{run} was not begun again: {key} was to be undone first, and is not: {why}; what was undone before it stays undone. Give the \
         command again when it is undone, or without undoing it"
    )]
    NotCompensated {
        /// The run.
        run: RunId,
        /// The key of the effect.
        key: String,
        /// Why not.
        why: String,
    },
    /// A child that it has begun is under way, and would tell a fork nothing.
    #[error("{run} has a child that is under way, {child}: wait for it or cancel it, then fork")]
    ChildRunning {
        /// The run.
        run: RunId,
        /// Its child.
        child: RunId,
    },
    /// Another command was given under this key: the first one stands.
    #[error(
        "{run} was given another command under the key {key:?}: the first one stands; give this one another key"
    )]
    CommandConflict {
        /// The run.
        run: RunId,
        /// The command's key.
        key: String,
    },
    /// Nobody has paused it, or it goes on already.
    #[error("{run} is not paused: nothing was changed")]
    NotPaused {
        /// The run.
        run: RunId,
    },
    /// The run was sent another signal under this name and id: the first one stands.
    #[error(
        "{run} was sent another signal {name:?} under the id {id:?}: the first one stands; give this one another id"
    )]
    SignalConflict {
        /// The run.
        run: RunId,
        /// The signal's name.
        name: String,
        /// Its id.
        id: String,
    },
    /// A name is empty, too long, or not for users.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The engine is shutting down; the run goes on when one is started on the same store.
    #[error("the engine was shut down before {run} ended: it goes on with the next one")]
    Closed {
        /// The run.
        run: RunId,
    },
    /// The executor failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}
