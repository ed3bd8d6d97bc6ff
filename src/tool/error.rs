//! The result of an attempt: [`Done`] or [`ToolError`].

use std::error::Error;
use std::time::Duration;

use crate::ledger::ErrorKind;

/// The result of a call that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Done<T> {
    /// The output of the call.
    pub output: T,
    /// The provider's id for the effect, if it has one.
    pub external_ref: Option<String>,
    /// The cost of this attempt, in the unit of the tool's [price](crate::ledger::Price). Absent: as estimated.
    pub cost: Option<u64>,
}

impl<T> Done<T> {
    /// A result with this output.
    pub const fn new(output: T) -> Self {
        Self { output, external_ref: None, cost: None }
    }

    /// Adds the provider's id for the effect.
    #[must_use]
    pub fn external_ref(mut self, id: impl Into<String>) -> Self {
        self.external_ref = Some(id.into());
        self
    }

    /// Adds the real cost of this attempt, in the unit of the tool's [price](crate::ledger::Price). That price is an
    /// estimate, which is reserved before the attempt and counts if no cost is added.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// The result with its output converted.
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

/// The error of an attempt that failed. Its kind decides what may happen next, so it must be true: if the call *may*
/// have reached the world, do not report a kind that says nothing happened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct ToolError {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// Description of the failure, for people. Goes into the record: no secrets.
    pub message: String,
    /// The pause that the provider asks for.
    pub retry_after: Option<Duration>,
    /// True if each request under the key gets this answer: see [`replayed`](Self::replayed).
    pub replayed: bool,
    /// Present if the provider finishes the call by itself: see [`accepted`](Self::accepted).
    pub accepted: Option<Accepted>,
}

/// The acceptance of a call that the provider finishes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The provider's id for the call, if it has given one.
    pub external_ref: Option<String>,
}

/// Sorts an input or output error by what the call may have done by then, so that `?` can be used in a tool.
///
/// | the error | becomes |
/// | --- | --- |
/// | a connection was refused | [`Unreachable`](ErrorKind::Unreachable): nothing was sent |
/// | the time was over | [`TimeoutDuringEffect`](ErrorKind::TimeoutDuringEffect) |
/// | any other | [`Unknown`](ErrorKind::Unknown): a part of the request may have gone out before |
///
/// Report an error from before the first byte yourself, as [`not_sent`](Self::not_sent): it needs no lookup.
///
/// ```
/// use std::io::{Error, ErrorKind as Io};
/// use counterfoil::ledger::ErrorKind;
/// use counterfoil::tool::ToolError;
///
/// assert_eq!(ToolError::from(Error::from(Io::ConnectionRefused)).kind, ErrorKind::Unreachable);
/// assert_eq!(ToolError::from(Error::from(Io::BrokenPipe)).kind, ErrorKind::Unknown);
/// ```
impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let text = in_full(&error);
        match error.kind() {
            Io::ConnectionRefused => Self::not_sent(text),
            Io::TimedOut | Io::WouldBlock => Self::new(ErrorKind::TimeoutDuringEffect, text),
            _ => Self::unknown(text),
        }
    }
}

impl ToolError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, replayed: false, accepted: None }
    }

    /// A refusal by the provider: certainly nothing happened, and the same call would be refused again.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Validation, message)
    }

    /// A call that was not sent, for example because there was no connection. It is tried again.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unreachable, message)
    }

    /// A call of unknown outcome. It is looked up, or a person is asked.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unknown, message)
    }

    /// A call that the provider postpones: it has done nothing, and wants to be called again after this time.
    pub fn later(after: Duration, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::RateLimited, message).retry_after(after)
    }

    /// A panic in the tool's own code.
    pub(crate) fn panicked() -> Self {
        Self::new(ErrorKind::Panic, "the tool's code panicked")
    }

    /// A refusal that a provider of class [`ReplaysKey`](crate::ledger::ContractClass::ReplaysKey) gives to each
    /// request under the key, such as Stripe's `idempotent-replayed: true`. It also holds for an earlier request whose
    /// answer was lost, and settles the record. For another class it is the same as [`new`](Self::new).
    ///
    /// ```
    /// use counterfoil::{ledger::ErrorKind, tool::ToolError};
    /// let declined = ToolError::replayed(ErrorKind::Validation, "card declined");
    /// assert!(declined.replayed);
    /// ```
    pub fn replayed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { replayed: true, ..Self::new(kind, message) }
    }

    /// A call that the provider has accepted and finishes by itself, such as an HTTP 202 (RFC 9110, section 15.3.3).
    /// Nothing is sent again. The call waits as a row, durably, until its lookup shows that it is finished, or until a
    /// callback [hands over](crate::Executor::complete) its result. [`retry_after`](Self::retry_after) sets the pause
    /// before the lookup; default: 1 min. After the contract's [longest
    /// time](crate::ledger::Contract::completes_within) a person is asked.
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

    /// Sets the pause that the provider asks for.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Sorts an HTTP status (RFC 9110) of a request that was sent completely. A 5xx may have had its effect before it
    /// failed, and a 409 may mean that the key is known: neither proves that nothing happened.
    ///
    /// A provider may refuse a known key with another status, such as a 400 with a code of its own. Sort the answers of
    /// such a provider by [`http_keyed`](Self::http_keyed); otherwise a call that happened is recorded as failed.
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

    /// Sorts an HTTP status of a provider that refuses a known key (class
    /// [`RejectsKey`](crate::ledger::ContractClass::RejectsKey)). `is_known`: true if this answer is such a refusal, by
    /// the provider's own code. The error is then a [`Duplicate`](ErrorKind::Duplicate) whatever its status, and is
    /// looked up. The network may have doubled the request, so the answer to a first send can be such a refusal as
    /// well.
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

/// An error, followed by its causes.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

/// Implements `Debug` by [`in_full`], so that a `main` that returns such an error says what happened and what to do.
macro_rules! debug_in_full {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::tool::in_full(self))
            }
        }
    )+};
}

pub(crate) use debug_in_full;

/// The text of an error and those of its causes. Many errors repeat the text of their cause; such a text is given once.
pub(crate) fn in_full(error: &(dyn Error + 'static)) -> String {
    causes(error).skip(1).map(ToString::to_string).fold(error.to_string(), |full, text| {
        if full.contains(&text) { full } else { format!("{full}: {text}") }
    })
}
