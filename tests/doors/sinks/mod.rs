//! Sinks for pipelines: rows of another database, documents of an index.

mod document;
mod rows;
mod statement;

use std::time::Duration;

use counterfoil::ledger::Backoff;
use counterfoil::outbox::{self, Event, NewEvent, PublishResult, Publisher, Sink, SinkError};
use counterfoil::{Executor, Payload, Tenant};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;
use tokio::sync::mpsc;

const MINUTE: Duration = Duration::from_mins(1);

/// A service whose events go to a sink.
struct Service {
    _folder: TempDir,
    executor: Executor,
    own: SqliteConnection,
}

impl Service {
    /// What is refused twice is set aside.
    async fn with(sink: impl Sink) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.db");
        let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(20) };
        let publisher = Publisher::new(sink).tries(2).backoff(backoff);
        let executor = Executor::sqlite(&file).sink(publisher).open().await.unwrap();
        let own = SqliteConnectOptions::new().filename(&file).busy_timeout(MINUTE).connect().await.unwrap();
        Self { _folder: folder, executor, own }
    }

    async fn emit(&mut self, aggregate: &str, kind: &str) {
        self.own.execute("BEGIN IMMEDIATE").await.unwrap();
        let event = NewEvent {
            id: format!("{aggregate}/{kind}"),
            aggregate: aggregate.into(),
            kind: kind.into(),
            payload: Payload::of(&json!({ "of": kind })).unwrap(),
        };
        outbox::add(&mut self.own, &acme(), event).await.unwrap();
        self.own.execute("COMMIT").await.unwrap();
        self.executor.notify_publisher();
    }

    /// Waits for this many questions; what they say.
    async fn asked(&self, count: usize) -> Vec<String> {
        loop {
            let asked = self.executor.questions(&acme()).await.unwrap();
            if asked.len() >= count {
                return asked.into_iter().map(|asked| asked.question).collect();
            }
            tokio::task::yield_now().await;
        }
    }
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

struct Caught(mpsc::UnboundedSender<Event>);

impl Sink for Caught {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        for event in batch {
            self.0.send(event.clone()).unwrap();
        }
        Ok(PublishResult::all())
    }
}

/// Events as the outbox hands them to a sink.
struct Events(Event);

impl Events {
    async fn new() -> Self {
        let (sender, mut caught) = mpsc::unbounded_channel();
        let mut service = Service::with(Caught(sender)).await;
        service.emit("order/1", "placed").await;
        Self(caught.recv().await.unwrap())
    }

    /// One of this aggregate and sequence.
    fn of(&self, aggregate: &str, seq: i64) -> Event {
        self.told(aggregate, seq, "said", &json!({ "version": seq }))
    }

    fn told(&self, aggregate: &str, seq: i64, kind: &str, payload: &Value) -> Event {
        let mut event = self.0.clone();
        event.id = format!("{aggregate}/{seq}");
        (event.aggregate, event.seq, event.kind) = (aggregate.into(), seq, kind.into());
        event.payload = Payload::of(payload).unwrap();
        event
    }
}

/// That all but this one, by its place in the batch, was taken, and that this one is the event's own fault.
fn refused(acked: &Result<PublishResult, SinkError>, place: usize, words: &str) {
    let Ok(acked) = acked else { panic!("{acked:?}") };
    let said = format!("{acked:?}");
    assert!(said.contains(words), "{said}");
    let one = (0..100).find(|n| said.contains(&format!("({n}, "))).unwrap();
    assert_eq!((one, said.matches("refused: true").count()), (place, 1), "{said}");
    assert_eq!(said.matches("SinkError").count(), 1, "{said}");
}
