//! An order service and a billing service, with NATS JetStream between them: each order is billed once, and those of a customer in
//! their order, whichever of the three is killed.
//!
//! ```text
//! nats-server --jetstream --store_dir /tmp/orders-nats               # from the package `nats-server`, or nats.io
//! cargo run --features nats --example queue_consumer                 # both services, in a temporary folder; shows itself
//! cargo run --features nats --example queue_consumer -- orders data  # or each in its own process, until it is killed;
//! cargo run --features nats --example queue_consumer -- billing data # kill one of the three anywhere and run it again
//! ```
//!
//! `NATS_URL` says where the broker is, if not at 127.0.0.1:4222.

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{self, Context};
use counterfoil::door::Reaction;
use counterfoil::queue::{Consuming, Incoming, NatsQueue, NatsSink, QueueConsumer};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Executor, Failure, Tenant};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const STREAM: &str = "ORDERS";
/// As many consumers share the work. Each keeps the order of its customers.
const PARTITIONS: u32 = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    number: u32,
    customer: String,
    cents: i64,
}

impl Order {
    pub(crate) fn example(number: u32) -> Self {
        Self { number, customer: format!("customer-{}", number % 5), cents: i64::from(number) * 100 }
    }
}

/// What whoever runs the broker sets up once: nothing that ends before a message is billed.
pub(crate) async fn set_up(nats: &Context) -> Outcome<()> {
    let subjects = vec!["orders.*".to_owned()];
    let stream = StreamConfig { name: STREAM.to_owned(), subjects, ..StreamConfig::default() };
    let stream = nats.get_or_create_stream(stream).await?;
    for partition in 0..PARTITIONS {
        let consumer = ConsumerConfig {
            durable_name: Some(consumer(partition)),
            filter_subject: subject(partition),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_secs(10),
            max_deliver: -1, // counterfoil sets poison aside; a broker that stops delivering loses it
            max_ack_pending: 1, // one after the other: the order is kept
            ..ConsumerConfig::default()
        };
        stream.get_or_create_consumer(&consumer.durable_name.clone().unwrap_or_default(), consumer).await?;
    }
    Ok(())
}

fn subject(partition: u32) -> String {
    format!("orders.{partition}")
}

fn consumer(partition: u32) -> String {
    format!("billing-{partition}")
}

/// The order service: an order and the event about it are one change.
async fn place(ctx: Ctx, order: Order) -> Result<(), Failure> {
    ctx.emit(order.customer.as_str(), "order placed", &order).await
}

pub(crate) async fn orders(nats: Context, file: &Path) -> Outcome<Engine> {
    let sink = NatsSink::new(nats, |event| subject(NatsSink::partition(&event.aggregate, PARTITIONS)));
    Ok(Engine::sqlite(file).workflow("place", 1, place).sink(sink).start().await?)
}

pub(crate) async fn order(engine: &Engine, number: u32) -> Outcome<()> {
    let run = engine.tenant("shop")?.run(place, Order::example(number)).key(number.to_string());
    Ok(run.await?)
}

/// The billing service: an invoice and the record that its event is processed are one transaction.
pub(crate) async fn billing(executor: &Executor, nats: &Context) -> Outcome<Vec<Consuming>> {
    let mut running = Vec::new();
    for partition in 0..PARTITIONS {
        let queue = NatsQueue::new(nats.clone(), STREAM, consumer(partition));
        let consumer = QueueConsumer::new(executor, &Tenant::new("shop")?, "billing", queue);
        running.push(consumer.in_order().start(bill).await?);
    }
    Ok(running)
}

async fn bill(event: Incoming) -> Result<Reaction<SqliteConnection>, serde_json::Error> {
    let order: Order = event.json()?;
    Ok(Reaction::transaction(move |db: &mut SqliteConnection| {
        Box::pin(async move {
            let invoice = sqlx::query("INSERT INTO invoice (customer, number, cents) VALUES (?, ?, ?)");
            invoice.bind(order.customer).bind(order.number).bind(order.cents).execute(db).await.map(drop)
        })
    }))
}

/// The billing service's ledger, and its own table in the same file.
pub(crate) async fn open(file: &Path) -> Outcome<(Executor, SqliteConnection)> {
    let executor = Executor::sqlite(file).open().await?;
    let own = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(30));
    let mut own = own.connect().await?;
    let table = "CREATE TABLE IF NOT EXISTS invoice (customer TEXT NOT NULL, number INTEGER NOT NULL, cents INTEGER NOT NULL)";
    own.execute(table).await?;
    Ok((executor, own))
}

pub(crate) async fn invoices(own: &mut SqliteConnection) -> Outcome<Vec<(String, u32)>> {
    let all = sqlx::query_as("SELECT customer, number FROM invoice ORDER BY rowid");
    Ok(all.fetch_all(own).await?)
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let nats = async_nats::connect(&url).await.map_err(|error| {
        format!(
            "no broker at {url}: {error}. Start one: nats-server --jetstream --store_dir /tmp/orders-nats"
        )
    })?;
    let nats = jetstream::new(nats);
    set_up(&nats).await?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["orders", folder] => serve_orders(nats, Path::new(folder)).await,
        ["billing", folder] => serve_billing(&nats, Path::new(folder)).await,
        _ => show(nats).await,
    }
}

async fn serve_orders(nats: Context, folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let engine = orders(nats, &folder.join("orders.db")).await?;
    for number in 1.. {
        order(&engine, number).await?;
        println!("order {number} is placed");
        SystemClock.sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn serve_billing(nats: &Context, folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let (executor, mut own) = open(&folder.join("billing.db")).await?;
    let running = billing(&executor, nats).await?;
    println!("{} consumers are running", running.len());
    loop {
        println!("{} invoices", invoices(&mut own).await?.len());
        SystemClock.sleep(Duration::from_secs(1)).await;
    }
}

/// Both services in one process: twenty orders, twenty invoices. What is in the stream of earlier days is billed as well.
async fn show(nats: Context) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (executor, mut own) = open(&folder.path().join("billing.db")).await?;
    let running = billing(&executor, &nats).await?;
    let engine = orders(nats, &folder.path().join("orders.db")).await?;
    for number in 1..=20 {
        order(&engine, number).await?;
    }
    while invoices(&mut own).await?.len() < 20 {
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    for (customer, number) in invoices(&mut own).await? {
        println!("{customer}: order {number}");
    }
    for consuming in running {
        consuming.shutdown(Duration::from_secs(5)).await;
    }
    engine.shutdown(Duration::from_secs(5)).await;
    executor.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
