//! Messages of RabbitMQ, from a real `rabbitmq-server`: the second broker, which has no sequence, no delay and no keep-alive.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::door::Reaction;
use counterfoil::queue::{BrokerLimit, Incoming, QueueConsumer, QueueError, RabbitQueue};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection};
use sqlx::{PgConnection, SqliteConnection};
use tokio::sync::{Mutex, Notify};

use super::ledger::{self, EVER, SOON, acme, on, questions, until};
use super::lossy::{Lossy, Told};
use crate::own_server::daemon::Daemon;
use crate::own_server::proxy::Proxy;
use crate::own_server::rabbitmq::{self, arguments, long, uri, write_down};

/// A server for all tests that run at the same time: it takes seconds to start.
async fn shared() -> Arc<Daemon> {
    static SHARED: Mutex<Weak<Daemon>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Daemon::start(rabbitmq::server).await);
    *shared = Arc::downgrade(&started);
    started
}

/// A queue of one test, and the one for its dead letters.
struct Bench {
    queue: String,
    port: u16,
    channel: Channel,
    _connection: Connection,
}

impl Bench {
    async fn at(server: &Daemon) -> Self {
        let queue = format!("orders-{}", uuid::Uuid::now_v7().simple());
        let connection = rabbitmq::connected(server.port()).await;
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let aside = format!("{queue}.aside");
        channel.queue_declare(aside.into(), durable, FieldTable::default()).await.unwrap();
        let declared = channel.queue_declare(queue.as_str().into(), durable, arguments(&queue, &[])).await;
        declared.unwrap();
        Self { queue, port: server.port(), channel, _connection: connection }
    }

    fn queue(&self) -> RabbitQueue {
        self.through(self.port)
    }

    /// By this port.
    fn through(&self, port: u16) -> RabbitQueue {
        RabbitQueue::new(uri(port), &*self.queue, arguments(&self.queue, &[]))
    }

    /// A message with an id, about this number.
    async fn publish(&self, number: i64) {
        let properties = BasicProperties::default().with_message_id(format!("order-{number}").into());
        self.send(properties, &number.to_string()).await;
    }

    async fn send(&self, properties: BasicProperties, payload: &str) {
        let (options, persistent) = (BasicPublishOptions::default(), properties.with_delivery_mode(2));
        let queue = self.queue.as_str().into();
        let sent =
            self.channel.basic_publish("".into(), queue, options, payload.as_bytes(), persistent).await;
        assert!(sent.unwrap().await.unwrap().is_ack());
    }

    /// Messages that nobody has in hand.
    async fn left(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.channel
            .queue_declare(queue.into(), passive, FieldTable::default())
            .await
            .unwrap()
            .message_count()
    }

    async fn aside(&self) -> u32 {
        self.left(&format!("{}.aside", self.queue)).await
    }
}

fn number(message: &Incoming) -> i64 {
    message.json().unwrap()
}

fn consumer(executor: &Executor, queue: RabbitQueue) -> QueueConsumer<RabbitQueue> {
    QueueConsumer::new(executor, &acme(), "billing", queue).backoff(SOON)
}

/// The same tests on both databases.
macro_rules! tests {
    ($connection:ty, $open:expr) => {
        use super::*;

        on!($connection);

        // The acknowledgement gets lost behind the seal, and the connection: the broker delivers again, and nothing is done twice.
        #[tokio::test]
        async fn a_message_that_is_delivered_again_is_processed_once() {
            let (server, (_place, executor, mut own)) = (shared().await, $open.await);
            let bench = Bench::at(&server).await;
            let proxy = Proxy::to(server.port()).await;
            let broker = Lossy::losing(bench.through(proxy.port()), 1);
            let (wire, called) = (broker.wire.clone(), Arc::new(AtomicU32::new(0)));
            let calls = called.clone();
            let consuming = QueueConsumer::new(&executor, &acme(), "billing", broker)
                .backoff(SOON)
                .start(move |message| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    async move { Ok::<_, String>(enters(number(&message))) }
                })
                .await
                .unwrap();
            bench.publish(1).await;
            let told = || wire.told.lock().unwrap().len();
            until(async || told() == 1).await;
            proxy.cut();
            until(async || told() == 2).await;
            assert!(consuming.shutdown(EVER).await);
            assert_eq!(*wire.told.lock().unwrap(), [Told::Acknowledged, Told::Acknowledged]);
            assert_eq!((entered(&mut own).await, called.load(Ordering::SeqCst)), (vec![1], 1));
            assert_eq!(bench.left(&bench.queue).await, 0);
        }

        // Errors and what is no JSON: given back with pauses; what never succeeds goes to the dead letters, and others proceed.
        #[tokio::test]
        async fn poison_is_set_aside_and_others_proceed() {
            let (server, (_place, executor, mut own)) = (shared().await, $open.await);
            let bench = Bench::at(&server).await;
            let failed = AtomicU32::new(0);
            let consuming = consumer(&executor, bench.queue())
                .tries(3)
                .in_hand(2)
                .start(move |message| {
                    let fails = message.payload() == "2" && failed.fetch_add(1, Ordering::SeqCst) < 2;
                    async move {
                        let number: i64 = message.json().map_err(|error| error.to_string())?;
                        if fails || number == 3 { Err(format!("not {number}")) } else { Ok(enters(number)) }
                    }
                })
                .await
                .unwrap();
            for number in 1..=5 {
                bench.publish(number).await;
            }
            bench.send(BasicProperties::default().with_message_id("text".into()), "no { json").await;
            until(async || entered(&mut own).await.len() == 4 && bench.aside().await == 2).await;
            assert!(consuming.shutdown(EVER).await);
            assert_eq!((entered(&mut own).await, bench.left(&bench.queue).await), (vec![1, 2, 4, 5], 0));
            let questions = questions(&executor).await.join("\n");
            for evidence in [":id:order-3 could not be processed by billing in 3 tries", "not 3", ":id:text"]
            {
                assert!(questions.contains(evidence), "{evidence}: {questions}");
            }
        }

        // The node is killed in the middle, and started again on its data.
        #[tokio::test]
        async fn a_restart_of_the_broker_loses_and_repeats_nothing() {
            let mut server = Daemon::start(rabbitmq::server).await;
            let (_place, executor, mut own) = $open.await;
            let bench = Bench::at(&server).await;
            write_down(&server).await;
            let (held, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (holds, may_go_on) = (held.clone(), goes_on.clone());
            // Not by the broker's hint: a broker that was killed may have forgotten that it has delivered the message.
            let second = AtomicU32::new(0);
            let consuming = consumer(&executor, bench.queue())
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
            server.kill();
            goes_on.notify_one(); // sealed while nobody can be told
            server.start_again().await;
            let again = Bench { queue: bench.queue.clone(), ..Bench::at(&server).await };
            again.publish(4).await;
            until(async || entered(&mut own).await.len() == 4).await;
            assert!(consuming.shutdown(EVER).await);
            assert_eq!((entered(&mut own).await, again.left(&again.queue).await), (vec![1, 2, 3, 4], 0));
        }
    };
}

mod on_sqlite {
    tests!(SqliteConnection, ledger::sqlite());

    // RabbitMQ has no number for a message that lasts: nobody could tell whether it comes twice.
    #[tokio::test]
    async fn a_message_without_an_id_is_set_aside_unless_the_host_has_a_key() {
        let (server, (_place, executor, mut own)) = (shared().await, ledger::sqlite().await);
        let bench = Bench::at(&server).await;
        let handler = async |message: Incoming| Ok::<_, String>(enters(number(&message)));
        let consuming = consumer(&executor, bench.queue()).start(handler).await.unwrap();
        for payload in ["1", "1"] {
            bench.send(BasicProperties::default(), payload).await;
        }
        until(async || bench.aside().await == 2).await;
        assert!(consuming.shutdown(EVER).await);
        let questions = questions(&executor).await;
        assert!(questions.len() == 1 && questions[0].contains("the message has no id"), "{questions:?}");
        assert!(questions[0].contains("give the consumer a `key`"), "{questions:?}");

        let key = |message: &Incoming| Some(format!("order/{}", message.json::<i64>().ok()?));
        let consuming = consumer(&executor, bench.queue()).key(key).start(handler).await.unwrap();
        for payload in ["7", "7", "8"] {
            bench.send(BasicProperties::default(), payload).await;
        }
        until(async || entered(&mut own).await.len() == 2).await;
        assert!(consuming.shutdown(EVER).await);
        assert_eq!((entered(&mut own).await, bench.left(&bench.queue).await), (vec![7, 8], 0));
    }

    // What ends before ours is refused at the start. The arguments are the real ones: others are refused by the broker.
    #[tokio::test]
    async fn limits_that_end_before_ours_are_refused() {
        let (server, (_place, executor, _own)) = (shared().await, ledger::sqlite().await);
        let bench = Bench::at(&server).await;
        let mut ends = FieldTable::default();
        for (name, value) in [
            ("x-message-ttl", AMQPValue::LongInt(60_000)),
            ("x-max-length", AMQPValue::LongInt(1000)),
            ("x-expires", AMQPValue::LongInt(600_000)),
        ] {
            ends.insert(name.into(), value);
        }
        let ends = RabbitQueue::new(uri(bench.port), format!("{}-ends", bench.queue), ends);
        let ends = ends.consumer_timeout(Duration::from_mins(1));
        let refused = consumer(&executor, ends).in_order().check().await.unwrap_err();
        let text = refused.to_string();
        let QueueError::Limits { problems, .. } = refused else { panic!("{refused}") };
        let limits: Vec<_> = problems.iter().map(|problem| problem.limit).collect();
        let all = [
            BrokerLimit::AcknowledgeWithin,
            BrokerLimit::KeptFor,
            BrokerLimit::DropsWhenFull,
            BrokerLimit::ForgetsAfter,
            BrokerLimit::KeepsSetAside,
            BrokerLimit::InOrder,
        ];
        assert_eq!(limits, all, "{text}");
        for instead in
            ["`consumer_timeout` of the broker", "`x-overflow: reject-publish`", "`x-dead-letter-exchange`"]
        {
            assert!(text.contains(instead), "{instead}: {text}");
        }

        let others = arguments(&bench.queue, &[("x-max-length", AMQPValue::LongInt(5))]);
        let others = RabbitQueue::new(uri(bench.port), &*bench.queue, others);
        let refused = consumer(&executor, others).check().await.unwrap_err().to_string();
        assert!(refused.contains("x-max-length"), "{refused}");

        let mut nowhere = FieldTable::default();
        nowhere.insert("x-dead-letter-exchange".into(), long("nobody"));
        let nowhere = RabbitQueue::new(uri(bench.port), format!("{}-nowhere", bench.queue), nowhere);
        let refused = consumer(&executor, nowhere).check().await.unwrap_err().to_string();
        assert!(refused.contains("nobody"), "{refused}");
        assert!(consumer(&executor, bench.queue()).check().await.is_ok());
    }

    // The end of a consumer: what is in hand is finished, and what has come and was not begun goes back.
    #[tokio::test]
    async fn the_end_of_a_consumer_finishes_what_is_in_hand() {
        let (server, (_place, executor, mut own)) = (shared().await, ledger::sqlite().await);
        let bench = Bench::at(&server).await;
        let (begun, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, may_go_on) = (begun.clone(), goes_on.clone());
        for number in 1..=3 {
            bench.publish(number).await;
        }
        let consuming = consumer(&executor, bench.queue())
            .in_hand(1)
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
        begun.notified().await;
        let ends = tokio::spawn(consuming.shutdown(EVER));
        until(async || bench.left(&bench.queue).await == 2).await; // while the first one is still in hand
        goes_on.notify_one();
        assert!(ends.await.unwrap());
        assert_eq!((entered(&mut own).await, bench.left(&bench.queue).await), (vec![1], 2));
    }

    // A failed message waits unacknowledged; the end of the consumer does not wait for it.
    #[tokio::test]
    async fn a_pause_ends_with_its_consumer() {
        let (server, (_place, executor, _own)) = (shared().await, ledger::sqlite().await);
        let bench = Bench::at(&server).await;
        let failed = Arc::new(Notify::new());
        let fails = failed.clone();
        let hour =
            counterfoil::ledger::Backoff { base: Duration::from_mins(20), cap: Duration::from_mins(20) };
        let consuming = consumer(&executor, bench.queue())
            .backoff(hour)
            .start(move |_| {
                let fails = fails.clone();
                async move {
                    fails.notify_one();
                    Err::<Reaction<Own>, _>("never")
                }
            })
            .await
            .unwrap();
        bench.publish(1).await;
        failed.notified().await;
        assert!(consuming.shutdown(EVER).await);
        assert_eq!(bench.left(&bench.queue).await, 1);
    }

    // The network between is cut, several times.
    #[tokio::test]
    async fn a_connection_that_is_cut_comes_back() {
        let (server, (_place, executor, mut own)) = (shared().await, ledger::sqlite().await);
        let bench = Bench::at(&server).await;
        let proxy = Proxy::to(server.port()).await;
        let consuming = consumer(&executor, bench.through(proxy.port()))
            .start(async |message: Incoming| Ok::<_, String>(enters(number(&message))))
            .await
            .unwrap();
        for number in 1..=20 {
            bench.publish(number).await;
            if number % 7 == 0 {
                proxy.cut();
            }
        }
        until(async || entered(&mut own).await.len() == 20).await;
        assert!(consuming.shutdown(EVER).await);
        assert_eq!(entered(&mut own).await, (1..=20).collect::<Vec<_>>());
        until(async || bench.left(&bench.queue).await == 0).await;
    }
}

mod on_postgres {
    tests!(PgConnection, ledger::postgres());
}
