//! The time of a shared store. Workers compare instants that other workers wrote, so all of them use the database's
//! clock and none uses its own wall clock.
//!
//! The database is not asked for each instant. Each heartbeat measures how far its clock is ahead of this machine's
//! boot clock; in between the boot clock counts. Nobody can set the boot clock, and it goes on during a suspend. While
//! a virtual machine is paused from outside the boot clock may stop; this clock is then late by less than a lease,
//! because nothing is sent after that before the next heartbeat (`lease.rs` checks the machine's wall clock, too).
//!
//! A correction may find that the clock was ahead. The order of a run's calls is read off their instants (an undo goes
//! backwards through it), so the clock stops until the database has caught up, and does not go back. It also begins
//! after the end of each worker whose runs it may take over. This is the rule of hybrid logical clocks (Kulkarni et
//! al., 2014), without their counter: equal instants are told apart by the ids of the rows.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::{Boot, Clock, SharedClock, Timestamp};

/// The largest lead that is corrected by stopping. A clock that is ahead by more goes back at once: the database's
/// clock was set back, and no due work may wait for it to catch up.
const STANDS_STILL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct StoreClock {
    /// This machine's clocks.
    machine: SharedClock,
    /// The lead of the database's clock over the boot clock, in microseconds.
    ahead: AtomicI64,
    /// The latest instant that was told or heard of, in microseconds.
    latest: AtomicI64,
}

impl StoreClock {
    /// A clock measured once: the database was asked at boot time `asked`, told `time`, and its answer was here at
    /// `answered`.
    pub(super) fn measured(machine: SharedClock, asked: Boot, time: Timestamp, answered: Boot) -> Self {
        let (least, most) = between(asked, time, answered);
        Self { machine, ahead: AtomicI64::new(least.midpoint(most)), latest: AtomicI64::new(i64::MIN) }
    }

    /// Measures the clock again. A measurement only shows that the truth lies between two bounds, as far apart as the
    /// round trip was long. A value between them is kept: so a slow answer disturbs nothing, and each fast one
    /// corrects. True if the clock was corrected.
    pub(super) fn measure(&self, asked: Boot, time: Timestamp, answered: Boot) -> bool {
        let (least, most) = between(asked, time, answered);
        let before = self.ahead.load(Ordering::Relaxed);
        self.ahead.store(before.clamp(least, most), Ordering::Relaxed); // only the heartbeat writes it
        !(least..=most).contains(&before)
    }

    /// Notes an instant that another worker has written. No earlier one is told from now on, unless the other clock was
    /// far ahead.
    pub(super) fn heard(&self, instant: Timestamp) {
        self.latest.fetch_max(instant.0, Ordering::Relaxed);
    }

    pub(super) const fn machine(&self) -> &SharedClock {
        &self.machine
    }
}

/// The bounds of the lead: the database read its clock after it was asked and before its answer was here.
fn between(asked: Boot, time: Timestamp, answered: Boot) -> (i64, i64) {
    (time.0.saturating_sub(micros(answered)), time.0.saturating_sub(micros(asked.min(answered))))
}

fn micros(boot: Boot) -> i64 {
    i64::try_from(boot.0.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let now = Timestamp(self.ahead.load(Ordering::Relaxed)).after(self.boot().0);
        let latest = Timestamp(self.latest.fetch_max(now.0, Ordering::Relaxed)).max(now);
        if now.until(latest) <= STANDS_STILL {
            return latest;
        }
        self.latest.store(now.0, Ordering::Relaxed);
        now
    }

    fn boot(&self) -> Boot {
        self.machine.boot()
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.machine.sleep(by)
    }

    fn rest(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.machine.rest(by)
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

    #[test]
    fn a_correction_lets_the_clock_stand_still_and_one_that_was_set_back_goes_back() {
        let machine = Arc::new(Paused::default());
        let clock = StoreClock::measured(machine.clone(), boot(0), time(1_000), boot(4));
        assert_eq!(clock.now(), time(998), "the middle of what is possible");
        assert!(clock.measure(boot(0), time(996), boot(0)));
        assert_eq!(clock.now(), time(998), "the database is at 996");
        machine.set(3);
        assert_eq!(clock.now(), time(999), "it has caught up");
        assert!(clock.measure(boot(3), time(500), boot(3)));
        assert_eq!(clock.now(), time(500), "somebody has set it back");
        assert_eq!(clock.now(), time(500));
    }

    #[test]
    fn nothing_is_told_to_be_before_the_end_of_another_worker() {
        let clock = StoreClock::measured(Arc::new(Paused::default()), boot(0), time(1_000), boot(0));
        clock.heard(time(1_002));
        assert_eq!(clock.now(), time(1_002));
        clock.heard(time(1_001));
        assert_eq!(clock.now(), time(1_002));
        clock.heard(time(5_000));
        assert_eq!(clock.now(), time(1_000), "the other's clock was far ahead");
    }

    /// A machine whose boot clock shows the time that was set.
    #[derive(Debug, Default)]
    struct Paused(AtomicI64);

    impl Paused {
        fn set(&self, seconds: i64) {
            self.0.store(seconds, Ordering::Relaxed);
        }
    }

    impl Clock for Paused {
        fn now(&self) -> Timestamp {
            time(self.0.load(Ordering::Relaxed))
        }

        fn boot(&self) -> Boot {
            boot(self.0.load(Ordering::Relaxed).unsigned_abs())
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            unreachable!("no test sleeps")
        }
    }
}
