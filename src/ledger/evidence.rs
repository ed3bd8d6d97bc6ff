//! The proof in the late answer of a fenced worker: it belongs to the effect of its record, or to another effect.

use super::contract::ContractClass;
use super::record::{Record, State};

/// True if a late answer with this external id, from a call under this contract, proves an effect beyond the one that
/// the record is of.
///
/// A started record settles its own evidence: the worker that finds out the outcome of the call reads the evidence
/// first. If the run of the record has ended, no worker does so, and the store asks about each late answer to it.
///
/// Two ids mean two effects. If one id is missing, sends that collide at the provider have had one effect, and so has
/// an operation that was sent once; otherwise the answer counts as a second effect. A record of an effect that is not
/// there (failed, abandoned, undone, or past its retention) is contradicted by any late answer. One exception: an
/// effect that was undone, and whose id the provider drew, is not there again because its answer arrives late.
pub fn is_second_effect(record: &Record, external_ref: Option<&str>, contract: ContractClass) -> bool {
    if record.class.repeatable() {
        return false; // a repeat is harmless
    }
    let kept = record.external_ref.as_deref();
    match record.state {
        State::Started => false,
        // A call that was sent once has happened once, whatever its ids.
        State::Committed { .. } if record.attempts == 1 && (kept.is_none() || external_ref.is_none()) => {
            false
        }
        State::Committed { .. } => are_two_effects(kept, external_ref, contract),
        // An id that the caller chose, or a key that is free again, may have been used once more after the
        // compensation.
        State::Compensated { .. } => {
            let reuses_ids = matches!(contract, ContractClass::NaturalKey | ContractClass::RejectsKey);
            reuses_ids || kept.is_none() || kept != external_ref
        }
        State::Failed { .. } | State::Abandoned { .. } | State::Gone { .. } => true,
    }
}

/// True if two sends of one operation, answered with these ids, had two effects.
pub(crate) fn are_two_effects(one: Option<&str>, other: Option<&str>, contract: ContractClass) -> bool {
    match (one, other) {
        _ if contract == ContractClass::Idempotent => false, // the second send has set the same value
        (Some(one), Some(other)) => one != other,
        _ => !contract.collides(),
    }
}
