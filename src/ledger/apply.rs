//! The state machine of records: all transitions, and no others.

use super::approval::Approval;
use super::record::{Basis, Record, State};
use super::retry::{ErrorKind, RecordedFailure};
use super::scopes::Scopes;
use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, QuestionId};
use crate::payload::Stored;

/// An event of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another attempt is about to be dispatched by the worker that now owns the record.
    Again {
        /// The fence of the worker.
        fence: Fence,
        /// The basis that the answer of the attempt will have.
        basis: Basis,
        /// The declaration of the tool.
        declaration: DeclarationId,
        /// The approval under which the attempt goes out.
        approval: Option<Box<Approval>>,
        /// The scopes of the call's key and of its lookup at the provider.
        scopes: Option<Box<Scopes>>,
    },
    /// A worker takes a dead attempt over to find its outcome out. From now on the answer of the dead worker is
    /// refused: it is a zombie and may only leave evidence.
    Adopt {
        /// The fence of the worker.
        fence: Fence,
    },
    /// The provider gave its id before the answer was complete.
    Note {
        /// The provider's id.
        external_ref: String,
    },
    /// The effect happened.
    Commit {
        /// The result of the call.
        response: Stored,
        /// The provider's id.
        external_ref: Option<String>,
        /// The basis of the result.
        basis: Basis,
    },
    /// The effect did not happen, for certain, whatever the outcome of earlier attempts: the provider has said so
    /// about the operation.
    Refuse {
        /// The recorded failure.
        failure: RecordedFailure,
    },
    /// This attempt had no effect, for certain.
    Fail {
        /// The recorded failure.
        failure: RecordedFailure,
        /// The earliest instant of the next attempt; `None` if this execution gives up.
        not_before: Option<Timestamp>,
    },
    /// The outcome is unknown, and a question is now open.
    Park {
        /// The id of the question.
        escalation: QuestionId,
    },
    /// The provider has accepted the call and will finish it by itself.
    Accept {
        /// The id of the row by which the call waits.
        escalation: QuestionId,
        /// The provider's id, if it has given one.
        external_ref: Option<String>,
    },
    /// The provider has not finished an accepted call in time: a question is open from now on.
    Overdue {
        /// The id of the question.
        escalation: QuestionId,
    },
    /// The question was withdrawn without an answer, because there is another way to find the outcome out by now. No
    /// worker handles the operation.
    Unpark,
    /// The worker has given the operation up before it was settled. Nothing is sent until a worker takes the
    /// operation up.
    Leave,
    /// The worker that holds the operation has ended while the question is open, and another worker holds it from now on.
    Inherit {
        /// The fence of the worker.
        fence: Fence,
    },
    /// A person's answer to the open question waits for a lookup.
    AnswerWaits,
    /// A person or a policy answered the open question: the effect happened.
    ResolveCommitted {
        /// The result to record.
        response: Stored,
        /// The provider's id.
        external_ref: Option<String>,
    },
    /// The open question was answered: the effect did not happen, and the call may be tried again.
    ResolveNotCommitted {
        /// The name of the person who says so.
        message: String,
    },
    /// The open question was answered: the outcome is left unknown.
    ResolveAbandoned {
        /// The name of the person who says so, and the reason.
        reason: String,
    },
    /// The response, which was over the limit when it came, was looked up under a higher limit.
    Supply {
        /// The response to record.
        response: Stored,
    },
    /// The effect was undone, in whole or in part.
    Compensate {
        /// The result of the compensation.
        compensation: Stored,
        /// True if the whole effect was undone.
        whole: bool,
    },
}

/// Applies an event that `fence` reports at `at`. The revision of the new record is one higher.
///
/// # Errors
/// [`InvalidTransition`] if the state machine has no such transition; the record is unchanged.
pub fn apply(
    record: &Record,
    event: Event,
    fence: Fence,
    at: Timestamp,
) -> Result<Record, InvalidTransition> {
    let mut next = record.clone();
    next.revision += 1;
    next.updated_at = at.max(record.updated_at);
    let parked = record.escalation.is_some();
    let mine = record.fence == fence;
    if record.is_left() {
        next.not_before = None; // a worker handles the operation again, whatever the event is
    }
    match (&record.state, event) {
        // The declaration, scopes and approval stay those of the attempt whose outcome is open: the next one goes out
        // under the same wire key.
        (State::Started, Event::Again { fence, basis, approval, .. }) if !parked => {
            next.again(fence);
            next.approval = next.approval.or(approval);
            next.in_doubt = record.class.leaves_mark();
            // A further answer does not replace a basis that is the provider's declaration.
            if record.basis != Basis::Declaration {
                next.basis = basis;
            }
        }
        (State::Failed { .. }, Event::Again { fence, basis, declaration, approval, scopes }) if !parked => {
            next.again(fence);
            // The person may be wrong, however often the call is tried.
            if record.basis != Basis::Denial || basis != Basis::Answer {
                next.basis = basis;
            }
            // Nothing happened under the earlier declaration, approval and scopes.
            (next.declaration, next.approval, next.scopes) = (declaration, approval, scopes);
            // The id is that of the failed attempt. A completion under it says nothing about this attempt.
            next.external_ref = None;
        }
        (State::Started, Event::Adopt { fence }) if !parked => next.fence = fence,
        (State::Started, Event::Note { external_ref }) if mine && !parked => {
            next.external_ref = Some(external_ref);
        }
        (State::Started, Event::Commit { response, external_ref, basis }) if mine && !parked => {
            next.commit(response, external_ref, basis);
        }
        (State::Started, Event::Fail { failure, not_before }) if mine && !parked && !record.in_doubt => {
            next.fail(failure, not_before);
        }
        (State::Started, Event::Refuse { failure }) if mine && !parked => next.fail(failure, None),
        // Retries end by decision while the record waits for its next attempt.
        (State::Failed { .. }, Event::Fail { failure, not_before: None }) if !parked => {
            next.fail(failure, None);
        }
        (State::Started, Event::Park { escalation }) if !parked => next.escalation = Some(escalation),
        (State::Started, Event::Accept { escalation, external_ref }) if mine && !parked => {
            next.escalation = Some(escalation);
            next.external_ref = external_ref.or(next.external_ref);
        }
        (State::Started, Event::Overdue { escalation }) if parked => next.escalation = Some(escalation),
        (State::Started, Event::Unpark) if parked => {
            next.escalation = None;
            next.not_before = Some(next.updated_at);
        }
        (State::Started, Event::Leave) if mine && !parked => next.not_before = Some(next.updated_at),
        (State::Started, Event::Inherit { fence }) if parked => next.fence = fence,
        // A person who decides at the same moment sees that the record has changed.
        (State::Started, Event::AnswerWaits) if parked => {}
        (State::Started, Event::ResolveCommitted { response, external_ref }) if parked => {
            next.commit(response, external_ref, Basis::Decision);
            next.escalation = None;
        }
        (State::Started, Event::ResolveNotCommitted { message }) if parked => {
            let detail = serde_json::Value::Null;
            next.escalation = None;
            next.fail(RecordedFailure { kind: ErrorKind::Unknown, message, detail }, None);
            next.basis = Basis::Denial;
        }
        (State::Started, Event::ResolveAbandoned { reason }) if parked => {
            next.state = State::Abandoned { reason };
            next.in_doubt = false;
            next.escalation = None;
        }
        (State::Committed { response: Stored::Oversized(_) }, Event::Supply { response }) => {
            next.state = State::Committed { response };
        }
        (
            State::Committed { response } | State::Compensated { response, whole: false, .. },
            Event::Compensate { compensation, whole },
        ) => {
            next.state = State::Compensated { response: response.clone(), compensation, whole };
        }
        (_, event) => return Err(InvalidTransition::of(record, &event, mine)),
    }
    next.sealed_at = match (record.is_settled(), next.is_settled()) {
        (_, false) => None,
        (true, true) => record.sealed_at,
        (false, true) => Some(next.updated_at),
    };
    Ok(next)
}

impl Record {
    fn commit(&mut self, response: Stored, external_ref: Option<String>, basis: Basis) {
        self.state = State::Committed { response };
        self.external_ref = external_ref.or(self.external_ref.take());
        self.basis = basis;
        self.in_doubt = false;
    }

    fn again(&mut self, fence: Fence) {
        self.state = State::Started;
        self.fence = fence;
        self.attempts += 1;
        self.not_before = None;
    }

    fn fail(&mut self, failure: RecordedFailure, not_before: Option<Timestamp>) {
        self.state = State::Failed { failure };
        self.in_doubt = false;
        self.not_before = not_before;
        if not_before.is_none() {
            self.spent = self.attempts;
        }
    }
}

impl Event {
    const fn name(&self) -> &'static str {
        match self {
            Self::Again { .. } => "again",
            Self::Adopt { .. } => "adopt",
            Self::Note { .. } => "note",
            Self::Commit { .. } => "commit",
            Self::Refuse { .. } => "refuse",
            Self::Fail { .. } => "fail",
            Self::Park { .. } => "park",
            Self::Accept { .. } => "accept",
            Self::Overdue { .. } => "overdue",
            Self::Unpark => "unpark",
            Self::Leave => "leave",
            Self::Inherit { .. } => "inherit",
            Self::AnswerWaits => "answer waits",
            Self::ResolveCommitted { .. } => "resolve committed",
            Self::ResolveNotCommitted { .. } => "resolve not committed",
            Self::ResolveAbandoned { .. } => "resolve abandoned",
            Self::Supply { .. } => "supply",
            Self::Compensate { .. } => "compensate",
        }
    }
}

/// An error: there is no such transition. The record is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of {key} is {state}{}{} and takes no `{event}`: read it again and decide anew",
    if *parked { ", with an open question," } else { "" },
    if *fenced { " (and belongs to another worker by now)" } else { "" })]
pub struct InvalidTransition {
    /// The key of the operation.
    pub key: String,
    /// The name of its state.
    pub state: &'static str,
    /// The name of the event.
    pub event: &'static str,
    /// True if the fence of the reporter is not that of the record: another worker has taken it over.
    pub fenced: bool,
    /// True if a question is open.
    pub parked: bool,
}

impl InvalidTransition {
    fn of(record: &Record, event: &Event, mine: bool) -> Self {
        Self {
            key: record.key.to_string(),
            state: record.state.name(),
            event: event.name(),
            fenced: !mine,
            parked: record.escalation.is_some(),
        }
    }
}
