//! The time of a shared store: several workers compare the instants that each of them wrote, so all of them go by the
//! database's clock and none by its own wall clock.
//!
//! The database is not asked for each instant. Each heartbeat measures how far its clock is ahead of this machine's boot
//! clock; in between the boot clock counts. Nobody can set the boot clock, and it runs on during a suspend. While a virtual
//! machine is paused from outside it may stand still; what this clock is behind then is less than a lease, for nothing is
//! sent after that before the next heartbeat (`lease.rs` looks at the machine's wall clock, too).

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::{Boot, Clock, SharedClock, Timestamp};

#[derive(Debug)]
pub(super) struct StoreClock {
    /// This machine's clocks.
    machine: SharedClock,
    /// How far the database's clock is ahead of the boot clock, in microseconds.
    ahead: AtomicI64,
}

impl StoreClock {
    /// The database, asked at one boot time, has told this time, and its answer was here at the other.
    pub(super) fn measured(machine: SharedClock, asked: Boot, time: Timestamp, answered: Boot) -> Self {
        let (least, most) = between(asked, time, answered);
        Self { machine, ahead: AtomicI64::new(least.midpoint(most)) }
    }

    /// The same, measured once more. A measurement says only that the truth lies between two bounds, as far apart as the
    /// round trip was long. What lies between them stands: so a slow answer disturbs nothing, and each fast one corrects.
    /// Returns whether it was corrected.
    pub(super) fn measure(&self, asked: Boot, time: Timestamp, answered: Boot) -> bool {
        let (least, most) = between(asked, time, answered);
        let before = self.ahead.load(Ordering::Relaxed);
        self.ahead.store(before.clamp(least, most), Ordering::Relaxed); // only the heartbeat writes it
        !(least..=most).contains(&before)
    }

    pub(super) const fn machine(&self) -> &SharedClock {
        &self.machine
    }
}

/// The database read its clock after it was asked and before its answer was here.
fn between(asked: Boot, time: Timestamp, answered: Boot) -> (i64, i64) {
    (time.0.saturating_sub(micros(answered)), time.0.saturating_sub(micros(asked.min(answered))))
}

fn micros(boot: Boot) -> i64 {
    i64::try_from(boot.0.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.ahead.load(Ordering::Relaxed)).after(self.boot().0)
    }

    fn boot(&self) -> Boot {
        self.machine.boot()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.machine.sleep(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use std::sync::Arc;

    const fn boot(seconds: u64) -> Boot {
        Boot(Duration::from_secs(seconds))
    }

    const fn time(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    #[test]
    fn a_slow_answer_changes_nothing_and_a_fast_one_corrects() {
        let clock = StoreClock::measured(Arc::new(SystemClock), boot(100), time(1_001), boot(102));
        let ahead = || clock.ahead.load(Ordering::Relaxed) / 1_000_000;
        assert_eq!(ahead(), 900, "the middle of what is possible");
        assert!(!clock.measure(boot(110), time(1_012), boot(120)));
        assert_eq!(ahead(), 900, "between 892 and 902 it stands");
        assert!(clock.measure(boot(130), time(1_031), boot(130)));
        assert_eq!(ahead(), 901);
        assert!(clock.measure(boot(140), time(5_000), boot(141)));
        assert_eq!(ahead(), 4_859, "the database's clock was set forward");
        assert!(clock.measure(boot(150), time(1_050), boot(151)));
        assert_eq!(ahead(), 900, "and back");
    }
}
