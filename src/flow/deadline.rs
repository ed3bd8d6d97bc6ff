//! The deadline of a run: declared with its workflow or when it is started, and kept in its row. At that instant the run is
//! [cancelled](super::command) as by a command.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::store::Run;

/// A deadline as somebody declares it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    /// Counted from the start of the run.
    After(Duration),
    At(Timestamp),
}

impl Deadline {
    /// The instant of a run that begins at `start`; `None` if it never comes.
    pub(super) fn of_run_begun(self, start: Timestamp) -> Option<Timestamp> {
        let at = match self {
            Self::After(duration) => start.after(duration),
            Self::At(at) => at,
        };
        (at < Timestamp::LAST).then_some(at)
    }

    /// The deadline of a run that is begun once more: as long after its start as that of this one.
    pub(super) fn again(run: &Run) -> Option<Self> {
        run.deadline.map(|at| Self::After(run.created_at.until(at)))
    }
}
