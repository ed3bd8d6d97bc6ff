//! Where events go.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Payload;

/// An event as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Whose it is.
    pub tenant: Tenant,
    /// Which event it is, for ever: consumers drop one that they know.
    pub id: String,
    /// What it is about.
    pub aggregate: String,
    /// Its place among the events of its aggregate, from 1 and without gaps.
    pub seq: i64,
    /// What happened.
    pub kind: String,
    /// What there is to say about it: canonical JSON.
    pub payload: Payload,
    /// When it was written (UTC).
    pub created_at: Timestamp,
}

/// Where events are published: a broker, a webhook, another service.
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
    /// Publishes events, those of one aggregate in the order in which they stand. What it says to have taken is never
    /// offered again, unless this process dies before that is durable.
    ///
    /// # Errors
    /// If none of them was taken: all are offered again, after a pause that grows. It is said of the way there, and sets no
    /// event aside; about a single event say so in [`PublishResult::except`].
    fn publish(&self, batch: &[Event]) -> impl Future<Output = Result<PublishResult, SinkError>> + Send;
}

/// The same, as it is handed around.
pub(crate) trait AnySink: Send + Sync {
    fn publish<'a>(&'a self, batch: &'a [Event]) -> BoxFuture<'a, Result<PublishResult, SinkError>>;
}

impl<S: Sink> AnySink for S {
    fn publish<'a>(&'a self, batch: &'a [Event]) -> BoxFuture<'a, Result<PublishResult, SinkError>> {
        Box::pin(Sink::publish(self, batch))
    }
}

/// What a sink has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct PublishResult {
    pub(super) failed: Vec<(usize, SinkError)>,
}

impl PublishResult {
    /// All of the batch.
    pub fn all() -> Self {
        Self::default()
    }

    /// All but this one, by its place in the batch, and those of its aggregate behind it. Said of several events, all of
    /// them.
    pub fn except(mut self, event: usize, error: SinkError) -> Self {
        self.failed.push((event, error));
        self
    }
}

/// Why an event, or a whole batch, was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SinkError {
    /// What happened. It is shown to whoever is asked about the event, so no secrets.
    pub message: String,
    /// It is the event's own fault: tried again, it will most likely be refused again.
    pub(super) refused: bool,
    pub(super) retry_after: Option<Duration>,
}

impl SinkError {
    /// The way there, or the other side as a whole: tried again for ever.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { message: message.into(), refused: false, retry_after: None }
    }

    /// The other side does not want this event. After [so many](super::Publisher::tries) times it is set aside.
    pub fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), refused: true, retry_after: None }
    }

    /// It is the event's own fault.
    #[cfg(any(
        feature = "nats",
        feature = "sink-http",
        all(feature = "sink-sql", any(feature = "sqlite", feature = "postgres"))
    ))]
    pub(crate) const fn is_refusal(&self) -> bool {
        self.refused
    }

    /// Not before this time has passed; obeyed up to an hour.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
