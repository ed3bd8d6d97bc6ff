//! Messages of RabbitMQ, while the consumer's process and the broker are killed with SIGKILL at random: each is processed once. In which
//! order is not promised: RabbitMQ gives back what was in hand behind what came later.
//!
//! `COUNTERFOIL_SEED` repeats one; `COUNTERFOIL_FULL=1` goes on until a hundred were killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use counterfoil::door::Reaction;
use counterfoil::queue::{Incoming, QueueConsumer, QueueError, RabbitQueue};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::harness::Failed;
use crate::harness::process::Program;
use crate::harness::role::TENANT;
use crate::own_server::daemon::Daemon;
use crate::own_server::rabbitmq::{arguments, connected, server, uri, write_down};
use crate::queue::SOON;
use crate::random::{Chance, struck};
use crate::run;

const QUEUE: &str = "orders";
/// So many at least.
const MESSAGES: i64 = 300;
/// Of three kills, two are the consumer's and one is the broker's, which takes seconds to start.
const KILLS: u32 = 6;
/// Between one message and the next, so that there is something under way when a process is killed.
const PACE: Duration = Duration::from_millis(20);

/// What only this program can be: the consumer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hears {
    db: PathBuf,
    amqp_port: u16,
}

/// Until it is killed.
pub(crate) async fn play(own: Hears) -> Result<i32, Failed> {
    let executor = Executor::sqlite(&own.db).open().await?;
    let _consuming = loop {
        let queue = RabbitQueue::new(uri(own.amqp_port), QUEUE, arguments(QUEUE, &[]));
        // Killed processes leave tries behind, and none of them is a message's fault.
        let consumer = QueueConsumer::new(&executor, &Tenant::new(TENANT)?, "kill", queue);
        match consumer.backoff(SOON).tries(10_000).start(hears).await {
            Ok(consuming) => break consuming,
            Err(QueueError::Broker(_)) => SystemClock.sleep(PACE).await,
            Err(refused) => return Err(refused.into()),
        }
    };
    std::future::pending().await
}

async fn hears(message: Incoming) -> Result<Reaction<SqliteConnection>, serde_json::Error> {
    let number: i64 = message.json()?;
    Ok(Reaction::transaction(move |db: &mut SqliteConnection| {
        Box::pin(async move {
            let enter = sqlx::query("INSERT INTO heard (number) VALUES (?)").bind(number);
            enter.execute(db).await.map(drop)
        })
    }))
}

/// A channel whose messages are confirmed, as soon as the broker gives one.
async fn channel(port: u16) -> Channel {
    loop {
        let channel = connected(port).await.create_channel().await;
        if let Ok(channel) = channel
            && channel.confirm_select(ConfirmSelectOptions::default()).await.is_ok()
        {
            return channel;
        }
    }
}

/// Publishes until there were kills enough, and says how many messages. One that was not confirmed goes out again, under the same id.
async fn publishes(port: u16, kills: Arc<AtomicU32>) -> i64 {
    let (mut open, mut number) = (channel(port).await, 0);
    while number < MESSAGES || kills.load(Relaxed) < KILLS {
        let properties = BasicProperties::default().with_message_id(number.to_string().into());
        let (options, payload) = (BasicPublishOptions::default(), number.to_string());
        let sent = async {
            let persistent = properties.with_delivery_mode(2);
            open.basic_publish("".into(), QUEUE.into(), options, payload.as_bytes(), persistent).await?.await
        };
        if sent.await.is_ok_and(|confirmed| confirmed.is_ack()) {
            number += 1;
            SystemClock.sleep(PACE).await;
        } else {
            open = channel(port).await;
        }
    }
    number
}

async fn declare(broker: &Daemon) {
    let channel = channel(broker.port()).await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let aside = format!("{QUEUE}.aside");
    channel.queue_declare(aside.into(), durable, FieldTable::default()).await.unwrap();
    channel.queue_declare(QUEUE.into(), durable, arguments(QUEUE, &[])).await.unwrap();
    write_down(broker).await;
}

#[test]
fn each_message_is_processed_once() {
    run(async {
        eprintln!("{} killed", struck(100, kill_at_random).await);
    });
}

async fn own(db: &Path) -> SqliteConnection {
    drop(counterfoil::store::sqlite::Sqlite::open(db).await.unwrap());
    let own = SqliteConnectOptions::new().filename(db).busy_timeout(Duration::from_secs(20));
    let mut own = own.connect().await.unwrap();
    own.execute("CREATE TABLE heard (number INTEGER NOT NULL)").await.unwrap();
    own
}

async fn heard(own: &mut SqliteConnection) -> Vec<i64> {
    sqlx::query_scalar("SELECT number FROM heard ORDER BY number").fetch_all(own).await.unwrap()
}

async fn kill_at_random(seed: u64) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("consumer.db");
    let mut own = own(&db).await;
    let mut broker = Daemon::start(server).await;
    declare(&broker).await;
    let kills = Arc::new(AtomicU32::new(0));
    let publishing = tokio::spawn(publishes(broker.port(), kills.clone()));
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    let role = Hears { db, amqp_port: broker.port() };
    let mut life = program.start(&role).unwrap();

    let (mut chance, begun) = (Chance(seed), SystemClock.boot());
    while !publishing.is_finished() {
        let lived = begun.until(SystemClock.boot());
        assert!(lived < Duration::from_mins(4), "COUNTERFOIL_SEED={seed}: stuck after {kills:?} kills");
        SystemClock.sleep(Duration::from_millis(100 + chance.below(700))).await;
        if kills.fetch_add(1, Relaxed) % 3 == 2 {
            broker.kill();
            broker.start_again().await;
        } else {
            life.kill_and_wait().await.unwrap();
            life = program.start(&role).unwrap();
        }
    }
    let messages = publishing.await.unwrap();
    // The last life processes what is left; and whatever is delivered once more behind it changes nothing.
    while i64::try_from(heard(&mut own).await.len()).unwrap() < messages {
        let lived = begun.until(SystemClock.boot());
        assert!(lived < Duration::from_mins(5), "COUNTERFOIL_SEED={seed}: a message is lost");
        SystemClock.sleep(PACE).await;
    }
    SystemClock.sleep(Duration::from_millis(500)).await;
    life.kill_and_wait().await.unwrap();
    assert_eq!(heard(&mut own).await, (0..messages).collect::<Vec<_>>(), "COUNTERFOIL_SEED={seed}");
    eprintln!("{messages} messages, {kills:?} killed, COUNTERFOIL_SEED={seed}");
    kills.load(Relaxed)
}
