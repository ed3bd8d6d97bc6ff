//! Queue consumers: messages of a broker, each processed once. Features `nats` and `rabbitmq`.
//!
//! A broker delivers a message again when an acknowledgement is lost, when a consumer dies, and when the broker
//! restarts. A [`QueueConsumer`] carries out the handler's reaction to each message once, and acknowledges the
//! message after that is sealed in the ledger. A message that fails is given back with a growing pause; one that
//! never succeeds is set aside as an open question, and others proceed. Limits of the broker that are stricter than
//! those of the consumer are refused at the start, because a message that the broker stops delivering is lost
//! silently. The consumer has no memory of its own: the ledger decides, and the consumer translates.
//!
//! [`NatsQueue`] and [`RabbitQueue`] are the places that messages come from; [`Broker`] is the trait for another
//! broker.

mod broker;
mod consume;
mod consumer;
mod handling;
mod hands;
mod identity;
mod incoming;
mod limits;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;

pub use broker::{Broker, BrokerError};
pub use consumer::{Consuming, QueueConsumer, QueueError};
pub use incoming::Incoming;
pub use limits::{BrokerLimit, LimitProblem};
#[cfg(feature = "nats")]
pub use nats::{NatsQueue, NatsSink};
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitQueue;

unstable_core! {
    pub use broker::{BrokerDelivery, BrokerSession, OpenTerms};
    pub use limits::BrokerLimits;
}
