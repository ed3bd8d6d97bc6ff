//! Queue consumers.

mod broker;
mod consume;
mod consumer;
mod handling;
mod identity;
mod incoming;
mod limits;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;

pub use broker::{Broker, BrokerDelivery, BrokerError, BrokerSession, OpenTerms};
pub use consumer::{Consuming, QueueConsumer, QueueError};
pub use incoming::Incoming;
pub use limits::{BrokerLimit, BrokerLimits, LimitProblem};
#[cfg(feature = "nats")]
pub use nats::{NatsQueue, NatsSink};
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitQueue;
