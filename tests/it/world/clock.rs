//! Time and chance in the hands of the test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use counterfoil::clock::{Boot, Clock, Timestamp};
use counterfoil::id::Entropy;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};

/// Below this, a sleep is the queue's own breath and passes by itself.
const BREATH: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Sleeper {
    asked: Duration,
    due: Duration,
    wake: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Hands {
    wall: Timestamp,
    boot: Duration,
    sleepers: Vec<Sleeper>,
}

/// A clock that stands still until the test moves it. Wall and boot time can be moved apart.
#[derive(Clone, Debug)]
pub struct TestClock {
    hands: Arc<Mutex<Hands>>,
    /// Counts the sleepers that have come.
    came: watch::Sender<u64>,
}

impl Default for TestClock {
    fn default() -> Self {
        let hands = Hands {
            wall: Timestamp(1_700_000_000_000_000),
            boot: Duration::from_secs(1000),
            sleepers: vec![],
        };
        Self { hands: Arc::new(Mutex::new(hands)), came: watch::Sender::new(0) }
    }
}

impl TestClock {
    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap()
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, by: Duration) {
        self.jump_wall(by);
        let mut hands = self.hands();
        hands.boot += by;
        let now = hands.boot;
        let (due, rest) =
            std::mem::take(&mut hands.sleepers).into_iter().partition(|s: &Sleeper| s.due <= now);
        hands.sleepers = rest;
        drop(hands);
        for sleeper in due {
            let _ = sleeper.wake.send(());
        }
    }

    /// Somebody sets the wall clock; no time passes.
    pub fn jump_wall(&self, by: Duration) {
        let mut hands = self.hands();
        hands.wall = hands.wall.after(by);
    }

    /// Waits until somebody sleeps who asked for exactly so long.
    pub async fn slept(&self, asked: Duration) {
        let sleeps = |_: &u64| {
            let hands = self.hands();
            hands.sleepers.iter().any(|s| s.asked == asked && !s.wake.is_closed())
        };
        let waiting = self.came.subscribe();
        soon(format!("nobody sleeps for {asked:?}"), async {
            waiting.clone().wait_for(sleeps).await.map(drop)
        })
        .await;
    }
}

/// A test that waits for what does not come must fail, and say what that was.
#[allow(clippy::disallowed_methods, reason = "real time, because it is the test that is stuck")]
pub async fn soon<E: std::fmt::Debug>(otherwise: String, what: impl Future<Output = Result<(), E>>) {
    let came = tokio::time::timeout(Duration::from_secs(30), what).await;
    came.unwrap_or_else(|_| panic!("{otherwise}")).unwrap();
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.hands().wall
    }

    fn boot(&self) -> Boot {
        Boot(self.hands().boot)
    }

    fn sleep(&self, asked: Duration) -> BoxFuture<'static, ()> {
        if asked.is_zero() {
            return std::future::ready(()).boxed();
        }
        #[allow(clippy::disallowed_methods, reason = "the queue's own breath")]
        if asked < BREATH {
            return tokio::time::sleep(asked).boxed();
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut hands = self.hands();
            let due = hands.boot + asked;
            hands.sleepers.retain(|sleeper| !sleeper.wake.is_closed());
            hands.sleepers.push(Sleeper { asked, due, wake });
        }
        self.came.send_modify(|count| *count += 1);
        woken.map(|_| ()).boxed()
    }
}

/// Chance that always comes out at one end, and never twice the same.
#[derive(Debug)]
pub struct Chance {
    most: bool,
}

impl Chance {
    /// Delays of nothing.
    pub fn least() -> Self {
        Self { most: false }
    }

    /// Delays at their upper end, but for a microsecond.
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
