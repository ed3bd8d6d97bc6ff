//! How many calls may go out in a time: a token bucket, as arithmetic.

use std::time::Duration;

use crate::clock::Boot;

/// So many calls in so long, of which some may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls, of all workers together; at least 1.
    pub calls: u32,
    /// In this time.
    pub per: Duration,
    /// As many may go out at once after a pause; at least 1.
    pub burst: u32,
}

impl Rate {
    /// So many calls a second, one after another.
    pub const fn per_second(calls: u32) -> Self {
        Self { calls, per: Duration::from_secs(1), burst: 1 }
    }

    /// So many calls a minute, one after another.
    pub const fn per_minute(calls: u32) -> Self {
        Self { calls, per: Duration::from_mins(1), burst: 1 }
    }

    /// As many may go out at once after a pause.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// The part of one of so many workers. None has more than its part, so that together they keep the rate.
    #[must_use]
    pub fn shared_by(self, workers: u32) -> Self {
        let workers = workers.max(1);
        Self { per: self.per.saturating_mul(workers), burst: (self.burst / workers).max(1), ..self }
    }

    /// From one call to the next.
    pub fn interval(&self) -> Duration {
        self.per / self.calls.max(1)
    }

    fn depth(&self) -> Duration {
        self.interval().saturating_mul(self.burst.max(1) - 1)
    }
}

/// A token bucket, kept as the instant at which it is full again (the generic cell rate algorithm, ITU-T I.371). In any
/// time `t` at most `burst + t / interval` calls go out, however they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    full_at: Boot,
}

impl Bucket {
    /// It holds one token and no more: a process that dies and comes back all the time must not find a full one each time.
    pub fn beginning(rate: &Rate, now: Boot) -> Self {
        Self { full_at: Boot(now.0.saturating_add(rate.depth())) }
    }

    /// How long until the next token.
    pub fn wait(&self, rate: &Rate, now: Boot) -> Duration {
        now.until(Boot(self.full_at.0.saturating_sub(rate.depth())))
    }

    /// Takes a token, if there is one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::clock::Boot;
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
}
