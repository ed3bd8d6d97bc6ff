//! Kills at random moments, and the seed that repeats them.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use counterfoil::id::{Entropy as _, SystemEntropy};
use counterfoil::{Clock as _, SystemClock};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::full;
use crate::harness::process::{Process, Program};

/// Seeded, so that a failure can be repeated as nearly as processes can.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The one that is to be repeated, or another one.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("COUNTERFOIL_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| SystemEntropy.bits() % 1_000_000)
}

/// Strikes under one seed, and with `COUNTERFOIL_FULL=1` under the next ones until there were so many strikes. Returns how many there were.
pub(crate) async fn struck(enough: u32, strike: impl AsyncFn(u64) -> u32) -> u32 {
    let mut seed = seed();
    let mut struck = strike(seed).await;
    while full() && struck < enough {
        seed += 1;
        struck += strike(seed).await;
    }
    struck
}

/// Kills the process of this role after so many milliseconds, and starts it again, until all who send to it are through. The last life
/// goes on. The senders see how often it was killed: a fast machine is done before that was often, and they go on until it was.
pub(crate) async fn killed_while<T>(
    role: &impl Serialize,
    senders: &[JoinHandle<T>],
    kills: &AtomicU32,
    pauses: Range<u64>,
) -> Process {
    let seed = seed();
    let (mut chance, begun) = (Chance(seed), SystemClock.boot());
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    let mut life = program.start(role).unwrap();
    while !senders.iter().all(JoinHandle::is_finished) {
        let lived = begun.until(SystemClock.boot());
        assert!(lived < Duration::from_mins(8), "COUNTERFOIL_SEED={seed}: stuck after {kills:?} kills");
        // Lives get longer with each minute: on a machine that is busy with other things, they must not be too short for any to get on.
        let pause = (pauses.start + chance.below(pauses.end - pauses.start)) * (1 + lived.as_secs() / 60);
        SystemClock.sleep(Duration::from_millis(pause)).await;
        life.kill_and_wait().await.unwrap();
        life = program.start(role).unwrap();
        kills.fetch_add(1, Relaxed);
    }
    println!("COUNTERFOIL_SEED={seed}: {kills:?} kills");
    life
}
