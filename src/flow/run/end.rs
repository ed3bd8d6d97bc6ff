//! The ways in which an activation ends.

use crate::exec::ExecError;
use crate::store::RunState;

/// The end of an activation.
pub(in crate::flow) enum End {
    /// The run is over, or blocked, durably. Holds the state of its row.
    Over(RunState),
    /// The run waits as a row, and holds no memory.
    Parked,
    /// The run starts over from its records.
    Again,
    /// A write failed or was refused.
    Failed(ExecError),
}
