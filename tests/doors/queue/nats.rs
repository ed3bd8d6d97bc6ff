//! Messages of NATS JetStream, from a real `nats-server`: each is processed once, whatever happens to it, its consumer and its broker.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config as StreamConfig, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use counterfoil::door::Reaction;
use counterfoil::exec::Wait;
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::policy::Policy;
use counterfoil::queue::{BrokerLimit, Incoming, NatsQueue, QueueConsumer, QueueError};
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{Clock as _, Executor, Key, Outcome, SystemClock, Tenant, ToolRequest};
use serde_json::Value;
use sqlx::{Executor as _, PgConnection, SqliteConnection};
use tokio::sync::{Notify, Semaphore};

use super::ledger::{self, EVER, SOON, acme, on, questions, until};
use super::lossy::{Lossy, Told};
use crate::own_server::daemon::Daemon;
use crate::own_server::proxy::Proxy;

const STREAM: &str = "ORDERS";
const CONSUMER: &str = "billing";
/// Until a message is delivered again that nobody has said anything about.
const ACK_WAIT: Duration = Duration::from_secs(3);

/// A server with its data in its folder.
pub(crate) fn server(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("nats-server");
    command
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
        .arg(folder);
    command
}

/// A client that tries until it is connected.
pub(super) async fn client(port: u16) -> Context {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let options = options.reconnect_delay_callback(|_| Duration::from_millis(50));
    let client = options.connect(format!("nats://127.0.0.1:{port}")).await.unwrap();
    jetstream::context::ContextBuilder::new().timeout(Duration::from_secs(2)).build(client)
}

pub(super) fn orders() -> StreamConfig {
    StreamConfig { name: STREAM.to_owned(), subjects: vec!["orders.>".to_owned()], ..StreamConfig::default() }
}

pub(super) fn billing() -> ConsumerConfig {
    ConsumerConfig {
        durable_name: Some(CONSUMER.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        ..ConsumerConfig::default()
    }
}

/// A server, a stream and a consumer.
struct Bench {
    server: Daemon,
    nats: Context,
    consumer: PullConsumer,
}

impl Bench {
    async fn new() -> Self {
        Self::with(orders(), billing()).await
    }

    async fn with(stream: StreamConfig, consumer: ConsumerConfig) -> Self {
        let server = Daemon::start(server).await;
        let nats = client(server.port()).await;
        let stream = nats.create_stream(stream).await.unwrap();
        let consumer = stream.create_consumer(consumer).await.unwrap();
        Self { server, nats, consumer }
    }

    fn queue(&self) -> NatsQueue {
        NatsQueue::new(self.nats.clone(), STREAM, CONSUMER)
    }

    /// A message with an id, about this number.
    async fn publish(&self, number: i64) {
        self.send(PublishMessage::build().message_id(format!("order-{number}")), &number.to_string()).await;
    }

    async fn send(&self, message: PublishMessage, payload: &str) {
        let message = message.payload(payload.to_owned().into());
        self.nats.send_publish("orders.placed", message).await.unwrap().await.unwrap();
    }

    /// Until the broker holds nothing for the consumer any more. Each question goes to the server and back.
    async fn settled(&mut self) {
        until(async || {
            let info = self.consumer.info().await;
            info.is_ok_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
        })
        .await;
    }

    /// The number of deliveries so far.
    async fn deliveries(&mut self) -> u64 {
        self.consumer.info().await.unwrap().delivered.consumer_sequence
    }
}

fn number(message: &Incoming) -> i64 {
    message.json().unwrap()
}

/// The same tests on both databases.
macro_rules! tests {
    ($connection:ty, $open:expr) => {
        use super::*;

        on!($connection);

        // The acknowledgement gets lost behind the seal: the broker delivers again, and nothing is done twice.
        #[tokio::test]
        async fn a_message_that_is_delivered_again_is_processed_once() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let broker = Lossy::losing(bench.queue(), 1);
            let wire = broker.wire.clone();
            let called = Arc::new(AtomicU32::new(0));
            let calls = called.clone();
            let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, broker)
                .start(move |message| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    async move { Ok::<_, String>(enters(number(&message))) }
                })
                .await
                .unwrap();
            bench.publish(1).await;
            bench.settled().await;
            assert_eq!(entered(&mut own).await, [1]);
            let told = wire.told.lock().unwrap().clone();
            assert!(told.ends_with(&[Told::Acknowledged, Told::Acknowledged]), "{told:?}");
            let called = usize::try_from(called.load(Ordering::SeqCst)).unwrap();
            assert_eq!(called, told.len() - 1, "the handler is not called for what is known");
            assert!(consuming.shutdown(EVER).await);
        }

        // A temporary error: given back with a pause that grows at most so far, tried again, processed.
        #[tokio::test]
        async fn a_temporary_error_gives_the_message_back() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let broker = Lossy::losing(bench.queue(), 0);
            let wire = broker.wire.clone();
            let called = AtomicU32::new(0);
            let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, broker)
                .backoff(SOON)
                .start(move |message| {
                    let fails = called.fetch_add(1, Ordering::SeqCst) < 3;
                    async move { if fails { Err("not yet") } else { Ok(enters(number(&message))) } }
                })
                .await
                .unwrap();
            bench.publish(1).await;
            bench.settled().await;
            assert_eq!(entered(&mut own).await, [1]);
            let told = wire.told.lock().unwrap().clone();
            let (last, before) = told.split_last().unwrap();
            assert!(*last == Told::Acknowledged && before.len() >= 3, "{told:?}");
            for told in before {
                assert!(matches!(told, Told::GivenBack(after) if *after <= SOON.cap), "{told:?}");
            }
            assert!(matches!(told[0], Told::GivenBack(after) if after <= SOON.base), "{told:?}");
            assert_eq!(questions(&executor).await, [""; 0]);
        }

        // Poison: set aside after its tries, with the evidence, while others proceed. Errors, panics and what is no JSON.
        #[tokio::test]
        async fn poison_is_set_aside_and_others_proceed() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
                .backoff(SOON)
                .tries(2)
                .in_hand(2)
                .start(async |message: Incoming| {
                    let number: i64 = message.json().map_err(|error| error.to_string())?;
                    match number {
                        3 => Err("the tax office is closed for ever".to_owned()),
                        4 => panic!("four"),
                        number => Ok(enters(number)),
                    }
                })
                .await
                .unwrap();
            for number in 1..=6 {
                bench.publish(number).await;
            }
            bench.send(PublishMessage::build().message_id("text"), "no { json").await;
            bench.settled().await;
            assert_eq!(entered(&mut own).await, [1, 2, 5, 6]);
            let questions = questions(&executor).await.join("\n");
            for evidence in [
                "ORDERS:id:order-3 could not be processed by billing in 2 tries",
                "the tax office is closed for ever",
                "the handler panicked: four",
                "ORDERS:id:text",
                "expected",
            ] {
                assert!(questions.contains(evidence), "{evidence}: {questions}");
            }
            assert_eq!(questions.matches("could not be processed").count(), 3, "{questions}");
        }

        // On SQLite messages that are in hand at once share a transaction. One fails, one rolls everything back, one commits: each has its
        // own end, and the others are processed once.
        #[tokio::test]
        async fn messages_in_hand_at_once_do_not_share_their_fate() {
            const ALL: u32 = 12;
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            for number in 1..=i64::from(ALL) {
                bench.publish(number).await;
            }
            let (here, failed) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
            let consumer = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue()).backoff(SOON);
            let consuming = consumer.in_hand(ALL as usize).start(move |message| {
                let (number, here, failed) = (number(&message), here.clone(), failed.clone());
                here.add_permits(1);
                let does = Reaction::transaction(move |db: &mut Own| Box::pin(async move {
                    if number == 1 {
                        let _all = here.acquire_many(ALL).await; // the others line up behind it
                    }
                    sqlx::query("INSERT INTO entry (what) VALUES ($1)").bind(number).execute(&mut *db).await?;
                    match number {
                        3 if failed.fetch_add(1, Ordering::SeqCst) == 0 => Err(sqlx::Error::RowNotFound),
                        5 => db.execute("ROLLBACK").await.map(drop),
                        7 => db.execute("COMMIT").await.map(drop),
                        _ => Ok(()),
                    }
                }));
                async move { Ok::<_, String>(does) }
            });
            let consuming = consuming.await.unwrap();
            bench.settled().await;
            let expected: Vec<_> = (1..=i64::from(ALL)).filter(|number| *number != 5).collect();
            assert_eq!(entered(&mut own).await, expected);
            let questions = questions(&executor).await;
            for number in [5, 7] {
                let ended = format!("ORDERS:id:order-{number}: the closure of billing ended the transaction itself");
                assert!(questions.iter().any(|question| question.contains(&ended)), "{number}: {questions:?}");
            }
            assert_eq!(questions.len(), 2, "{questions:?}");
            assert!(consuming.shutdown(EVER).await);
        }

        // What is too large is set aside without a try.
        #[tokio::test]
        async fn a_huge_message_is_set_aside_at_once() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
                .largest(1000)
                .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
                .await
                .unwrap();
            bench.send(PublishMessage::build().message_id("huge"), &"9".repeat(1001)).await;
            bench.publish(1).await;
            bench.settled().await;
            assert_eq!(entered(&mut own).await, [1]);
            let questions = questions(&executor).await;
            assert!(questions[0].contains("holds 1001 bytes, 1000 at most"), "{questions:?}");
        }

        // The broker is killed in the middle, and started again on its data.
        #[tokio::test]
        async fn a_restart_of_the_broker_loses_and_repeats_nothing() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let (held, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (holds, may_go_on) = (held.clone(), goes_on.clone());
            // Not by the broker's hint: a broker that was killed may have forgotten that it has delivered the message.
            let second = AtomicU32::new(0);
            let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
                .backoff(SOON)
                .start(move |message| {
                    let number = number(&message);
                    let is_first = number == 2 && second.fetch_add(1, Ordering::SeqCst) == 0;
                    let (holds, may_go_on) = (holds.clone(), may_go_on.clone());
                    async move {
                        if is_first {
                            holds.notify_one();
                            may_go_on.notified().await;
                        }
                        Ok::<_, String>(enters(number))
                    }
                })
                .await
                .unwrap();
            for number in 1..=3 {
                bench.publish(number).await;
            }
            held.notified().await;
            bench.server.kill();
            goes_on.notify_one(); // sealed while nobody can be told
            bench.server.start_again().await;
            for number in 4..=6 {
                while bench.nats.stream_by_subject("orders.placed").await.is_err() {}
                bench.publish(number).await;
            }
            bench.settled().await;
            assert_eq!(entered(&mut own).await, [1, 2, 3, 4, 5, 6]);
            assert!(consuming.shutdown(EVER).await);
        }

        // The network between is cut, several times.
        #[tokio::test]
        async fn a_connection_that_is_cut_comes_back() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            let proxy = Proxy::to(bench.server.port()).await;
            let queue = NatsQueue::new(client(proxy.port()).await, STREAM, CONSUMER);
            let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, queue)
                .backoff(SOON)
                .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
                .await
                .unwrap();
            for number in 1..=20 {
                bench.publish(number).await;
                if number % 7 == 0 {
                    proxy.cut();
                }
            }
            bench.settled().await;
            assert_eq!(entered(&mut own).await, (1..=20).collect::<Vec<_>>());
            assert!(consuming.shutdown(EVER).await);
        }

        // Without an id the sequence in the stream is the key; a stream that is made anew counts anew.
        #[tokio::test]
        async fn a_message_without_an_id_is_known_by_its_sequence() {
            let (_place, executor, mut own) = $open.await;
            let mut bench = Bench::new().await;
            for round in 1..=2 {
                let broker = Lossy::losing(bench.queue(), 1);
                let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, broker)
                    .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
                    .await
                    .unwrap();
                bench.send(PublishMessage::build(), &round.to_string()).await;
                bench.settled().await;
                assert!(bench.deliveries().await >= 2, "the acknowledgement was lost");
                assert_eq!(entered(&mut own).await, (1..=round).collect::<Vec<i64>>());
                assert!(consuming.shutdown(EVER).await);
                bench.nats.delete_stream(STREAM).await.unwrap();
                let stream = bench.nats.create_stream(orders()).await.unwrap();
                bench.consumer = stream.create_consumer(billing()).await.unwrap();
            }
        }
    };
}

mod on_sqlite {
    tests!(SqliteConnection, ledger::sqlite());

    // Messages were handled quickly, and the next ones were fetched ahead; then one takes for ever. Another consumer gets those behind it,
    // long before the time for their acknowledgement is over.
    #[tokio::test]
    async fn messages_behind_one_that_takes_for_ever_go_to_another_consumer() {
        let ((_place, executor, mut own), (_other_place, other, mut others)) =
            (ledger::sqlite().await, ledger::sqlite().await);
        let bench = Bench::with(orders(), ConsumerConfig { ack_wait: EVER * 2, ..billing() }).await;
        let (held, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (holds, may_go_on) = (held.clone(), goes_on.clone());
        let holding = move |message: Incoming| {
            let (number, holds, may_go_on) = (number(&message), holds.clone(), may_go_on.clone());
            async move {
                if number == 0 {
                    holds.notify_one();
                    may_go_on.notified().await;
                }
                Ok::<_, String>(enters(number))
            }
        };
        let slow = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue()).in_hand(1);
        let slow = slow.start(holding).await.unwrap();
        for number in [1, 2, 3] {
            bench.publish(number).await;
            until(async || entered(&mut own).await.contains(&number)).await;
        }
        for number in [0, 4, 5, 6, 7, 8] {
            bench.publish(number).await;
        }
        held.notified().await;
        let quick = QueueConsumer::new(&other, &acme(), CONSUMER, bench.queue());
        let quick = quick.start(async |message| Ok::<_, String>(enters(number(&message)))).await.unwrap();
        until(async || entered(&mut others).await == [4, 5, 6, 7, 8]).await;
        goes_on.notify_one();
        until(async || entered(&mut own).await == [0, 1, 2, 3]).await;
        assert!(slow.shutdown(EVER).await && quick.shutdown(EVER).await);
    }

    // The broker's client says nothing more: the end of the consumer does not wait for ever.
    #[tokio::test]
    async fn an_acknowledgement_without_an_answer_does_not_hold_the_end() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let bench = Bench::new().await;
        let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, Lossy::silent(bench.queue()))
            .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
            .await
            .unwrap();
        bench.publish(1).await;
        until(async || entered(&mut own).await == [1]).await;
        assert!(consuming.shutdown(EVER).await);
    }

    // Another caller has the message's call in hand. That is no try of the message, however often it comes again.
    #[tokio::test]
    async fn a_call_that_is_not_settled_is_no_try_of_its_message() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, may_go_on) = (begun.clone(), goes_on.clone());
        let contract = Contract::new(ContractClass::Blind);
        let post = DynamicTool::new("post", EffectClass::InternalMutation, contract).call(move |_, _| {
            let (begins, may_go_on) = (begins.clone(), may_go_on.clone());
            async move {
                begins.notify_one();
                may_go_on.notified().await;
                Ok(Done::new(Value::Null))
            }
        });
        let path = folder.path().join("test.db");
        let executor = Executor::sqlite(path).dynamic_tool(post).open().await.unwrap();
        let request = || ToolRequest::new(acme(), "post", Value::Null).key(Key::of("post").target("1"));
        let (caller, first) = (executor.clone(), request());
        let first = tokio::spawn(async move { caller.execute(first).await });
        begun.notified().await;

        let mut bench = Bench::new().await;
        let broker = Lossy::losing(bench.queue(), 0);
        let wire = broker.wire.clone();
        let consumer = QueueConsumer::new(&executor, &acme(), CONSUMER, broker).backoff(SOON).tries(2);
        let calls = move |_: Incoming| {
            let again = request().wait(Wait::No);
            async move { Ok::<_, String>(Reaction::<Own>::call(again)) }
        };
        let _consuming = consumer.start(calls).await.unwrap();
        bench.publish(1).await;
        until(async || wire.told.lock().unwrap().len() >= 6).await;
        goes_on.notify_one();
        bench.settled().await;
        assert!(matches!(first.await.unwrap().unwrap(), Outcome::Done(_)));
        assert_eq!(questions(&executor).await, [""; 0]);
        assert_eq!(wire.told.lock().unwrap().last(), Some(&Told::Acknowledged));
    }

    // The database refuses to commit what one message does, and takes everything else. Each refusal is a try of that message.
    #[tokio::test]
    async fn a_message_whose_transaction_cannot_be_committed_is_set_aside() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let tables = "CREATE TABLE parent (id BIGINT PRIMARY KEY); \
                      CREATE TABLE child (parent BIGINT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
        own.execute(tables).await.unwrap();
        let mut bench = Bench::new().await;
        let consumer = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue()).backoff(SOON).tries(2);
        let orphan = async |_: Incoming| {
            Ok::<_, String>(Reaction::transaction(|db: &mut Own| {
                Box::pin(async move { db.execute("INSERT INTO child VALUES (7)").await.map(drop) })
            }))
        };
        let _consuming = consumer.start(orphan).await.unwrap();
        bench.publish(1).await;
        bench.settled().await;
        assert_eq!(questions(&executor).await.len(), 1);
    }

    // A handler that takes longer than the broker waits: the message is kept alive, and not delivered to anybody else.
    #[tokio::test]
    async fn a_long_handler_keeps_its_message_alive() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::new().await;
        // With one hand no message is asked for meanwhile, and the silence of the server is no end of the session.
        let broker = Lossy::losing(bench.queue(), 0);
        let wire = broker.wire.clone();
        let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, broker)
            .in_hand(1)
            .start(async |message: Incoming| {
                SystemClock.sleep(ACK_WAIT * 5 / 2).await; // what is tested: longer than the broker waits, and than silence is borne
                Ok::<_, String>(enters(number(&message)))
            })
            .await
            .unwrap();
        bench.publish(1).await;
        bench.settled().await;
        assert_eq!((entered(&mut own).await, bench.deliveries().await), (vec![1], 1));
        assert_eq!(wire.opened.load(Ordering::SeqCst), 1, "the session goes on");
    }

    #[tokio::test]
    async fn a_handler_that_takes_too_long_has_failed() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::new().await;
        let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
            .handler_limit(Duration::from_millis(50))
            .tries(1)
            .start(async |message: Incoming| {
                if number(&message) == 1 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>(enters(number(&message)))
            })
            .await
            .unwrap();
        bench.publish(1).await;
        bench.publish(2).await;
        bench.settled().await;
        assert_eq!(entered(&mut own).await, [2]);
        let questions = questions(&executor).await;
        assert!(questions[0].contains("the handler took longer than 50ms"), "{questions:?}");
    }

    // Each limit of the broker that ends before ours is refused at the start, and the error says what to write instead.
    #[tokio::test]
    async fn limits_that_end_before_ours_are_refused() {
        let (_place, executor, _own) = ledger::sqlite().await;
        let stream = StreamConfig {
            max_age: Duration::from_mins(1),
            duplicate_window: Duration::from_secs(30),
            max_messages: 1000,
            retention: RetentionPolicy::WorkQueue,
            ..orders()
        };
        let consumer = ConsumerConfig { max_deliver: 5, ack_wait: Duration::from_millis(200), ..billing() };
        let bench = Bench::with(stream, consumer).await;
        let consumer = || QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue());
        let refused = consumer().in_order().start(async |_| Ok::<_, String>(enters(0))).await.unwrap_err();
        let text = refused.to_string();
        let QueueError::Limits { problems, .. } = refused else { panic!("{refused}") };
        let limits: Vec<_> = problems.iter().map(|problem| problem.limit).collect();
        let all = [
            BrokerLimit::Deliveries,
            BrokerLimit::AcknowledgeWithin,
            BrokerLimit::KeptFor,
            BrokerLimit::DropsWhenFull,
            BrokerLimit::KeepsSetAside,
            BrokerLimit::InOrder,
        ];
        assert_eq!(limits, all, "{text}");
        for instead in [
            "nats ORDERS: no message was consumed",
            "`max_deliver: -1` of the consumer billing",
            "`ack_wait` of the consumer billing (or its `backoff`) at least 1 s",
            "`max_age` of the stream ORDERS at least",
            "`discard: new` of the stream ORDERS",
            "`NatsQueue::set_aside_to`",
            "`max_ack_pending: 1` of the consumer billing",
        ] {
            assert!(text.contains(instead), "{instead}: {text}");
        }
        assert!(matches!(consumer().check().await, Err(QueueError::Limits { .. })));
        let nowhere = NatsQueue::new(bench.nats.clone(), STREAM, "nobody");
        let nowhere = QueueConsumer::new(&executor, &acme(), CONSUMER, nowhere).check().await;
        assert!(matches!(nowhere, Err(QueueError::Broker(_))), "{nowhere:?}");
        assert!(
            QueueConsumer::new(&executor, &acme(), "", bench.queue())
                .start(async |_| Ok::<_, String>(enters(0)))
                .await
                .is_err()
        );
    }

    // One at a time, in the order of the stream: a message that fails holds back those behind it.
    #[tokio::test]
    async fn in_order_a_failing_message_holds_back_those_behind_it() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::with(orders(), ConsumerConfig { max_ack_pending: 1, ..billing() }).await;
        for number in 1..=4 {
            bench.publish(number).await;
        }
        let failed = AtomicU32::new(0);
        let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
            .backoff(SOON)
            .in_order()
            .start(move |message| {
                let number = number(&message);
                let fails = number == 2 && failed.fetch_add(1, Ordering::SeqCst) < 3;
                async move { if fails { Err("not yet") } else { Ok(enters(number)) } }
            })
            .await
            .unwrap();
        bench.settled().await;
        let order: Vec<i64> =
            sqlx::query_scalar("SELECT what FROM entry ORDER BY rowid").fetch_all(&mut own).await.unwrap();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    // A work queue deletes what is settled: what is set aside is copied first.
    #[tokio::test]
    async fn what_a_work_queue_sets_aside_is_kept() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let stream = StreamConfig { retention: RetentionPolicy::WorkQueue, ..orders() };
        let mut bench = Bench::with(stream, billing()).await;
        let aside = StreamConfig { name: "ASIDE".to_owned(), subjects: vec!["aside".to_owned()], ..orders() };
        let aside = bench.nats.create_stream(aside).await.unwrap();
        let _consuming =
            QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue().set_aside_to("aside"))
                .tries(1)
                .start(async |message: Incoming| match number(&message) {
                    1 => Err("never"),
                    number => Ok(enters(number)),
                })
                .await
                .unwrap();
        bench.publish(1).await;
        bench.publish(2).await;
        bench.settled().await;
        assert_eq!(entered(&mut own).await, [2]);
        let kept = aside.get_last_raw_message_by_subject("aside").await.unwrap();
        assert_eq!(&*kept.payload, b"1");
        let why = kept.headers.get("Counterfoil-Set-Aside").unwrap().to_string();
        assert!(why.contains("question"), "{why}");
    }

    // Two streams whose senders count alike, one place for what is set aside, and headers of NATS that were meant for the original.
    #[tokio::test]
    async fn each_message_that_is_set_aside_has_a_copy_of_its_own() {
        let (_place, executor, _own) = ledger::sqlite().await;
        let bench = Bench::new().await;
        let aside = StreamConfig { name: "ASIDE".to_owned(), subjects: vec!["aside".to_owned()], ..orders() };
        let mut aside = bench.nats.create_stream(aside).await.unwrap();
        let other = StreamConfig { name: "OTHER".to_owned(), subjects: vec!["other".to_owned()], ..orders() };
        let other = bench.nats.create_stream(other).await.unwrap();
        let _: PullConsumer = other.create_consumer(billing()).await.unwrap();
        let sent = PublishMessage::build().message_id("order-1").header("Kind", "late");
        bench.send(sent.clone().expected_stream(STREAM), "1").await;
        let sent = sent.expected_stream("OTHER").payload("2".into());
        bench.nats.send_publish("other", sent).await.unwrap().await.unwrap();
        let mut running = Vec::new();
        for stream in [STREAM, "OTHER"] {
            let queue = NatsQueue::new(bench.nats.clone(), stream, CONSUMER).set_aside_to("aside");
            let consumer = QueueConsumer::new(&executor, &acme(), CONSUMER, queue).tries(1);
            let consuming = consumer.start(async |_: Incoming| Err::<Reaction<Own>, _>("never")).await;
            running.push(consuming.unwrap());
        }
        until(async || aside.info().await.unwrap().state.messages == 2).await;
        for sequence in 1..=2 {
            let copy = aside.get_raw_message(sequence).await.unwrap();
            let header = |name: &str| copy.headers.get(name).map(ToString::to_string);
            assert_eq!(header("Counterfoil-Message-Id").as_deref(), Some("order-1"));
            assert_eq!((header("Kind").as_deref(), header("Nats-Expected-Stream")), (Some("late"), None));
        }
        for consuming in running {
            assert!(consuming.shutdown(EVER).await);
        }
    }

    // The end of a consumer: what is in hand is finished and acknowledged, and what was not begun is delivered to the next one at once.
    #[tokio::test]
    async fn the_end_of_a_consumer_finishes_what_is_in_hand() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::with(orders(), ConsumerConfig { ack_wait: EVER * 10, ..billing() }).await;
        let (begun, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, may_go_on) = (begun.clone(), goes_on.clone());
        let consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
            .in_hand(2)
            .start(move |message| {
                let (begins, may_go_on) = (begins.clone(), may_go_on.clone());
                async move {
                    begins.notify_one();
                    may_go_on.notified().await;
                    Ok::<_, String>(enters(number(&message)))
                }
            })
            .await
            .unwrap();
        bench.publish(1).await;
        begun.notified().await;
        let ends = tokio::spawn(consuming.shutdown(EVER));
        // The pull request for a second message is taken back while the first one is still in hand.
        while bench.consumer.info().await.unwrap().num_waiting > 0 {}
        bench.publish(2).await;
        goes_on.notify_one();
        assert!(ends.await.unwrap());
        assert_eq!(entered(&mut own).await, [1]);
        let _next = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
            .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
            .await
            .unwrap();
        bench.settled().await; // long before the time for an acknowledgement is over
        assert_eq!(entered(&mut own).await, [1, 2]);
    }

    // Messages with ids of their own, about one invoice. A message without an invoice is not known by its id instead.
    #[tokio::test]
    async fn a_policy_says_which_messages_are_one() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::new().await;
        let policy = Policy::parse("queues: {billing: {tenant: single, key: [topic, /invoice/id]}}").unwrap();
        let billing = policy.queue("billing").unwrap();
        let _consuming = billing
            .consumer(&executor, &acme(), bench.queue())
            .start(async |message: Incoming| {
                let body: Value = message.json().map_err(|error| error.to_string())?;
                Ok::<_, String>(enters(body["invoice"]["id"].as_i64().unwrap_or_default()))
            })
            .await
            .unwrap();
        for (id, body) in [
            ("a", r#"{"invoice":{"id":7}}"#),
            ("b", r#"{"invoice":{"id":7},"try":2}"#),
            ("c", r#"{"invoice":{"id":8}}"#),
            ("d", r#"{"invoice":{"id":null}}"#),
        ] {
            bench.send(PublishMessage::build().message_id(id), body).await;
        }
        bench.settled().await;
        assert_eq!(entered(&mut own).await, [7, 8]);
        let questions = questions(&executor).await;
        assert!(questions.len() == 1 && questions[0].contains("lacks a part"), "{questions:?}");
    }

    // Two tenants, and an older version.
    #[tokio::test]
    async fn a_message_belongs_to_a_tenant_and_brings_a_version() {
        let (_place, executor, mut own) = ledger::sqlite().await;
        let mut bench = Bench::with(orders(), ConsumerConfig { max_ack_pending: 1, ..billing() }).await;
        let tenant =
            |message: &Incoming| message.header_named("tenant").and_then(|name| Tenant::new(name).ok());
        let version = |message: &Incoming| {
            let version = message.header_named("version")?.parse().ok()?;
            Some(("order/9".to_owned(), version))
        };
        let send = |tenant: &str, version: &str, number: i64| {
            let message = PublishMessage::build().message_id(format!("{tenant}-{version}"));
            (message.header("Tenant", tenant).header("Version", version), number.to_string())
        };
        for (tenant, version, number) in
            [("acme", "2", 1), ("acme", "1", 2), ("globex", "1", 3), ("", "1", 4), ("acme", "3", 5)]
        {
            let (message, payload) = send(tenant, version, number);
            bench.send(message, &payload).await;
        }
        let _consuming = QueueConsumer::new(&executor, &acme(), CONSUMER, bench.queue())
            .tenant_of(tenant)
            .version(version)
            .in_order()
            .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
            .await
            .unwrap();
        bench.settled().await;
        assert_eq!(entered(&mut own).await, [1, 3, 5], "the older version and what is nobody's are left out");
        let questions = questions(&executor).await;
        assert!(questions.len() == 1 && questions[0].contains("names nobody"), "{questions:?}");
    }
}

mod on_postgres {
    tests!(PgConnection, ledger::postgres());
}
