//! What an attempt comes back with.

use std::error::Error;
use std::time::Duration;

use crate::ledger::ErrorKind;

/// A call that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Done<T> {
    /// The result.
    pub output: T,
    /// The provider's own id for the effect, if it has one.
    pub external_ref: Option<String>,
    /// The cost of this attempt, in the unit of the tool's [price](crate::ledger::Price). Absent: as estimated.
    pub cost: Option<u64>,
}

impl<T> Done<T> {
    /// A result.
    pub const fn new(output: T) -> Self {
        Self { output, external_ref: None, cost: None }
    }

    /// Adds the provider's id.
    #[must_use]
    pub fn external_ref(mut self, id: impl Into<String>) -> Self {
        self.external_ref = Some(id.into());
        self
    }

    /// Says what this attempt has cost, in the unit of the tool's [price](crate::ledger::Price): that price is an estimate, which is
    /// reserved before the attempt and counts as long as nothing else is known.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// The same with what becomes of its output.
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Done<U> {
        Done { output: into(self.output), external_ref: self.external_ref, cost: self.cost }
    }

    /// A result that a lookup has found, with the provider's id if it has one.
    pub const fn found(output: T, external_ref: Option<String>) -> Self {
        Self { output, external_ref, cost: None }
    }
}

impl<T> From<T> for Done<T> {
    fn from(output: T) -> Self {
        Self::new(output)
    }
}

/// An attempt that failed. Its kind decides what may happen next, so it must be told truly: what *may* have
/// reached the world is never reported as a kind that says nothing happened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct ToolError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What happened, for people. Goes into the record: no secrets.
    pub message: String,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
    /// It is the answer to each request under the key: see [`replayed`](Self::replayed).
    pub replayed: bool,
    /// The provider will finish the call by itself: see [`accepted`](Self::accepted).
    pub accepted: Option<Accepted>,
}

/// The provider has accepted a call, and finishes it by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The provider's id for the call, if it has given one.
    pub external_ref: Option<String>,
}

impl ToolError {
    /// A failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, replayed: false, accepted: None }
    }

    /// The provider has refused the call for certain: nothing happened, and the same call would be refused again.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Validation, message)
    }

    /// Nothing was sent: there was no connection, say. The call is tried again.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unreachable, message)
    }

    /// Nobody can tell from here whether the call happened. It is looked up, or a person is asked.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unknown, message)
    }

    /// The provider wants to be asked again after this time, and has done nothing.
    pub fn later(after: Duration, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::RateLimited, message).retry_after(after)
    }

    /// The tool's own code panicked.
    pub(crate) fn panicked() -> Self {
        Self::new(ErrorKind::Panic, "the tool's code panicked")
    }

    /// A refusal that a provider of class [`ReplaysKey`](crate::ledger::ContractClass::ReplaysKey) gives to each request under the
    /// key: Stripe's `idempotent-replayed: true`, say. It is certain also of an earlier request whose answer was lost, and settles
    /// the record. Of another class it is like [`new`](Self::new).
    ///
    /// ```
    /// use counterfoil::{ledger::ErrorKind, tool::ToolError};
    /// let declined = ToolError::replayed(ErrorKind::Validation, "card declined");
    /// assert!(declined.replayed);
    /// ```
    pub fn replayed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { replayed: true, ..Self::new(kind, message) }
    }

    /// The provider has accepted the call and finishes it by itself: an HTTP 202 (RFC 9110, section 15.3.3). Nothing is sent again. The
    /// call waits as a row, durably, until its lookup shows that it is finished, or until its result is
    /// [handed over](crate::Executor::complete) by a callback. [`retry_after`](Self::retry_after) is the pause before the lookup; a
    /// minute, unless it is set. After the contract's [longest time](crate::ledger::Contract::completes_within) a person is asked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::tool::ToolError;
    /// let rendering = ToolError::accepted(Some("job-7".into())).retry_after(Duration::from_secs(30));
    /// assert!(rendering.accepted.is_some());
    /// ```
    pub fn accepted(external_ref: Option<String>) -> Self {
        let message = match &external_ref {
            Some(id) => format!("the provider has accepted it as {id}, and finishes it by itself"),
            None => "the provider has accepted it, and finishes it by itself".to_owned(),
        };
        Self { accepted: Some(Accepted { external_ref }), ..Self::new(ErrorKind::InProgress, message) }
    }

    /// Adds when the provider wants to be asked again.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Sorts an HTTP status (RFC 9110) for a request that was sent completely. A 5xx may have had its effect
    /// before it failed, and a 409 may mean "known already": neither is a proof that nothing happened.
    ///
    /// A provider that refuses a key which it knows may do so with another status, a 400 with a code of its own say: sort its answers by
    /// [`http_keyed`](Self::http_keyed), or a call that has happened is recorded as failed.
    ///
    /// ```
    /// use counterfoil::{ledger::ErrorKind, tool::ToolError};
    /// assert_eq!(ToolError::http(503, "down").kind, ErrorKind::Server);
    /// assert_eq!(ToolError::http(422, "no such case").kind, ErrorKind::Validation);
    /// ```
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            401 => ErrorKind::Unauthorized,
            403 => ErrorKind::PolicyDenied,
            408 | 425 => ErrorKind::TimeoutDuringEffect,
            409 => ErrorKind::Duplicate,
            412 => ErrorKind::VersionConflict,
            429 => ErrorKind::RateLimited,
            400..=499 => ErrorKind::Validation,
            500..=599 => ErrorKind::Server,
            _ => ErrorKind::Unknown,
        };
        Self::new(kind, format!("HTTP {status}: {}", message.into()))
    }

    /// Sorts an HTTP status of a provider that refuses a key which it knows (class
    /// [`RejectsKey`](crate::ledger::ContractClass::RejectsKey)). `is_known`: this answer is such a refusal, by the provider's own code.
    /// It is a [`Duplicate`](ErrorKind::Duplicate) then whatever its status, and is looked up. The network may have doubled the
    /// request, so that also the answer to a first send can be that.
    ///
    /// ```
    /// use counterfoil::{ledger::ErrorKind, tool::ToolError};
    /// use serde_json::json;
    /// let body = json!({"code": 159, "error": "Duplicate value"});
    /// let error = ToolError::http_keyed(400, body.to_string(), body["code"] == 159);
    /// assert_eq!(error.kind, ErrorKind::Duplicate);
    /// assert_eq!(ToolError::http_keyed(400, "no such field", false).kind, ErrorKind::Validation);
    /// ```
    pub fn http_keyed(status: u16, message: impl Into<String>, is_known: bool) -> Self {
        let error = Self::http(status, message);
        if is_known { Self { kind: ErrorKind::Duplicate, ..error } } else { error }
    }
}

/// An error, and then what it rests on.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

/// The text of an error and those of its causes. Many errors repeat the text of their cause, which then stands there once.
pub(crate) fn in_full(error: &(dyn Error + 'static)) -> String {
    causes(error).skip(1).map(ToString::to_string).fold(error.to_string(), |full, text| {
        if full.contains(&text) { full } else { format!("{full}: {text}") }
    })
}
