//! The only file that reads a clock. All other code gets the time from [`Clock`].
//!
//! There are two clocks, on purpose. *Wall* time names instants that outlive a process (a timer, the times of a
//! record). *Boot* time measures a duration: the boot clock goes on while the machine is suspended and cannot be set,
//! so a clock that jumps never shortens a settle time measured by it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// An instant, in microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The earliest instant.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest instant, later than any timer can be set.
    pub const MAX: Self = Self(i64::MAX);

    /// The last instant that JSON numbers hold exactly, in the year 2255. A timer that is due then is never due.
    pub(crate) const LAST: Self = Self((1 << 53) - 1);

    /// This instant moved by `by` into the future, at most to the year 2255, the last instant that can be recorded.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let at = self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
        Self(at.min(Self::LAST.0).max(self.0))
    }

    /// This instant moved by `by` into the past.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The duration from `self` until `later`; zero if `later` has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

/// The instant in RFC 3339, in UTC, with microseconds.
///
/// ```
/// use counterfoil::Timestamp;
/// assert_eq!(Timestamp(1_793_923_200_000_001).to_string(), "2026-11-06T00:00:00.000001Z");
/// assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999999Z");
/// ```
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// The year, the month and the day of the Gregorian calendar, so many days after 1970-01-01. The calculation is that of
/// H. Hinnant, "chrono-Compatible Low-Level Date Algorithms": it counts from the first of March, so that a leap day ends its year, and in eras of
/// 400 years, which have the same number of days.
const fn civil(days: i64) -> (i64, i64, i64) {
    let since = days + 719_468; // days from 0000-03-01 to 1970-01-01
    let (era, day_of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

/// A reading of the boot clock, comparable only with other readings of the same machine since its boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot(pub Duration);

impl Boot {
    /// The duration from `self` until `later`; zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// The source of time and of waiting. A simulation brings its own clock.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::types::BoxFuture;
/// use counterfoil::{Clock, SystemClock, Timestamp, clock::Boot};
///
/// /// A machine whose wall clock is an hour fast.
/// #[derive(Debug)]
/// struct Fast;
///
/// impl Clock for Fast {
///     fn now(&self) -> Timestamp {
///         SystemClock.now().after(Duration::from_hours(1))
///     }
///
///     fn boot(&self) -> Boot {
///         SystemClock.boot()
///     }
///
///     fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
///         SystemClock.sleep(by)
///     }
/// }
/// # assert!(Fast.now() > SystemClock.now());
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall time, in UTC.
    fn now(&self) -> Timestamp;
    /// The time since boot, including the time in which the machine was suspended.
    fn boot(&self) -> Boot;
    /// A future that resolves after `by`.
    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()>;
    /// A future that resolves after `by`, for the pause between two heartbeats. The pause does not show whether there
    /// is work. A simulation does not wait for it when nothing else is left.
    fn rest(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.sleep(by)
    }
}

/// The clocks of the machine and the timer of tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "the one place that may read the clocks")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn boot(&self) -> Boot {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Boot(Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0)))
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(by))
    }
}

/// The clock as the layers share it.
pub type SharedClock = Arc<dyn Clock>;
