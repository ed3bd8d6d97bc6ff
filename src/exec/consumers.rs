//! For how long the messages of each consumer are known.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ledger::{Retention, RetentionMode};

/// How long the processed messages of a consumer are known: with their results, and afterwards by their ids.
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
    /// The result for so long, counted from the processing, and the id for ever: a message that comes later is answered
    /// [`Expired`](super::inbox::Processed::Expired), and not processed again. The default, after 30 days.
    pub const fn tombstone_after(keep_for: Duration) -> Self {
        Self { retention: Retention::tombstone_after(keep_for), redelivered_within: Duration::ZERO }
    }

    /// Nothing after this window: the id is new again. `redelivered_within` is how long its sender may deliver a message again, counted
    /// from the first delivery. A window that is shorter is refused when the engine starts.
    pub const fn forget_after(window: Duration, redelivered_within: Duration) -> Self {
        Self { retention: Retention::forget_after(window), redelivered_within }
    }

    /// Everything, for ever.
    pub const fn keep() -> Self {
        Self { retention: Retention::keep(), redelivered_within: Duration::ZERO }
    }

    /// Why it cannot be declared.
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

/// The consumers that were declared or have been given a message by this process.
#[derive(Debug, Default)]
pub(crate) struct Consumers(Mutex<BTreeMap<String, MessageRetention>>);

impl Consumers {
    pub(super) fn of(declared: BTreeMap<String, MessageRetention>) -> Self {
        Self(Mutex::new(declared))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, MessageRetention>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A consumer is given a message.
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
