//! What every door says about a request: to the log, and to its host.

#[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
pub use super::reaction::{Reaction, ReactionError};
#[cfg(feature = "_sealed")]
use crate::exec::Outcome;
use crate::id::{RecordId, Tenant};

/// What the ledger decided about a request that came in through a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decided {
    /// It was the first: its effect was made now.
    Executed,
    /// It was made before: the first answer was given again.
    Replayed,
    /// Nothing happened, and the key is free.
    Freed,
    /// A newer version of what it is about was seen before: nothing was done.
    Outdated,
    /// It was tried in vain too often: a question is open, and nothing is done until it is answered.
    SetAside,
    /// The key was used before with another request: nothing was done.
    Conflict,
    /// The first request is still being handled.
    InProgress,
    /// Nobody knows what became of the first request: a question is open.
    OutcomeUnknown,
    /// Somebody has decided about it: it is left at that, or was undone.
    Settled,
    /// It was made so long ago that its answer is no longer kept.
    Gone,
    /// The request was refused before the ledger was asked.
    Refused,
    /// The ledger could not be asked.
    Failed,
}

impl Decided {
    /// The name, as it is logged.
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
            // It happened, now or before, and is not done again.
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

/// What a door did with a request. The host finds it among the extensions of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoorDecision {
    /// Whose request it was; absent if that is not known.
    pub tenant: Option<Tenant>,
    /// The key, if the request had one.
    pub idempotency_key: Option<String>,
    /// What was decided.
    pub decision: Decided,
    /// The record of the effect, if there is one.
    pub effect_id: Option<RecordId>,
    /// The kind of door: `http`, say.
    pub source_type: &'static str,
    /// Which of these: a route, a provider, a queue.
    pub source_id: String,
}

/// Which fields a door logs: all of them, unless its policy says otherwise.
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
    /// Logs it, with these fields.
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
