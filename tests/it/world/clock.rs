//! Clock and chance in the hands of the test.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil::id::Entropy;
use counterfoil::{Boot, Clock, Timestamp};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// The duration below which a sleep is the queue's own pause, which passes by itself if the clock breathes.
const BREATH: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Face {
    wall: Timestamp,
    boot: Duration,
    sleepers: Vec<Sleep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep {
    asked: Duration,
    due: Duration,
}

/// A clock that stands still until the test moves it, and that outlives the processes that read it. Wall and boot time can
/// be moved apart. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TestClock {
    face: Arc<watch::Sender<Face>>,
    breathes: bool,
}

/// A clock on which no time passes by itself, however short.
impl Default for TestClock {
    fn default() -> Self {
        let (wall, boot) = (Timestamp(1_700_000_000_000_000), Duration::from_secs(1000));
        let face = Face { wall, boot, sleepers: Vec::new() };
        Self { face: Arc::new(watch::Sender::new(face)), breathes: false }
    }
}

impl TestClock {
    /// A clock on which the store's queue goes on without the test.
    pub fn breathing() -> Self {
        Self { breathes: true, ..Self::default() }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, by: Duration) {
        self.face.send_modify(|face| {
            face.wall = face.wall.after(by);
            face.boot += by;
        });
    }

    /// Sets the wall clock forward, although no time passes.
    pub fn jump_wall(&self, by: Duration) {
        self.face.send_modify(|face| face.wall = face.wall.after(by));
    }

    /// Resolves when there is a sleeper that asked for exactly this duration.
    pub async fn slept(&self, asked: Duration) {
        let sleeps =
            |face: &Face| face.sleepers.iter().any(|sleep| sleep.asked == asked && sleep.due > face.boot);
        let come = async { self.face.subscribe().wait_for(sleeps).await.map(drop) };
        soon(format!("nobody sleeps for {asked:?}"), come).await;
    }

    /// Resolves when there is a sleeper that sleeps for exactly this long from now.
    pub async fn asleep_for(&self, left: Duration) {
        self.asleep(1, left..=left).await;
    }

    /// Resolves when there are `count` sleepers that sleep for this long from now.
    pub async fn asleep(&self, count: usize, left: RangeInclusive<Duration>) {
        let asleep = |face: &Face| {
            let ends = face.sleepers.iter().filter_map(|sleep| sleep.due.checked_sub(face.boot));
            ends.filter(|end| left.contains(end)).count() >= count
        };
        self.face.subscribe().wait_for(asleep).await.map(drop).unwrap();
    }
}

/// A sleeper on the clock, until it wakes or is dropped.
struct Sleeper {
    clock: TestClock,
    sleep: Sleep,
}

impl Sleeper {
    fn on(clock: &TestClock, asked: Duration) -> Self {
        let mut sleep = Sleep { asked, due: asked };
        clock.face.send_modify(|face| {
            sleep.due = face.boot.saturating_add(asked);
            face.sleepers.push(sleep);
        });
        Self { clock: clock.clone(), sleep }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.clock.face.send_modify(|face| {
            let found = face.sleepers.iter().position(|sleep| *sleep == self.sleep).unwrap();
            face.sleepers.swap_remove(found);
        });
    }
}

/// Waits for at most 30 s of real time: a test that waits for something that does not come must fail, with this
/// message.
#[allow(clippy::disallowed_methods, reason = "real time, because it is the test that is stuck")]
pub async fn soon<E: std::fmt::Debug>(otherwise: String, what: impl Future<Output = Result<(), E>>) {
    let came = tokio::time::timeout(Duration::from_secs(30), what).await;
    came.unwrap_or_else(|_| panic!("{otherwise}")).unwrap();
}

/// Waits until this is so. A wait for something that does not come fails the test.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let comes = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
        Ok::<_, std::convert::Infallible>(())
    };
    soon(format!("waited for {what}"), comes).await;
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.face.borrow().wall
    }

    fn boot(&self) -> Boot {
        Boot(self.face.borrow().boot)
    }

    fn sleep(&self, asked: Duration) -> BoxFuture<'static, ()> {
        if asked.is_zero() {
            return std::future::ready(()).boxed();
        }
        #[allow(clippy::disallowed_methods, reason = "the queue's own breath")]
        if self.breathes && asked < BREATH {
            return tokio::time::sleep(asked).boxed();
        }
        let sleeper = Sleeper::on(self, asked);
        Box::pin(async move {
            let mut face = sleeper.clock.face.subscribe();
            face.wait_for(|face| face.boot >= sleeper.sleep.due).await.map(drop).unwrap();
        })
    }
}

/// Chance that always comes out at one end, and never twice the same.
#[derive(Debug)]
pub struct Chance {
    most: bool,
}

impl Chance {
    /// Chance that makes delays as short as possible.
    pub fn least() -> Self {
        Self { most: false }
    }

    /// Chance that makes delays as long as possible, but for a microsecond.
    pub fn most() -> Self {
        Self { most: true }
    }
}

impl Entropy for Chance {
    fn bits(&self) -> u64 {
        static DRAWN: AtomicU64 = AtomicU64::new(1);
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
        if self.most { u64::MAX - drawn } else { drawn }
    }
}
