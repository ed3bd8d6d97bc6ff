//! Events of the outbox on NATS JetStream.

use std::time::Duration;

use async_nats::jetstream::stream::Config as StreamConfig;
use counterfoil::outbox::{self, NewEvent, Publisher};
use counterfoil::queue::NatsSink;
use counterfoil::{Ctx, Engine, Failure, Payload, Tenant};
use sqlx::ConnectOptions as _;

use super::ledger::SOON;
use super::nats::{client, orders, server};
use crate::own_server::daemon::Daemon;

async fn order(ctx: Ctx, number: u32) -> Result<(), Failure> {
    for kind in ["placed", "paid", "sent"] {
        ctx.emit(format!("order/{number}"), kind, &number).await?;
    }
    Ok(())
}

/// Keeps what it is given, and gives it to the sink twice: a worker that dies between the sink's answer and its mark does so.
struct Twice(NatsSink);

impl counterfoil::outbox::Sink for Twice {
    async fn publish(
        &self,
        batch: &[counterfoil::outbox::Event],
    ) -> Result<counterfoil::outbox::PublishResult, counterfoil::outbox::SinkError> {
        let first = self.0.publish(batch).await?;
        assert_eq!(self.0.publish(batch).await?, first);
        Ok(first)
    }
}

#[tokio::test]
async fn an_event_that_is_published_twice_is_stored_once_and_in_its_order() {
    let broker = Daemon::start(server).await;
    let nats = client(broker.port()).await;
    let mut stream = nats.create_stream(orders()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sink = NatsSink::new(nats.clone(), |event| format!("orders.{}", event.kind));
    let publisher = Publisher::new(Twice(sink)).backoff(SOON);
    let engine = Engine::sqlite(folder.path().join("test.db")).workflow("order", 1, order).sink(publisher);
    let engine = engine.start().await.unwrap();
    let tenant = engine.tenant("acme").unwrap();
    for number in 0..3 {
        tenant.run(order, number).key(number.to_string()).await.unwrap();
    }
    while stream.info().await.unwrap().state.messages < 9 {}
    engine.shutdown(Duration::from_secs(10)).await;
    assert_eq!(stream.info().await.unwrap().state.messages, 9, "each event once");
    let mut seqs = std::collections::BTreeMap::<String, Vec<String>>::new();
    for sequence in 1..=9 {
        let stored = stream.get_raw_message(sequence).await.unwrap();
        let header = |name: &str| stored.headers.get(name).unwrap().to_string();
        assert_eq!(header("Event-Tenant"), "acme");
        assert_eq!(stored.subject.as_str(), format!("orders.{}", header("Event-Kind")));
        assert!(!header("Nats-Msg-Id").is_empty() && !header("Event-Created-At").is_empty());
        assert_eq!(format!("order/{}", String::from_utf8_lossy(&stored.payload)), header("Event-Aggregate"));
        seqs.entry(header("Event-Aggregate")).or_default().push(header("Event-Sequence"));
    }
    assert!(seqs.len() == 3 && seqs.values().all(|seqs| *seqs == ["1", "2", "3"]), "{seqs:?}");
}

#[tokio::test]
async fn events_of_two_tenants_with_one_id_are_two_messages() {
    let broker = Daemon::start(server).await;
    let nats = client(broker.port()).await;
    let mut stream = nats.create_stream(orders()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let sink = NatsSink::new(nats.clone(), |event| format!("orders.{}", event.kind));
    let engine = Engine::sqlite(&path).sink(Publisher::new(sink).backoff(SOON)).start().await.unwrap();
    let mut own = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    for (tenant, seq) in [("acme", 1), ("globex", 2)] {
        let payload = Payload::of(tenant).unwrap();
        let event =
            NewEvent { id: "17/paid".into(), aggregate: "order/17".into(), kind: "paid".into(), payload };
        outbox::add(&mut own, &Tenant::new(tenant).unwrap(), event).await.unwrap();
        engine.executor().notify_publisher();
        while stream.info().await.unwrap().state.messages < seq {}
        let stored = stream.get_raw_message(seq).await.unwrap();
        let header = |name: &str| stored.headers.get(name).unwrap().to_string();
        assert_eq!((header("Event-Tenant"), header("Event-Id")), (tenant.into(), "17/paid".into()));
        assert_eq!(header("Nats-Msg-Id"), format!("{tenant}/17/paid"));
    }
    engine.shutdown(Duration::from_secs(10)).await;
}

// A broker that is away sets nothing aside; an event that it does not take holds back its own aggregate and no other.
#[tokio::test]
async fn what_the_broker_does_not_take_is_the_events_fault_only_if_it_is() {
    let mut broker = Daemon::start(server).await;
    let nats = client(broker.port()).await;
    let small = StreamConfig { max_message_size: 600, ..orders() };
    let mut stream = nats.create_stream(small).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let subject = |event: &counterfoil::outbox::Event| match &*event.kind {
        "astray" => "nobody.listens".to_owned(),
        "nonsense" => "no subject at all".to_owned(),
        kind => format!("orders.{kind}"),
    };
    let publisher = Publisher::new(NatsSink::new(nats.clone(), subject)).backoff(SOON).tries(2);
    let emits = async |ctx: Ctx, (kind, text): (String, String)| {
        ctx.emit(format!("order/{kind}"), kind.as_str(), &text).await?;
        Ok::<_, Failure>(())
    };
    let engine = Engine::sqlite(folder.path().join("test.db")).workflow("emits", 1, emits).sink(publisher);
    let engine = engine.start().await.unwrap();
    let tenant = engine.tenant("acme").unwrap();
    broker.kill();
    for (kind, text) in [
        ("huge", "x".repeat(1000)),
        ("nonsense", String::new()),
        ("astray", String::new()),
        ("placed", "1".to_owned()),
    ] {
        tenant.run(emits, (kind.to_owned(), text)).key(kind).await.unwrap();
    }
    broker.start_again().await;
    let asked = loop {
        let asked = tenant.questions().await.unwrap();
        let stored = stream.info().await.map_or(0, |info| info.state.messages);
        if asked.len() == 2 && stored == 1 {
            break asked;
        }
        assert!(asked.len() <= 2 && stored <= 1, "{asked:?}, {stored} stored");
    };
    let questions = asked.iter().map(|asked| asked.question.as_str()).collect::<Vec<_>>().join("\n");
    assert!(questions.contains("order/huge") && questions.contains("order/nonsense"), "{questions}");
    engine.shutdown(Duration::from_secs(10)).await;
}
