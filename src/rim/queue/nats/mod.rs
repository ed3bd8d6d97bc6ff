//! NATS JetStream: a durable pull consumer to consume from, and a sink that events of the outbox are published to.

mod queue;
mod session;
mod sink;

pub use queue::NatsQueue;
pub use sink::NatsSink;
