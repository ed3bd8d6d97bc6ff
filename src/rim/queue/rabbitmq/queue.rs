//! A queue of RabbitMQ, as its host says that it is declared.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use super::arguments::{DeadLetters, dead_letters, limits};
use super::session::RabbitSession;
use crate::rim::queue::broker::{Broker, BrokerError, OpenTerms};
use crate::rim::queue::limits::BrokerLimit;

/// How long RabbitMQ waits for an acknowledgement unless its `consumer_timeout` says otherwise.
const CONSUMER_TIMEOUT: Duration = Duration::from_mins(30);
/// Messages that may wait for their next delivery, beside those that are handled.
const WAITING: u16 = 32;

type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<Connection, lapin::Error>> + Send + Sync>;

/// A durable queue of RabbitMQ. Feature `rabbitmq`.
///
/// The queue is declared with the arguments that are given here; where it is there already, RabbitMQ compares them and refuses others.
/// So they are the queue's real ones, and its limits can be read from them. A policy of the broker is not seen: give no queue of this
/// consumer a `message-ttl`, a `max-length` or a `delivery-limit` by policy.
///
/// A message is known by its `message-id`. RabbitMQ has no number of its own that lasts: one without an id is set aside, unless the
/// consumer has a [`key`](super::super::QueueConsumer::key) for it. What is set aside is rejected, and goes where the queue's dead
/// letters go.
///
/// RabbitMQ cannot delay a message. One that failed is kept for its pause and then given back, unacknowledged meanwhile; a
/// connection that is lost ends the pause. Nor does it know a keep-alive: it closes the channel of a consumer that has not
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
    /// The queue of this name, at the broker of this AMQP URI, declared with these arguments.
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

    /// The same by connections of your own, each a new one: with certificates, another authentication, a name.
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

    /// The `consumer_timeout` of the broker, which no client can read: 30 minutes unless it is said.
    #[must_use]
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.acknowledge_within = timeout;
        self
    }

    /// Says that the broker has no delivery limit for this queue although its arguments name one or none: RabbitMQ 3, where quorum
    /// queues are unlimited unless they say otherwise.
    #[must_use]
    pub fn without_delivery_limit(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// The number of failed messages that may wait for their next delivery at the same time; 32 unless it is said. When so many wait,
    /// they hold back others, until the first pause is over.
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
        Ok(RabbitSession::new(connection, channel, self.queue.clone(), limits, prefetch, terms.clock.clone()))
    }

    /// The place for dead letters must be there: RabbitMQ drops what it cannot route.
    async fn find_dead_letters(&self, channel: &Channel) -> Result<(), lapin::Error> {
        match dead_letters(&self.arguments) {
            Some(DeadLetters::Exchange(exchange)) => {
                let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let kind = ExchangeKind::Fanout; // not looked at
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
