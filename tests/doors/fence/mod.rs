//! The fence: against real Redis servers, and on both databases.

mod bad;
mod contract;
mod front;
mod lost;
mod refused;
pub(crate) mod server;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::fence::{FenceOnceError, FenceToken, FenceTtl, KeyFence, OnceAtFence, RedisFence};

use self::server::Redis;

const HOUR: Duration = Duration::from_hours(1);

fn token() -> FenceToken {
    FenceToken::draw()
}

/// A fence that waits for as long as a busy machine may take.
fn patient(redis: &Redis) -> RedisFence {
    RedisFence::new(&redis.url()).unwrap().time_limit(HOUR)
}

/// Something whose effects are counted.
#[derive(Clone, Default)]
struct Effect(Arc<AtomicU32>);

impl Effect {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Its first effect gives 1, its second one 2.
    async fn once(
        &self,
        fence: &impl KeyFence,
        key: &str,
    ) -> Result<OnceAtFence<u32>, FenceOnceError<Infallible>> {
        let count = self.0.clone();
        let make = async move || Ok(count.fetch_add(1, Ordering::SeqCst) + 1);
        fence.once(key, FenceTtl { pending: HOUR, sealed: HOUR }, make).await
    }
}

const fn now(value: u32) -> OnceAtFence<u32> {
    OnceAtFence::Now { value, remembered: true }
}
