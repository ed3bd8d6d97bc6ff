//! A durable pull consumer of a JetStream stream, and the limits in its configuration.

use std::fmt::{self, Display};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Config as ConsumerConfig, PullConsumer};
use async_nats::jetstream::stream::{Config as StreamConfig, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{Context, stream::Stream};
use serde_json::{Value, json};

use super::session::{NatsSession, Place, Pulls};
use crate::rim::queue::broker::{Broker, BrokerError, OpenTerms};
use crate::rim::queue::limits::{BrokerLimit, BrokerLimits};

/// The default idle time after which the server deletes a consumer without a durable name.
const EPHEMERAL: Duration = Duration::from_secs(5);

/// A durable pull consumer of a stream in NATS JetStream. Feature `nats`.
///
/// The stream and the consumer must exist; the operator of the broker creates them. Their limits are read at each
/// opening. A message is identified by its `Nats-Msg-Id`, or else by its sequence in the stream.
///
/// ```no_run
/// # async fn consumes(executor: counterfoil::Executor, acme: counterfoil::Tenant) -> Result<(), Box<dyn std::error::Error>> {
/// use counterfoil::door::Reaction;
/// use counterfoil::queue::{Incoming, NatsQueue, QueueConsumer};
/// use sqlx::SqliteConnection;
///
/// let nats = async_nats::connect("nats://127.0.0.1:4222").await?;
/// let orders = NatsQueue::new(async_nats::jetstream::new(nats), "ORDERS", "billing");
/// let consuming = QueueConsumer::new(&executor, &acme, "billing", orders)
///     .start(async |message: Incoming| {
///         let number: i64 = message.json()?;
///         Ok::<_, serde_json::Error>(Reaction::transaction(move |db: &mut SqliteConnection| Box::pin(async move {
///             sqlx::query("INSERT INTO invoice (number) VALUES (?)").bind(number).execute(db).await.map(drop)
///         })))
///     })
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct NatsQueue {
    jetstream: Context,
    stream: String,
    consumer: String,
    aside: Option<String>,
}

impl fmt::Debug for NatsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsQueue")
            .field("stream", &self.stream)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl NatsQueue {
    /// The durable pull consumer of this name, on this stream.
    pub fn new(jetstream: Context, stream: impl Into<String>, consumer: impl Into<String>) -> Self {
        Self { jetstream, stream: stream.into(), consumer: consumer.into(), aside: None }
    }

    /// Sets a subject of another stream to which a message is copied before it is set aside. Needed if the stream
    /// deletes acknowledged messages: work queues, and streams that keep messages only while a consumer is
    /// interested. The copy has the headers of the message without those of NATS, the sender's id as
    /// `Counterfoil-Message-Id`, and the reason as `Counterfoil-Set-Aside`.
    #[must_use]
    pub fn set_aside_to(mut self, subject: impl Into<String>) -> Self {
        self.aside = Some(subject.into());
        self
    }

    fn failed(&self, what: &str) -> impl Fn(&dyn Display) -> BrokerError {
        let place = format!("consumer {} of the stream {} of NATS", self.consumer, self.stream);
        let what = what.to_owned();
        move |error| BrokerError::new(format!("{place}: {what}: {error}"))
    }

    /// The time at which the stream was created: the sequence begins again when the stream is deleted and created
    /// again.
    async fn made(&self) -> Result<String, BrokerError> {
        let info = self.jetstream.request(format!("STREAM.INFO.{}", self.stream), &json!({})).await;
        let info: Value = info.map_err(|error| self.failed("the stream cannot be read")(&error))?;
        match info["created"].as_str() {
            Some(created) => Ok(created.to_owned()),
            None => Err(self.failed("the stream cannot be read")(&info["error"]["description"])),
        }
    }
}

impl Broker for NatsQueue {
    type Session = NatsSession;

    const KIND: &'static str = "nats";

    fn source(&self) -> &str {
        &self.stream
    }

    fn setting(&self, limit: BrokerLimit) -> String {
        let Self { stream, consumer, .. } = self;
        match limit {
            BrokerLimit::Deliveries => format!("`max_deliver: -1` of the consumer {consumer},"),
            BrokerLimit::AcknowledgeWithin => {
                format!("`ack_wait` of the consumer {consumer} (or its `backoff`)")
            }
            BrokerLimit::KeptFor => format!("`max_age` of the stream {stream}"),
            BrokerLimit::DropsWhenFull => format!(
                "`discard: new` of the stream {stream}, so that its publishers are refused, or `may_drop_when_full` of the \
                 consumer here"
            ),
            BrokerLimit::ForgetsAfter => {
                format!("a `durable_name` and no `inactive_threshold` for the consumer {consumer}")
            }
            BrokerLimit::KeepsSetAside => format!(
                "`NatsQueue::set_aside_to` with a subject of another stream, for the stream {stream} deletes what is settled"
            ),
            BrokerLimit::InOrder => format!("`max_ack_pending: 1` of the consumer {consumer}"),
        }
    }

    async fn open(&self, terms: &OpenTerms) -> Result<NatsSession, BrokerError> {
        let stream = self.jetstream.get_stream(&self.stream).await;
        let stream: Stream = stream.map_err(|error| self.failed("the stream cannot be read")(&error))?;
        let consumer: Result<PullConsumer, _> = stream.get_consumer(&self.consumer).await;
        let consumer = consumer.map_err(|error| self.failed("no pull consumer can be read")(&error))?;
        let config = &consumer.cached_info().config;
        if config.ack_policy != AckPolicy::Explicit {
            return Err(self.failed("it cannot be used")(&"its `ack_policy` is not `explicit`"));
        }
        if config.headers_only {
            return Err(self.failed("it cannot be used")(
                &"with `headers_only` messages come without their content",
            ));
        }
        let limits = limits(config, &stream.cached_info().config, self.aside.is_some());
        let place = Place {
            jetstream: self.jetstream.clone(),
            stream: consumer.cached_info().stream_name.clone(),
            consumer: self.consumer.clone(),
            made: self.made().await?,
            aside: self.aside.clone(),
        };
        let pulls = Pulls::within(config);
        let opened = NatsSession::open(place, consumer, pulls, limits).await;
        let opened = opened.map_err(|error| self.failed("it cannot be consumed")(&error))?;
        Ok(opened.timed_by(terms.clock.clone()))
    }
}

/// The limits in the configuration of a consumer and its stream. Zero and negative values mean unlimited.
fn limits(consumer: &ConsumerConfig, stream: &StreamConfig, has_aside: bool) -> BrokerLimits {
    // A `backoff` overrides `ack_wait`, one delivery at a time.
    let wait = consumer.backoff.iter().min().copied().unwrap_or(consumer.ack_wait);
    let idle = consumer.inactive_threshold;
    BrokerLimits {
        deliveries: u64::try_from(consumer.max_deliver).ok().filter(|times| *times > 0),
        acknowledge_within: Some(wait),
        keeps_alive: true,
        delays: true,
        kept_for: (stream.max_age > Duration::ZERO).then_some(stream.max_age),
        drops_when_full: drops_when_full(stream),
        forgets_after: match consumer.durable_name {
            Some(_) => (idle > Duration::ZERO).then_some(idle),
            None => Some(idle.max(EPHEMERAL)),
        },
        keeps_set_aside: stream.retention == RetentionPolicy::Limits || has_aside,
        in_order: consumer.max_ack_pending == 1,
    }
}

fn drops_when_full(stream: &StreamConfig) -> Option<String> {
    let limits = [
        ("max_msgs", stream.max_messages),
        ("max_bytes", stream.max_bytes),
        ("max_msgs_per_subject", stream.max_messages_per_subject),
    ];
    let set: Vec<_> = limits.iter().filter(|(_, limit)| *limit > 0).collect();
    if set.is_empty() || stream.discard == DiscardPolicy::New && stream.max_messages_per_subject <= 0 {
        return None;
    }
    let set = set.iter().map(|(name, limit)| format!("`{name}` is {limit}")).collect::<Vec<_>>().join(", ");
    Some(format!("{set}, and the oldest go first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> ConsumerConfig {
        ConsumerConfig {
            durable_name: Some("billing".to_owned()),
            ack_wait: Duration::from_secs(30),
            max_deliver: -1,
            ..ConsumerConfig::default()
        }
    }

    #[test]
    fn what_is_unlimited_is_told_from_what_ends() {
        let read = limits(&durable(), &StreamConfig::default(), false);
        assert_eq!((read.deliveries, read.kept_for, read.forgets_after), (None, None, None));
        assert_eq!(read.acknowledge_within, Some(Duration::from_secs(30)));
        assert!(read.keeps_set_aside && read.drops_when_full.is_none() && !read.in_order, "{read:?}");
        let ends = ConsumerConfig {
            max_deliver: 5,
            backoff: vec![Duration::from_secs(9), Duration::from_secs(2)],
            durable_name: None,
            max_ack_pending: 1,
            ..durable()
        };
        let stream = StreamConfig { max_age: Duration::from_mins(1), ..StreamConfig::default() };
        let read = limits(&ends, &stream, false);
        assert_eq!((read.deliveries, read.kept_for), (Some(5), Some(Duration::from_mins(1))));
        assert_eq!(
            read.acknowledge_within,
            Some(Duration::from_secs(2)),
            "`backoff` stands in for `ack_wait`"
        );
        assert!(read.forgets_after.is_some() && read.in_order, "{read:?}");
    }

    #[test]
    fn a_stream_that_deletes_what_is_settled_needs_another_place() {
        let work = StreamConfig { retention: RetentionPolicy::WorkQueue, ..StreamConfig::default() };
        assert!(!limits(&durable(), &work, false).keeps_set_aside);
        assert!(limits(&durable(), &work, true).keeps_set_aside);
    }

    #[test]
    fn a_full_stream_that_refuses_its_publishers_drops_nothing() {
        let full = |discard, per_subject| StreamConfig {
            max_messages: 10,
            max_messages_per_subject: per_subject,
            discard,
            ..StreamConfig::default()
        };
        assert!(drops_when_full(&full(DiscardPolicy::Old, 0)).is_some());
        assert!(drops_when_full(&full(DiscardPolicy::New, 0)).is_none());
        assert!(
            drops_when_full(&full(DiscardPolicy::New, 1)).is_some(),
            "the newest of a subject replaces the one before"
        );
        assert!(drops_when_full(&StreamConfig::default()).is_none());
    }
}
