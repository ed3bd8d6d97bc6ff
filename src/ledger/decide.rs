//! What a request means, in the light of the record that exists.

use super::hash::RequestHash;
use super::record::{FinalState, Record, State};
use super::retry::RecordedFailure;
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::payload::Stored;

/// A request as far as the decision depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What the key is bound to.
    pub hash: RequestHash,
    /// The stored request of another version of the input type, read as today's type, or of another rule of what is bound, hashed by
    /// today's rule; `None` if there was no need, or if it cannot be read so (KEY-5). Of a tombstone: this request's own hash, if
    /// the keyed one that is left is of it.
    pub stored_rehashed: Option<RequestHash>,
}

/// What is known beside record and request.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// An attempt of this operation is being carried out by a live worker.
    pub attempt_alive: bool,
}

/// What the ledger answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Never heard of: begin.
    New,
    /// Done: here is the first result.
    Duplicate {
        /// The first result.
        response: Stored,
    },
    /// Being done by somebody who is alive.
    InProgress,
    /// The same key with another payload: nothing is done, the first stays as it is.
    Conflict,
    /// A dead attempt: ask the world before anything else.
    Reconcile,
    /// Failed for certain: may go again, not before this instant.
    Retry {
        /// Why it failed.
        failure: RecordedFailure,
        /// The earliest instant of the next attempt, if one was set.
        not_before: Option<Timestamp>,
    },
    /// Done and undone: both are shown. To do it again takes an explicit key revision.
    Compensated {
        /// The first result.
        response: Stored,
        /// What the undoing gave back.
        compensation: Stored,
    },
    /// A question about it is open.
    Parked {
        /// The question.
        question: QuestionId,
    },
    /// Nobody knows whether it happened, and somebody decided to leave it at that.
    Abandoned {
        /// Who, and why.
        reason: String,
    },
    /// Done long ago: its answer is no longer kept, and it is not done again.
    Gone {
        /// How it stood.
        was: FinalState,
    },
}

/// Decides. Pure: the same arguments always give the same answer.
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
