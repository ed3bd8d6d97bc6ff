//! Sinks: the places where events are published.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
#[cfg(any(feature = "nats", feature = "sink-http"))]
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Payload;

/// An event as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The tenant that owns the event.
    pub tenant: Tenant,
    /// The id of the event, the same for ever: consumers drop an event of the tenant with a known id. Another tenant may have an
    /// event with the same id.
    pub id: String,
    /// The aggregate that the event is about.
    pub aggregate: String,
    /// The place of the event among those of its aggregate, from 1 on and without gaps.
    pub seq: i64,
    /// The kind of the event.
    pub kind: String,
    /// The content of the event, as canonical JSON.
    pub payload: Payload,
    /// The instant at which the event was written (UTC).
    pub created_at: Timestamp,
}

#[cfg(any(feature = "nats", feature = "sink-http"))]
impl Event {
    /// The maximum length of a [global id](Self::global_id), in bytes: that of an `Idempotency-Key` and of the id of a message.
    const LONGEST_GLOBAL_ID: usize = 255;

    /// An id that no event of any tenant shares, for receivers that know nothing of tenants. It can stand in a header.
    pub(crate) fn global_id(&self) -> String {
        let id = format!("{}/{}", self.tenant_part(), self.id);
        let is_plain = id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        if is_plain && id.len() <= Self::LONGEST_GLOBAL_ID {
            return id;
        }
        format!("sha256:{}", crate::payload::hex(&Sha256::digest(&id))) // it has no slash, so it is no id as above
    }

    /// The name of the tenant as the part of an id before a slash. A slash in it is escaped, because otherwise two tenants could
    /// share an id.
    pub(crate) fn tenant_part(&self) -> String {
        self.tenant.as_str().replace('%', "%25").replace('/', "%2F")
    }
}

/// A place where events are published: a broker, a webhook, another service.
///
/// ```
/// use counterfoil::outbox::{PublishResult, Event, Sink, SinkError};
///
/// struct Printer;
///
/// impl Sink for Printer {
///     async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
///         for event in batch {
///             println!("{} #{}: {} {}", event.aggregate, event.seq, event.kind, event.payload.as_str());
///         }
///         Ok(PublishResult::all())
///     }
/// }
/// let engine = counterfoil::Engine::sqlite("agents.db").sink(Printer);
/// ```
pub trait Sink: Send + Sync + 'static {
    /// Publishes events, those of one aggregate in their order in the batch. Events that the sink reports as taken are
    /// never offered again, unless this process dies before that is durable.
    ///
    /// # Errors
    /// [`SinkError`] if no event was taken: all are offered again, after a pause that grows. The error is about the
    /// connection or the sink as a whole, and sets no event aside; report a single event by [`PublishResult::except`].
    fn publish(&self, batch: &[Event]) -> impl Future<Output = Result<PublishResult, SinkError>> + Send;
}

/// A [`Sink`] as a trait object.
pub(crate) trait AnySink: Send + Sync {
    fn publish<'a>(&'a self, batch: &'a [Event]) -> BoxFuture<'a, Result<PublishResult, SinkError>>;
}

impl<S: Sink> AnySink for S {
    fn publish<'a>(&'a self, batch: &'a [Event]) -> BoxFuture<'a, Result<PublishResult, SinkError>> {
        Box::pin(Sink::publish(self, batch))
    }
}

/// The part of a batch that a sink has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct PublishResult {
    pub(super) failed: Vec<(usize, SinkError)>,
}

impl PublishResult {
    /// The result of a sink that has taken the whole batch.
    pub fn all() -> Self {
        Self::default()
    }

    /// The result without this event, by its place in the batch, and without the later events of its aggregate. May be
    /// called for several events.
    pub fn except(mut self, event: usize, error: SinkError) -> Self {
        self.failed.push((event, error));
        self
    }
}

/// The reason why an event, or a whole batch, was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SinkError {
    /// Description of the failure. The question about the event shows it: no secrets.
    pub message: String,
    /// True if the sink refuses this event: a further try will most likely be refused again.
    pub(super) refused: bool,
    pub(super) retry_after: Option<Duration>,
}

impl SinkError {
    /// An error of the connection, or of the sink as a whole. It is tried again for ever.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { message: message.into(), refused: false, retry_after: None }
    }

    /// A refusal of this event. After [its maximum number](super::Publisher::tries) of refusals the event is set aside.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), refused: true, retry_after: None }
    }

    /// True if the sink refuses this event.
    #[cfg(any(
        feature = "nats",
        feature = "sink-http",
        all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres"))
    ))]
    pub(crate) const fn is_refusal(&self) -> bool {
        self.refused
    }

    /// Sets the pause before the next try; obeyed up to 1 h.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
