//! The times in which a database gives no answer, as the log reports them: the beginning once, a reminder at growing distances, and
//! the end once. Those who try again need not log each try.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::StoreError;
use crate::clock::{Boot, SharedClock};
use crate::panics::quietly;

/// The first reminder comes this long after the beginning, the next one after twice as long, and so on up to a limit.
const REMINDER: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(10);

/// The kind of request to the database. A full disk takes no writes and answers all reads.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "an embedded store does not try a read again")
)]
pub(crate) enum Side {
    Read,
    Write,
}

/// The state of a database that may be away.
#[derive(Debug)]
pub struct Outage {
    clock: SharedClock,
    /// A fast answer for the writes of a database that is there.
    is_away: AtomicBool,
    away: Mutex<Option<Away>>,
}

#[derive(Debug)]
struct Away {
    since: Boot,
    /// The number of failed tries.
    tries: u64,
    /// The distance between the last report and the next one, and the instant of the next one.
    distance: Duration,
    next: Boot,
    is_reported: bool,
    reads: bool,
    writes: bool,
}

/// The event to be logged.
enum Report {
    Begins,
    Lasts { away: Duration, tries: u64 },
}

impl Outage {
    pub(crate) fn by(clock: SharedClock) -> Self {
        Self { clock, is_away: AtomicBool::new(false), away: Mutex::default() }
    }

    /// A try has failed.
    pub(crate) fn failed(&self, side: Side, error: &StoreError) {
        if !error.is_transient() {
            return;
        }
        // A subscriber that panics must not end a writer.
        match self.note(side, error) {
            Some(Report::Begins) => quietly(|| tracing::warn!(%error, "database away")),
            Some(Report::Lasts { away, tries }) => {
                quietly(|| tracing::warn!(away_ms = away.as_millis(), tries, %error, "database still away"));
            }
            None => {}
        }
    }

    fn note(&self, side: Side, error: &StoreError) -> Option<Report> {
        let now = self.clock.boot();
        let mut away = self.away();
        let away = away.get_or_insert_with(|| Away {
            since: now,
            tries: 0,
            distance: REMINDER,
            next: now,
            is_reported: false,
            reads: false,
            writes: false,
        });
        self.is_away.store(true, Ordering::Release);
        away.tries += 1;
        match side {
            Side::Read => away.reads = true,
            Side::Write => away.writes = true,
        }
        // Two transactions that met, or a lock that is free a moment later, are no outage.
        if !away.is_reported && away.tries == 1 && matches!(error, StoreError::Busy { .. }) {
            return None;
        }
        if !std::mem::replace(&mut away.is_reported, true) {
            away.next = Boot(now.0 + REMINDER);
            return Some(Report::Begins);
        }
        if now < away.next {
            return None;
        }
        away.distance = (away.distance * 2).min(LONGEST);
        away.next = Boot(now.0 + away.distance);
        Some(Report::Lasts { away: away.since.until(now), tries: away.tries })
    }

    /// The database has answered.
    pub(crate) fn answered(&self, side: Side) {
        if !self.is_away.load(Ordering::Acquire) {
            return;
        }
        let ended = {
            let mut away = self.away();
            let Some(present) = away.as_mut() else { return };
            match side {
                Side::Read => present.reads = false,
                Side::Write => present.writes = false,
            }
            if present.reads || present.writes {
                return;
            }
            self.is_away.store(false, Ordering::Release);
            away.take()
        };
        if let Some(Away { since, tries, .. }) = ended.filter(|ended| ended.is_reported) {
            let away_ms = since.until(self.clock.boot()).as_millis();
            quietly(|| tracing::info!(away_ms, tries, "database back"));
        }
    }

    /// True if the log has said that the database is away, and not that it is back.
    pub(crate) fn is_reported(&self) -> bool {
        self.is_away.load(Ordering::Acquire) && self.away().as_ref().is_some_and(|away| away.is_reported)
    }

    /// The time since which the database is away; zero while it is there.
    #[cfg(feature = "metrics")]
    pub(crate) fn lasts(&self) -> Duration {
        let away = self.away().as_ref().map(|away| away.since);
        away.map_or(Duration::ZERO, |since| since.until(self.clock.boot()))
    }

    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
