//! The answer to a sender.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::scheme::SignatureError;
use crate::rim::problem::{self, Kind};

/// The problems that a sender gets as an answer. The name of each, after the prefix of its type URI, is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebhookProblem {
    /// A header that the scheme needs is missing, or cannot be read.
    HeaderMalformed,
    /// No signature matches the body.
    SignatureMismatch,
    /// The delivery was signed too long ago, or in the future.
    OutsideTolerance,
    /// The body is longer than the limit.
    TooLarge,
    /// The body could not be read to its end.
    Incomplete,
    /// The delivery has no id, or an invalid one.
    NoIdentity,
    /// The tenant of the event is unknown.
    UnknownTenant,
    /// The reaction to the event failed and was rolled back. The event must be delivered again.
    NotProcessed,
    /// The reaction to the event failed too often. A question is open; an event that is delivered again after the
    /// answer is tried again.
    SetAside,
    /// The ledger cannot be reached, or this process is shutting down. The event must be delivered again.
    Unavailable,
}

impl Kind for WebhookProblem {
    fn name(self) -> &'static str {
        match self {
            Self::HeaderMalformed => "webhook-header-malformed",
            Self::SignatureMismatch => "webhook-signature-mismatch",
            Self::OutsideTolerance => "webhook-outside-tolerance",
            Self::TooLarge => "webhook-too-large",
            Self::Incomplete => "webhook-incomplete",
            Self::NoIdentity => "webhook-without-identity",
            Self::UnknownTenant => "webhook-of-unknown-tenant",
            Self::NotProcessed => "webhook-not-processed",
            Self::SetAside => "webhook-set-aside",
            Self::Unavailable => "ledger-unavailable",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::HeaderMalformed | Self::OutsideTolerance | Self::Incomplete | Self::NoIdentity => {
                StatusCode::BAD_REQUEST
            }
            Self::SignatureMismatch => StatusCode::UNAUTHORIZED,
            Self::UnknownTenant => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotProcessed | Self::SetAside | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::HeaderMalformed => "A header of this delivery is missing or malformed.",
            Self::SignatureMismatch => "The signature is not of this delivery.",
            Self::OutsideTolerance => "The delivery was signed too long ago, or in the future.",
            Self::TooLarge => "The delivery's body is too long.",
            Self::Incomplete => "The delivery's body broke off.",
            Self::NoIdentity => "The delivery has no id.",
            Self::UnknownTenant => "The delivery is of nobody that is known here.",
            Self::NotProcessed => "The event was not processed.",
            Self::SetAside => "The event is set aside.",
            Self::Unavailable => "The event cannot be processed now.",
        }
    }
}

pub(super) type Details = problem::Details<WebhookProblem>;

pub(super) fn unsigned(error: &SignatureError) -> Details {
    let problem = match error {
        SignatureError::Missing { .. } | SignatureError::Malformed { .. } => WebhookProblem::HeaderMalformed,
        SignatureError::Mismatch => WebhookProblem::SignatureMismatch,
        SignatureError::TooOld { .. } | SignatureError::TooNew { .. } => WebhookProblem::OutsideTolerance,
    };
    Details::of(problem, error.to_string())
}

/// The answer to a settled event, the same for each delivery and each outcome.
pub(super) fn receipt() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"{\"received\":true}"));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
