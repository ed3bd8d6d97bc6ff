//! Watches for a real process: they count the crash points, or kill the process at one.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{CrashPoint, UnknownPoint, Watch};

/// Kills its own process with SIGKILL when a point is crossed for the `nth` time, as `kill -9` from outside would: no
/// destructor runs, nothing is flushed, and the kernel closes what was open.
///
/// ```
/// use counterfoil::sim::{CrashPoint, KillAt};
/// let kill: KillAt = "after-call:2".parse()?;
/// assert_eq!((kill.point(), kill.to_string()), (CrashPoint::AfterCall, "after-call:2".into()));
/// assert_eq!("after-call".parse::<KillAt>()?.to_string(), "after-call:1");
/// # Ok::<(), counterfoil::sim::UnknownPoint>(())
/// ```
#[derive(Debug)]
pub struct KillAt {
    point: CrashPoint,
    nth: NonZeroU32,
    crossed: AtomicU32,
}

impl KillAt {
    /// A kill at the `nth` crossing of `point`; the first crossing is 1.
    pub const fn new(point: CrashPoint, nth: NonZeroU32) -> Self {
        Self { point, nth, crossed: AtomicU32::new(0) }
    }

    /// A kill at the first crossing of `point`.
    pub const fn first(point: CrashPoint) -> Self {
        Self::new(point, NonZeroU32::MIN)
    }

    /// The crash point at which the process is killed.
    pub const fn point(&self) -> CrashPoint {
        self.point
    }
}

impl Watch for KillAt {
    fn at(&self, point: CrashPoint) {
        if point == self.point && self.crossed.fetch_add(1, Ordering::AcqRel) + 1 == self.nth.get() {
            kill_self();
        }
    }
}

/// Kills the process, and never returns. Other threads may run on until the signal reaches them, as under any
/// `kill -9`; the thread that crosses the point does not.
fn kill_self() {
    let own = rustix::process::getpid();
    let killed = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    // A process may always signal itself. If the kernel refused, a test would pass without a kill, so this panics.
    unreachable!("SIGKILL did not kill: {killed:?}");
}

impl fmt::Display for KillAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.nth)
    }
}

impl FromStr for KillAt {
    type Err = UnknownPoint;
    fn from_str(text: &str) -> Result<Self, UnknownPoint> {
        match text.split_once(':') {
            None => Ok(Self::first(text.parse()?)),
            Some((point, nth)) => {
                let unknown = |_| UnknownPoint { name: text.to_owned() };
                Ok(Self::new(point.parse()?, nth.parse().map_err(unknown)?))
            }
        }
    }
}

/// Counts the crossings of each point: a clean run numbers the points of a workflow.
#[derive(Debug, Default)]
pub struct Crossings {
    counts: Mutex<BTreeMap<CrashPoint, u32>>,
}

impl Crossings {
    /// The number of crossings of this point.
    pub fn of(&self, point: CrashPoint) -> u32 {
        self.lock().get(&point).copied().unwrap_or(0)
    }

    /// All points that were crossed, each with the number of its crossings.
    pub fn counts(&self) -> BTreeMap<CrashPoint, u32> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<CrashPoint, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Crossings {
    fn at(&self, point: CrashPoint) {
        *self.lock().entry(point).or_default() += 1;
    }
}
