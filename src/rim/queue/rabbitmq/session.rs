//! Consumption on a separate channel, with a prefetch that limits the unacknowledged messages.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Acker, Channel, Connection, Consumer};

use super::arguments::{integer, printed};
use crate::clock::SharedClock;
use crate::rim::queue::broker::{BrokerDelivery, BrokerError, BrokerSession, answered};
use crate::rim::queue::incoming::Incoming;
use crate::rim::queue::limits::BrokerLimits;

/// The reply code of an orderly end.
const DONE: u16 = 200;

/// A queue, as a session consumes it.
pub(super) struct Source {
    pub(super) queue: String,
    pub(super) limits: BrokerLimits,
    /// The maximum number of messages that the broker sends ahead.
    pub(super) prefetch: u16,
}

/// The consumer that the broker is asked to register.
type Opening = BoxFuture<'static, Result<Consumer, BrokerError>>;

/// A session of a queue of RabbitMQ.
pub struct RabbitSession {
    connection: Connection,
    channel: Channel,
    source: Source,
    clock: SharedClock,
    /// The consumer that was asked for and has no answer yet.
    opening: Option<Opening>,
    /// The consumer, once messages were asked for.
    consumer: Option<Consumer>,
}

impl std::fmt::Debug for RabbitSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitSession").field("queue", &self.source.queue).finish_non_exhaustive()
    }
}

impl RabbitSession {
    pub(super) const fn new(
        connection: Connection,
        channel: Channel,
        source: Source,
        clock: SharedClock,
    ) -> Self {
        Self { connection, channel, source, clock, opening: None, consumer: None }
    }

    /// The consumer. A dropped call keeps what it has asked for: the broker may have registered the consumer already, and
    /// would send messages to it that nobody receives.
    async fn consumer(&mut self) -> Result<&mut Consumer, BrokerError> {
        if let Some(consumer) = self.consumer.take() {
            return Ok(self.consumer.insert(consumer));
        }
        let opening = self
            .opening
            .get_or_insert_with(|| opening(self.channel.clone(), &self.source, self.clock.clone()));
        let opened = opening.await;
        self.opening = None;
        Ok(self.consumer.insert(opened?))
    }
}

/// Asks the broker to register a consumer. Each answer has a time limit of its own, because nobody may poll in between.
fn opening(channel: Channel, source: &Source, clock: SharedClock) -> Opening {
    let (queue, prefetch) = (source.queue.clone(), source.prefetch);
    Box::pin(async move {
        let limited = channel.basic_qos(prefetch, BasicQosOptions::default());
        answered(&clock, limited).await?.map_err(|error| told(&error))?;
        let (queue, options) = (queue.as_str().into(), BasicConsumeOptions::default());
        let registered = channel.basic_consume(queue, "".into(), options, FieldTable::default());
        answered(&clock, registered).await?.map_err(|error| told(&error))
    })
}

impl BrokerSession for RabbitSession {
    type Delivery = RabbitDelivery;

    fn limits(&self) -> &BrokerLimits {
        &self.source.limits
    }

    async fn receive(&mut self, room: usize) -> Result<RabbitDelivery, BrokerError> {
        if room == 0 {
            return std::future::pending().await; // the prefetched messages are enough
        }
        let queue = self.source.queue.clone();
        let consumer = self.consumer().await?;
        match consumer.next().await {
            Some(Ok(delivery)) => Ok(RabbitDelivery::of(&queue, delivery)),
            Some(Err(error)) => Err(told(&error)),
            None => Err(BrokerError::new("the broker has ended the consumer")),
        }
    }

    async fn stop(&mut self) {
        if let Some(opening) = self.opening.take() {
            self.consumer = opening.await.ok();
        }
        let Some(mut consumer) = self.consumer.take() else { return };
        if let Err(error) = self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await {
            tracing::debug!(%error, "broker not told that the consumer stops");
        }
        while let Some(Some(Ok(delivery))) = consumer.next().now_or_never() {
            let _ = RabbitDelivery::of(&self.source.queue, delivery).give_back(Duration::ZERO).await;
        }
    }

    async fn close(self) {
        // The channel closes after all acknowledgements on it; unacknowledged messages go back.
        if let Err(error) = self.channel.close(DONE, "".into()).await {
            tracing::debug!(%error, "last acknowledgements may be lost");
        }
        let _ = self.connection.close(DONE, "".into()).await;
    }
}

/// A message of a RabbitMQ queue.
#[derive(Debug)]
pub struct RabbitDelivery {
    message: Incoming,
    acker: Acker,
}

impl RabbitDelivery {
    fn of(queue: &str, delivery: Delivery) -> Self {
        let Delivery { routing_key, redelivered, properties, data, acker, .. } = delivery;
        let mut message =
            Incoming::new(queue, data).routed_by(routing_key.to_string()).redelivered(redelivered);
        if let Some(id) = properties.message_id() {
            message = message.id(id.to_string());
        }
        let standard = [
            ("content-type", properties.content_type()),
            ("content-encoding", properties.content_encoding()),
            ("correlation-id", properties.correlation_id()),
            ("type", properties.kind()),
            ("app-id", properties.app_id()),
        ];
        for (name, value) in standard {
            if let Some(value) = value {
                message = message.header(name, value.to_string());
            }
        }
        for (name, value) in properties.headers().iter().flatten() {
            // Quorum queues count the deliveries that were given back.
            if name.as_str() == "x-delivery-count"
                && let Some(count) = integer(value).and_then(|count| u64::try_from(count).ok())
            {
                message = message.delivered(count + 1);
            }
            if let Some(value) = printed(value) {
                message = message.header(name.to_string(), value);
            }
        }
        Self { message, acker }
    }
}

impl BrokerDelivery for RabbitDelivery {
    fn message(&self) -> &Incoming {
        &self.message
    }

    async fn acknowledge(self) -> Result<(), BrokerError> {
        sent(self.acker.ack(BasicAckOptions::default()).await)
    }

    async fn give_back(self, _after: Duration) -> Result<(), BrokerError> {
        sent(self.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await)
    }

    async fn set_aside(self, _why: &str) -> Result<(), BrokerError> {
        sent(self.acker.reject(BasicRejectOptions { requeue: false }).await)
    }

    async fn keep_alive(&self) -> Result<(), BrokerError> {
        Ok(()) // the limits declare that there is no keep-alive
    }
}

fn sent(sent: lapin::Result<bool>) -> Result<(), BrokerError> {
    match sent {
        Ok(true) => Ok(()),
        Ok(false) => Err(BrokerError::new("the channel of the message is closed")),
        Err(error) => Err(told(&error)),
    }
}

fn told(error: &lapin::Error) -> BrokerError {
    BrokerError::new(error.to_string())
}
