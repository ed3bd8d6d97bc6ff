//! The interface between the consumer and a broker, whichever it is. No broker's client is known here.

use std::future::Future;
use std::time::Duration;

use super::incoming::Incoming;
use super::limits::{BrokerLimit, BrokerLimits};
use crate::clock::SharedClock;

/// A broker must have answered after this time. Its client may leave a call without an answer when the connection is lost in the middle.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// One place in a broker that messages are consumed from: a consumer of a stream, a queue.
///
/// [`NatsQueue`](super::NatsQueue) and [`RabbitQueue`](super::RabbitQueue) are two. A broker of your own is a third: what it promises
/// is in the words of these three traits, and [`BrokerLimits`] says what it does not.
pub trait Broker: Send + Sync + 'static {
    /// Consumption from opening to the first error of the connection.
    type Session: BrokerSession;

    /// The kind of broker as logs name it: `nats`.
    const KIND: &'static str;

    /// The name of the stream or queue, unique within the broker.
    fn source(&self) -> &str;

    /// The name of the setting behind a limit, in the words of the broker's documentation, for messages that say what to change.
    fn setting(&self, limit: BrokerLimit) -> String;

    /// Reads the limits and begins to consume. The loop opens the place again after each error of a session.
    ///
    /// # Errors
    /// If the broker cannot be reached, or there is no such place.
    fn open(&self, terms: &OpenTerms) -> impl Future<Output = Result<Self::Session, BrokerError>> + Send;
}

/// The terms that a session is opened with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenTerms {
    /// Number of messages that are handled at the same time.
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

    /// The next message. `room` is the number of messages that there is room for: the session must not ask the broker for more. Zero
    /// of them: it asks for none, and gives what it has asked for before. A call that is dropped loses no message.
    ///
    /// # Errors
    /// If the session is over: the connection was closed, the place was deleted. Messages in hand may still be settled.
    fn receive(&mut self, room: usize) -> impl Future<Output = Result<Self::Delivery, BrokerError>> + Send;

    /// Asks for no more messages. What has arrived and was not received goes back to the broker at once.
    fn stop(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns when what was said about messages has been sent. What is in hand then may be delivered to others.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A message that this consumer is to settle. One that is dropped without a word is delivered again by the broker.
pub trait BrokerDelivery: Send + Sync + 'static {
    /// The message.
    fn message(&self) -> &Incoming;

    /// Its effect is sealed: the broker need not keep it.
    ///
    /// # Errors
    /// If the broker was not told. It delivers the message again, and the ledger answers.
    fn acknowledge(self) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// It is to be delivered again, not before `after`. A broker whose limits say that it does not
    /// [delay](BrokerLimits::delays) is always given zero.
    ///
    /// # Errors
    /// If the broker was not told. It delivers the message again when the time for its acknowledgement is over.
    fn give_back(self, after: Duration) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// It is to be delivered no more, and kept where a person finds it. `why` holds the id of the question about it.
    ///
    /// # Errors
    /// If the broker was not told. It delivers the message again, and the ledger answers that it is set aside.
    fn set_aside(self, why: &str) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// It is still being handled: the time for its acknowledgement begins anew.
    ///
    /// # Errors
    /// If the broker was not told. The handler goes on.
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
    /// With this message, which is logged.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// The broker's answer, if it gives one.
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
