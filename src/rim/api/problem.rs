//! The answers to requests that were refused or failed: problem details with the library's error codes.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};

use crate::errors::ErrorCode;
use crate::exec::{EraseError, ExecError};
use crate::flow::RunError;
use crate::guard::approval::ApprovalRefused;
use crate::id::IdError;
use crate::ledger::KeyError;
use crate::rim::http::KeyHeaderError;
use crate::rim::problem::{Details, Kind, TYPES};
use crate::store::StoreError;

/// The kind of a problem.
#[derive(Clone, Copy, Debug)]
pub(in crate::rim) enum Problem {
    Unauthenticated,
    Forbidden,
    TooMany,
    NotFound,
    Method,
    TooLarge,
    TooSlow,
    Malformed,
    /// The library's own error.
    Code(ErrorCode),
}

impl Kind for Problem {
    fn name(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::TooMany => "too_many_requests",
            Self::NotFound => ErrorCode::NotFound.as_str(),
            Self::Method => "method_not_allowed",
            Self::TooLarge => "request_too_large",
            Self::TooSlow => "request_timeout",
            Self::Malformed => "malformed",
            Self::Code(code) => code.as_str(),
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Code(code) => status(code),
        }
    }

    fn title(self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "Nobody is authenticated for this request.",
            StatusCode::FORBIDDEN => "The caller may not do this.",
            StatusCode::TOO_MANY_REQUESTS => "The caller has made too many requests.",
            StatusCode::NOT_FOUND => "There is no such thing.",
            StatusCode::CONFLICT => "The request does not fit the present state.",
            StatusCode::GONE => "It is no longer kept.",
            status if status.is_client_error() => "The request is unusable.",
            StatusCode::SERVICE_UNAVAILABLE => "The request cannot be handled now.",
            _ => "The request failed.",
        }
    }
}

/// The HTTP status for an error.
fn status(code: ErrorCode) -> StatusCode {
    use ErrorCode as Code;
    match code {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Gone => StatusCode::GONE,
        // A call without the approval that it needs can be made once somebody has given it.
        Code::Conflict
        | Code::Invalid
        | Code::Answer
        | Code::Vote
        | Code::OpenQuestion
        | Code::Approval
        | Code::PolicyRefused => StatusCode::CONFLICT,
        Code::Name
        | Code::Key
        | Code::Input
        | Code::Payload
        | Code::Contract
        | Code::Declaration
        | Code::Unregistered => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Closed | Code::DatabaseAway | Code::DatabaseMoved | Code::DiskFull | Code::WriteRefused => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request that was refused or failed.
#[derive(Debug)]
pub(in crate::rim) struct Failed(Box<Details<Problem>>);

/// The words of a refusal, among the extensions of its response: for those who show them on a page.
#[cfg(feature = "dashboard")]
#[derive(Clone, Debug)]
pub(in crate::rim) struct Refusal {
    pub(in crate::rim) title: &'static str,
    pub(in crate::rim) detail: String,
    /// True if nobody is authenticated.
    pub(in crate::rim) is_nobody: bool,
}

impl Failed {
    pub(in crate::rim) fn of(problem: Problem, detail: impl Into<String>) -> Self {
        Self(Box::new(Details::of(problem, detail)))
    }

    /// A request with a part that cannot be read.
    #[allow(clippy::needless_pass_by_value, reason = "`map_err` passes an error by value")]
    pub(in crate::rim) fn malformed(detail: impl ToString) -> Self {
        Self::of(Problem::Malformed, detail.to_string())
    }

    /// A request that came too early.
    pub(in crate::rim) fn too_many(wait: std::time::Duration) -> Self {
        Self::early("The caller's rate limit is used up. Nothing was done.", wait)
    }

    /// A request that came too early behind others whose tokens were not valid.
    pub(in crate::rim) fn too_many_guesses(wait: std::time::Duration) -> Self {
        Self::early("Too many tokens were not valid, so this one was not looked up. Nothing was done.", wait)
    }

    fn early(detail: &str, wait: std::time::Duration) -> Self {
        Self(Box::new(Details::of(Problem::TooMany, detail).retry_after(wait.as_secs() + 1)))
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let problem = self.0.problem;
        let is_nobody = matches!(problem, Problem::Unauthenticated);
        #[cfg(feature = "dashboard")]
        let refusal = Refusal { title: problem.title(), detail: self.0.detail().to_owned(), is_nobody };
        let mut response = self.0.response(TYPES).map(Body::from);
        #[cfg(feature = "dashboard")]
        response.extensions_mut().insert(refusal);
        if is_nobody {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

macro_rules! from {
    ($($error:ty),+) => {
        $(impl From<$error> for Failed {
            fn from(error: $error) -> Self {
                Self::of(Problem::Code(error.code()), error.to_string())
            }
        })+
    };
}

#[cfg(feature = "guard-service")]
from!(crate::rim::guard_service::GuardError);

#[cfg(feature = "memory")]
from!(crate::guard::memory::MemoryError);

from!(RunError, EraseError, ExecError, StoreError, ApprovalRefused, IdError, KeyError, KeyHeaderError);
