//! The declaration that a ledger may be older than the world, and this worker's knowledge of it.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::clock::{Boot, Timestamp};

/// A declaration about the ledger that is being opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declared {
    /// The ledger was restored. Its rows are of this instant, if the instant is known.
    Restored { as_of: Option<Timestamp> },
    /// A copy takes the place of a ledger. Its rows are of this instant, if the instant is known. Each such replacement
    /// counts as a restore, whatever an earlier one said.
    #[cfg_attr(
        not(all(feature = "cli", feature = "sqlite")),
        allow(dead_code, reason = "only the command that puts a copy into place says it")
    )]
    Replaced { as_of: Option<Timestamp> },
    /// A simulated disk may have lost writes, for this reason. A real database finds that out by itself.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "only a simulated disk says it"))]
    Doubtful(&'static str),
}

/// This worker's knowledge of a restore.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    /// True until the restore is lifted. Read before each first send, so the read must cost nothing.
    pub(super) is_on: AtomicBool,
    /// The instant at which this worker learned of the restore.
    pub(super) since: Mutex<Option<Boot>>,
    /// The instant at which an effect last marked the file.
    pub(super) raised: Mutex<Option<Boot>>,
}
