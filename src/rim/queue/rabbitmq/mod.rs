//! RabbitMQ: a queue to consume from, by AMQP 0-9-1.

mod arguments;
mod queue;
mod session;

pub use queue::RabbitQueue;
