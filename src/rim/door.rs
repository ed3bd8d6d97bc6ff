//! The report of a door about a request: to the log, and to the host.

#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
pub use super::reaction::{Reaction, ReactionError};
#[cfg(feature = "_sealed")]
use crate::exec::Outcome;
use crate::id::{RecordId, Tenant};

/// The ledger's decision about a request that came in through a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decided {
    /// The request was the first: its effect was made now.
    Executed,
    /// The request was made before: the first answer was given again.
    Replayed,
    /// The request had no effect, and its key is free.
    Freed,
    /// A newer version of the request's subject was seen before: nothing was done.
    Outdated,
    /// The message failed too often: a question is open, and nothing is done until it is answered.
    SetAside,
    /// The key was used before with another request: nothing was done.
    Conflict,
    /// The first request is still being handled.
    InProgress,
    /// The outcome of the first request is unknown: a question is open.
    OutcomeUnknown,
    /// The effect was undone, or a person has abandoned it.
    Settled,
    /// The request was made so long ago that its answer is no longer kept.
    Gone,
    /// The request was refused before the ledger was asked.
    Refused,
    /// The ledger could not be asked.
    Failed,
}

impl Decided {
    /// The stable name of the decision, as it is logged.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Freed => "freed",
            Self::Outdated => "outdated",
            Self::SetAside => "set_aside",
            Self::Conflict => "conflict",
            Self::InProgress => "in_progress",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Settled => "settled",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    #[cfg(feature = "_sealed")]
    pub(super) const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done(answer) if answer.first => Self::Executed,
            // The effect happened, now or before, and is not made again.
            Outcome::Done(_) | Outcome::ResponseTooLarge(_) => Self::Replayed,
            Outcome::Failed(_) | Outcome::Deferred { .. } => Self::Freed,
            Outcome::InProgress | Outcome::Pending { .. } => Self::InProgress,
            Outcome::Conflict(_) => Self::Conflict,
            Outcome::NeedsDecision { .. } => Self::OutcomeUnknown,
            Outcome::Compensated { .. } | Outcome::Abandoned { .. } => Self::Settled,
            Outcome::Expired { .. } => Self::Gone,
            Outcome::Refused(_) => Self::Refused,
        }
    }
}

/// The decision of a door about a request. The host finds it among the extensions of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoorDecision {
    /// The tenant that owns the request; `None` if unknown.
    pub tenant: Option<Tenant>,
    /// The idempotency key, if the request had one.
    pub idempotency_key: Option<String>,
    /// The decision about the request.
    pub decision: Decided,
    /// The record of the effect, if there is one.
    pub effect_id: Option<RecordId>,
    /// The kind of door, such as `http`.
    pub source_type: &'static str,
    /// The name of the door within its kind: a route, a provider, a queue.
    pub source_id: String,
}

/// The fields that a door logs. Default: all of them.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "one for each field of a decision")]
pub(super) struct LogFields {
    pub(super) tenant: bool,
    pub(super) idempotency_key: bool,
    pub(super) decision: bool,
    pub(super) effect_id: bool,
    pub(super) source_type: bool,
    pub(super) source_id: bool,
}

impl LogFields {
    pub(super) const ALL: Self = Self {
        tenant: true,
        idempotency_key: true,
        decision: true,
        effect_id: true,
        source_type: true,
        source_id: true,
    };
}

impl DoorDecision {
    /// Logs the decision with these fields.
    pub(super) fn log(&self, fields: LogFields) {
        let Self { tenant, idempotency_key, decision, effect_id, source_type, source_id } = self;
        tracing::info!(
            tenant = tenant.as_ref().filter(|_| fields.tenant).map(Tenant::as_str),
            idempotency_key = idempotency_key.as_deref().filter(|_| fields.idempotency_key),
            decision = fields.decision.then(|| decision.name()),
            effect_id = effect_id.filter(|_| fields.effect_id).map(tracing::field::display),
            source_type = fields.source_type.then_some(*source_type),
            source_id = fields.source_id.then_some(source_id.as_str()),
            "request decided"
        );
    }
}
