//! What of an operation's effects is beyond the first one.

use super::core::Core;
use crate::ledger::{Record, State};

/// What is beyond the first effect of an operation is undone without asking.
pub(super) fn undoes_surplus(core: &Core, record: &Record) -> bool {
    core.registry.undo_of(record.operation.as_str()).is_some_and(|undo| undo.surplus)
}

/// Which of an operation's effects are not the one that its record is of.
pub(super) fn surplus(record: &Record, mut effects: Vec<String>) -> Vec<String> {
    let first =
        record.external_ref.as_ref().and_then(|first| effects.iter().position(|effect| effect == first));
    if !effects.is_empty() {
        effects.remove(first.unwrap_or(0)); // a lookup that found several names the first one first
    }
    effects
}

/// The record's effect is undone, and this is another one.
pub(super) fn is_late(record: &Record, found: &str) -> bool {
    matches!(record.state, State::Compensated { .. })
        && record.external_ref.as_deref().is_some_and(|undone| undone != found)
}
