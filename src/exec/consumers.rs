//! The retention of each consumer's messages.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ledger::{Retention, RetentionMode};

/// The retention of a consumer's processed messages: first with their results, and afterwards by their ids.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::inbox::MessageRetention;
///
/// let day = Duration::from_hours(24);
/// let billing = MessageRetention::tombstone_after(30 * day);
/// // The broker delivers a message again for at most three days.
/// let clicks = MessageRetention::forget_after(7 * day, 3 * day);
/// assert_ne!(billing, clicks);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRetention {
    pub(super) retention: Retention,
    redelivered_within: Duration,
}

impl MessageRetention {
    /// Keeps the result for this time, counted from the processing, and the id for ever as a tombstone: a message that
    /// arrives later is answered [`Expired`](super::inbox::Processed::Expired), and not processed again. This is the
    /// default, with 30 days.
    pub const fn tombstone_after(keep_for: Duration) -> Self {
        Self { retention: Retention::tombstone_after(keep_for), redelivered_within: Duration::ZERO }
    }

    /// Forgets the message after this window: its id is new again. `redelivered_within` is the time for which its
    /// sender may deliver a message again, counted from the first delivery. A window that is shorter than it is refused
    /// when the engine starts.
    pub const fn forget_after(window: Duration, redelivered_within: Duration) -> Self {
        Self { retention: Retention::forget_after(window), redelivered_within }
    }

    /// Keeps the result and the id for ever.
    pub const fn keep() -> Self {
        Self { retention: Retention::keep(), redelivered_within: Duration::ZERO }
    }

    /// The reason why this retention cannot be declared, if there is one.
    pub(super) fn objection(&self) -> Option<String> {
        let (window, horizon) = (self.retention.keep_for, self.redelivered_within);
        let is_short = self.retention.mode == RetentionMode::Forget && window < horizon;
        is_short.then(|| {
            format!(
                "its messages are forgotten after {window:?}, and may be delivered again for {horizon:?}: a late one would be \
                 processed a second time; forget them later, or leave tombstones"
            )
        })
    }
}

impl Default for MessageRetention {
    fn default() -> Self {
        Self::tombstone_after(Duration::from_hours(30 * 24))
    }
}

/// The consumers that were declared, or that have received a message in this process.
#[derive(Debug, Default)]
pub(crate) struct Consumers(Mutex<BTreeMap<String, MessageRetention>>);

impl Consumers {
    pub(super) fn of(declared: BTreeMap<String, MessageRetention>) -> Self {
        Self(Mutex::new(declared))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, MessageRetention>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a consumer receives a message.
    pub(super) fn meet(&self, consumer: &str) {
        let mut consumers = self.known();
        if !consumers.contains_key(consumer) {
            consumers.insert(consumer.to_owned(), MessageRetention::default());
        }
    }

    pub(super) fn all(&self) -> Vec<(String, Retention)> {
        self.known().iter().map(|(name, kept)| (name.clone(), kept.retention)).collect()
    }
}
