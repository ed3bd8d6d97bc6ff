//! A queue of RabbitMQ, with the arguments that its host declares.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use super::arguments::{DeadLetters, dead_letters, limits};
use super::session::{RabbitSession, Source};
use crate::rim::queue::broker::{Broker, BrokerError, OpenTerms};
use crate::rim::queue::limits::BrokerLimit;

/// The default `consumer_timeout` of RabbitMQ: the time for an acknowledgement.
const CONSUMER_TIMEOUT: Duration = Duration::from_mins(30);
/// The default number of messages that may wait for their next delivery, besides those in hand.
const WAITING: u16 = 32;

type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<Connection, lapin::Error>> + Send + Sync>;

/// A durable queue of RabbitMQ. Feature `rabbitmq`.
///
/// The queue is declared with the arguments that are given here; if it exists, RabbitMQ compares them and refuses
/// different ones. So they are the real arguments of the queue, and its limits can be read from them. A policy of the
/// broker is invisible here: set no `message-ttl`, `max-length` or `delivery-limit` for a queue of this consumer by
/// policy.
///
/// A message is identified by its `message-id`. RabbitMQ has no lasting number of its own: a message without an id is
/// set aside, unless the consumer has a [`key`](super::super::QueueConsumer::key) for it. A message that is set aside
/// is rejected, and goes to the queue's dead letters.
///
/// RabbitMQ cannot delay a message. A failed message is kept unacknowledged for its pause and then given back; a lost
/// connection ends the pause. RabbitMQ has no keep-alive either: it closes the channel of a consumer that has not
/// acknowledged within its `consumer_timeout`.
///
/// ```no_run
/// # async fn consumes(executor: counterfoil::Executor, acme: counterfoil::Tenant) -> Result<(), Box<dyn std::error::Error>> {
/// use counterfoil::door::Reaction;
/// use counterfoil::queue::{Incoming, QueueConsumer, RabbitQueue};
/// use lapin::types::{AMQPValue, FieldTable};
/// use sqlx::SqliteConnection;
///
/// let mut arguments = FieldTable::default(); // as the queue is declared everywhere
/// arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("orders-aside".into()));
/// let orders = RabbitQueue::new("amqp://guest:guest@127.0.0.1:5672/%2f", "orders", arguments);
/// let consuming = QueueConsumer::new(&executor, &acme, "billing", orders)
///     .start(async |message: Incoming| Ok::<_, String>(Reaction::<SqliteConnection>::ignore()))
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RabbitQueue {
    connect: Connect,
    queue: String,
    arguments: FieldTable,
    acknowledge_within: Duration,
    unlimited: bool,
    waiting: u16,
}

impl fmt::Debug for RabbitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitQueue").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl RabbitQueue {
    /// The queue of this name, on the broker of this AMQP URI, declared with these arguments.
    ///
    /// Built without TLS: for `amqps` add lapin 4 with one of its TLS features to your own dependencies.
    pub fn new(uri: impl Into<String>, queue: impl Into<String>, arguments: FieldTable) -> Self {
        let uri = uri.into();
        let connect = move || {
            let uri = uri.clone();
            async move { Connection::connect(&uri, ConnectionProperties::default()).await }.boxed()
        };
        Self::with(connect, queue, arguments)
    }

    /// The queue by connections of your own, a new one at each call: with certificates, another authentication, a
    /// name.
    pub fn with(
        connect: impl Fn() -> BoxFuture<'static, Result<Connection, lapin::Error>> + Send + Sync + 'static,
        queue: impl Into<String>,
        arguments: FieldTable,
    ) -> Self {
        Self {
            connect: Arc::new(connect),
            queue: queue.into(),
            arguments,
            acknowledge_within: CONSUMER_TIMEOUT,
            unlimited: false,
            waiting: WAITING,
        }
    }

    /// Sets the `consumer_timeout` of the broker, which no client can read. Default: 30 minutes.
    #[must_use]
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.acknowledge_within = timeout;
        self
    }

    /// Declares that the broker has no delivery limit for this queue although its arguments name one or none:
    /// RabbitMQ 3, where quorum queues are unlimited by default.
    #[must_use]
    pub fn without_delivery_limit(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// Sets the number of failed messages that may wait for their next delivery concurrently. Default: 32. When this
    /// number waits, they hold back others, until the first pause is over.
    #[must_use]
    pub fn waiting(mut self, messages: u16) -> Self {
        self.waiting = messages;
        self
    }

    async fn opened(&self, terms: &OpenTerms) -> Result<RabbitSession, lapin::Error> {
        let connection = (self.connect)().await?;
        let channel = connection.create_channel().await?;
        let declared = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.queue.as_str().into(), declared, self.arguments.clone()).await?;
        self.find_dead_letters(&channel).await?;
        let limits = limits(&self.arguments, self.acknowledge_within, self.unlimited);
        let in_hand = u16::try_from(terms.in_hand).unwrap_or(u16::MAX);
        let prefetch = in_hand.saturating_add(self.waiting);
        let source = Source { queue: self.queue.clone(), limits, prefetch };
        Ok(RabbitSession::new(connection, channel, source, terms.clock.clone()))
    }

    /// Checks that the target of dead letters exists: RabbitMQ drops messages that it cannot route.
    async fn find_dead_letters(&self, channel: &Channel) -> Result<(), lapin::Error> {
        match dead_letters(&self.arguments) {
            Some(DeadLetters::Exchange(exchange)) => {
                let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let kind = ExchangeKind::Fanout; // ignored in a passive declaration
                channel.exchange_declare(exchange.into(), kind, passive, FieldTable::default()).await
            }
            Some(DeadLetters::Queue(queue)) => {
                let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(queue.into(), passive, FieldTable::default()).await.map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Broker for RabbitQueue {
    type Session = RabbitSession;

    const KIND: &'static str = "rabbitmq";

    fn source(&self) -> &str {
        &self.queue
    }

    fn setting(&self, limit: BrokerLimit) -> String {
        let queue = &self.queue;
        match limit {
            BrokerLimit::Deliveries => format!(
                "`x-delivery-limit: -1` of the queue {queue} (RabbitMQ 3: no such argument, and \
                 `RabbitQueue::without_delivery_limit`),"
            ),
            BrokerLimit::AcknowledgeWithin => {
                "`consumer_timeout` of the broker, and `RabbitQueue::consumer_timeout` as it is there,"
                    .to_owned()
            }
            BrokerLimit::KeptFor => format!("`x-message-ttl` of the queue {queue}"),
            BrokerLimit::DropsWhenFull => format!(
                "`x-overflow: reject-publish` of the queue {queue}, so that its publishers are refused, or \
                 `may_drop_when_full` of the consumer here"
            ),
            BrokerLimit::ForgetsAfter => format!("no `x-expires` for the queue {queue}"),
            BrokerLimit::KeepsSetAside => format!(
                "`x-dead-letter-exchange` of the queue {queue} (if it is the default one, with an \
                 `x-dead-letter-routing-key`), and bind a queue there"
            ),
            BrokerLimit::InOrder => {
                "no `in_order`: RabbitMQ delivers what was given back when it can".to_owned()
            }
        }
    }

    async fn open(&self, terms: &OpenTerms) -> Result<RabbitSession, BrokerError> {
        self.opened(terms).await.map_err(|error| {
            BrokerError::new(format!("queue {} of RabbitMQ: it cannot be consumed: {error}", self.queue))
        })
    }
}
