//! The pause after failures of a fence: an outage costs a few time limits per pause, and not one per request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Boot;

/// The number of consecutive questions without an answer that make an outage. A single late answer is no outage.
const FAILURES: u32 = 3;

/// The state of a fence's outage.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The number of consecutive questions without an answer.
    failures: u32,
    /// The end of the pause, during an outage.
    until: Option<Boot>,
}

impl Outage {
    /// True if the fence may be asked. During an outage one request in each pause may ask, to detect its end.
    pub(super) fn may_ask(&self, now: Boot, pause: Duration) -> bool {
        let mut seen = self.seen();
        match seen.until {
            Some(until) if now < until => false,
            Some(_) => {
                seen.until = Some(Boot(now.0.saturating_add(pause)));
                true
            }
            None => true,
        }
    }

    /// Counts a question without an answer. `true` if an outage begins here.
    pub(super) fn unanswered(&self, now: Boot, pause: Duration) -> bool {
        let mut seen = self.seen();
        seen.failures = seen.failures.saturating_add(1);
        if seen.failures < FAILURES {
            return false;
        }
        seen.until.replace(Boot(now.0.saturating_add(pause))).is_none()
    }

    /// Resets the count after an answer. `true` if an outage ends here.
    pub(super) fn answered(&self) -> bool {
        let mut seen = self.seen();
        seen.failures = 0;
        seen.until.take().is_some()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
