//! Events go from an outbox over NATS JetStream to a consumer. Publisher, broker and consumer are killed with SIGKILL at random, and
//! connections are cut: each event is processed once, and those of one aggregate in their order.
//!
//! `COUNTERFOIL_SEED` repeats one; `COUNTERFOIL_FULL=1` goes on until two hundred were killed or cut.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{self, Context};
use counterfoil::door::Reaction;
use counterfoil::ledger::Backoff;
use counterfoil::outbox::Publisher;
use counterfoil::queue::{Consuming, Incoming, NatsQueue, NatsSink, QueueConsumer};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Executor, Failure, Tenant};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnection;

use crate::harness::Failed;
use crate::harness::process::{Process, Program};
use crate::harness::role::TENANT;
use crate::heard::Heard;
use crate::own_server::daemon::Daemon;
use crate::own_server::proxy::Proxy;
use crate::random::{Chance, struck};
use crate::run;

const ORDERS: u32 = 80;
const KINDS: [&str; 4] = ["placed", "paid", "packed", "sent"];
/// Between one order and the next, so that there is something under way when a process is killed.
const PACE: Duration = Duration::from_millis(50);
/// As many consumers keep the order of each aggregate.
const PARTITIONS: u32 = 2;
pub(crate) const SOON: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(200) };

/// What only this program can be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    /// Emits events, and publishes them to the broker.
    Emits { ledger: PathBuf, port: u16 },
    /// Consumes them, each once.
    Processes { db: PathBuf, port: u16 },
    /// Looks into messages, one of which it dies of.
    Dies { db: PathBuf, port: u16 },
}

pub(crate) async fn play(own: Own) -> Result<i32, Failed> {
    match own {
        Own::Emits { ledger, port } => emits(&ledger, port).await,
        Own::Processes { db, port } => processes(&db, port).await,
        Own::Dies { db, port } => dies(&db, port).await,
    }
}

async fn order(ctx: Ctx, number: u32) -> Result<(), Failure> {
    for kind in KINDS {
        ctx.emit(format!("order/{number}"), kind, &number).await?;
    }
    Ok(())
}

pub(crate) async fn nats(port: u16) -> Result<Context, Failed> {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let options = options.reconnect_delay_callback(|_| Duration::from_millis(50));
    let client = options.connect(format!("nats://127.0.0.1:{port}")).await?;
    Ok(jetstream::context::ContextBuilder::new().timeout(Duration::from_secs(2)).build(client))
}

/// Until it is killed.
async fn emits(ledger: &Path, port: u16) -> Result<i32, Failed> {
    let subject = |event: &counterfoil::outbox::Event| {
        format!("orders.{}", NatsSink::partition(&event.aggregate, PARTITIONS))
    };
    let publisher = Publisher::new(NatsSink::new(nats(port).await?, subject)).backoff(SOON).batch(16);
    let engine = Engine::sqlite(ledger).workflow("order", 1, order).sink(publisher).start().await?;
    let tenant = engine.tenant(TENANT)?;
    for number in 0..ORDERS {
        tenant.run(order, number).key(number.to_string()).await?;
        SystemClock.sleep(PACE).await;
    }
    std::future::pending().await
}

/// Until it is killed.
async fn processes(db: &Path, port: u16) -> Result<i32, Failed> {
    let executor = Executor::sqlite(db).open().await?;
    let nats = nats(port).await?;
    let mut running = Vec::new();
    for partition in 0..PARTITIONS {
        running.push(consumes(&executor, &nats, partition).await?);
    }
    std::future::pending().await
}

/// What its process dies of, without a word.
const DEADLY: &str = "deadly";
const TRIES: u32 = 2;

async fn dies(db: &Path, port: u16) -> Result<i32, Failed> {
    let executor = Executor::sqlite(db).open().await?;
    let queue = NatsQueue::new(nats(port).await?, "ORDERS", "kill-0");
    let consumer = QueueConsumer::new(&executor, &Tenant::new(TENANT)?, "kill", queue).tries(TRIES);
    let handler = async |message: Incoming| {
        if message.payload() == DEADLY {
            std::process::abort();
        }
        hears(message).await
    };
    let _running = consumer.in_order().start(handler).await?;
    std::future::pending().await
}

/// Begins when there is a broker to begin with.
async fn consumes(executor: &Executor, nats: &Context, partition: u32) -> Result<Consuming, Failed> {
    let tenant = Tenant::new(TENANT)?;
    loop {
        let queue = NatsQueue::new(nats.clone(), "ORDERS", format!("kill-{partition}"));
        // Killed processes leave tries behind, and none of them is a message's fault.
        let consumer = QueueConsumer::new(executor, &tenant, "kill", queue);
        let started = consumer.backoff(SOON).tries(10_000).in_order().start(hears).await;
        match started {
            Ok(consuming) => return Ok(consuming),
            Err(counterfoil::queue::QueueError::Broker(_)) => SystemClock.sleep(PACE).await,
            Err(refused) => return Err(refused.into()),
        }
    }
}

async fn hears(event: Incoming) -> Result<Reaction<SqliteConnection>, &'static str> {
    let aggregate = event.header_named("event-aggregate").ok_or("no aggregate")?.to_owned();
    let seq = event.header_named("event-sequence").and_then(|seq| seq.parse::<i64>().ok());
    let seq = seq.ok_or("no sequence")?;
    Ok(Reaction::transaction(move |db: &mut SqliteConnection| Box::pin(Heard::enter(db, aggregate, seq))))
}

/// The broker, the two ends, and the connections between them.
struct Pipeline {
    broker: Daemon,
    proxies: [Proxy; 2],
    program: Program,
    roles: [Own; 2],
    lives: [Process; 2],
}

impl Pipeline {
    async fn new(folder: &Path) -> Self {
        let broker = Daemon::start(server).await;
        prepare(&nats(broker.port()).await.unwrap()).await;
        let proxies = [Proxy::to(broker.port()).await, Proxy::to(broker.port()).await];
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        let roles = [
            Own::Emits { ledger: folder.join("publisher.db"), port: proxies[0].port() },
            Own::Processes { db: folder.join("consumer.db"), port: proxies[1].port() },
        ];
        let lives = roles.clone().map(|role| program.start(&role).unwrap());
        Self { broker, proxies, program, roles, lives }
    }

    /// Kills one of the three, or cuts the connections of one.
    async fn strike(&mut self, chance: &mut Chance) {
        match usize::try_from(chance.below(5)).unwrap() {
            end @ (0 | 1) => {
                self.lives[end].kill_and_wait().await.unwrap();
                self.lives[end] = self.program.start(&self.roles[end]).unwrap();
            }
            2 => {
                self.broker.kill();
                SystemClock.sleep(Duration::from_millis(chance.below(300))).await;
                self.broker.start_again().await;
            }
            end => self.proxies[end - 3].cut(),
        }
    }
}

pub(crate) fn server(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("nats-server");
    command
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
        .arg(folder);
    command
}

async fn prepare(nats: &Context) {
    let subjects = vec!["orders.*".to_owned()];
    let stream = StreamConfig { name: "ORDERS".to_owned(), subjects, ..StreamConfig::default() };
    let stream = nats.create_stream(stream).await.unwrap();
    for partition in 0..PARTITIONS {
        let filter_subject = format!("orders.{partition}");
        let consumer = ConsumerConfig { filter_subject, ..in_order(format!("kill-{partition}")) };
        stream.create_consumer(consumer).await.unwrap();
    }
}

/// A consumer of this name that gets its messages in their order, and again soon.
pub(crate) fn in_order(name: String) -> ConsumerConfig {
    ConsumerConfig {
        durable_name: Some(name),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(1),
        max_deliver: -1,
        max_ack_pending: 1,
        ..ConsumerConfig::default()
    }
}

#[test]
fn each_event_is_processed_once_and_in_its_order() {
    run(async {
        eprintln!("{} killed or cut", struck(200, strike_at_random).await);
    });
}

// The handler dies before the ledger hears of the message: the tries are counted all the same, and others proceed.
#[test]
fn a_message_that_kills_its_process_is_set_aside() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("consumer.db");
        let mut heard = Heard::new(&db).await;
        let broker = Daemon::start(server).await;
        let nats = nats(broker.port()).await.unwrap();
        prepare(&nats).await;
        for (number, payload) in ["1", DEADLY, "3"].into_iter().enumerate() {
            let message = jetstream::message::PublishMessage::build()
                .message_id(payload)
                .header("Event-Aggregate", "order/1")
                .header("Event-Sequence", number.to_string());
            let sent = nats.send_publish("orders.0", message.payload(payload.into())).await;
            sent.unwrap().await.unwrap();
        }
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        // The first delivery is no sign of anything, and is not counted.
        for _ in 0..=TRIES {
            let life = program.start(&Own::Dies { db: db.clone(), port: broker.port() }).unwrap();
            let death = life.death().await.unwrap();
            assert!(death.report.is_none() && !death.status.success(), "{:?}", death.status);
        }
        let mut life = program.start(&Own::Dies { db: db.clone(), port: broker.port() }).unwrap();
        let begun = SystemClock.boot();
        while heard.all().await.len() < 2 {
            assert!(begun.until(SystemClock.boot()) < Duration::from_mins(1), "the others do not proceed");
        }
        life.kill_and_wait().await.unwrap();
        let executor = Executor::sqlite(&db).open().await.unwrap();
        let asked = executor.questions(&Tenant::new(TENANT).unwrap()).await.unwrap();
        assert_eq!(asked.len(), 1, "{asked:?}");
        for evidence in ["ORDERS:id:deadly", "in 2 tries", "its process died in it"] {
            assert!(asked[0].question.contains(evidence), "{}", asked[0].question);
        }
    });
}

async fn strike_at_random(seed: u64) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let mut heard = Heard::new(&folder.path().join("consumer.db")).await;
    let mut pipeline = Pipeline::new(folder.path()).await;
    let (mut chance, mut struck, begun) = (Chance(seed), 0, SystemClock.boot());
    let wanted = ORDERS as usize * KINDS.len();
    loop {
        let now = heard.all().await.len();
        if now >= wanted {
            break;
        }
        let lived = begun.until(SystemClock.boot());
        assert!(lived < Duration::from_mins(4), "COUNTERFOIL_SEED={seed}: {now} of {wanted} after {struck}");
        SystemClock.sleep(Duration::from_millis(100 + chance.below(700))).await;
        pipeline.strike(&mut chance).await;
        struck += 1;
    }
    // Whatever is delivered once more from here on changes nothing.
    SystemClock.sleep(Duration::from_millis(1500)).await;
    heard.is_in_order(ORDERS, &[1, 2, 3, 4], seed).await;
    assert!(struck >= 3, "COUNTERFOIL_SEED={seed}: only {struck} while there was something to do");
    eprintln!("{wanted} events, {struck} killed or cut, COUNTERFOIL_SEED={seed}");
    struck
}
