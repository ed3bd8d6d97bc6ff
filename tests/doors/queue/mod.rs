//! Queue consumers against real brokers, on both stores.

mod cut;
mod ledger;
mod lossy;
mod nats;
mod sink;
