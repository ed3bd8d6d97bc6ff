//! A fence that does not answer is left alone for a while: its outage costs one time limit per pause, and not one per request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Boot;

/// The outage of a fence, if there is one.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<Boot>>);

impl Outage {
    /// Whether the fence may be asked. During an outage one request in each pause may, to see whether the fence is back.
    pub(super) fn may_ask(&self, now: Boot, pause: Duration) -> bool {
        let mut until = self.until();
        match *until {
            Some(at) if now < at => false,
            Some(_) => {
                *until = Some(Boot(now.0.saturating_add(pause)));
                true
            }
            None => true,
        }
    }

    /// The fence gave no answer. `true` if the outage begins here.
    pub(super) fn begins(&self, now: Boot, pause: Duration) -> bool {
        self.until().replace(Boot(now.0.saturating_add(pause))).is_none()
    }

    /// The fence answered. `true` if an outage ends here.
    pub(super) fn ends(&self) -> bool {
        self.until().take().is_some()
    }

    fn until(&self) -> MutexGuard<'_, Option<Boot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
