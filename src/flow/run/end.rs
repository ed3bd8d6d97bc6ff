//! How an activation ends.

use crate::exec::ExecError;
use crate::store::RunState;

/// How an activation ended.
pub(in crate::flow) enum End {
    /// The run is over, or blocked: this is what its row says, durably.
    Over(RunState),
    /// It waits, and holds no memory.
    Parked,
    /// It starts over from what is recorded.
    Again,
    /// A write failed or was refused.
    Failed(ExecError),
}
