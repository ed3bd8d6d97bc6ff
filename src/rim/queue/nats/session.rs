//! Consumption by pull requests: the session never asks for more messages than there is room for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::consumer::{Config, PullConsumer};
use async_nats::jetstream::message::{AckKind, Acker, Message};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{Context, message::PublishMessage};
use async_nats::{HeaderMap, StatusCode, Subject, Subscriber};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::clock::{SharedClock, SystemClock};
use crate::rim::queue::broker::{BrokerDelivery, BrokerError, BrokerSession};
use crate::rim::queue::incoming::Incoming;
use crate::rim::queue::limits::BrokerLimits;

/// The time after which the server ends a pull request; the session then makes another one.
const EXPIRES: Duration = Duration::from_secs(30);
/// The interval at which the server confirms that a pull request is alive.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The silence of the server after which the session is over, in ticks.
const SILENT_TICKS: u32 = 10;
/// The interval between checks of the client's connection: after a reconnection the server has forgotten the pull
/// requests.
const TICK: Duration = Duration::from_millis(500);
/// The header with the reason, on the copy of a message that is set aside.
const WHY: &str = "Counterfoil-Set-Aside";
/// The header with the sender's id, on the copy of a message that is set aside.
const MESSAGE_ID: &str = "Counterfoil-Message-Id";
/// The beginning of the headers that tell the server what to do with a message.
const OF_NATS: &str = "Nats-";

/// The limits of a pull request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulls {
    /// The maximum number of messages in one request.
    batch: usize,
    expires: Duration,
}

impl Pulls {
    /// The limits that the consumer's configuration allows.
    pub(super) fn within(config: &Config) -> Self {
        let allowed = usize::try_from(config.max_batch).ok().filter(|batch| *batch > 0);
        let longest = Some(config.max_expires).filter(|longest| *longest > Duration::ZERO);
        Self { batch: allowed.unwrap_or(usize::MAX), expires: longest.unwrap_or(EXPIRES).min(EXPIRES) }
    }
}

/// A session of a JetStream consumer.
pub struct NatsSession {
    jetstream: Context,
    consumer: PullConsumer,
    limits: BrokerLimits,
    pulls: Pulls,
    inbox: Subject,
    messages: Subscriber,
    /// The number of messages that were asked for and have not arrived.
    asked: usize,
    /// The number of ticks in a row without a word of the server, while messages are asked for.
    silent: u32,
    /// The client's count of connections at the opening.
    connects: u64,
    clock: SharedClock,
    place: Arc<Place>,
}

/// The data of a session that each of its deliveries needs.
pub(super) struct Place {
    pub(super) jetstream: Context,
    pub(super) stream: String,
    pub(super) consumer: String,
    pub(super) made: String,
    pub(super) aside: Option<String>,
}

impl std::fmt::Debug for NatsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsSession").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl NatsSession {
    pub(super) async fn open(
        place: Place,
        consumer: PullConsumer,
        pulls: Pulls,
        limits: BrokerLimits,
    ) -> Result<Self, async_nats::SubscribeError> {
        let jetstream = place.jetstream.clone();
        let client = jetstream.client();
        let inbox = Subject::from(client.new_inbox());
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        let messages = client.subscribe(inbox.clone()).await?;
        let clock: SharedClock = Arc::new(SystemClock);
        Ok(Self {
            jetstream,
            consumer,
            limits,
            pulls,
            inbox,
            messages,
            asked: 0,
            silent: 0,
            connects,
            clock,
            place: Arc::new(place),
        })
    }

    pub(super) fn timed_by(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Asks for as many messages as there is room for, unless most of them have been asked for already.
    async fn pull(&mut self, room: usize) -> Result<(), BrokerError> {
        let more = room.saturating_sub(self.asked).min(self.pulls.batch);
        if more == 0 || self.asked > room / 2 {
            return Ok(());
        }
        let request = BatchConfig {
            batch: more,
            expires: Some(self.pulls.expires),
            idle_heartbeat: HEARTBEAT.min(self.pulls.expires / 3),
            ..BatchConfig::default()
        };
        let asked = self.consumer.request_batch(request, self.inbox.clone()).await;
        asked.map_err(|error| BrokerError::new(format!("messages cannot be asked for: {error}")))?;
        self.asked += more;
        Ok(())
    }

    /// Reads a message, or a status of the server about the pull requests.
    fn take(&mut self, message: async_nats::Message) -> Result<Option<NatsDelivery>, BrokerError> {
        self.silent = 0;
        let Some(status) = message.status.filter(|status| *status != StatusCode::OK) else {
            self.asked = self.asked.saturating_sub(1);
            return NatsDelivery::of(message, &self.place).map(Some);
        };
        if status == StatusCode::IDLE_HEARTBEAT {
            return Ok(None);
        }
        let pending = message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages"));
        match pending.and_then(|pending| pending.as_str().parse::<usize>().ok()) {
            // A pull request has ended, and this number of its messages will not come.
            Some(pending) => {
                self.asked = self.asked.saturating_sub(pending);
                Ok(None)
            }
            None => {
                let said = message.description.unwrap_or_default();
                Err(BrokerError::new(format!("the server ends the pull request: {status} {said}")))
            }
        }
    }

    fn has_connected_anew(&self) -> bool {
        self.jetstream.client().statistics().connects.load(Ordering::Relaxed) != self.connects
    }
}

impl BrokerSession for NatsSession {
    type Delivery = NatsDelivery;

    fn limits(&self) -> &BrokerLimits {
        &self.limits
    }

    async fn receive(&mut self, room: usize) -> Result<NatsDelivery, BrokerError> {
        loop {
            self.pull(room).await?;
            let tick = self.clock.sleep(TICK);
            tokio::select! {
                biased;
                message = self.messages.next() => match message {
                    Some(message) => if let Some(delivery) = self.take(message)? {
                        return Ok(delivery);
                    },
                    None => return Err(BrokerError::new("the client of NATS was closed")),
                },
                () = tick => {
                    // Without a pull request the server has nothing to say: all hands are busy.
                    self.silent = if self.asked > 0 { self.silent + 1 } else { 0 };
                    if self.has_connected_anew() || self.silent > SILENT_TICKS {
                        return Err(BrokerError::new("the connection to the server was lost"));
                    }
                }
            }
        }
    }

    async fn stop(&mut self) {
        if let Err(error) = self.messages.unsubscribe().await {
            tracing::debug!(%error, "pull requests not taken back, they expire");
        }
        // Messages in flight to this client would otherwise wait until the time for their acknowledgement is over.
        if let Err(error) = self.jetstream.client().flush().await {
            tracing::debug!(%error, "broker not told that the consumer stops");
        }
        while let Some(Some(message)) = self.messages.next().now_or_never() {
            if let Ok(Some(delivery)) = self.take(message) {
                let _ = delivery.give_back(Duration::ZERO).await;
            }
        }
    }

    async fn close(self) {
        // Acknowledgements are written to the client's buffer only, so the buffer is flushed.
        if let Err(error) = self.jetstream.client().flush().await {
            tracing::debug!(%error, "last acknowledgements may be lost");
        }
    }
}

/// A message of a JetStream consumer.
pub struct NatsDelivery {
    message: Incoming,
    acker: Acker,
    original: async_nats::Message,
    place: Arc<Place>,
}

impl std::fmt::Debug for NatsDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsDelivery")
            .field("sequence", &self.message.broker_sequence())
            .finish_non_exhaustive()
    }
}

impl NatsDelivery {
    fn of(message: async_nats::Message, place: &Arc<Place>) -> Result<Self, BrokerError> {
        let message = Message { message, context: place.jetstream.clone() };
        let unreadable =
            |error| BrokerError::new(format!("a message is not one of a JetStream consumer: {error}"));
        let info = message.info().map_err(unreadable)?;
        let deliveries = u64::try_from(info.delivered).unwrap_or_default();
        let sequence = format!("{}@{}", info.stream_sequence, place.made);
        let (original, acker) = message.split();
        let mut incoming = Incoming::new(&*place.stream, original.payload.clone())
            .routed_by(original.subject.as_str())
            .sequence(sequence)
            .delivered(deliveries);
        for (name, values) in original.headers.iter().flat_map(HeaderMap::iter) {
            for value in values {
                incoming = incoming.header(name.to_string(), value.as_str());
            }
        }
        let id =
            original.headers.as_ref().and_then(|headers| headers.get(async_nats::header::NATS_MESSAGE_ID));
        if let Some(id) = id {
            incoming = incoming.id(id.as_str());
        }
        Ok(Self { message: incoming, acker, original, place: place.clone() })
    }

    async fn say(&self, kind: AckKind) -> Result<(), BrokerError> {
        self.acker.ack_with(kind).await.map_err(|error| BrokerError::new(error.to_string()))
    }

    /// The headers of the copy of a message that is set aside. Those of NATS were meant for the original: they would have the
    /// copy refused, expire, or replace other copies.
    fn headers_of_copy(&self, why: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, values) in self.original.headers.iter().flat_map(HeaderMap::iter) {
            let is_of_nats = name.to_string().to_ascii_lowercase().starts_with(&OF_NATS.to_ascii_lowercase());
            for value in values.iter().filter(|_| !is_of_nats) {
                headers.append(name.clone(), value.clone());
            }
        }
        headers.insert(WHY, why);
        if let Some(id) = self.message.message_id() {
            headers.insert(MESSAGE_ID, id);
        }
        headers
    }

    /// Copies a message that is set aside, and waits until the copy is stored.
    async fn copy(&self, subject: &str, why: &str) -> Result<PublishAck, BrokerError> {
        let headers = self.headers_of_copy(why);
        let copy = PublishMessage::build().headers(headers).payload(self.original.payload.clone());
        // The place of the message is the id of its copy, so that a message set aside twice is stored once. Two messages may
        // have one id of their senders, in two streams or after a while, and are two copies.
        let Place { stream, consumer, .. } = &*self.place;
        let id = format!("{stream}/{consumer}/{}", self.message.broker_sequence().unwrap_or_default());
        let failed =
            |error: &dyn std::fmt::Display| BrokerError::new(format!("copying to {subject}: {error}"));
        let copied = self.place.jetstream.send_publish(subject.to_owned(), copy.message_id(id)).await;
        copied.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))
    }
}

impl BrokerDelivery for NatsDelivery {
    fn message(&self) -> &Incoming {
        &self.message
    }

    async fn acknowledge(self) -> Result<(), BrokerError> {
        self.say(AckKind::Ack).await
    }

    async fn give_back(self, after: Duration) -> Result<(), BrokerError> {
        self.say(AckKind::Nak((after > Duration::ZERO).then_some(after))).await
    }

    async fn set_aside(self, why: &str) -> Result<(), BrokerError> {
        if let Some(subject) = &self.place.aside
            && let Err(error) = self.copy(subject, why).await
        {
            // The message stays in its stream, and is set aside again after its redelivery.
            self.say(AckKind::Nak(Some(Duration::from_secs(30)))).await?;
            return Err(error);
        }
        self.say(AckKind::Term).await
    }

    async fn keep_alive(&self) -> Result<(), BrokerError> {
        self.say(AckKind::Progress).await
    }
}
