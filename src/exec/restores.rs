//! What is said of a ledger that may be older than the world, and what this worker knows of it.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::clock::{Boot, Timestamp};

/// What is said from outside of the ledger that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declared {
    /// It was restored. Its rows are of this instant, if that is known.
    Restored { as_of: Option<Timestamp> },
    /// A simulated disk is in doubt about it, for this reason, as a database is that tells by itself.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "only a simulated disk says it"))]
    Doubtful(&'static str),
}

/// What this worker knows of it.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    /// Until it is lifted. Read before each first send, so it must cost nothing.
    pub(super) is_on: AtomicBool,
    /// When this worker learned of it.
    pub(super) since: Mutex<Option<Boot>>,
    /// When an effect last raised the ledger's count.
    pub(super) raised: Mutex<Option<Boot>>,
}
