//! ① The rules of idempotency, in one place: a pure state machine.
//!
//! [`decide()`] answers a request from the record that exists; [`apply()`] computes the next record from an event;
//! [`resolve::next`] decides the next step for a call of unknown outcome. Nothing here is async, does I/O, reads a
//! clock or draws random bits, and nothing here knows what a workflow is.

mod apply;
mod approval;
mod bound;
mod breaker;
mod budget;
mod compensation;
mod contract;
mod decide;
mod declarable;
mod declaration;
mod diff;
mod effect;
mod evidence;
mod finding;
mod guarantee;
mod hash;
mod key;
mod look;
mod permit;
pub(crate) mod queue;
mod quota;
mod rate;
mod record;
#[cfg(feature = "unstable-core")]
pub mod resolve;
#[cfg(not(feature = "unstable-core"))]
pub(crate) mod resolve;
mod restored;
mod retention;
mod retry;
mod review;
mod scopes;
mod sight;
#[cfg(test)]
mod tests;
mod verdict;

pub use approval::{Approval, ApprovalError, ApprovalSubject};
pub(crate) use bound::is_pointer_to_field;
pub use bound::{BoundFields, BoundFieldsError, UnboundField};
pub use breaker::Breaker;
pub use budget::{Budget, BudgetExceeded, BudgetUsage, Price};
pub(crate) use compensation::undoing_looks_first;
pub use compensation::{Compensation, Undone};
pub use contract::{Confirm, Contract, ContractClass, LookupOffer};
pub use declarable::ContractError;
pub use diff::Diff;
pub use effect::{Divergence, EffectClass};
pub(crate) use evidence::are_two_effects;
pub use finding::{Found, LookupResult};
pub use guarantee::WorstCase;
pub use key::{Key, KeyError, OperationKey, Scope};
pub(crate) use key::{REVISION, escaped, unrevised};
pub(crate) use look::pause_after;
pub use queue::Queue;
pub use quota::{Quota, Throttle};
pub use rate::Rate;
pub use record::{Basis, FinalState};
pub(crate) use restored::{first_sent, looks_first};
pub(crate) use retention::span;
pub use retention::{CountedFrom, Retention, RetentionMode};
pub use retry::{Backoff, ErrorKind, LookupPolicy, RecordedFailure, RetryPolicy};
pub use review::{Review, ReviewOutcome, ReviewPolicy, Vote, VoteRefused};
pub use scopes::Scopes;
pub use sight::Sight;
pub use verdict::{ApprovalRule, PolicyVersion, Verdict};

unstable_core! {
    pub use apply::{Event, InvalidTransition, apply};
    pub use breaker::{BreakerPermit, Circuit, CircuitState, Health};
    pub use compensation::{Due, UndoRequest, due};
    pub use decide::{Decision, Facts, Request, decide};
    pub use declaration::{Declaration, Terms};
    pub use diff::diff;
    pub use evidence::is_second_effect;
    pub use guarantee::on_unknown;
    pub use hash::RequestHash;
    pub use look::{Look, Missing, Reason, may_be_missing, removal_key};
    pub use permit::{Need, Needs};
    pub use queue::Admission;
    pub use rate::Bucket;
    pub use record::{Intent, Owner, Record, State};
    pub use restored::{Origin, Restored};
    pub use retry::RetryDecision;
}
