//! How an activation ends.

use crate::exec::ExecError;
use crate::flow::live::Live;
use crate::store::{RunState, StoreError, Verdict};

/// How an activation ended.
pub(in crate::flow) enum End {
    /// The run is over, or halted: this is what its row says, durably.
    Over(RunState),
    /// It waits, and holds no memory.
    Parked,
    /// It starts over from what is recorded.
    Again,
    /// A write failed or was refused.
    Failed(ExecError),
}

/// What a write of the run has come to.
pub(in crate::flow) fn written(live: &Live, verdict: Result<Verdict, StoreError>) -> Result<(), ExecError> {
    let key = live.id.to_string();
    match verdict {
        Ok(Verdict::Admitted) => Ok(()),
        Ok(Verdict::Refused(refusal)) => Err(ExecError::Refused { key, refusal }),
        Err(source) => Err(ExecError::Store { key, source }),
    }
}
