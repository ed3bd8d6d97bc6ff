//! A fence that does not answer is left alone for a while: its outage costs a few time limits per pause, and not one per request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Boot;

/// Questions in a row without an answer, from which on the fence is taken for away. A single late answer is no outage.
const FAILURES: u32 = 3;

/// The outage of a fence, if there is one.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Questions in a row without an answer.
    failures: u32,
    /// During an outage: the end of the pause.
    until: Option<Boot>,
}

impl Outage {
    /// Whether the fence may be asked. During an outage one request in each pause may, to see whether the fence is back.
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

    /// The fence gave no answer. `true` if an outage begins here.
    pub(super) fn unanswered(&self, now: Boot, pause: Duration) -> bool {
        let mut seen = self.seen();
        seen.failures = seen.failures.saturating_add(1);
        if seen.failures < FAILURES {
            return false;
        }
        seen.until.replace(Boot(now.0.saturating_add(pause))).is_none()
    }

    /// The fence answered. `true` if an outage ends here.
    pub(super) fn answered(&self) -> bool {
        let mut seen = self.seen();
        seen.failures = 0;
        seen.until.take().is_some()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
