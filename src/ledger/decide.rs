//! The answer to a request, given the record that exists.

use super::hash::RequestHash;
use super::record::{FinalState, Record, State};
use super::retry::RecordedFailure;
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::payload::Stored;

/// The part of a request that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The hash of the input that the key is bound to.
    pub hash: RequestHash,
    /// The stored request, hashed again by the present rule: read as the present input type if it has another version
    /// of that type or another rule of bound fields. `None` if this was not needed, or if the stored request cannot
    /// be read so. For a tombstone: the hash of this request, if the keyed hash in the tombstone matches it.
    pub stored_rehashed: Option<RequestHash>,
}

/// The known facts beside the record and the request.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// True if a live worker is carrying out an attempt of this operation.
    pub attempt_alive: bool,
}

/// The answer of the ledger to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// The operation is unknown: begin it.
    New,
    /// The operation is done: this is the first result.
    Duplicate {
        /// The first result.
        response: Stored,
    },
    /// A live worker is carrying the operation out.
    InProgress,
    /// The key was used for another payload: nothing is done, and the first request stays as it is.
    Conflict,
    /// The attempt is dead: ask the provider before anything else.
    Reconcile,
    /// The operation failed for certain and may be tried again, not before `not_before`.
    Retry {
        /// The recorded failure.
        failure: RecordedFailure,
        /// The earliest instant of the next attempt, if one was set.
        not_before: Option<Timestamp>,
    },
    /// The effect was done and undone: both results are returned. To do it again needs an explicit key revision.
    Compensated {
        /// The first result.
        response: Stored,
        /// The result of the compensation.
        compensation: Stored,
    },
    /// A question about the operation is open.
    Parked {
        /// The id of the open question.
        question: QuestionId,
    },
    /// The outcome is unknown, and a person decided to leave it open.
    Abandoned {
        /// The name of the person who decided, and the reason.
        reason: String,
    },
    /// The operation was done long ago: its result is no longer kept, and the operation is not done again.
    Gone {
        /// The final state of the record.
        was: FinalState,
    },
}

impl Decision {
    /// The name used in messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::New => "begin",
            Self::Duplicate { .. } => "answer from the record",
            Self::InProgress => "in progress",
            Self::Conflict => "conflict",
            Self::Reconcile => "reconcile",
            Self::Retry { .. } => "retry",
            Self::Compensated { .. } => "compensated",
            Self::Parked { .. } => "question open",
            Self::Abandoned { .. } => "abandoned",
            Self::Gone { .. } => "expired",
        }
    }
}

/// Decides how to answer a request. The function is pure: the same arguments always give the same answer.
pub fn decide(existing: Option<&Record>, request: &Request, facts: &Facts) -> Decision {
    let Some(record) = existing else { return Decision::New };
    let same = record.request_hash == request.hash || request.stored_rehashed == Some(request.hash);
    if !same {
        return Decision::Conflict;
    }
    if let Some(question) = record.escalation {
        return Decision::Parked { question };
    }
    match &record.state {
        State::Started if facts.attempt_alive && !record.is_left() => Decision::InProgress,
        State::Started => Decision::Reconcile,
        State::Committed { response } => Decision::Duplicate { response: response.clone() },
        State::Failed { failure } => {
            Decision::Retry { failure: failure.clone(), not_before: record.not_before }
        }
        State::Compensated { response, compensation, .. } => {
            Decision::Compensated { response: response.clone(), compensation: compensation.clone() }
        }
        State::Abandoned { reason } => Decision::Abandoned { reason: reason.clone() },
        State::Gone { was, .. } => Decision::Gone { was: *was },
    }
}
