//! Rows about webhooks: a storm of duplicates, at the ledger and behind the fence.
//!
//! 100 events, 10,000 deliveries, 64 at once. Copies come in turn (neighbours are different events), or together
//! (neighbours are copies of one event, and most copies come while the first one is in flight or shortly after it).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use counterfoil::door::Reaction;
use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
use counterfoil::{Executor, Tenant};
use futures_util::future::{BoxFuture, join_all};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use http_body_util::Full;
use sha2::Sha256;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::messages::Own;
use crate::options::Options;
use crate::place::{Database, Home, Place};
#[cfg(feature = "postgres")]
use crate::postgres::transactions;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

#[cfg(feature = "redis")]
pub(crate) mod fenced;

const EVENTS: usize = 100;
const DELIVERIES: usize = 10_000;
const AT_ONCE: usize = 64;
/// The number of connections of the raw line: more would wait for the same two cores.
const READERS: usize = 8;
const SECRET: &str = "a secret that nobody can guess";
const BODY: &str = r#"{"type": "invoice.paid", "cents": 100}"#;

/// The neighbours of a delivery.
#[derive(Clone, Copy)]
enum Copies {
    InTurn,
    Together,
}

impl Copies {
    const BOTH: [(Self, &'static str); 2] = [(Self::InTurn, "in turn"), (Self::Together, "together")];

    /// The number of the event that a delivery is a copy of.
    fn event(self, delivery: usize) -> usize {
        match self {
            Self::InTurn => delivery % EVENTS,
            Self::Together => delivery / (DELIVERIES / EVENTS),
        }
    }
}

/// The effect of events: a row each, in the ledger's own database.
trait Books: Own {
    fn book(&mut self, event: String) -> BoxFuture<'_, Result<(), sqlx::Error>>;
    /// Reads the row of an event that the raw line has.
    fn find(&mut self, event: String) -> BoxFuture<'_, Result<Option<String>, sqlx::Error>>;
    fn know(&mut self, event: String) -> BoxFuture<'_, Result<(), sqlx::Error>>;
    fn booked(&mut self) -> BoxFuture<'_, Result<i64, sqlx::Error>>;
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS booked (event TEXT NOT NULL)";
/// The table of the raw line, which holds every event independent of the storm.
const KNOWN: &str = "CREATE TABLE IF NOT EXISTS known (event TEXT PRIMARY KEY)";

macro_rules! books {
    ($connection:ty) => {
        impl Books for $connection {
            fn book(&mut self, event: String) -> BoxFuture<'_, Result<(), sqlx::Error>> {
                let row = sqlx::query("INSERT INTO booked (event) VALUES ($1)").bind(event);
                Box::pin(async move { self.execute(row).await.map(drop) })
            }

            /// Reads the row of an event that the raw line has.
            fn find(&mut self, event: String) -> BoxFuture<'_, Result<Option<String>, sqlx::Error>> {
                let row = sqlx::query_scalar("SELECT event FROM known WHERE event = $1").bind(event);
                Box::pin(async move { row.fetch_optional(self).await })
            }

            fn know(&mut self, event: String) -> BoxFuture<'_, Result<(), sqlx::Error>> {
                let row = sqlx::query("INSERT INTO known (event) VALUES ($1)").bind(event);
                Box::pin(async move { self.execute(row).await.map(drop) })
            }

            fn booked(&mut self) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
                Box::pin(sqlx::query_scalar("SELECT count(*) FROM booked").fetch_one(self))
            }
        }
    };
}

books!(SqliteConnection);
#[cfg(feature = "postgres")]
books!(sqlx::PgConnection);

/// A door, with the fence before it, if there is one.
struct Door {
    webhook: Webhook,
    #[cfg(feature = "redis")]
    fenced: Option<counterfoil::fence::Fenced>,
}

impl Door {
    fn new<C: Books>(executor: &Executor) -> Self {
        let tenant = Tenant::new(TENANT).expect("a tenant");
        let scheme = Scheme::hmac("x-signature").base64().id("x-event");
        // All events have one body; the figures are those of a door whose sender's id is trusted.
        let webhook =
            Webhook::source("shop", scheme, [SECRET], tenant).expect("a source").trust_unsigned_id();
        let books = |event: WebhookEvent| async move {
            let event = event.id().expect("it has an id").to_owned();
            Ok::<_, Infallible>(Reaction::transaction(move |db: &mut C| db.book(event)))
        };
        Self {
            webhook: webhook.on(executor, books).expect("a webhook"),
            #[cfg(feature = "redis")]
            fenced: None,
        }
    }

    /// Delivers an event. True if the sender is told that the event is done with.
    async fn deliver(&self, delivery: Delivery) -> bool {
        #[cfg(feature = "redis")]
        if let Some(fenced) = &self.fenced {
            return fenced::through(fenced, &self.webhook, delivery).await;
        }
        self.webhook.receive(delivery.request).await.status() == 200
    }
}

/// A signed event, to be sent any number of times.
#[derive(Clone)]
struct Delivery {
    event: String,
    request: Request<Full<Bytes>>,
}

fn signed(event: String) -> Delivery {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key of any length");
    mac.update(BODY.as_bytes());
    let signature = BASE64.encode(mac.finalize().into_bytes());
    let request = Request::post("/hook").header("x-signature", signature).header("x-event", &event);
    Delivery {
        event,
        request: request.body(Full::new(Bytes::from_static(BODY.as_bytes()))).expect("a request"),
    }
}

/// Sends the deliveries of a storm, each by the next free sender. Returns the number of them that were to be sent
/// again.
async fn storm(door: Arc<Door>, events: Arc<Vec<Delivery>>, copies: Copies) -> usize {
    let (next, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let senders = (0..AT_ONCE).map(|_| {
        let (door, events, next, again) = (door.clone(), events.clone(), next.clone(), again.clone());
        tokio::spawn(async move {
            loop {
                let delivery = next.fetch_add(1, Ordering::Relaxed);
                if delivery >= DELIVERIES {
                    break;
                }
                if !door.deliver(events[copies.event(delivery)].clone()).await {
                    again.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for ended in join_all(senders).await {
        ended.expect("a sender");
    }
    again.load(Ordering::Relaxed)
}

/// Makes as many reads of one row by its key, over some connections.
async fn reads<C: Books + Send>(readers: Vec<C>, events: Arc<Vec<Delivery>>) -> Vec<C> {
    let next = Arc::new(AtomicUsize::new(0));
    let readers = readers.into_iter().map(|mut reader| {
        let (events, next) = (events.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let delivery = next.fetch_add(1, Ordering::Relaxed);
                if delivery >= DELIVERIES {
                    return reader;
                }
                let event = events[delivery % EVENTS].event.clone();
                assert!(reader.find(event).await.expect("an answer").is_some());
            }
        })
    });
    join_all(readers).await.into_iter().map(|reader| reader.expect("a reader")).collect()
}

/// The results of the rounds of a storm.
#[derive(Default)]
struct Measured {
    effects: Vec<f64>,
    again: Vec<f64>,
    asked: Vec<f64>,
    speed: Vec<f64>,
    raw: Vec<f64>,
}

/// The function that makes the door of a row.
type Opens<'a> = &'a dyn Fn(&Executor) -> Door;

async fn measure<C: Books + Send>(
    place: &Place,
    rounds: usize,
    copies: Copies,
    opens: Opens<'_>,
) -> Measured {
    let mut measured = Measured::default();
    for round in 0..=rounds {
        let before = asked(place).await;
        let once =
            Arc::new((0..EVENTS).map(|event| signed(format!("once-{round}-{event}"))).collect::<Vec<_>>());
        let engine = subject::engine(place).await;
        let mut own = C::open(place).await;
        own.run(TABLE).await.expect("a table");
        own.run(KNOWN).await.expect("a table");
        drop(own);
        let door = opens(&engine.executor());
        for delivery in once.iter() {
            assert!(door.deliver(delivery.clone()).await, "the only delivery of an event is processed");
        }
        drop(door);
        engine.shutdown(subject::DRAIN).await;
        let between = asked(place).await;

        let events: Vec<_> = (0..EVENTS).map(|event| signed(format!("storm-{round}-{event}"))).collect();
        let events = Arc::new(events);
        let engine = subject::engine(place).await;
        let mut own = C::open(place).await;
        let done = own.booked().await.expect("a count");
        drop(own);
        let door = Arc::new(opens(&engine.executor()));
        let start = Instant::now();
        let again = storm(door, events.clone(), copies).await;
        let seconds = start.elapsed().as_secs_f64();
        engine.shutdown(subject::DRAIN).await;
        let after = asked(place).await;

        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(C::open(place).await);
        }
        let effects = readers[0].booked().await.expect("a count") - done;
        for delivery in events.iter() {
            readers[0].know(delivery.event.clone()).await.expect("a row");
        }
        let start = Instant::now();
        drop(reads(readers, events).await);
        let raw = start.elapsed().as_secs_f64();
        if round > 0 {
            measured.effects.push(effects as f64);
            measured.again.push(again as f64);
            measured.speed.push(DELIVERIES as f64 / seconds);
            measured.raw.push(DELIVERIES as f64 / raw);
            if let (Some(before), Some(between), Some(after)) = (before, between, after) {
                let duplicates = (DELIVERIES - EVENTS) as f64;
                measured.asked.push(((after - between) - (between - before)) as f64 / duplicates);
            }
        }
    }
    measured
}

/// The number of transactions on the server so far, if the server counts them.
async fn asked(place: &Place) -> Option<i64> {
    match place {
        Place::File(_) => None,
        #[cfg(feature = "postgres")]
        Place::Schema { url, .. } => Some(transactions(url).await.iter().sum()),
    }
}

/// The findings of a storm. The bounds are those of transactions per duplicate.
fn findings(name: &'static str, what: &str, measured: Measured, must: f64, aim: f64) -> Vec<Finding> {
    let storm = format!("{EVENTS} events, {DELIVERIES} deliveries, {AT_ONCE} at once, {what}");
    let of = |value: &str| format!("{storm}: {value}");
    let (effects, again) = (Values::new("effects", measured.effects), Values::new("answers", measured.again));
    let all = EVENTS as f64;
    let mut found = vec![
        Finding::absolute(name, of("effects done, at least"), effects.clone(), None).at_least(all, all),
        Finding::absolute(name, of("effects done, at most"), effects, None).at_most(all, all),
        Finding::absolute(name, of("answers that ask for another delivery"), again, None).at_most(0.0, 0.0),
    ];
    if !measured.asked.is_empty() {
        let asked = Values::new("transactions", measured.asked);
        found.push(
            Finding::absolute(name, of("transactions on the server per duplicate"), asked, None)
                .at_most(must, aim),
        );
    }
    let (speed, raw) = (Values::new("/s", measured.speed), Values::new("/s", measured.raw));
    found.push(Finding::ratio(name, of("deliveries ÷ reads of a row by its key"), speed, raw));
    found
}

fn at_the_ledger<C: Books + Send>(
    options: &Options,
    database: Database,
    name: &'static str,
) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    for (copies, order) in Copies::BOTH {
        let home = Home::of(database, options)?;
        let opens = |executor: &Executor| Door::new::<C>(executor);
        let place = home.place("storm");
        let measured = multi_thread().block_on(measure::<C>(&place, options.rounds, copies, &opens));
        // One transaction per duplicate, and a little for opening the connections.
        found.extend(findings(name, &format!("copies {order}"), measured, 1.01, 1.01));
    }
    Ok(found)
}

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    at_the_ledger::<SqliteConnection>(options, Database::Sqlite, "webhook-storm")
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    at_the_ledger::<sqlx::PgConnection>(options, Database::Postgres, "postgres-webhook-storm")
}
