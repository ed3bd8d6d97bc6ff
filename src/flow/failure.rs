//! Failures of workflows: recorded values, each with a stable code.

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

/// The reason why a step, a call or a run failed. It is recorded, and is the same on every resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stable code to match on.
    pub code: FailureCode,
    /// The message: what happened, to which key, and what to do.
    pub message: String,
    /// Further facts as JSON, such as the diff of a conflict.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
    /// The fate of each effect of a run that undid what it could, and of each effect of its children that succeeded;
    /// the last effect first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectEnd>,
    /// Children that the run began detached: their effects are not undone with the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<RunId>,
}

/// The fate of one effect of a run that did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectEnd {
    /// The operation key of the effect.
    pub key: String,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// The outcome of the compensation.
    pub became: EffectOutcome,
}

/// The outcome of undoing an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectOutcome {
    /// The effect is undone.
    Undone,
    /// A part of the effect is undone. A question is open about the rest.
    UndoneInPart {
        /// The part that is left, in words.
        rest: String,
    },
    /// The effect exists, or may exist. A question is open about it, unless a person has decided to keep it.
    Stands {
        /// The reason why it was not undone.
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
    /// The workflow's own code returned the failure.
    Workflow,
    /// A tool failed for certain, and its attempts are used up.
    ToolFailed,
    /// The key was used before with another payload.
    Conflict,
    /// Nobody knows whether the call happened, and a person decided to leave it.
    Abandoned,
    /// The effect was done and undone. To do it again takes a key revision.
    Compensated,
    /// The effect was done so long ago that its answer is no longer kept. To do it again takes a key revision.
    Gone,
    /// The approval is missing, stale or expired.
    Approval,
    /// A person rejected the request for approval.
    Rejected,
    /// Nobody decided about the request for approval in time.
    Undecided,
    /// The tool's policy refused the call. The policy and its reason are in the detail, as `detail.detail.policy` and
    /// `detail.detail.reason`.
    PolicyRefused,
    /// The request does not fit the present state: a signal to a run that does not exist, for example.
    Invalid,
    /// The code asks for something that cannot be recorded or resumed: two uses of one name at once, a payload over
    /// the limit. A run does not fail with it: the run is blocked until its code is mended.
    Misuse,
    /// A tool or the workflow of a child is not registered. A run does not fail with it: the run is blocked until an
    /// engine has the registration.
    Unregistered,
    /// A transaction failed and was rolled back.
    Transaction,
    /// A call happened, and its response is over the limit. The detail is a
    /// [`ResponseTooLarge`](crate::exec::ResponseTooLarge). A run does not fail with it: the run is blocked until the
    /// limit is raised.
    ResponseTooLarge,
    /// A child failed. Its failure is the detail.
    ChildFailed,
    /// The run was cancelled by a command, or by its deadline.
    Cancelled,
    /// A budget is used up, and nothing was sent. The name of the budget is in the detail, as `detail.detail.budget`.
    BudgetExceeded,
    /// An agent has used up its turns without coming to an end.
    TurnsUsedUp,
}

impl FailureCode {
    /// True if a new build can mend the failure: the run is blocked, and nothing is undone.
    pub(crate) const fn is_mendable(self) -> bool {
        matches!(self, Self::Misuse | Self::Unregistered)
    }

    /// True if a run that ends with this failure is blocked, and nothing is undone: a new build or another setting can
    /// mend it. With every other failure the run fails.
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
    /// A failure of the workflow's own code, with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self::coded(FailureCode::Workflow, message)
    }

    /// A failure with this code and message.
    pub fn coded(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: Value::Null, effects: Vec::new(), detached: Vec::new() }
    }

    /// Sets the detail of the failure.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Value>) -> Self {
        self.detail = detail.into();
        self
    }

    /// True if the server rolled a transaction back for a reason that may pass, such as a deadlock: the same transaction
    /// may succeed.
    pub(super) fn may_pass(&self) -> bool {
        self.code == FailureCode::Transaction && self.detail.get("sqlstate").is_some()
    }

    pub(crate) fn tool(tool: &str, failure: &RecordedFailure) -> Self {
        let detail = serde_json::to_value(failure).unwrap_or(Value::Null);
        if failure.is_by_policy() {
            let message = format!("{tool} was not called: {}", failure.message);
            return Self::coded(FailureCode::PolicyRefused, message).detail(detail);
        }
        // The engine's own budget; a provider may have budgets, too.
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

    /// The message, followed by the code unless the message names it already.
    pub(super) fn with_code(&self) -> String {
        let code = format!("[{}]", self.code.code());
        if self.message.contains(&code) { self.message.clone() } else { format!("{} {code}", self.message) }
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

/// Converts any error with `?`. `Failure` itself does not implement `Error`: Rust allows this conversion only then.
///
/// An error that is or rests on a [`ToolError`], a [`PayloadError`], an [`IdError`] or a [`KeyError`] keeps its code.
/// An error of PostgreSQL that may pass, such as a deadlock, gets the code [`FailureCode::Transaction`], and its SQLSTATE
/// as `detail.sqlstate`.
/// An error that rests on a [`RunError::Failed`] becomes the failure of that run. A run that ends with such an error is
/// blocked, and not failed, if a new build can mend the code.
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

/// The failure that this error means by itself, wherever the error comes from.
fn coded_by(error: &(dyn Error + 'static), message: &str) -> Option<Failure> {
    if let Some(RunError::Failed { failure, .. }) = error.downcast_ref() {
        return Some(failure.clone());
    }
    if let Some(error) = error.downcast_ref::<ToolError>() {
        let detail = serde_json::json!({ "kind": error.kind.name() });
        return Some(Failure::coded(FailureCode::ToolFailed, message).detail(detail));
    }
    #[cfg(feature = "postgres")]
    if let Some(code) = crate::store::postgres::passing(error) {
        let detail = serde_json::json!({ "sqlstate": code });
        return Some(Failure::coded(FailureCode::Transaction, message).detail(detail));
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

/// The meaning of an executor's error inside a run: a failure that the workflow can handle, or a stop that ends this
/// activation of the run without telling the workflow.
pub(super) enum Meaning {
    Failure(Failure),
    Stop(ExecError),
}

pub(super) fn meaning(error: ExecError) -> Meaning {
    match error {
        ExecError::Store { .. }
        | ExecError::Refused { .. }
        | ExecError::Late { .. }
        | ExecError::Closed { .. }
        | ExecError::Unwritten { .. } => Meaning::Stop(error),
        ExecError::Request(RequestError::Approval(error)) => {
            Meaning::Failure(Failure::coded(FailureCode::Approval, error.to_string()))
        }
        error => Meaning::Failure(misuse(error.to_string())),
    }
}

/// The failure of code that asks for what cannot be recorded or resumed.
pub(super) fn misuse(message: impl Into<String>) -> Failure {
    Failure::coded(FailureCode::Misuse, message)
}
