//! What of an operation's effects is beyond the first one.

use super::core::Core;
use crate::ledger::{Found, Record, State};

/// What is beyond the first effect of an operation is undone without asking: the tool undoes it, and each has an id to tell it by.
pub(super) fn undoes<T>(core: &Core, record: &Record, effects: &[Found<T>]) -> bool {
    !effects.is_empty()
        && effects.iter().all(|effect| effect.external_ref.is_some())
        && core.registry.undo_of(record.operation.as_str()).is_some_and(|undo| undo.surplus)
}

/// Which of an operation's effects are not the one that its record is of.
pub(super) fn surplus<T>(record: &Record, mut effects: Vec<Found<T>>) -> Vec<Found<T>> {
    let kept = record.external_ref.as_ref();
    let kept =
        kept.and_then(|kept| effects.iter().position(|effect| effect.external_ref.as_ref() == Some(kept)));
    if !effects.is_empty() {
        effects.remove(kept.unwrap_or(0)); // a lookup that found several names the first one first
    }
    effects
}

/// The first effect that is finished: what is kept of several.
pub(super) fn first<T>(effects: Vec<Found<T>>) -> Option<(T, Option<String>)> {
    effects.into_iter().find_map(|effect| Some((effect.output?, effect.external_ref)))
}

/// Their ids at the provider.
pub(super) fn ids<T>(effects: &[Found<T>]) -> Vec<&str> {
    effects.iter().filter_map(|effect| effect.external_ref.as_deref()).collect()
}

/// The record's effect is undone, and this is another one.
pub(super) fn is_late(record: &Record, found: &str) -> bool {
    matches!(record.state, State::Compensated { .. })
        && record.external_ref.as_deref().is_some_and(|undone| undone != found)
}
