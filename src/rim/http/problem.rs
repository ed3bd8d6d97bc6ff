//! The answers of the layer itself: problem details (RFC 9457) with stable types.

use http::StatusCode;

use crate::rim::problem::Kind;
pub(super) use crate::rim::problem::TYPES;

/// The problems that the layer answers with. The name of each, after the prefix of its type URI, is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The route requires a key, and the request has none.
    KeyMissing,
    /// The `Idempotency-Key` header is not a key.
    KeyMalformed,
    /// The host's closure returns no tenant for the request.
    Unauthenticated,
    /// The request's body is longer than the limit.
    RequestTooLarge,
    /// The request's body could not be read to its end.
    RequestIncomplete,
    /// The key was used before with another request.
    KeyReused,
    /// The first request under the key is still being handled.
    InProgress,
    /// The outcome of the first request under the key is unknown. A question is open.
    OutcomeUnknown,
    /// The outcome of the first request is unknown, and a person has abandoned it.
    Abandoned,
    /// The first request took effect, and its effect was undone.
    Undone,
    /// The first request took effect so long ago that its response is no longer kept.
    ResponseGone,
    /// The request took effect, and its response cannot be kept: it is a stream, too long, or broke off.
    ResponseNotKept,
    /// The request's transaction was rolled back: the request had no effect.
    RolledBack,
    /// There is no operation of this name.
    NoSuchOperation,
    /// The ledger cannot be reached, or this process is shutting down.
    Unavailable,
    /// The layer is configured so that this request cannot be recorded.
    Misconfigured,
}

impl Problem {
    /// The stable name of the problem.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency-key-missing",
            Self::KeyMalformed => "idempotency-key-malformed",
            Self::Unauthenticated => "unauthenticated",
            Self::RequestTooLarge => "request-too-large",
            Self::RequestIncomplete => "request-incomplete",
            Self::KeyReused => "idempotency-key-reused",
            Self::InProgress => "request-in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::Abandoned => "outcome-abandoned",
            Self::Undone => "effect-undone",
            Self::ResponseGone => "response-gone",
            Self::ResponseNotKept => "response-not-kept",
            Self::RolledBack => "transaction-rolled-back",
            Self::NoSuchOperation => "no-such-operation",
            Self::Unavailable => "ledger-unavailable",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// The HTTP status of the problem.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyMalformed | Self::RequestIncomplete => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused | Self::InProgress | Self::OutcomeUnknown | Self::Abandoned | Self::Undone => {
                StatusCode::CONFLICT
            }
            Self::ResponseGone => StatusCode::GONE,
            Self::NoSuchOperation => StatusCode::NOT_FOUND,
            Self::Unavailable | Self::RolledBack => StatusCode::SERVICE_UNAVAILABLE,
            Self::ResponseNotKept | Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "This request needs an Idempotency-Key.",
            Self::KeyMalformed => "The Idempotency-Key is malformed.",
            Self::Unauthenticated => "It is not known whose request this is.",
            Self::RequestTooLarge => "The request's body is too long.",
            Self::RequestIncomplete => "The request's body broke off.",
            Self::KeyReused => "The Idempotency-Key was used for another request.",
            Self::InProgress => "The first request under this key is still being handled.",
            Self::OutcomeUnknown => "Nobody knows yet whether the request took effect.",
            Self::Abandoned => "Nobody found out whether the request took effect.",
            Self::Undone => "The request took effect, and its effect was undone.",
            Self::ResponseGone => "The request took effect, and its response is not kept.",
            Self::ResponseNotKept => "The request took effect, and its response could not be kept.",
            Self::RolledBack => "The request's transaction was rolled back.",
            Self::NoSuchOperation => "There is no such operation.",
            Self::Unavailable => "The request cannot be handled now.",
            Self::Misconfigured => "The request cannot be recorded.",
        }
    }
}

/// A problem on its way to the client.
pub(super) type Details = crate::rim::problem::Details<Problem>;

impl Kind for Problem {
    fn name(self) -> &'static str {
        self.name()
    }

    fn status(self) -> StatusCode {
        self.status()
    }

    fn title(self) -> &'static str {
        self.title()
    }
}
