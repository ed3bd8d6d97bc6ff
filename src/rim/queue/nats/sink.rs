//! A sink on JetStream: each event under its id, and the events of one aggregate one after the other.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::future::join_all;

use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};

/// The server's error code for a message that is larger than the stream allows.
const MESSAGE_TOO_LARGE: u64 = 10_054;

/// Publishes each event to a subject in NATS JetStream, and waits until the stream has stored it. Feature `nats`.
///
/// The payload is the event's, as JSON. `Nats-Msg-Id` is made of the tenant and the id of the event (`acme/order/17/paid`, or a
/// SHA-256 if that is long), because the id is unique within its tenant only: within the stream's `duplicate_window` an event that
/// is published twice is stored once, and after it consumers recognize the event by that id. `Event-Tenant`, `Event-Id`,
/// `Event-Aggregate`, `Event-Sequence`, `Event-Kind` and `Event-Created-At` (microseconds UTC) hold the rest. Events of one aggregate are published in their order, several aggregates concurrently.
///
/// ```no_run
/// # async fn engine() -> Result<(), Box<dyn std::error::Error>> {
/// use counterfoil::{Engine, queue::NatsSink};
///
/// let nats = async_nats::connect("nats://127.0.0.1:4222").await?;
/// let sink = NatsSink::new(async_nats::jetstream::new(nats), |event| format!("orders.{}", event.kind));
/// let engine = Engine::sqlite("agents.db").sink(sink);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct NatsSink {
    jetstream: Context,
    subject: Arc<dyn Fn(&Event) -> String + Send + Sync>,
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").finish_non_exhaustive()
    }
}

impl NatsSink {
    /// A sink that publishes to the subject which the function returns for an event. A stream must capture the
    /// subject.
    ///
    /// The time limit for an event is the client's request timeout: an event without an acknowledgement by then is
    /// published again.
    pub fn new(jetstream: Context, subject: impl Fn(&Event) -> String + Send + Sync + 'static) -> Self {
        Self { jetstream, subject: Arc::new(subject) }
    }

    /// A number below `partitions` for an aggregate, always the same: as a part of the subject it lets several
    /// consumers keep the order of each aggregate, each with `max_ack_pending: 1`.
    ///
    /// ```
    /// use counterfoil::queue::NatsSink;
    /// assert_eq!(NatsSink::partition("order/17", 8), NatsSink::partition("order/17", 8));
    /// assert!(NatsSink::partition("order/17", 8) < 8);
    /// ```
    pub fn partition(aggregate: &str, partitions: u32) -> u32 {
        // FNV-1a: the function must never change, and must not depend on the build.
        let hash = aggregate.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        u32::try_from(hash % u64::from(partitions.max(1))).unwrap_or_default()
    }

    async fn store(&self, event: &Event) -> Result<(), SinkError> {
        let message = PublishMessage::build()
            .headers(headers(event)?)
            .payload(Bytes::copy_from_slice(event.payload.as_str().as_bytes()));
        let sent = self.jetstream.send_publish((self.subject)(event), message).await;
        sent.map_err(|error| sorted(&error))?.await.map_err(|error| sorted(&error))?;
        Ok(())
    }
}

impl Sink for NatsSink {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let mut aggregates = BTreeMap::<_, Vec<_>>::new();
        for (place, event) in batch.iter().enumerate() {
            aggregates.entry((&event.tenant, &event.aggregate)).or_default().push((place, event));
        }
        let stored = join_all(aggregates.into_values().map(async |events| {
            for (done, (place, event)) in events.iter().enumerate() {
                if let Err(error) = self.store(event).await {
                    return (done, Some((*place, error)));
                }
            }
            (events.len(), None)
        }));
        let stored = stored.await;
        // The server is unreachable: the sink as a whole is deferred, and the failure counts against no event.
        let nothing = stored.iter().all(|(done, failed)| {
            *done == 0 && failed.as_ref().is_some_and(|(_, error)| !error.is_refusal())
        });
        let mut failed = stored.into_iter().filter_map(|(_, failed)| failed);
        if nothing && let Some((_, error)) = failed.next() {
            return Err(error);
        }
        Ok(failed.fold(PublishResult::all(), |acked, (place, error)| acked.except(place, error)))
    }
}

fn headers(event: &Event) -> Result<HeaderMap, SinkError> {
    let mut headers = HeaderMap::new();
    let texts = [
        ("Nats-Msg-Id", event.global_id()),
        ("Event-Tenant", event.tenant.as_str().to_owned()),
        ("Event-Id", event.id.clone()),
        ("Event-Aggregate", event.aggregate.clone()),
        ("Event-Sequence", event.seq.to_string()),
        ("Event-Kind", event.kind.clone()),
        ("Event-Created-At", event.created_at.0.to_string()),
    ];
    for (name, text) in texts {
        let value: Result<async_nats::HeaderValue, _> = text.parse();
        let value =
            value.map_err(|_| SinkError::refused(format!("{text:?} cannot stand in the header {name}")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The error of the sink: a refusal if the event itself is at fault, unavailability otherwise.
fn sorted(error: &PublishError) -> SinkError {
    let said = error.to_string();
    let own_fault = match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => true,
        PublishErrorKind::Other => {
            let source = error.source();
            let server = source.and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>());
            let too_large = server.is_some_and(|server| server.error_code().0 == MESSAGE_TOO_LARGE);
            let subject = source.is_some_and(<dyn std::error::Error>::is::<async_nats::SubjectError>);
            too_large || subject
        }
        _ => false,
    };
    if own_fault { SinkError::refused(said) } else { SinkError::unavailable(said) }
}
