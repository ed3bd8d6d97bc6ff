//! What the late answer of a fenced worker proves: the effect that its record is of, or another one.

use super::contract::ContractClass;
use super::record::{Record, State};

/// Whether a late answer with this provider's id, from a call under this contract, proves an effect beyond the one that
/// the record is of.
///
/// A started record settles its own evidence: whoever finds out what became of the call reads it first. Where the run of that
/// record is over, nobody may do so; the store asks about each late answer to it.
///
/// Two ids tell two effects apart. Where one is missing, sends that collide at the provider have had one effect, and so
/// has an operation that was sent once; otherwise the answer is taken for a second effect. A record that says that nothing
/// stands (failed, abandoned, undone, or past its time) is contradicted by any late answer. One exception: an effect that
/// was undone, and whose id the provider drew, is not there again because its answer arrives late.
pub fn is_second_effect(record: &Record, external_ref: Option<&str>, contract: ContractClass) -> bool {
    if record.class.repeatable() {
        return false; // repeating it is harmless
    }
    let kept = record.external_ref.as_deref();
    match record.state {
        State::Started => false,
        // What was sent once has happened once, under whatever ids.
        State::Committed { .. } if record.attempts == 1 && (kept.is_none() || external_ref.is_none()) => {
            false
        }
        State::Committed { .. } => are_two_effects(kept, external_ref, contract),
        // An id that the caller chose, or a key that is free again, may have been used once more after the undoing.
        State::Compensated { .. } => {
            let reuses_ids = matches!(contract, ContractClass::NaturalKey | ContractClass::RejectsKey);
            reuses_ids || kept.is_none() || kept != external_ref
        }
        State::Failed { .. } | State::Abandoned { .. } | State::Gone { .. } => true,
    }
}

/// Whether two sends of one operation, answered with these ids, had two effects.
pub(crate) fn are_two_effects(one: Option<&str>, other: Option<&str>, contract: ContractClass) -> bool {
    match (one, other) {
        _ if contract == ContractClass::Idempotent => false, // the second one has set the same
        (Some(one), Some(other)) => one != other,
        _ => !contract.collides(),
    }
}
