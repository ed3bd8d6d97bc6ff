//! The rate limit of calls: a token bucket, as arithmetic.

use std::time::Duration;

use crate::clock::Boot;

/// A maximum rate of calls, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of calls within `per`, of all workers together; at least 1.
    pub calls: u32,
    /// The time in which `calls` may go out.
    pub per: Duration,
    /// The number of calls that may go out at once after a pause; at least 1.
    pub burst: u32,
}

impl Rate {
    /// A rate of `calls` calls a second, one after another.
    pub const fn per_second(calls: u32) -> Self {
        Self { calls, per: Duration::from_secs(1), burst: 1 }
    }

    /// A rate of `calls` calls a minute, one after another.
    pub const fn per_minute(calls: u32) -> Self {
        Self { calls, per: Duration::from_mins(1), burst: 1 }
    }

    /// Sets the number of calls that may go out at once after a pause.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// The share of one of `workers` workers. No worker exceeds its share, so that together they keep the rate.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        let workers = workers.max(1);
        Self { per: self.per.saturating_mul(workers), burst: (self.burst / workers).max(1), ..self }
    }

    /// The time from one call to the next.
    pub fn interval(&self) -> Duration {
        self.per / self.calls.max(1)
    }

    fn depth(&self) -> Duration {
        self.interval().saturating_mul(self.burst.max(1) - 1)
    }
}

/// A token bucket, kept as the instant at which the bucket is full again (the generic cell rate algorithm, ITU-T
/// I.371). In any time `t`, at most `burst + t / interval` calls go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    full_at: Boot,
}

impl Bucket {
    /// A bucket with one token: a process that dies and restarts repeatedly must not find a full bucket each time.
    pub fn beginning(rate: &Rate, now: Boot) -> Self {
        Self { full_at: Boot(now.0.saturating_add(rate.depth())) }
    }

    /// A full bucket.
    #[cfg(feature = "api")]
    pub(crate) const fn full(now: Boot) -> Self {
        Self { full_at: now }
    }

    /// The time until the next token.
    pub fn wait(&self, rate: &Rate, now: Boot) -> Duration {
        now.until(Boot(self.full_at.0.saturating_sub(rate.depth())))
    }

    /// Takes a token and returns true, if there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::Boot;
    /// use counterfoil::ledger::{Bucket, Rate};
    ///
    /// let (rate, now) = (Rate::per_second(4), Boot(Duration::from_secs(7)));
    /// let mut bucket = Bucket::beginning(&rate, now);
    /// assert!(bucket.take(&rate, now));
    /// assert!(!bucket.take(&rate, now));
    /// assert_eq!(bucket.wait(&rate, now), Duration::from_millis(250));
    /// ```
    pub fn take(&mut self, rate: &Rate, now: Boot) -> bool {
        let has_one = self.wait(rate, now).is_zero();
        if has_one {
            self.full_at = Boot(self.full_at.max(now).0.saturating_add(rate.interval()));
        }
        has_one
    }

    /// Puts a token back that was taken for what turned out not to count.
    #[cfg(feature = "api")]
    pub(crate) fn give_back(&mut self, rate: &Rate) {
        self.full_at = Boot(self.full_at.0.saturating_sub(rate.interval()));
    }
}
