//! How a workflow fails: a value that is recorded, with a stable code (FLOW-1).

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::RunError;
use crate::exec::{ExecError, RequestError, ResponseTooLarge};
use crate::id::{IdError, RunId};
use crate::ledger::{Diff, ErrorKind, KeyError, Record, RecordedFailure};
use crate::payload::{Payload, PayloadError};
use crate::tool::{ToolError, causes, in_full};

/// Why a step, a call or a run failed. Recorded as it is, and the same on every resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What to match on.
    pub code: FailureCode,
    /// What happened, to which key, and what to do.
    pub message: String,
    /// More, as JSON: the diff of a conflict, say.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
    /// Of a run that undid what it could: what became of each of its effects, and of those of its children that succeeded;
    /// the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectEnd>,
    /// Children that the run began and that stand alone: what they do and did is not undone with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<RunId>,
}

/// What became of an effect of a run that did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectEnd {
    /// The key of its operation.
    pub key: String,
    /// The provider's id for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// What became of it.
    pub became: EffectOutcome,
}

/// Undone, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectOutcome {
    /// It is undone.
    Undone,
    /// A part of it is undone; a question is open about the rest.
    UndoneInPart {
        /// What is left.
        rest: String,
    },
    /// It stands, or may; a question is open about it.
    Stands {
        /// Why it was not undone.
        why: String,
    },
}

impl EffectEnd {
    pub(super) fn of(record: &Record, became: EffectOutcome) -> Self {
        Self { key: record.key.to_string(), external_ref: record.external_ref.clone(), became }
    }
}

/// The codes of failures. They are stored: never rename one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureCode {
    /// The workflow's own code says so.
    Workflow,
    /// A tool failed for certain, and its attempts are used up.
    ToolFailed,
    /// The same key with another payload.
    Conflict,
    /// Nobody knows whether it happened, and somebody decided to leave it.
    Abandoned,
    /// It was done and undone; to do it again takes a key revision.
    Compensated,
    /// It was done so long ago that its answer is no longer kept; to do it again takes a key revision.
    Gone,
    /// The approval is missing, stale or expired.
    Approval,
    /// Somebody has rejected what was to be approved.
    Rejected,
    /// Nobody has decided in time.
    Undecided,
    /// What was asked for does not fit what is there: a signal to a run that does not exist, say.
    Invalid,
    /// The code asks for what cannot be recorded or resumed: two uses of one name at once, a payload over the limit. A run does not
    /// fail with it: the run is blocked until its code is mended.
    Misuse,
    /// A tool or the workflow of a child is not registered. A run does not fail with it: the run is blocked until an engine knows that.
    Unregistered,
    /// A transaction failed and was rolled back.
    Transaction,
    /// A call happened, and its response is over the limit: what is recorded of it is the detail, a
    /// [`ResponseTooLarge`](crate::exec::ResponseTooLarge). A run does not fail with it: the run is blocked until the limit is raised.
    ResponseTooLarge,
    /// A child failed: its failure is the detail.
    ChildFailed,
    /// Somebody cancelled the run.
    Cancelled,
    /// A budget is used up: its name is in the detail, as `detail.detail.budget`. Nothing was sent.
    BudgetExceeded,
    /// An agent has used up its turns without coming to an end.
    TurnsUsedUp,
}

impl FailureCode {
    /// A new build can mend it: the run is blocked, and nothing is undone.
    pub(crate) const fn is_mendable(self) -> bool {
        matches!(self, Self::Misuse | Self::Unregistered)
    }

    /// A run that ends with this failure is blocked, and nothing is undone: a new build or another setting can mend it. With every other
    /// failure the run fails.
    ///
    /// ```
    /// use counterfoil::flow::FailureCode;
    /// assert!(FailureCode::Unregistered.blocks_run());
    /// assert!(!FailureCode::ToolFailed.blocks_run());
    /// ```
    pub const fn blocks_run(self) -> bool {
        self.is_mendable() || matches!(self, Self::ResponseTooLarge)
    }
}

impl Failure {
    /// A failure of the workflow's own.
    pub fn new(message: impl Into<String>) -> Self {
        Self::coded(FailureCode::Workflow, message)
    }

    /// A failure of this code.
    pub fn coded(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: Value::Null, effects: Vec::new(), detached: Vec::new() }
    }

    /// Adds detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Value>) -> Self {
        self.detail = detail.into();
        self
    }

    pub(crate) fn tool(tool: &str, failure: &RecordedFailure) -> Self {
        let detail = serde_json::to_value(failure).unwrap_or(Value::Null);
        // One of ours; a provider may have budgets, too.
        let is_ours = failure.kind == ErrorKind::BudgetExceeded && failure.detail.get("budget").is_some();
        Self::coded(
            if is_ours { FailureCode::BudgetExceeded } else { FailureCode::ToolFailed },
            format!("{tool} failed: {}: {}", failure.kind.name(), failure.message),
        )
        .detail(detail)
    }

    pub(crate) fn too_large(response: &ResponseTooLarge) -> Self {
        let detail = serde_json::to_value(response).unwrap_or(Value::Null);
        Self::coded(FailureCode::ResponseTooLarge, response.to_string()).detail(detail)
    }

    pub(crate) fn conflict(key: &str, diff: Diff) -> Self {
        Self::coded(
            FailureCode::Conflict,
            format!("{key} was asked for before with another payload: nothing was done; change the key or the payload"),
        )
        .detail(diff.0)
    }

    /// The failure as a row holds it.
    pub(crate) fn payload(&self) -> Payload {
        // A failure is text and JSON: it always has a JSON form, unless its detail holds an inexact integer.
        Payload::of(self)
            .or_else(|_| Payload::of(&Self::coded(self.code, self.message.clone())))
            .unwrap_or_else(|_| Payload::stored("{\"code\":\"workflow\",\"message\":\"unprintable\"}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Any error becomes a failure with `?`. `Failure` itself does not implement `Error`: Rust allows this conversion only then.
///
/// An error that is or rests on a [`ToolError`], a [`PayloadError`], an [`IdError`] or a [`KeyError`] keeps its code, and one that rests on
/// a [`RunError::Failed`] is the failure of that run. A run that such an error leaves with a code that a new build can mend is blocked,
/// and not failed.
///
/// ```
/// use counterfoil::{Ctx, Failure};
///
/// async fn order(ctx: Ctx, quantity: String) -> Result<u32, Failure> {
///     let quantity: u32 = quantity.trim().parse()?;
///     ctx.step("double", &quantity, |quantity| quantity * 2).await
/// }
/// ```
impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let message = in_full(&error);
        causes(&error).find_map(|cause| coded_by(cause, &message)).unwrap_or_else(|| Self::new(message))
    }
}

/// The failure that this error means by itself, wherever it comes from.
fn coded_by(error: &(dyn Error + 'static), message: &str) -> Option<Failure> {
    if let Some(RunError::Failed { failure, .. }) = error.downcast_ref() {
        return Some(failure.clone());
    }
    if let Some(error) = error.downcast_ref::<ToolError>() {
        let detail = serde_json::json!({ "kind": error.kind.name() });
        return Some(Failure::coded(FailureCode::ToolFailed, message).detail(detail));
    }
    let is_misuse = error.is::<PayloadError>() || error.is::<IdError>() || error.is::<KeyError>();
    is_misuse.then(|| misuse(message))
}

impl From<Failure> for Box<dyn Error + Send + Sync> {
    fn from(failure: Failure) -> Self {
        failure.message.into()
    }
}

impl From<Failure> for Box<dyn Error> {
    fn from(failure: Failure) -> Self {
        failure.message.into()
    }
}

/// What an error of the executor means inside a run: something that the workflow can handle, or something
/// that ends this activation of the run without a word to the workflow.
pub(super) enum Meaning {
    Failure(Failure),
    Stop(ExecError),
}

pub(super) fn meaning(error: ExecError) -> Meaning {
    match error {
        ExecError::Store { .. } | ExecError::Refused { .. } | ExecError::Closed { .. } => {
            Meaning::Stop(error)
        }
        ExecError::Request(RequestError::Approval(error)) => {
            Meaning::Failure(Failure::coded(FailureCode::Approval, error.to_string()))
        }
        error => Meaning::Failure(misuse(error.to_string())),
    }
}

/// The run's code asks for what cannot be recorded or resumed.
pub(super) fn misuse(message: impl Into<String>) -> Failure {
    Failure::coded(FailureCode::Misuse, message)
}
