//! This worker's lease. It ends at an instant of the store's clock. Here it is measured by this machine's own clocks,
//! from a moment before the store was asked, and checked directly before each dispatch.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Boot, Clock, Timestamp};

/// The readings of both clocks at one moment. Boot time goes on while the machine sleeps; wall time goes on while a
/// virtual machine is paused and its clock is corrected afterwards. The larger elapsed time counts.
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

/// The error that the lease was lost: another worker has taken over this worker's work, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

#[derive(Debug)]
pub(super) struct Lease {
    length: Duration,
    /// The moment since which the present lease counts. `None` once the lease is lost.
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

    /// Notes that the store has renewed the lease, after it was asked at this moment.
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

    /// Returns if the lease holds, so that a send directly after it is in time. If the lease may have run out, waits
    /// until the store has said if it still holds.
    pub(super) async fn hold(&self, clock: &dyn Clock) -> Result<(), Lost> {
        loop {
            let changed = self.changed.notified();
            let since = *self.since();
            let Some(since) = since else { return Err(Lost) };
            if holds(self.length, since.until(Moment::of(clock))) {
                return Ok(());
            }
            tracing::warn!("lease may have run out, call waits for its renewal");
            changed.await;
        }
    }

    /// The time since which the lease counts. `None` once it is lost.
    #[cfg(feature = "metrics")]
    pub(super) fn age(&self, clock: &dyn Clock) -> Option<Duration> {
        self.since().map(|since| since.until(Moment::of(clock)))
    }

    /// The rest of the lease; zero once it is lost.
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

/// The usable part of the lease. A tenth is kept back, for clocks that drift and for the time from here to the wire.
fn usable(length: Duration) -> Duration {
    length * 9 / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    // The larger of elapsed boot time and elapsed wall time counts.
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
