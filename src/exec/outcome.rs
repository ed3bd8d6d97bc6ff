//! The result of a request: an [`Outcome`] if the ledger can answer, an [`ExecError`] if something kept the ledger from
//! answering.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::core::Core;
use super::request_error::RequestError;
use crate::clock::Timestamp;
use crate::id::{QuestionId, RecordId};
use crate::ledger::{
    ApprovalError, Basis, Diff, FinalState, KeyError, OperationKey, Record, RecordedFailure,
};
use crate::panics::caught;
use crate::payload::{Oversized, Payload, PayloadError, Response, hex};
use crate::store::{Refusal, StoreError, Ticket, Verdict};
use crate::tool::{RegisterError, UnstableKey, debug_in_full};

/// The ledger's answer to a request.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// The call happened. Holds the first result, byte for byte.
    Done(Answer),
    /// The call happened, and its response was over the limit. Its digest and size are recorded, and the call is not
    /// sent again.
    ResponseTooLarge(Box<ResponseTooLarge>),
    /// The call certainly did not happen, and this execution's attempts are used up. It may be tried again under the
    /// same key.
    Failed(RecordedFailure),
    /// The call certainly failed and goes again at this instant, durably.
    Deferred {
        /// The instant of the next attempt.
        until: Timestamp,
    },
    /// Another caller is carrying the call out.
    InProgress,
    /// The same key with another payload: nothing was done.
    Conflict(Diff),
    /// Nobody can tell if the call happened. The question is open and waits for a decision.
    NeedsDecision {
        /// The id of the question.
        question: QuestionId,
    },
    /// The provider has [accepted](crate::tool::ToolError::accepted) the call and finishes it by itself. Nothing is
    /// sent again: the same request is answered in this way until a lookup or a [completion](crate::Executor::complete)
    /// has settled the call.
    Pending {
        /// The id of the row as which the call waits. The row can be answered like a question, but is none.
        question: QuestionId,
    },
    /// The call was done and undone. Doing it again takes an explicit key revision.
    Compensated {
        /// The first result.
        response: Value,
        /// The result of the compensation.
        compensation: Value,
    },
    /// The outcome is unknown, and a person decided to leave it so.
    Abandoned {
        /// The name of the person, and the reason.
        reason: String,
    },
    /// The call was done so long ago that its answer is no longer kept. It was not done again; doing it again takes an
    /// explicit key revision.
    Expired {
        /// The final state of the record.
        was: FinalState,
    },
    /// The request was refused before anything was recorded or sent: its tool is unknown, its input does not fit, it
    /// names no operation, or it lacks an approval that counts. A typed call that is refused is an
    /// [`ExecError::Request`] instead.
    Refused(Box<RequestError>),
}

impl Outcome {
    /// The answer, if the outcome is [`Done`](Self::Done).
    pub const fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// The result as a Rust value.
    ///
    /// # Errors
    /// [`CallError::NotDone`] with this outcome if it has no result.
    pub fn into_output<T: DeserializeOwned>(self) -> Result<T, CallError> {
        match self {
            Self::Done(answer) => answer
                .decode()
                .map_err(|source| ExecError::Unread { key: answer.key.to_string(), source }.into()),
            other => Err(CallError::NotDone(Box::new(other))),
        }
    }

    /// The outcome of a call that this request has made, as its record says.
    pub(super) fn first(core: &Core, response: Response, record: &Record) -> Self {
        match response {
            Ok(response) => {
                let (external_ref, basis) = (record.external_ref.clone(), record.basis);
                let (key, record) = (record.key.clone(), record.id);
                Self::Done(Answer { response, external_ref, first: true, basis, key, record })
            }
            Err(oversized) => Self::too_large(core, oversized, record),
        }
    }

    /// The outcome of a call that was made before.
    pub(super) fn again(core: &Core, response: Response, record: &Record) -> Self {
        match Self::first(core, response, record) {
            Self::Done(answer) => Self::Done(Answer { first: false, ..answer }),
            too_large => too_large,
        }
    }

    fn too_large(core: &Core, oversized: Oversized, record: &Record) -> Self {
        Self::ResponseTooLarge(Box::new(ResponseTooLarge {
            key: record.key.to_string(),
            bytes: oversized.bytes,
            limit: core.limits.max_bytes,
            digest: hex(&oversized.digest.0),
            external_ref: record.external_ref.clone(),
            record: record.id,
        }))
    }
}

/// The record of a response over the size limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key} happened, and its response of {bytes} bytes is over the limit ({limit} now): only its size and its digest {digest} are \
    recorded{}. It is not sent again. Raise `Limits::max_bytes` to {bytes} or more, and the tool's lookup, if it has one, brings the \
    response; or read it at the provider [response_too_large]", external_ref.as_ref().map(|id| format!(", with the provider's id {id}")).unwrap_or_default())]
#[non_exhaustive]
pub struct ResponseTooLarge {
    /// The key of the operation.
    pub key: String,
    /// The size of the response, in bytes.
    pub bytes: usize,
    /// The present limit, in bytes.
    pub limit: usize,
    /// SHA-256 of the canonical response, in hexadecimal.
    pub digest: String,
    /// The provider's id for the effect.
    pub external_ref: Option<String>,
    /// The id of the operation's record.
    pub record: RecordId,
}

/// The answer of a committed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The first result.
    pub response: Payload,
    /// The provider's id for the effect.
    pub external_ref: Option<String>,
    /// True if this request caused the effect. False if the effect existed before: this request repeated nothing.
    pub first: bool,
    /// The basis of the result. [`Basis::Declaration`] marks a result that rests on the provider's word alone.
    pub basis: Basis,
    pub(crate) key: OperationKey,
    pub(crate) record: RecordId,
}

impl Answer {
    /// The answer from a record that the same run made before it was resumed.
    pub(crate) const fn replayed(response: Payload, key: OperationKey, record: RecordId) -> Self {
        Self { response, external_ref: None, first: false, basis: Basis::Answer, key, record }
    }

    /// Reads the response as a Rust value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        self.response.decode()
    }
}

/// The reason why a request has no outcome. Each error says what is durable, and what to do next.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The request was refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The declaration of the call is unsafe.
    #[error("nothing was recorded or sent: {0}")]
    Register(#[from] RegisterError),
    /// The payload was refused.
    #[error("nothing was recorded or sent: {0}")]
    Payload(#[from] PayloadError),
    /// The call happened, and its recorded result cannot be read: for instance, its type has changed since.
    #[error(
        "{key} happened, and its recorded result cannot be read; nothing was sent again: let this program read it \
         (`#[serde(default)]` reads an older form), and ask again: {source}"
    )]
    Unread {
        /// The key of the operation.
        key: String,
        /// The reason.
        source: PayloadError,
    },
    /// The store failed.
    #[error("{key}: {source}")]
    Store {
        /// The key of the operation.
        key: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The write was refused: another worker has taken over, or the record cannot be stored.
    #[error(
        "{key}: this write was refused ({refusal}), and nothing of it is durable; ask again: the request gets what the winner \
         recorded [write_refused]"
    )]
    Refused {
        /// The key of the operation, or the name of what was to be written.
        key: String,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// The outcome of a call was refused: another worker has taken over.
    #[error(
        "{key}: the outcome of this call came too late to be recorded ({refusal}), and is kept as evidence; ask again: the request \
         gets what the winner recorded [write_refused]"
    )]
    Late {
        /// The key of the operation.
        key: String,
        /// The reason for the refusal.
        refusal: Refusal,
    },
    /// An effect of another system was not [imported](crate::Executor::import), because its key has a record.
    #[error("{key} has a record already: nothing was imported [write_refused]")]
    Recorded {
        /// The key of the operation.
        key: String,
    },
    /// A completion cannot belong to any call.
    #[error("{tool}: nothing was recorded: {reason} [completion]")]
    Incomplete {
        /// The name of the tool.
        tool: String,
        /// The reason, in words.
        reason: String,
    },
    /// The engine is shutting down, and has sent nothing of this call.
    #[error("{key}: the engine is shutting down; nothing was sent, ask the next one [closed]")]
    Closed {
        /// The key of the operation.
        key: String,
    },
    /// The engine was shut down while the call was under way, or while what became of it was read or written.
    #[error(
        "{key}: the engine was shut down before the outcome of this call was recorded: the call may have happened, and its record \
         says `started` then; ask the next engine under the same key, and make the call in no other way [closed]"
    )]
    Unwritten {
        /// The key of the operation.
        key: String,
    },
    /// Code that the host has given to the engine panicked: a tool's key, policy, scopes, approval subject or upgrade of
    /// a stored input, the rule of the reviewers, or the closure that processes a message.
    #[error(
        "{key}: code that was handed to the engine panicked: {panic}; what is recorded stands, and nothing was sent after the panic: \
         mend the code and ask again [panicked]"
    )]
    Panicked {
        /// The key of the operation, or the name of what was asked for.
        key: String,
        /// The message of the panic.
        panic: String,
    },
    /// A person's answer does not fit the question.
    #[error("{question} cannot be answered so: {reason} [answer]")]
    Unanswerable {
        /// The id of the question.
        question: QuestionId,
        /// The reason, in words.
        reason: String,
    },
}

/// The reason why a call has no result.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The outcome of the call is no result.
    #[error("{} [{}]", .0.for_model(), self.code())]
    NotDone(Box<Outcome>),
    /// The ledger did not answer.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

debug_in_full!(ExecError, CallError);

impl From<KeyError> for ExecError {
    fn from(error: KeyError) -> Self {
        Self::Request(error.into())
    }
}

impl From<UnstableKey> for ExecError {
    fn from(error: UnstableKey) -> Self {
        Self::Request(error.into())
    }
}

impl From<ApprovalError> for ExecError {
    fn from(error: ApprovalError) -> Self {
        Self::Request(error.into())
    }
}

impl ExecError {
    /// The approval error, if the effect may not go out because of one.
    pub(crate) const fn lacking_approval(&self) -> Option<&ApprovalError> {
        match self {
            Self::Request(RequestError::Approval(error)) => Some(error),
            _ => None,
        }
    }

    /// The failure to record if the tool's policy refuses the call.
    pub(crate) fn refused_by_policy(&self) -> Option<RecordedFailure> {
        match self.lacking_approval()? {
            ApprovalError::RefusedByPolicy { policy, reason } => {
                Some(RecordedFailure::by_policy(policy, reason))
            }
            _ => None,
        }
    }

    /// The log has a report of its own about the cause: the database is away, or the engine shuts down.
    pub(crate) const fn is_reported(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_reported(),
            Self::Closed { .. } | Self::Unwritten { .. } => true,
            _ => false,
        }
    }

    /// True if the same work may succeed a moment later: the store was away, or a row has changed meanwhile. A write whose
    /// answer was lost is refused in that way when the queue repeats it.
    pub(crate) const fn is_transient(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.is_transient(),
            Self::Refused { refusal, .. } => matches!(refusal, Refusal::Stale),
            _ => false,
        }
    }

    /// True if another try in this process is of no use: another worker has taken over, or this one is closing.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Closed { .. }
                | Self::Unwritten { .. }
                | Self::Refused { refusal: Refusal::Fenced, .. }
                | Self::Late { refusal: Refusal::Fenced, .. }
        )
    }
}

/// Carries out what a caller outside of all runs asks for. A panic of the host's code, which the work calls, ends the
/// work, and not the caller's task.
pub(crate) async fn unless_panicked<T, E: From<ExecError>>(
    key: &(impl ToString + ?Sized),
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let panicked = |panic| Err(ExecError::Panicked { key: key.to_string(), panic }.into());
    caught(work).await.unwrap_or_else(panicked)
}

/// The error of a store that failed. The call may have been sent before.
pub(crate) fn failed(key: &OperationKey, source: StoreError) -> ExecError {
    match source {
        StoreError::Closed => unwritten(key),
        source => ExecError::Store { key: key.to_string(), source },
    }
}

/// The error of a store that failed before the call was sent.
pub(super) fn failed_unsent(key: &OperationKey, source: StoreError) -> ExecError {
    match source {
        StoreError::Closed => closed(key),
        source => ExecError::Store { key: key.to_string(), source },
    }
}

/// The error that the engine shuts down. Only for a call of which nothing was sent.
pub(super) fn closed(key: &OperationKey) -> ExecError {
    ExecError::Closed { key: key.to_string() }
}

/// The error that the engine shuts down, for a call that may have been sent.
pub(super) fn unwritten(key: &OperationKey) -> ExecError {
    ExecError::Unwritten { key: key.to_string() }
}

pub(crate) fn refused(key: &OperationKey, refusal: Refusal) -> ExecError {
    ExecError::Refused { key: key.to_string(), refusal }
}

/// Turns a verdict that must be an admission into a result.
pub(crate) fn admitted(key: &OperationKey, verdict: Result<Verdict, StoreError>) -> Result<(), ExecError> {
    match verdict {
        Ok(Verdict::Admitted) => Ok(()),
        Ok(Verdict::Refused(refusal)) => Err(refused(key, refusal)),
        Err(source) => Err(failed(key, source)),
    }
}

/// Waits until the outcome of a call is durable.
pub(super) async fn sealed(key: &OperationKey, seal: Ticket) -> Result<(), ExecError> {
    let told = seal.told().await;
    match told.verdict {
        Ok(Verdict::Refused(refusal)) if told.is_kept => {
            Err(ExecError::Late { key: key.to_string(), refusal })
        }
        verdict => admitted(key, verdict),
    }
}
