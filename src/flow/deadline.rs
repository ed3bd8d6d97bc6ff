//! The deadline of a run: declared with its workflow or at its start, and kept in its row. At that instant the engine
//! [cancels](super::command) the run as by a command.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::store::Run;

/// A deadline as a workflow or a start declares it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// A time that is counted from the start of the run.
    After(Duration),
    At(Timestamp),
}

impl Deadline {
    /// The deadline of a run that begins at `start` (UTC). `None` if it never comes.
    pub(super) fn of_run_begun(self, start: Timestamp) -> Option<Timestamp> {
        let at = match self {
            Self::After(duration) => start.after(duration),
            Self::At(at) => at,
        };
        (at < Timestamp::LAST).then_some(at)
    }

    /// The deadline for a run that is begun once more: as long after the new start as it was after the first.
    pub(super) fn again(run: &Run) -> Option<Self> {
        run.deadline.map(|at| Self::After(run.created_at.until(at)))
    }
}
