//! The messages in hand, and those that wait for a free hand: while messages are handled quickly, the next ones are
//! fetched before a hand is free, so that no hand waits for the broker.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::broker::{BrokerDelivery, BrokerError, BrokerSession, answered};
use super::handling::{Fate, Handle, Terms};
use super::limits::keep_alive_every;
use crate::clock::Boot;
use crate::exec::OwnConnection;

/// The time ahead: as many messages are prefetched as are begun within it, judged by the last handled message.
const AHEAD: Duration = Duration::from_millis(250);
/// The maximum number of prefetched messages.
const MOST_AHEAD: usize = 64;
/// The time after which a prefetched message without a free hand goes back to the broker, for another consumer.
const WAITS: Duration = Duration::from_secs(1);

/// The hands of a consumer: the messages that may be handled concurrently, and the tasks that settle them.
pub(super) struct Hands {
    free: Arc<Semaphore>,
    /// The notification that a hand has become free.
    is_free: Arc<Notify>,
    pub(super) busy: TaskTracker,
    pub(super) stop: CancellationToken,
    /// The time that the last message took, in microseconds; `u64::MAX` before the first message.
    took: Arc<AtomicU64>,
}

impl Hands {
    pub(super) fn new(in_hand: usize, stop: CancellationToken) -> Self {
        let took = Arc::new(AtomicU64::new(u64::MAX));
        let (free, is_free) = (Arc::new(Semaphore::new(in_hand)), Arc::default());
        Self { free, is_free, busy: TaskTracker::new(), stop, took }
    }

    /// Receives messages until the consumer is stopped, or the session ends. Messages without a free hand then go
    /// back to the broker.
    pub(super) async fn receive_all<S: BrokerSession, C: OwnConnection + 'static>(
        &self,
        session: &mut S,
        terms: &Arc<Terms>,
        handler: &Handle<C>,
    ) -> Result<(), BrokerError> {
        let mut waiting = VecDeque::new();
        let ended = self.hand_out(session, terms, handler, &mut waiting).await;
        for (_, delivery) in waiting {
            self.gives_back(delivery, terms);
        }
        ended
    }

    async fn hand_out<S: BrokerSession, C: OwnConnection + 'static>(
        &self,
        session: &mut S,
        terms: &Arc<Terms>,
        handler: &Handle<C>,
        waiting: &mut VecDeque<(Boot, S::Delivery)>,
    ) -> Result<(), BrokerError> {
        let clock = terms.executor.clock();
        let keep_alive = keep_alive_every(session.limits());
        let delays = session.limits().delays;
        loop {
            while !waiting.is_empty()
                && let Ok(hand) = self.free.clone().try_acquire_owned()
                && let Some((_, delivery)) = waiting.pop_front()
            {
                let alive = KeptAlive { delivery, every: keep_alive, terms: terms.clone() };
                self.settles(alive, hand, handler.clone(), delays);
            }
            let room = self.free.available_permits() + self.ahead(terms.in_hand);
            let waits = waiting.front().map(|(since, _)| WAITS.saturating_sub(since.until(clock.boot())));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = self.is_free.notified() => {}
                received = session.receive(room.saturating_sub(waiting.len())) => {
                    waiting.push_back((clock.boot(), received?));
                }
                () = async { clock.sleep(waits.unwrap_or_default()).await }, if waits.is_some() => {
                    if let Some((_, delivery)) = waiting.pop_front() {
                        self.gives_back(delivery, terms);
                    }
                }
            }
        }
    }

    /// The number of messages that may be prefetched without a free hand.
    fn ahead(&self, in_hand: usize) -> usize {
        ahead(in_hand, Duration::from_micros(self.took.load(Ordering::Relaxed)))
    }

    /// Settles a message, in a separate task.
    fn settles<D: BrokerDelivery, C: OwnConnection + 'static>(
        &self,
        alive: KeptAlive<D>,
        hand: OwnedSemaphorePermit,
        handler: Handle<C>,
        delays: bool,
    ) {
        let (stop, took, is_free) = (self.stop.clone(), self.took.clone(), self.is_free.clone());
        self.busy.spawn(async move {
            let clock = alive.terms.executor.clock();
            let begun = clock.boot();
            let fate = alive.during(alive.terms.settle(alive.delivery.message(), &handler)).await;
            let micros = begun.until(clock.boot()).as_micros();
            took.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
            drop(hand);
            is_free.notify_one();
            if let (Fate::Again(after), false) = (&fate, delays) {
                // A consumer that ends gives paused messages back at once.
                let pause = async {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = clock.sleep(*after) => {}
                    }
                };
                alive.during(pause).await;
            }
            let KeptAlive { delivery, terms, .. } = alive;
            tell(delivery, if delays { fate } else { fate.at_once() }, &terms).await;
        });
    }

    /// Gives back a message that was not handled.
    fn gives_back<D: BrokerDelivery>(&self, delivery: D, terms: &Arc<Terms>) {
        let terms = terms.clone();
        self.busy.spawn(async move { tell(delivery, Fate::Again(Duration::ZERO), &terms).await });
    }
}

/// The number of messages that are begun within [`AHEAD`] if each takes the time `took`.
fn ahead(in_hand: usize, took: Duration) -> usize {
    let hands = u128::try_from(in_hand).unwrap_or(u128::MAX);
    let begun = AHEAD.as_micros().saturating_mul(hands) / took.as_micros().max(1);
    usize::try_from(begun).unwrap_or(MOST_AHEAD).min(MOST_AHEAD)
}

/// Reports the fate of a message to the broker.
async fn tell<D: BrokerDelivery>(delivery: D, fate: Fate, terms: &Terms) {
    let key = terms.described(delivery.message());
    let told = async {
        match fate {
            Fate::Done => delivery.acknowledge().await,
            Fate::SetAside(why) => delivery.set_aside(&why).await,
            Fate::Again(after) => delivery.give_back(after).await,
        }
    };
    if let Err(error) = answered(terms.executor.clock(), told).await.flatten() {
        tracing::debug!(message_id = key, %error, "broker not told of the outcome, it delivers the message again");
    }
}

/// A message whose time for the acknowledgement is extended at intervals.
struct KeptAlive<D> {
    delivery: D,
    every: Option<Duration>,
    terms: Arc<Terms>,
}

impl<D: BrokerDelivery> KeptAlive<D> {
    /// Runs the work, and extends the time for the acknowledgement meanwhile.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.keep_alive() => match never {},
        }
    }

    /// Extends the time for the acknowledgement at intervals, for ever.
    async fn keep_alive(&self) -> Infallible {
        let Some(every) = self.every else { return std::future::pending().await };
        loop {
            self.terms.executor.clock().sleep(every).await;
            if let Err(error) = self.delivery.keep_alive().await {
                tracing::debug!(%error, "acknowledgement deadline not extended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_fetched_ahead_only_while_they_are_handled_quickly() {
        let unknown = Duration::from_micros(u64::MAX);
        assert_eq!((ahead(1, unknown), ahead(16, unknown)), (0, 0));
        assert_eq!((ahead(1, AHEAD * 2), ahead(1, AHEAD), ahead(4, AHEAD)), (0, 1, 4));
        assert_eq!((ahead(1, Duration::ZERO), ahead(usize::MAX, AHEAD)), (MOST_AHEAD, MOST_AHEAD));
    }
}
