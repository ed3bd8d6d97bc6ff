//! A run's checkpoints about its children: the begin of each, and the receipt of its end. Pure.

use crate::id::RunId;
use crate::store::{PastStep, StepKind};

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
