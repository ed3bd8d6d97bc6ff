//! Rows about queue consumers: the cost of processing each message of NATS JetStream once.
//!
//! One server and one stream with two consumers: ours, and a raw one that pulls, inserts a row, and acknowledges. Both
//! find the same messages waiting, and are measured from their start until the broker holds nothing for them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull::{Config as ConsumerConfig, Stream as Pulled};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{self, Context};
use counterfoil::door::Reaction;
use counterfoil::queue::{Incoming, NatsQueue, QueueConsumer};
use counterfoil::{Executor, Tenant};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Mutex;

use crate::messages::{ENTER, Own, TABLES};
use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::report::{Finding, Values};
use crate::server::{self, Daemon};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of messages in a round.
const MESSAGES: usize = 1000;
const STREAM: &str = "FIGURES";
const OURS: &str = "ours";
const RAW: &str = "raw";

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    // A file has one writer: several raw connections would wait for each other.
    [(1, 1), (16, 1)]
        .into_iter()
        .map(|(hands, raw)| consumed::<SqliteConnection>(options, Database::Sqlite, "nats", hands, raw))
        .collect()
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    let measure =
        |hands| consumed::<sqlx::PgConnection>(options, Database::Postgres, "postgres-nats", hands, hands);
    [1, 16].into_iter().map(measure).collect()
}

/// Measures our consumer with `hands` messages in flight, against `raw_hands` raw connections.
fn consumed<C: Own + Send>(
    options: &Options,
    database: Database,
    name: &'static str,
    hands: usize,
    raw_hands: usize,
) -> Result<Finding, String> {
    let home = Home::of(database, options)?;
    let (subjects, raws) = multi_thread().block_on(async {
        let nats = Broker::start().await;
        let place = home.place("subject");
        let engine = subject::engine(&place).await;
        C::open(&place).await.run(TABLES[0]).await.expect("a table");
        let mut raw = connections::<C>(&home.place("raw"), raw_hands).await;
        let (mut subjects, mut raws) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            nats.publish(round).await;
            let subject = nats.processed::<C>(&engine.executor(), hands).await;
            let row;
            (raw, row) = nats.inserted(raw).await;
            if round > 0 {
                subjects.push(subject);
                raws.push(row);
            }
        }
        engine.shutdown(subject::DRAIN).await;
        (subjects, raws)
    });
    let measure = format!(
        "NATS: messages processed once, {hands} in hand ÷ pulled, inserted and acknowledged, {raw_hands} at once"
    );
    let (subject, raw) = (Values::new("/s", subjects), Values::new("/s", raws));
    Ok(Finding::ratio(name, measure, subject, raw).at_least(0.5, 0.8))
}

async fn connections<C: Own>(place: &Place, count: usize) -> Vec<C> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(C::open(place).await);
    }
    connections[0].run(TABLES[0]).await.expect("a table");
    connections
}

/// A server with a stream and its two consumers.
struct Broker {
    _server: Daemon,
    nats: Context,
}

impl Broker {
    async fn start() -> Self {
        let server = Daemon::start(server::nats).await;
        let client = async_nats::ConnectOptions::new().retry_on_initial_connect();
        let client = client.connect(format!("nats://127.0.0.1:{}", server.port())).await.expect("a client");
        let nats = jetstream::new(client);
        let subjects = vec!["figures".to_owned()];
        let stream = StreamConfig { name: STREAM.to_owned(), subjects, ..StreamConfig::default() };
        let stream = nats.create_stream(stream).await.expect("a stream");
        for name in [OURS, RAW] {
            let consumer = ConsumerConfig {
                durable_name: Some(name.to_owned()),
                ack_policy: AckPolicy::Explicit,
                ack_wait: Duration::from_mins(1),
                max_deliver: -1,
                ..ConsumerConfig::default()
            };
            stream.create_consumer(consumer).await.expect("a consumer");
        }
        Self { _server: server, nats }
    }

    async fn publish(&self, round: usize) {
        let sent = (0..MESSAGES).map(async |number| {
            let message = PublishMessage::build().message_id(format!("{round}-{number}"));
            let message = message.payload(number.to_string().into());
            self.nats.send_publish("figures", message).await.expect("sent").await.expect("stored");
        });
        join_all(sent).await;
    }

    async fn consumer(&self, name: &str) -> PullConsumer {
        self.nats.get_consumer_from_stream(name, STREAM).await.expect("a consumer")
    }

    /// Waits until the broker holds nothing for this consumer any more.
    async fn settled(&self, name: &str) {
        let mut consumer = self.consumer(name).await;
        loop {
            let info = consumer.info().await.expect("an answer");
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Messages per second by our consumer.
    async fn processed<C: Own>(&self, executor: &Executor, hands: usize) -> f64 {
        let tenant = Tenant::new(TENANT).expect("a tenant");
        let queue = NatsQueue::new(self.nats.clone(), STREAM, OURS);
        let enters = async |_: Incoming| {
            Ok::<_, std::convert::Infallible>(Reaction::transaction(|db: &mut C| db.run(ENTER)))
        };
        let start = Instant::now();
        let consumer = QueueConsumer::new(executor, &tenant, "figures", queue).in_hand(hands);
        let consuming = consumer.start(enters).await.expect("a consumer");
        self.settled(OURS).await;
        let seconds = start.elapsed().as_secs_f64();
        assert!(consuming.shutdown(subject::DRAIN).await, "nothing is in hand");
        MESSAGES as f64 / seconds
    }

    /// Messages per second by the raw consumer.
    async fn inserted<C: Own + Send>(&self, connections: Vec<C>) -> (Vec<C>, f64) {
        let start = Instant::now();
        let pulled = self.consumer(RAW).await.messages().await.expect("messages");
        let (pulled, left) = (Arc::new(Mutex::new(pulled)), Arc::new(AtomicUsize::new(MESSAGES)));
        let hands =
            connections.into_iter().map(|own| tokio::spawn(insert(own, pulled.clone(), left.clone())));
        let connections = join_all(hands).await.into_iter().map(|own| own.expect("a hand")).collect();
        self.settled(RAW).await;
        (connections, MESSAGES as f64 / start.elapsed().as_secs_f64())
    }
}

/// Takes messages while there are any left: writes a durable row, and then acknowledges.
async fn insert<C: Own>(mut own: C, pulled: Arc<Mutex<Pulled>>, left: Arc<AtomicUsize>) -> C {
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let message = pulled.lock().await.next().await.expect("a message").expect("a message");
        own.run(ENTER).await.expect("a row");
        message.ack().await.expect("told");
    }
    own
}
