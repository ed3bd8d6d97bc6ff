//! A clock that stands still until the test turns it, and that outlives the processes that read it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::clock::{Boot, Clock, Timestamp};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

#[derive(Debug, Default)]
struct Face {
    since: Duration,
    /// When those who sleep want to be woken.
    sleepers: Vec<Duration>,
}

/// The clock. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hands(Arc<watch::Sender<Face>>);

impl Hands {
    pub(crate) fn turn(&self, by: Duration) {
        self.0.send_modify(|face| face.since += by);
    }

    /// Resolves when so many sleep for so long from now.
    pub(crate) async fn asleep(&self, count: usize, by: RangeInclusive<Duration>) {
        let asleep = |face: &Face| {
            let left = face.sleepers.iter().filter_map(|at| at.checked_sub(face.since));
            left.filter(|left| by.contains(left)).count() >= count
        };
        self.0.subscribe().wait_for(asleep).await.map(drop).unwrap();
    }

    /// Resolves when somebody sleeps for exactly so long from now.
    pub(crate) async fn asleep_for(&self, by: Duration) {
        let asleep = |face: &Face| face.sleepers.contains(&(face.since + by));
        self.0.subscribe().wait_for(asleep).await.map(drop).unwrap();
    }
}

struct Sleeper(Hands, Duration);

impl Sleeper {
    fn until(hands: Hands, at: Duration) -> Self {
        hands.0.send_modify(|face| face.sleepers.push(at));
        Self(hands, at)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.0.send_modify(|face| {
            let found = face.sleepers.iter().position(|at| *at == self.1).unwrap();
            face.sleepers.swap_remove(found);
        });
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000_000).after(self.0.borrow().since)
    }

    fn boot(&self) -> Boot {
        Boot(self.0.borrow().since)
    }

    fn sleep(&self, by: Duration) -> BoxFuture<'static, ()> {
        let at = self.0.borrow().since.saturating_add(by);
        let sleeper = Sleeper::until(self.clone(), at);
        Box::pin(async move {
            let mut face = sleeper.0.0.subscribe();
            face.wait_for(|face| face.since >= at).await.map(drop).unwrap();
        })
    }
}
