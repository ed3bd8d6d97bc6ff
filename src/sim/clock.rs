//! Virtual time. Nothing sleeps: when nothing is left to do, the earliest timer is due at once.

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

/// 2026-01-01 00:00:00 UTC, in microseconds: where every simulation begins.
const BEGIN: i64 = 1_767_225_600_000_000;

/// The clock of a simulated machine, and of the world around it: no crash of a process stops it.
#[derive(Clone, Default)]
pub struct SimClock(Arc<Mutex<Timers>>);

#[derive(Default)]
struct Timers {
    /// Since the machine was started.
    now: Duration,
    /// How far the wall clock was set forward, in microseconds.
    set: i64,
    /// In the order in which they fall due, and for one instant in the order in which they were set.
    due: BTreeMap<(Duration, u64), Due>,
    count: u64,
}

enum Due {
    Wake(Waker),
    /// A heartbeat.
    Beat(Waker),
    Do(Box<dyn FnOnce() + Send>),
}

/// What has happened when time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Nothing was due any more.
    Nothing,
    /// A worker's heart has beaten, as it does for ever.
    Heartbeat,
    Something,
}

impl Due {
    fn happens(self) {
        match self {
            Self::Wake(waker) | Self::Beat(waker) => waker.wake(),
            Self::Do(happen) => happen(),
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

    /// Since the machine was started.
    pub(super) fn elapsed(&self) -> Duration {
        self.timers().now
    }

    /// Something that happens later, whoever lives by then.
    pub(super) fn later(&self, by: Duration, happen: impl FnOnce() + Send + 'static) {
        let mut timers = self.timers();
        let at = timers.now.saturating_add(by);
        timers.set(at, Due::Do(Box::new(happen)));
    }

    /// Sets the wall clock, forward or back. Boot time knows nothing of it.
    pub(super) fn jump(&self, seconds: i64) {
        let mut timers = self.timers();
        timers.set = timers.set.saturating_add(seconds.saturating_mul(1_000_000));
    }

    /// Lets time pass while no process lives: what was on its way to the world arrives. A paused process sleeps on.
    pub(super) fn pass(&self, by: Duration) {
        let until = self.elapsed().saturating_add(by);
        while let Some(due) = self.due_until(until) {
            due.happens();
        }
    }

    /// The next thing that is due until then, at its time; if there is none, it is then.
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

    /// Something else than heartbeats is still to come.
    pub(super) fn is_awaited(&self) -> bool {
        self.timers().due.values().any(|due| !matches!(due, Due::Beat(_)))
    }

    /// Lets the next thing happen that is due. Called when nobody is at work.
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
            // Polled before its time: it keeps its place, or the order would hang on who polled what.
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
