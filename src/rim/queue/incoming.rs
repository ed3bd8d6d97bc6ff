//! A message as its handler gets it, from any broker.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

/// A received message. A clone is cheap.
///
/// ```
/// use counterfoil::queue::Incoming;
/// let message = Incoming::new("ORDERS", r#"{"number": 17}"#).id("evt-17").routed_by("orders.placed").header("Event-Sequence", "4");
/// assert_eq!(message.json::<serde_json::Value>()?["number"], 17);
/// assert_eq!(message.header_named("event-sequence"), Some("4"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Incoming {
    payload: Bytes,
    rest: Arc<Rest>,
}

#[derive(Clone, Debug, Default)]
struct Rest {
    source: String,
    partition: Option<String>,
    routing_key: Option<String>,
    id: Option<String>,
    sequence: Option<String>,
    deliveries: Option<u64>,
    redelivered: bool,
    headers: Vec<(String, String)>,
}

/// The methods for handlers.
impl Incoming {
    /// The content of the message.
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The content, parsed as JSON.
    ///
    /// # Errors
    /// If the content is not JSON, or has another form. Returned by a handler, the error counts as a failed try.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.payload)
    }

    /// The stream or queue that delivered the message.
    pub fn source(&self) -> &str {
        &self.rest.source
    }

    /// The partition of the stream, for a broker that has partitions.
    pub fn partition(&self) -> Option<&str> {
        self.rest.partition.as_deref()
    }

    /// The routing key from the sender: the subject of NATS, the routing key of RabbitMQ, the message key of other
    /// brokers.
    pub fn routing_key(&self) -> Option<&str> {
        self.rest.routing_key.as_deref()
    }

    /// The id from the sender.
    pub fn message_id(&self) -> Option<&str> {
        self.rest.id.as_deref()
    }

    /// The broker's own number of the message, if it is the same in every delivery.
    pub fn broker_sequence(&self) -> Option<&str> {
        self.rest.sequence.as_deref()
    }

    /// The number of deliveries by the broker, this one included, if the broker counts them. A hint and no proof: a
    /// delivery that nobody received is counted, and a restored broker has forgotten some.
    pub fn deliveries(&self) -> Option<u64> {
        self.rest.deliveries
    }

    /// True if the broker believes that it has delivered the message before. A hint and no proof, in both directions.
    pub fn is_redelivered(&self) -> bool {
        self.rest.redelivered || self.rest.deliveries.is_some_and(|deliveries| deliveries > 1)
    }

    /// The first header of this name, in upper or lower case.
    pub fn header_named(&self, name: &str) -> Option<&str> {
        let mut headers = self.rest.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// All headers whose values are text.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rest.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The methods for brokers, and for tests of handlers.
impl Incoming {
    /// A message from this stream or queue, with this content.
    pub fn new(source: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        let rest = Rest { source: source.into(), ..Rest::default() };
        Self { payload: payload.into(), rest: Arc::new(rest) }
    }

    /// Sets the id from the sender.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|rest| rest.id = Some(id.into()))
    }

    /// Sets the broker's number of the message. The number must be the same in every delivery, and must never be that
    /// of another message: if the stream can be deleted and created again, the number must distinguish the two
    /// streams.
    pub fn sequence(self, sequence: impl Into<String>) -> Self {
        self.with(|rest| rest.sequence = Some(sequence.into()))
    }

    /// Sets the partition.
    pub fn of_partition(self, partition: impl Into<String>) -> Self {
        self.with(|rest| rest.partition = Some(partition.into()))
    }

    /// Sets the routing key.
    pub fn routed_by(self, key: impl Into<String>) -> Self {
        self.with(|rest| rest.routing_key = Some(key.into()))
    }

    /// Sets the number of deliveries, this one included.
    pub fn delivered(self, deliveries: u64) -> Self {
        self.with(|rest| rest.deliveries = Some(deliveries))
    }

    /// Sets the broker's mark for a message that was delivered before.
    pub fn redelivered(self, redelivered: bool) -> Self {
        self.with(|rest| rest.redelivered = redelivered)
    }

    /// Adds a header to the message.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|rest| rest.headers.push((name.into(), value.into())))
    }

    fn with(mut self, change: impl FnOnce(&mut Rest)) -> Self {
        change(Arc::make_mut(&mut self.rest));
        self
    }
}
