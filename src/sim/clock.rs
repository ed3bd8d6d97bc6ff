//! Virtual time. Nothing sleeps: as soon as no task can continue, the earliest timer is due.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::{Boot, Clock, Timestamp};

/// The start time of every simulation: 2026-01-01 00:00:00 UTC, in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;

/// The clock of a simulated machine and of its world. The crash of a process does not stop the clock.
#[derive(Clone, Default)]
pub struct SimClock(Arc<Mutex<Timers>>);

#[derive(Default)]
struct Timers {
    /// The time since the machine was started.
    now: Duration,
    /// The offset of the wall clock, in microseconds.
    set: i64,
    /// The timers in the order in which they are due; for one instant, in the order in which they were set.
    due: BTreeMap<(Duration, u64), Due>,
    count: u64,
}

enum Due {
    Wake(Waker),
    /// A timer of a heartbeat.
    Beat(Waker),
    Do(Box<dyn FnOnce() + Send>),
    /// A request arrives in the world.
    Arrive(Box<dyn FnOnce() + Send>),
}

/// The kind of timer that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// No timer was due.
    Nothing,
    /// A heartbeat of a worker, which repeats for ever.
    Heartbeat,
    Something,
}

impl Due {
    fn happens(self) {
        match self {
            Self::Wake(waker) | Self::Beat(waker) => waker.wake(),
            Self::Do(happen) | Self::Arrive(happen) => happen(),
        }
    }
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimClock").field("now", &self.timers().now).finish_non_exhaustive()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let timers = self.timers();
        Timestamp(BEGIN.saturating_add(timers.set)).after(timers.now)
    }

    fn boot(&self) -> Boot {
        Boot(self.timers().now)
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.sleeping(by, Due::Wake))
    }

    fn rest(&self, by: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.sleeping(by, Due::Beat))
    }
}

impl SimClock {
    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleeping(&self, by: Duration, due: fn(Waker) -> Due) -> Sleep {
        let until = self.timers().now.saturating_add(by);
        Sleep { clock: self.clone(), until, due, place: None }
    }

    /// The time since the machine was started.
    pub(super) fn elapsed(&self) -> Duration {
        self.timers().now
    }

    /// Sets a timer that runs `happen`, whichever processes are alive by then.
    pub(super) fn later(&self, by: Duration, happen: impl FnOnce() + Send + 'static) {
        let mut timers = self.timers();
        let at = timers.now.saturating_add(by);
        timers.set(at, Due::Do(Box::new(happen)));
    }

    /// Sets a timer for a request that is on its way, whichever processes are alive when it arrives.
    pub(super) fn arrives(&self, by: Duration, happen: impl FnOnce() + Send + 'static) {
        let mut timers = self.timers();
        let at = timers.now.saturating_add(by);
        timers.set(at, Due::Arrive(Box::new(happen)));
    }

    /// True if a request is on its way.
    pub(super) fn carries_requests(&self) -> bool {
        self.timers().due.values().any(|due| matches!(due, Due::Arrive(_)))
    }

    /// Sets the wall clock forward or back by this many seconds. The boot clock is unchanged.
    pub(super) fn jump(&self, seconds: i64) {
        let mut timers = self.timers();
        timers.set = timers.set.saturating_add(seconds.saturating_mul(1_000_000));
    }

    /// Lets time pass while no process is alive: requests that are in flight arrive in the world. A paused process
    /// stays paused.
    pub(super) fn pass(&self, by: Duration) {
        let until = self.elapsed().saturating_add(by);
        while let Some(due) = self.due_until(until) {
            due.happens();
        }
    }

    /// Removes the next timer that is due until `until`, and sets the clock to its time; if there is none, to
    /// `until`.
    fn due_until(&self, until: Duration) -> Option<Due> {
        let mut timers = self.timers();
        let next = timers.due.first_entry().filter(|next| next.key().0 <= until);
        let (at, due) = match next.map(OccupiedEntry::remove_entry) {
            Some(((at, _), due)) => (at, Some(due)),
            None => (until, None),
        };
        timers.now = timers.now.max(at);
        due
    }

    /// True if a timer other than a heartbeat is pending.
    pub(super) fn is_awaited(&self) -> bool {
        self.timers().due.values().any(|due| !matches!(due, Due::Beat(_)))
    }

    /// Runs the next timer. Called when no task can continue.
    pub(super) fn advance(&self) -> Passed {
        let due = {
            let mut timers = self.timers();
            let Some(((at, _), due)) = timers.due.pop_first() else { return Passed::Nothing };
            timers.now = timers.now.max(at);
            due
        };
        let passed = if matches!(due, Due::Beat(_)) { Passed::Heartbeat } else { Passed::Something };
        due.happens();
        passed
    }
}

impl Timers {
    fn set(&mut self, at: Duration, due: Due) -> (Duration, u64) {
        self.count += 1;
        self.due.insert((at, self.count), due);
        (at, self.count)
    }
}

struct Sleep {
    clock: SimClock,
    until: Duration,
    due: fn(Waker) -> Due,
    place: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut timers = clock.timers();
        if timers.now >= self.until {
            return Poll::Ready(());
        }
        let waker = (self.due)(cx.waker().clone());
        match self.place {
            // Polled before its time: the timer keeps its slot, because otherwise the order would depend on the order
            // of polls.
            Some(place) if timers.due.contains_key(&place) => drop(timers.due.insert(place, waker)),
            _ => self.place = Some(timers.set(self.until, waker)),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clock.timers().due.remove(&place);
        }
    }
}
