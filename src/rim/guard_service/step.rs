//! The answer to a client: what it does next.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exec::Outcome;
use crate::id::QuestionId;
use crate::payload::PayloadError;

/// The next step of a client. Only [`Send`](Self::Send) allows it to make the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// Make the call now, with this key, and seal it.
    Send(Permitted),
    /// Look the call up at the provider, and report the finding. Do not make the call.
    Look(Permitted),
    /// The call is done. This is its first result.
    Done {
        /// The output of the call.
        output: Value,
        /// The provider's id for the effect.
        external_ref: Option<String>,
        /// True if this client's attempt made the effect; false if the effect existed before.
        first: bool,
    },
    /// Another client has the call in hand. Ask again.
    InFlight,
    /// A person has to approve the call first. Ask again later, with the same input.
    Approve {
        /// The id of the review.
        review: String,
        /// The version of the review.
        version: u32,
    },
    /// The call is not made, and is not to be made in another way.
    Stopped {
        /// The reason.
        reason: Stop,
        /// The reason in words, for a person or a model.
        text: String,
        /// The question that a person has to answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<QuestionId>,
    },
    /// No call of this tool waits for a client.
    Idle,
}

/// The permit for one attempt or one lookup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Permitted {
    /// The permit, to be handed back with the outcome.
    pub permit: String,
    /// The name of the tool.
    pub tool: String,
    /// The operation, for people: the tool's name with the client's key.
    pub key: String,
    /// The input of the tool.
    pub input: Value,
    /// The key for the provider: the same in each attempt.
    pub idempotency_key: String,
    /// The number of the attempt, from 1; of a lookup, the number of attempts so far.
    pub attempt: u32,
    /// The time within which the request to the provider must have left, in milliseconds. The client counts from before it sent
    /// the request that this step answers. After it, the client does nothing and asks again.
    pub use_ms: u64,
    /// The instant before which no request of the operation left, if it is known: RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_sent: Option<String>,
    /// The provider's id that an earlier attempt noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
}

/// The reason why a call is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The call certainly failed, and its attempts are used up. It may be begun again under the same key.
    Failed,
    /// The call failed and is postponed. It may be begun again later.
    Deferred,
    /// The same key was used with another input.
    Conflict,
    /// Nobody can tell if the call happened: a person has been asked.
    NeedsDecision,
    /// The provider finishes the call by itself.
    Pending,
    /// The call was refused before anything was recorded, or a person has refused to approve it.
    Refused,
    /// The call was done, and undone since.
    Compensated,
    /// The outcome is unknown, and a person decided to leave it so.
    Abandoned,
    /// The call was done, and its result is no longer kept.
    Expired,
    /// The call was done, and its result is over the limit.
    ResponseTooLarge,
    /// The answer of a lookup that no client waits for is taken.
    Recorded,
}

impl Step {
    /// The step after the reply to a task that no client waits for.
    pub(super) fn recorded() -> Self {
        let text = "The reply is taken. The call goes on when a client begins it.".to_owned();
        Self::Stopped { reason: Stop::Recorded, text, question: None }
    }

    /// The step that follows from an outcome.
    pub(super) fn after(outcome: &Outcome, made_here: bool) -> Result<Self, PayloadError> {
        let (reason, question) = match outcome {
            Outcome::Done(answer) => {
                let (output, external_ref) = (answer.response.value()?, answer.external_ref.clone());
                return Ok(Self::Done { output, external_ref, first: answer.first && made_here });
            }
            Outcome::InProgress => return Ok(Self::InFlight),
            Outcome::ResponseTooLarge(_) => (Stop::ResponseTooLarge, None),
            Outcome::Failed(_) => (Stop::Failed, None),
            Outcome::Deferred { .. } => (Stop::Deferred, None),
            Outcome::Conflict(_) => (Stop::Conflict, None),
            Outcome::NeedsDecision { question } => (Stop::NeedsDecision, Some(*question)),
            Outcome::Pending { question } => (Stop::Pending, Some(*question)),
            Outcome::Compensated { .. } => (Stop::Compensated, None),
            Outcome::Abandoned { .. } => (Stop::Abandoned, None),
            Outcome::Expired { .. } => (Stop::Expired, None),
            Outcome::Refused(_) => (Stop::Refused, None),
        };
        Ok(Self::Stopped { reason, text: outcome.for_model().text, question })
    }
}
