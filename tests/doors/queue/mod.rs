//! Queue consumers against real brokers, on both stores.

mod ledger;
mod lossy;
mod nats;
mod rabbitmq;
mod sink;
