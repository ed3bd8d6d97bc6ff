//! A run's checkpoints about its children: the begin of each, and the receipt of its end. Pure.

use crate::flow::identity::in_place;
use crate::id::RunId;
use crate::store::{PastStep, Run, StepKind};

/// The name of the signal that a child sends its parent when it ends. The signal's id is the child.
pub(in crate::flow) const ENDED: &str = "~child";

/// The suffix behind the id of such a receipt, for the checkpoint that orders the end among the run's effects.
pub(in crate::flow) const PLACE: &str = ":~place";

/// The child that this checkpoint began.
pub(in crate::flow) fn begun(step: &PastStep) -> Option<RunId> {
    let value = step.value.as_ref().filter(|_| step.kind == StepKind::Child)?;
    value.inline()?.decode().ok()
}

/// The child whose end this checkpoint received.
pub(in crate::flow) fn ended(step: &PastStep) -> Option<RunId> {
    let id = Some(&step.id).filter(|_| step.kind == StepKind::Signal && step.name == ENDED)?;
    // The id of a second wait for the same child has a number behind a colon.
    id.split(':').next()?.parse().ok()
}

/// The turn in which a child was begun, or its parent's base. Read from the key, because checkpoints may be pruned.
pub(crate) fn begun_in(child: &Run) -> u32 {
    let turn = || {
        let before = format!("{ENDED}/{}/{}/~turn:", child.parent?, in_place(child.workflow.as_str()));
        child.key.as_deref()?.strip_prefix(&before)?.split('/').next()?.parse().ok()
    };
    turn().unwrap_or(0)
}
