//! The runs that a failed run answers for: itself, and the children that succeeded before it failed.

use crate::ledger::Record;
use crate::store::{Run, RunState};

/// The run, and recursively the attached children that succeeded. A child that was begun before its parent continued
/// as new is finished history, as are the parent's own effects of that time.
pub(super) fn family<'a, R>(run: &'a Run, runs: &R) -> Vec<&'a Run>
where
    R: Iterator<Item = &'a Run> + Clone,
{
    let mut family = vec![run];
    let succeeded = |child: &&Run| matches!(child.state, RunState::Succeeded { .. });
    let begun_since = |child: &&Run| child.parent == Some(run.id) && child.begun_in() >= run.base;
    for child in runs.clone().filter(begun_since).filter(succeeded) {
        family.extend(self::family(child, runs));
    }
    family
}

/// True if this is an effect of one of the runs. The effects of a run before it continued as new are finished
/// history.
pub(super) fn did(family: &[&Run], record: &Record) -> bool {
    record.class.needs_owner()
        && family.iter().any(|run| record.owner.run == Some(run.id) && record.owner.turn >= run.base)
}
