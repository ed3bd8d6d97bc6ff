//! What a run has recorded of its children: where each was begun, and where its end was received. Pure.

use crate::id::RunId;
use crate::store::{PastStep, Run, StepKind};

/// The signal that a child sends its parent when it ends; its id is the child.
pub(in crate::flow) const ENDED: &str = "~child";

/// Behind the id of a receipt of such a signal: the checkpoint of where it stands among what the run did.
pub(in crate::flow) const PLACE: &str = ":~place";

/// The child that was begun so.
pub(in crate::flow) fn begun(step: &PastStep) -> Option<RunId> {
    let value = step.value.as_ref().filter(|_| step.kind == StepKind::Child)?;
    value.inline()?.decode().ok()
}

/// The child whose end was received so.
pub(in crate::flow) fn ended(step: &PastStep) -> Option<RunId> {
    let id = Some(&step.id).filter(|_| step.kind == StepKind::Signal && step.name == ENDED)?;
    // A second wait for it has a number behind its name.
    id.split(':').next()?.parse().ok()
}

/// The turn in which a child was begun, or its parent's base. By its key, for the checkpoints of a turn may be pruned.
pub(crate) fn begun_in(child: &Run) -> u32 {
    let turn = || {
        let before = format!("{ENDED}/{}/{}/~turn:", child.parent?, child.workflow);
        child.key.as_deref()?.strip_prefix(&before)?.split('/').next()?.parse().ok()
    };
    turn().unwrap_or(0)
}
