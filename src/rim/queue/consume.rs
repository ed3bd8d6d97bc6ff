//! The consumer's loop: receives while there is room, hands each message to a task of its own, and opens the place again when the
//! connection was lost.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::broker::{Broker, BrokerDelivery, BrokerError, BrokerSession, OpenTerms, answered};
use super::consumer::accepted;
use super::handling::{Fate, Handle, Terms};
use super::limits::{Needs, keep_alive_every};
use crate::clock::SharedClock;
use crate::exec::OwnConnection;

/// Where messages come from, and what is asked of it.
pub(super) struct Place<B> {
    pub(super) broker: B,
    pub(super) open: OpenTerms,
    pub(super) needs: Needs,
}

/// Opens a place. A server that takes a connection and says nothing must not hold it for ever.
pub(super) async fn opened<B: Broker>(broker: &B, terms: &OpenTerms) -> Result<B::Session, BrokerError> {
    answered(&terms.clock, Box::pin(broker.open(terms))).await?
}

/// Ends a session when all that is in hand is settled.
async fn ended<S: BrokerSession>(mut session: S, clock: &SharedClock, busy: &TaskTracker) {
    let stopped = answered(clock, session.stop()).await;
    busy.wait().await;
    let closed = answered(clock, session.close()).await;
    if let Err(error) = stopped.and(closed) {
        tracing::debug!(%error, "the session was not closed in order, the broker closes it by itself");
    }
}

/// Until it is stopped, and what was in hand then is settled.
pub(super) async fn consume<B: Broker, C: OwnConnection + 'static>(
    place: Place<B>,
    terms: Arc<Terms>,
    handler: Handle<C>,
    mut session: B::Session,
    stop: CancellationToken,
) {
    let hands = Hands { free: Arc::new(Semaphore::new(terms.in_hand)), busy: TaskTracker::new(), stop };
    let open = loop {
        let Err(error) = hands.receive_all(&mut session, &terms, &handler).await else { break Some(session) };
        let (kind, source) = (B::KIND, place.broker.source());
        tracing::warn!(kind, source, %error, "the connection to the broker was lost, it is opened again");
        drop(session);
        match reopen(&place, &terms, &hands.stop).await {
            Some(opened) => session = opened,
            None => break None,
        }
    };
    hands.busy.close();
    match open {
        Some(session) => ended(session, &place.open.clock, &hands.busy).await,
        None => hands.busy.wait().await,
    }
}

/// Opens the place again, for as long as that takes. None if the consumer is stopped before.
async fn reopen<B: Broker>(place: &Place<B>, terms: &Terms, stop: &CancellationToken) -> Option<B::Session> {
    let mut attempt = 1;
    loop {
        let pause = terms.backoff.delay(attempt, terms.executor.entropy().bits());
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            () = terms.executor.clock().sleep(pause) => {}
        }
        let opened = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            opened = opened(&place.broker, &place.open) => opened,
        };
        let (kind, source) = (B::KIND, place.broker.source());
        match opened.map_err(Into::into) {
            Ok(session) => match accepted(&place.broker, &place.needs, session.limits()) {
                Ok(()) => {
                    tracing::info!(kind, source, "the connection to the broker is open again");
                    return Some(session);
                }
                // Somebody has changed them while the connection was away. Nothing is lost while nothing is consumed.
                Err(error) => tracing::error!(kind, source, %error, "the limits of the broker are refused"),
            },
            Err(error) => {
                let error: super::QueueError = error;
                tracing::warn!(kind, source, %error, "the broker cannot be reached, tried again");
            }
        }
        attempt = attempt.saturating_add(1).max(2);
    }
}

/// The messages in hand: how many more there may be, and the tasks that settle them.
struct Hands {
    free: Arc<Semaphore>,
    busy: TaskTracker,
    stop: CancellationToken,
}

impl Hands {
    /// Until the consumer is stopped, or the session is over.
    async fn receive_all<S: BrokerSession, C: OwnConnection + 'static>(
        &self,
        session: &mut S,
        terms: &Arc<Terms>,
        handler: &Handle<C>,
    ) -> Result<(), BrokerError> {
        let keep_alive = keep_alive_every(session.limits());
        let delays = session.limits().delays;
        loop {
            let received = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                received = self.receive(session) => received,
            };
            let (delivery, hand) = received?;
            let (terms, handler, stop) = (terms.clone(), handler.clone(), self.stop.clone());
            self.busy.spawn(async move {
                let alive = KeptAlive { delivery: &delivery, every: keep_alive, terms: &terms };
                let fate = alive.during(terms.settle(delivery.message(), &handler)).await;
                drop(hand);
                if let (Fate::Again(after), false) = (&fate, delays) {
                    // A consumer that ends gives back what is paused at once.
                    let pause = async {
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => {}
                            () = terms.executor.clock().sleep(*after) => {}
                        }
                    };
                    alive.during(pause).await;
                }
                let key = terms.described(delivery.message());
                let told = async {
                    match fate {
                        Fate::Done => delivery.acknowledge().await,
                        Fate::SetAside(why) => delivery.set_aside(&why).await,
                        Fate::Again(after) => {
                            delivery.give_back(if delays { after } else { Duration::ZERO }).await
                        }
                    }
                };
                if let Err(error) = answered(terms.executor.clock(), told).await.flatten() {
                    tracing::debug!(message = key, %error, "the broker was not told, it delivers the message again");
                }
            });
        }
    }

    /// The next message, when there is a hand free for it.
    async fn receive<S: BrokerSession>(
        &self,
        session: &mut S,
    ) -> Result<(S::Delivery, OwnedSemaphorePermit), BrokerError> {
        let closed = |_| BrokerError::new("the consumer has ended");
        let hand = self.free.clone().acquire_owned().await.map_err(closed)?;
        let delivery = session.receive(1 + self.free.available_permits()).await?;
        Ok((delivery, hand))
    }
}

/// A message whose time for the acknowledgement begins anew from time to time.
struct KeptAlive<'a, D> {
    delivery: &'a D,
    every: Option<Duration>,
    terms: &'a Terms,
}

impl<D: BrokerDelivery> KeptAlive<'_, D> {
    /// The work goes on while the broker is told.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.keep_alive() => match never {},
        }
    }

    /// Tells the broker from time to time, for ever.
    async fn keep_alive(&self) -> Infallible {
        let Some(every) = self.every else { return std::future::pending().await };
        loop {
            self.terms.executor.clock().sleep(every).await;
            if let Err(error) = self.delivery.keep_alive().await {
                tracing::debug!(%error, "a message was not kept alive");
            }
        }
    }
}
