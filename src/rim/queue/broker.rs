//! The interface between the consumer and any broker. This file depends on no broker's client.

use std::future::Future;
use std::time::Duration;

use super::incoming::Incoming;
use super::limits::{BrokerLimit, BrokerLimits};
use crate::clock::SharedClock;

/// The time limit for an answer of a broker. A client may never finish a call if the connection is lost in the
/// middle.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// One place in a broker that messages are consumed from: a consumer of a stream, a queue.
///
/// [`NatsQueue`](super::NatsQueue) and [`RabbitQueue`](super::RabbitQueue) implement it. For a broker of your own,
/// these three traits define the promises that it must keep, and [`BrokerLimits`] declares the ones that it does not
/// keep.
pub trait Broker: Send + Sync + 'static {
    /// Consumption from opening to the first error of the connection.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    type Session: BrokerSession;

    /// The kind of broker as logs name it: `nats`.
    const KIND: &'static str;

    /// The name of the stream or queue, unique within the broker.
    fn source(&self) -> &str;

    /// The name of the setting behind a limit, in the words of the broker's documentation, for messages that say what to change.
    fn setting(&self, limit: BrokerLimit) -> String;

    /// Reads the limits and begins to consume. The consumer opens the place again after each error of a session.
    ///
    /// # Errors
    /// If the broker cannot be reached, or there is no such place.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    fn open(&self, terms: &OpenTerms) -> impl Future<Output = Result<Self::Session, BrokerError>> + Send;
}

/// The terms that a session is opened with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenTerms {
    /// The number of messages that are handled concurrently.
    pub in_hand: usize,
    /// The ledger's clock.
    pub clock: SharedClock,
}

impl OpenTerms {
    pub(super) const fn new(in_hand: usize, clock: SharedClock) -> Self {
        Self { in_hand, clock }
    }
}

/// Consumption from a place, until the first error.
pub trait BrokerSession: Send + 'static {
    /// A message that this consumer is to settle.
    type Delivery: BrokerDelivery;

    /// The limits as they were when the session was opened.
    fn limits(&self) -> &BrokerLimits;

    /// Receives the next message. `room` is the number of messages that there is room for: the session must not ask
    /// the broker for more. With zero, the session asks for none, and returns messages that it has asked for before.
    /// A dropped call loses no message.
    ///
    /// # Errors
    /// If the session has ended: the connection was closed, the place was deleted. Messages in hand may still be
    /// settled.
    fn receive(&mut self, room: usize) -> impl Future<Output = Result<Self::Delivery, BrokerError>> + Send;

    /// Stops asking for messages. Messages that have arrived and were not received go back to the broker at once.
    fn stop(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns after all acknowledgements have been sent. Messages in hand may then be delivered to others.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A message that this consumer is to settle. If it is dropped unsettled, the broker delivers it again.
pub trait BrokerDelivery: Send + Sync + 'static {
    /// The content of the message.
    fn message(&self) -> &Incoming;

    /// Acknowledges the message: its effect is sealed, and the broker need not keep it.
    ///
    /// # Errors
    /// If the broker did not get the acknowledgement. It delivers the message again, and the ledger answers.
    fn acknowledge(self) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Requests a redelivery, not before `after`. For a broker whose limits declare that it does not
    /// [delay](BrokerLimits::delays), `after` is always zero.
    ///
    /// # Errors
    /// If the broker did not get the request. It delivers the message again when the time for its acknowledgement is
    /// over.
    fn give_back(self, after: Duration) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Ends the delivery of the message, which must be kept where a person finds it. `why` holds the id of the
    /// question about it.
    ///
    /// # Errors
    /// If the broker did not get the request. It delivers the message again, and the ledger answers that it is set
    /// aside.
    fn set_aside(self, why: &str) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Extends the time for the acknowledgement, which begins again, because the message is still being handled.
    ///
    /// # Errors
    /// If the broker did not get the request. The handler continues.
    fn keep_alive(&self) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// The reason why a broker did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BrokerError {
    /// The message, without secrets: it is logged.
    pub message: String,
}

impl BrokerError {
    /// An error with this message, which is logged.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// The broker's answer, or an error after the time limit.
pub(super) async fn answered<T>(
    clock: &SharedClock,
    call: impl Future<Output = T>,
) -> Result<T, BrokerError> {
    tokio::select! {
        biased;
        answer = call => Ok(answer),
        () = clock.sleep(ANSWERS_WITHIN) => {
            Err(BrokerError::new(format!("the broker did not answer within {ANSWERS_WITHIN:?}")))
        }
    }
}
