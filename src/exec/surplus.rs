//! Surplus effects: the effects of an operation beyond the first one.

use super::core::Core;
use crate::ledger::{Found, Record, State};

/// True if the surplus effects of an operation are undone without asking: the tool undoes them, and each has an id.
pub(super) fn undoes<T>(core: &Core, record: &Record, effects: &[Found<T>]) -> bool {
    !effects.is_empty()
        && effects.iter().all(|effect| effect.external_ref.is_some())
        && core.registry.undo_of(record.operation.as_str()).is_some_and(|undo| undo.surplus)
}

/// The effects of an operation other than the one that its record keeps.
pub(super) fn surplus<T>(record: &Record, mut effects: Vec<Found<T>>) -> Vec<Found<T>> {
    let kept = record.external_ref.as_ref();
    let kept =
        kept.and_then(|kept| effects.iter().position(|effect| effect.external_ref.as_ref() == Some(kept)));
    if !effects.is_empty() {
        effects.remove(kept.unwrap_or(0)); // a lookup that found several names the first one first
    }
    effects
}

/// The first effect that is finished: the one that is kept.
pub(super) fn first<T>(effects: Vec<Found<T>>) -> Option<(T, Option<String>)> {
    effects.into_iter().find_map(|effect| Some((effect.output?, effect.external_ref)))
}

/// The provider's ids of these effects.
pub(super) fn ids<T>(effects: &[Found<T>]) -> Vec<&str> {
    effects.iter().filter_map(|effect| effect.external_ref.as_deref()).collect()
}

/// True if the record's effect was undone, and this is another effect.
pub(super) fn is_late(record: &Record, found: &str) -> bool {
    matches!(record.state, State::Compensated { .. })
        && record.external_ref.as_deref().is_some_and(|undone| undone != found)
}
