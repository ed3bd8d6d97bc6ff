//! Queue consumers against real brokers, on both stores.

mod example;
mod ledger;
mod lossy;
pub(crate) mod nats;
mod rabbitmq;
mod sink;
