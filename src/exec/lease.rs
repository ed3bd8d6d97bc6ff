//! This worker's lease (DESIGN 4.7, invariant 6). Its end is an instant of the store's clock; here it is measured by
//! this machine's own, from before the store was asked, and checked directly before each dispatch.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Boot, Clock, Timestamp};

/// Both clocks at one moment. Boot time runs on while the machine sleeps, wall time while a virtual machine is paused
/// and set right afterwards: whichever has gone farther counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    boot: Boot,
    wall: Timestamp,
}

impl Moment {
    pub(super) fn of(clock: &dyn Clock) -> Self {
        Self { boot: clock.boot(), wall: clock.now() }
    }

    pub(super) const fn boot(self) -> Boot {
        self.boot
    }

    pub(super) fn until(self, later: Self) -> Duration {
        self.boot.until(later.boot).max(self.wall.until(later.wall))
    }
}

/// The lease was lost: another worker has taken this one's work over, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

#[derive(Debug)]
pub(super) struct Lease {
    length: Duration,
    /// Since when the present lease counts; none once it is lost.
    since: Mutex<Option<Moment>>,
    changed: Notify,
}

impl Lease {
    pub(super) fn new(length: Duration, since: Moment) -> Self {
        Self { length, since: Mutex::new(Some(since)), changed: Notify::new() }
    }

    pub(super) const fn length(&self) -> Duration {
        self.length
    }

    /// The store has renewed it, after having been asked at this moment.
    pub(super) fn renewed(&self, asked: Moment) {
        if let Some(since) = &mut *self.since() {
            *since = asked;
        }
        self.changed.notify_waiters();
    }

    pub(super) fn lose(&self) {
        *self.since() = None;
        self.changed.notify_waiters();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.since().is_none()
    }

    /// Resolves when the lease is lost.
    pub(super) async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_lost() {
                return;
            }
            changed.await;
        }
    }

    /// Returns while the lease holds, at once if it does: what is sent directly after was sent in time. If it may have
    /// run out this waits until the store has said whether it still holds.
    pub(super) async fn hold(&self, clock: &dyn Clock) -> Result<(), Lost> {
        loop {
            let changed = self.changed.notified();
            let since = *self.since();
            let Some(since) = since else { return Err(Lost) };
            if holds(self.length, since.until(Moment::of(clock))) {
                return Ok(());
            }
            tracing::warn!("the lease may have run out: a call waits until it is renewed");
            changed.await;
        }
    }

    /// How much of the lease is left; nothing once it is lost.
    pub(super) fn left(&self, clock: &dyn Clock) -> Duration {
        let elapsed = self.since().map(|since| since.until(Moment::of(clock)));
        elapsed.map_or(Duration::ZERO, |elapsed| usable(self.length).saturating_sub(elapsed))
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Option<Moment>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holds(length: Duration, elapsed: Duration) -> bool {
    elapsed < usable(length)
}

/// A tenth is kept back, for clocks that do not run alike and for the way from here to the wire.
fn usable(length: Duration) -> Duration {
    length * 9 / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    // DESIGN invariant 6: by the larger of elapsed boot time and elapsed wall time.
    #[test]
    fn whichever_clock_has_gone_farther_counts() {
        let at = |boot, wall: i64| Moment {
            boot: Boot(Duration::from_secs(boot)),
            wall: Timestamp(wall * 1_000_000),
        };
        let elapsed = |to| at(100, 100).until(to);
        assert_eq!(elapsed(at(103, 103)), Duration::from_secs(3));
        assert_eq!(elapsed(at(109, 101)), Duration::from_secs(9), "suspended, and the wall clock set back");
        assert_eq!(elapsed(at(101, 109)), Duration::from_secs(9), "paused from outside");
        assert_eq!(
            elapsed(at(101, 50)),
            Duration::from_secs(1),
            "a wall clock set back does not lengthen it"
        );
    }

    #[test]
    fn it_ends_before_the_store_says_so() {
        let length = Duration::from_secs(10);
        assert!(holds(length, Duration::from_millis(8_999)));
        assert!(!holds(length, Duration::from_secs(9)));
    }
}
