//! The life of a consumer: it receives messages until it is stopped, and opens the place again after the connection
//! was lost.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::broker::{Broker, BrokerError, BrokerSession, OpenTerms, answered};
use super::consumer::accepted;
use super::handling::{Handle, Terms};
use super::hands::Hands;
use super::limits::Needs;
use crate::clock::SharedClock;
use crate::exec::OwnConnection;

/// The place that messages come from, with the needs of its consumer.
pub(super) struct Place<B> {
    pub(super) broker: B,
    pub(super) open: OpenTerms,
    pub(super) needs: Needs,
}

/// Opens a place, within a time limit: a server may accept a connection and never answer.
pub(super) async fn opened<B: Broker>(broker: &B, terms: &OpenTerms) -> Result<B::Session, BrokerError> {
    answered(&terms.clock, Box::pin(broker.open(terms))).await?
}

/// Ends a session after all messages in hand are settled.
async fn ended<S: BrokerSession>(mut session: S, clock: &SharedClock, busy: &TaskTracker) {
    let stopped = answered(clock, session.stop()).await;
    busy.wait().await;
    let closed = answered(clock, session.close()).await;
    if let Err(error) = stopped.and(closed) {
        tracing::debug!(%error, "broker session not closed, broker closes it by itself");
    }
}

/// A place with an open session.
pub(super) struct Opened<B: Broker> {
    pub(super) place: Place<B>,
    pub(super) session: B::Session,
}

/// Consumes until the consumer is stopped and its messages in hand are settled.
pub(super) async fn consume<B: Broker, C: OwnConnection + 'static>(
    Opened { place, mut session }: Opened<B>,
    terms: Arc<Terms>,
    handler: Handle<C>,
    stop: CancellationToken,
) {
    let hands = Hands::new(terms.in_hand, stop);
    let open = loop {
        let Err(error) = hands.receive_all(&mut session, &terms, &handler).await else { break Some(session) };
        let (kind, source) = (B::KIND, place.broker.source());
        tracing::warn!(kind, source, %error, "broker connection lost, will reconnect");
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

/// Opens the place again, however long that takes. `None` if the consumer is stopped before.
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
                    tracing::info!(kind, source, "broker connection back");
                    return Some(session);
                }
                // The limits were changed while the connection was lost. No message is lost while none is consumed.
                Err(error) => {
                    tracing::error!(kind, source, %error, "broker limits refused, nothing is consumed");
                }
            },
            Err(error) => {
                let error: super::QueueError = error;
                tracing::warn!(kind, source, %error, "broker away, will retry");
            }
        }
        attempt = attempt.saturating_add(1).max(2);
    }
}
