//! The meaning of an answer, where it differs from the usual one.

use crate::ledger::ErrorKind;

/// The meaning of an answer of a declared tool, where it differs from the usual one: of an HTTP status, or of the exit code of a
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meaning {
    /// The call happened, and the body or the standard output is its output.
    Done,
    /// The provider has accepted the call and finishes it by itself: see
    /// [`ToolError::accepted`](crate::tool::ToolError::accepted).
    Accepted,
    /// The provider refused the call. Certainly nothing happened, and the same call would be refused again.
    Refused,
    /// The provider postponed the call. Certainly nothing happened, and the call goes again, over HTTP after
    /// `Retry-After` if the answer has one.
    Later,
    /// The provider knows the key already. The call is looked up.
    Duplicate,
    /// The call may have happened. It is looked up, or a person is asked.
    Unknown,
}

impl Meaning {
    /// The kind of the error. `None` for the meanings that are no error: done and accepted.
    pub(crate) const fn kind(self) -> Option<ErrorKind> {
        Some(match self {
            Self::Done | Self::Accepted => return None,
            Self::Refused => ErrorKind::Validation,
            Self::Later => ErrorKind::RateLimited,
            Self::Duplicate => ErrorKind::Duplicate,
            Self::Unknown => ErrorKind::Unknown,
        })
    }
}
