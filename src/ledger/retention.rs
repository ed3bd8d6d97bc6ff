//! How long a record is kept, and what is left of it afterwards (REC-6, DESIGN 4.10).

use std::time::Duration;

/// What remains when the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Nothing: the key is new again. For nonces and other short windows.
    Forget,
    /// A digest of key, request and outcome, so that a late retry is told `gone` and not executed again.
    Tombstone,
    /// Everything, for ever.
    Keep,
}

/// A tool's retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// What remains afterwards.
    pub mode: RetentionMode,
    /// How long the whole record is kept.
    pub keep_for: Duration,
}

impl Retention {
    /// A window after which the key is new. Shorter than the retry horizon, it is refused at registration.
    pub const fn forget_after(window: Duration) -> Self {
        Self { mode: RetentionMode::Forget, keep_for: window }
    }

    /// How soon the key could be taken for new; `None` if never.
    pub(crate) const fn shortest(&self) -> Option<Duration> {
        match self.mode {
            RetentionMode::Forget => Some(self.keep_for),
            RetentionMode::Tombstone | RetentionMode::Keep => None,
        }
    }
}

impl Default for Retention {
    /// Tombstones after 30 days.
    fn default() -> Self {
        Self { mode: RetentionMode::Tombstone, keep_for: Duration::from_hours(30 * 24) }
    }
}
