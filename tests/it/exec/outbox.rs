//! The outbox: events are published in their order, failures hold back their own aggregate and no other, and what nobody
//! takes is set aside until somebody says what becomes of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::ledger::Backoff;
use counterfoil::outbox::{self, Event, NewEvent, PublishResult, Publisher, Sink, SinkError};
use counterfoil::payload::Limits;
use counterfoil::store::{Model, QuestionKind, Resolution};
use counterfoil::{Ctx, Engine, Failure, Payload, PayloadError, Tenant};
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::sync::mpsc;

use crate::store::postgres::Schema;
use crate::world::TestClock;

/// Hands on what it takes, and refuses what it is told to.
#[derive(Clone)]
struct Listener {
    heard: mpsc::UnboundedSender<Event>,
    refuses: Arc<Mutex<BTreeMap<String, SinkError>>>,
    tries: Arc<Mutex<usize>>,
}

impl Listener {
    fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (heard, inbox) = mpsc::unbounded_channel();
        (Self { heard, refuses: Arc::default(), tries: Arc::default() }, inbox)
    }

    fn refuse(&self, kind: &str, error: SinkError) {
        self.refuses.lock().unwrap().insert(kind.to_owned(), error);
    }

    /// Waits until it has been tried so often.
    async fn is_tried(&self, times: usize) {
        while *self.tries.lock().unwrap() < times {
            tokio::task::yield_now().await;
        }
    }

    fn accept(&self) {
        self.refuses.lock().unwrap().clear();
    }
}

impl Sink for Listener {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let (mut acked, refuses) = (PublishResult::all(), self.refuses.lock().unwrap().clone());
        *self.tries.lock().unwrap() += 1;
        let mut behind = Vec::new();
        for (place, event) in batch.iter().enumerate() {
            if let Some(error) = refuses.get(&event.kind) {
                acked = acked.except(place, error.clone());
                behind.push(event.aggregate.clone());
            } else if !behind.contains(&event.aggregate) {
                self.heard.send(event.clone()).unwrap();
            }
        }
        Ok(acked)
    }
}

async fn tells(ctx: Ctx, about: (String, Vec<String>)) -> Result<(), Failure> {
    let (aggregate, kinds) = about;
    for kind in kinds {
        ctx.emit(&aggregate, kind.as_str(), &aggregate).await?;
    }
    Ok(())
}

fn kinds(kinds: &[&str]) -> Vec<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

async fn next(hears: &mut mpsc::UnboundedReceiver<Event>) -> (String, i64, String) {
    let event = hears.recv().await.unwrap();
    (event.aggregate, event.seq, event.kind)
}

fn told(aggregate: &str, seq: i64, kind: &str) -> (String, i64, String) {
    (aggregate.to_owned(), seq, kind.to_owned())
}

fn quickly(sink: Listener) -> Publisher {
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(20) };
    Publisher::new(sink).backoff(backoff).tries(2)
}

async fn engine(path: &std::path::Path, sink: impl Into<Publisher>) -> Engine {
    Engine::sqlite(path).workflow("tells", 1, tells).sink(sink).start().await.unwrap()
}

#[tokio::test]
async fn what_a_run_emits_is_published_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let (sink, mut hears) = Listener::new();
    let started = engine(&path, sink).await;
    let acme = started.tenant("acme").unwrap();
    acme.run(tells, ("order/1".to_owned(), kinds(&["placed", "paid"]))).key("1").await.unwrap();
    assert_eq!(next(&mut hears).await, told("order/1", 1, "placed"));
    assert_eq!(next(&mut hears).await, told("order/1", 2, "paid"));
    acme.run(tells, ("order/1".to_owned(), kinds(&["sent"]))).key("2").await.unwrap();
    assert_eq!(next(&mut hears).await, told("order/1", 3, "sent"));
    started.shutdown(Duration::from_secs(5)).await;
    // What was published is not published again.
    let (sink, mut hears) = Listener::new();
    let started = engine(&path, sink).await;
    let acme = started.tenant("acme").unwrap();
    acme.run(tells, ("order/1".to_owned(), kinds(&["closed"]))).key("3").await.unwrap();
    assert_eq!(next(&mut hears).await, told("order/1", 4, "closed"));
}

#[tokio::test]
async fn a_large_payload_is_published_whole() {
    async fn tells(ctx: Ctx, size: usize) -> Result<(), Failure> {
        ctx.emit("book", "written", &"x".repeat(size)).await
    }
    let folder = tempfile::tempdir().unwrap();
    let (sink, mut hears) = Listener::new();
    let engine = Engine::sqlite(folder.path().join("test.db")).workflow("tells", 1, tells).sink(sink);
    let engine = engine.start().await.unwrap();
    engine.tenant("acme").unwrap().run(tells, 200_000).key("1").await.unwrap();
    let event = hears.recv().await.unwrap();
    assert_eq!(event.payload.as_str().len(), 200_002);
}

#[tokio::test]
async fn a_refused_event_holds_back_its_aggregate_and_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let (sink, mut hears) = Listener::new();
    sink.refuse("bad", SinkError::refused("422: no such customer"));
    let engine = engine(&folder.path().join("test.db"), quickly(sink.clone())).await;
    let acme = engine.tenant("acme").unwrap();
    acme.run(tells, ("a".to_owned(), kinds(&["good", "bad", "late", "bad"]))).key("1").await.unwrap();
    assert_eq!(next(&mut hears).await, told("a", 1, "good"));
    acme.run(tells, ("b".to_owned(), kinds(&["good"]))).key("2").await.unwrap();
    assert_eq!(next(&mut hears).await, told("b", 1, "good"), "another aggregate goes on");
    let (tenant, executor) = (Tenant::new("acme").unwrap(), engine.executor());
    let asked = async || loop {
        if let [asked] = &executor.questions(&tenant).await.unwrap()[..] {
            break asked.clone();
        }
        tokio::task::yield_now().await;
    };
    let question = asked().await;
    assert_eq!(question.kind, QuestionKind::Unpublished);
    for evidence in ["a #2", "bad", "refused 2 times", "422: no such customer"] {
        assert!(question.question.contains(evidence), "{}", question.question);
    }
    // Tried again, it is refused again; left out, what is behind it goes on to the next one.
    executor.answer(&tenant, question.id, Resolution::Again, "bob").await.unwrap();
    let again = asked().await;
    assert_ne!(again.id, question.id);
    executor.answer(&tenant, again.id, Resolution::Skip, "bob").await.unwrap();
    assert_eq!(next(&mut hears).await, told("a", 3, "late"));
    let last = asked().await;
    sink.accept();
    executor.answer(&tenant, last.id, Resolution::Again, "bob").await.unwrap();
    assert_eq!(next(&mut hears).await, told("a", 4, "bad"));
}

/// Writes an event about a and then one about b, damages the first one, and hears of b although a fills the batch.
async fn b_is_published_behind_a_damaged_a(damage: &'static str) -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let limits = Limits { inline_bytes: 64, max_bytes: 8 << 20 };
    let writer = Engine::sqlite(&path).limits(limits).workflow("tells", 1, tells).start().await.unwrap();
    let (long, acme) = ("a".repeat(100), writer.tenant("acme").unwrap());
    acme.run(tells, (long, kinds(&["good"]))).key("1").await.unwrap();
    acme.run(tells, ("b".to_owned(), kinds(&["good"]))).key("2").await.unwrap();
    writer.shutdown(Duration::from_secs(5)).await;
    let mut own = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    own.execute(damage).await.unwrap();
    sqlx::Connection::close(own).await.unwrap();
    let (sink, mut hears) = Listener::new();
    let engine = engine(&path, quickly(sink).batch(1)).await;
    assert_eq!(next(&mut hears).await, told("b", 1, "good"));
    (engine, folder)
}

#[tokio::test]
async fn a_damaged_event_holds_back_its_aggregate_and_is_asked_about() {
    let (engine, _folder) = b_is_published_behind_a_damaged_a("DELETE FROM payload").await;
    let acme = Tenant::new("acme").unwrap();
    let asked = loop {
        if let [asked] = &engine.executor().questions(&acme).await.unwrap()[..] {
            break asked.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(asked.kind, QuestionKind::Unpublished);
    assert!(asked.question.contains("it is missing"), "{}", asked.question);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_event_whose_row_cannot_be_read_holds_back_its_aggregate_and_no_other() {
    let damage = "UPDATE outbox SET payload = '@no digest' WHERE aggregate <> 'b'";
    let (engine, _folder) = b_is_published_behind_a_damaged_a(damage).await;
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_sink_that_is_away_sets_nothing_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (sink, mut hears) = Listener::new();
    sink.refuse("placed", SinkError::unavailable("503"));
    let engine = engine(&folder.path().join("test.db"), quickly(sink.clone()).tries(1)).await;
    let acme = engine.tenant("acme").unwrap();
    acme.run(tells, ("a".to_owned(), kinds(&["placed"]))).key("1").await.unwrap();
    sink.is_tried(20).await;
    assert!(engine.executor().questions(&Tenant::new("acme").unwrap()).await.unwrap().is_empty());
    sink.accept();
    assert_eq!(next(&mut hears).await, told("a", 1, "placed"));
}

fn paid(id: &str, aggregate: &str, of: u32) -> NewEvent {
    let payload = Payload::of(&of).unwrap();
    NewEvent { id: id.into(), aggregate: aggregate.into(), kind: "paid".into(), payload }
}

/// Two transactions of the user's own on the ledger's database, of which one is rolled back.
macro_rules! own_transactions {
    ($engine:expr, $own:expr, $begin:literal, $hears:expr) => {
        let (acme, own) = (Tenant::new("acme").unwrap(), $own);
        own.execute($begin).await.unwrap();
        outbox::add(own, &acme, paid("1", "order/1", 7)).await.unwrap();
        outbox::add(own, &acme, paid("2", "order/1", 8)).await.unwrap();
        outbox::add(own, &acme, paid("1", "order/1", 7)).await.unwrap(); // the same again
        own.execute("COMMIT").await.unwrap();
        own.execute($begin).await.unwrap();
        outbox::add(own, &acme, paid("3", "order/1", 9)).await.unwrap();
        let taken = outbox::add(own, &acme, paid("1", "order/1", 9)).await;
        assert!(matches!(taken, Err(outbox::AddError::Conflict { .. })), "{taken:?}");
        own.execute("ROLLBACK").await.unwrap();
        own.execute($begin).await.unwrap();
        outbox::add(own, &acme, paid("4", "order/1", 10)).await.unwrap();
        own.execute("COMMIT").await.unwrap();
        $engine.executor().notify_publisher();
        for (seq, id) in [(1, "1"), (2, "2"), (3, "4")] {
            let event = $hears.recv().await.unwrap();
            assert_eq!((event.seq, event.id.as_str()), (seq, id));
        }
        let run = (String::from("order/1"), kinds(&["sent"]));
        $engine.tenant("acme").unwrap().run(tells, run).key("1").await.unwrap();
        assert_eq!(next(&mut $hears).await, told("order/1", 4, "sent"), "it stands behind them");
    };
}

#[tokio::test]
async fn events_are_added_in_transactions_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let (sink, mut hears) = Listener::new();
    let engine = engine(&path, sink).await;
    let own = &mut sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    own_transactions!(engine, own, "BEGIN IMMEDIATE", hears);
}

#[tokio::test]
async fn events_are_added_in_transactions_of_ones_own_on_postgresql() {
    let schema = Schema::new();
    let (sink, mut hears) = Listener::new();
    let engine = Engine::postgres_with(crate::server::url(), schema.options());
    let engine = engine.workflow("tells", 1, tells).sink(sink).start().await.unwrap();
    let own = &mut schema.plain().await;
    own_transactions!(engine, own, "BEGIN", hears);
}

/// An event that is too large for its row.
fn large(id: &str) -> NewEvent {
    NewEvent { payload: Payload::of(&"x".repeat(20_000)).unwrap(), ..paid(id, "order/1", 0) }
}

/// A large event is added twice, and another event with its id is refused: its payload is used once.
macro_rules! added_twice {
    ($own:expr) => {
        let (acme, own) = (Tenant::new("acme").unwrap(), $own);
        outbox::add(own, &acme, large("1")).await.unwrap();
        outbox::add(own, &acme, large("1")).await.unwrap();
        let other = NewEvent { kind: "sent".into(), ..large("1") };
        assert!(matches!(outbox::add(own, &acme, other).await, Err(outbox::AddError::Conflict { .. })));
        let uses: Vec<i64> =
            sqlx::query_scalar("SELECT uses FROM payload").fetch_all(&mut *own).await.unwrap();
        assert_eq!(uses, [1]);
        let below = Payload::of(&"y".repeat(20_000)).unwrap();
        let other = NewEvent { payload: below, ..large("1") };
        assert!(matches!(outbox::add(own, &acme, other).await, Err(outbox::AddError::Conflict { .. })));
        let rows: i64 =
            sqlx::query_scalar("SELECT count(*) FROM payload").fetch_one(&mut *own).await.unwrap();
        assert_eq!(rows, 1, "the payload of an event that was not added is not kept");
    };
}

#[tokio::test]
async fn the_payload_of_an_event_that_is_added_twice_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let _engine = Engine::sqlite(&path).start().await.unwrap();
    let own = &mut sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    added_twice!(own);
}

#[tokio::test]
async fn the_payload_of_an_event_that_is_added_twice_is_used_once_on_postgresql() {
    let schema = Schema::new();
    let _engine = Engine::postgres_with(crate::server::url(), schema.options()).start().await.unwrap();
    let own = &mut schema.plain().await;
    added_twice!(own);
}

#[tokio::test]
async fn an_event_is_held_to_the_limits_that_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let limits = Limits { inline_bytes: 64, max_bytes: 8 << 20 };
    let (sink, mut hears) = Listener::new();
    let engine = Engine::sqlite(&path).limits(limits).sink(sink).start().await.unwrap();
    let own = &mut sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let acme = Tenant::new("acme").unwrap();
    let long = |bytes| NewEvent { payload: Payload::of(&"x".repeat(bytes)).unwrap(), ..paid("1", "a", 0) };
    let refused = outbox::add(own, &acme, long(5 << 20)).await;
    let too_large =
        |error: &outbox::AddError| matches!(error, outbox::AddError::Payload(PayloadError::TooLarge { .. }));
    assert!(refused.is_err_and(|error| too_large(&error)), "over the default limit");
    let refused = outbox::add_within(own, &acme, long(9 << 20), &limits).await;
    assert!(refused.is_err_and(|error| too_large(&error)), "over the engine's limit");
    outbox::add_within(own, &acme, long(5 << 20), &limits).await.unwrap();
    outbox::add_within(own, &acme, NewEvent { id: "2".into(), ..long(100) }, &limits).await.unwrap();
    let apart: i64 = sqlx::query_scalar("SELECT count(*) FROM payload").fetch_one(&mut *own).await.unwrap();
    assert_eq!(apart, 2, "each is larger than a row may hold");
    engine.executor().notify_publisher();
    assert_eq!(hears.recv().await.unwrap().payload.as_str().len(), (5 << 20) + 2);
    assert_eq!(hears.recv().await.unwrap().payload.as_str().len(), 102);
}

/// Takes everything, and tells the sizes of the payloads of each batch.
struct Scales(mpsc::UnboundedSender<Vec<usize>>);

impl Sink for Scales {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        self.0.send(batch.iter().map(|event| event.payload.as_str().len()).collect()).unwrap();
        Ok(PublishResult::all())
    }
}

// A sink's own limit may lie just above that of a batch.
#[tokio::test]
async fn a_batch_is_never_larger_than_its_limit_unless_it_is_one_event() {
    async fn tells(ctx: Ctx, sizes: Vec<usize>) -> Result<(), Failure> {
        for size in sizes {
            ctx.emit("book", "written", &"x".repeat(size - 2)).await?;
        }
        Ok(())
    }
    const LIMIT: usize = 8 << 20;
    let (sent, mut batches) = mpsc::unbounded_channel();
    let limits = Limits { inline_bytes: 1024, max_bytes: 2 * LIMIT };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let sizes = [LIMIT / 2, LIMIT / 2, 10, LIMIT + 1, 10, LIMIT / 2 + 1, LIMIT / 2];
    let engine = Engine::sqlite(&path).limits(limits).workflow("tells", 1, tells).start().await.unwrap();
    engine.tenant("acme").unwrap().run(tells, sizes.to_vec()).key("1").await.unwrap();
    engine.shutdown(Duration::from_secs(5)).await;
    let engine = Engine::sqlite(&path).limits(limits).workflow("tells", 1, tells).sink(Scales(sent));
    let _engine = engine.start().await.unwrap();
    let mut left = &sizes[..];
    for expected in [2, 1, 1, 2, 1] {
        let batch = batches.recv().await.unwrap();
        assert_eq!(batch, left[..expected]);
        left = &left[expected..];
    }
}

/// An engine among others on one database.
async fn worker(schema: &Schema, sink: Option<Listener>) -> Engine {
    let mut options = schema.options();
    options.notify = true;
    let builder = Engine::postgres_with(crate::server::url(), options).lease(Duration::from_secs(2));
    let builder = builder.workflow("tells", 1, tells);
    let builder = match sink {
        Some(sink) => builder.sink(sink),
        None => builder,
    };
    builder.start().await.unwrap()
}

// Of several workers one publishes; when it goes, the next one does, from where it is durable that the first had come to.
#[tokio::test]
async fn workers_publish_one_after_the_other() {
    let schema = Schema::new();
    let ((first, mut hears_first), (second, mut hears_second)) = (Listener::new(), Listener::new());
    let first = worker(&schema, Some(first)).await;
    let run = async |engine: &Engine, key: &str| {
        let run = (String::from("a"), kinds(&[key]));
        engine.tenant("acme").unwrap().run(tells, run).key(key).await.unwrap();
    };
    run(&first, "1").await;
    assert_eq!(next(&mut hears_first).await, told("a", 1, "1"));
    let (second, third) = (worker(&schema, Some(second)).await, worker(&schema, None).await);
    run(&second, "2").await;
    assert_eq!(next(&mut hears_first).await, told("a", 2, "2"), "the first one publishes for the others");
    run(&third, "3").await;
    assert_eq!(next(&mut hears_first).await, told("a", 3, "3"));
    first.shutdown(Duration::from_secs(5)).await;
    run(&third, "4").await;
    assert_eq!(next(&mut hears_second).await, told("a", 4, "4"));
}

// Commits of one aggregate are in the order of their places, whichever of two workers makes them.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_add_to_one_aggregate() {
    let schema = Schema::new();
    let (sink, mut hears) = Listener::new();
    let (one, two) = (worker(&schema, Some(sink)).await, worker(&schema, None).await);
    let runs = (0..60).map(|n: u32| {
        let engine = if n.is_multiple_of(2) { &one } else { &two };
        let run = (String::from("a"), kinds(&["x", "y"]));
        engine.tenant("acme").unwrap().run(tells, run).key(n.to_string()).into_future()
    });
    futures_util::future::try_join_all(runs).await.unwrap();
    for place in 1..=120 {
        assert_eq!(next(&mut hears).await.1, place);
    }
}

// Published events go when their time is over; what is not published stays.
#[tokio::test]
async fn published_events_are_deleted_in_the_end() {
    let (hands, model) = (TestClock::default(), Arc::new(Model::new()));
    let (sink, mut hears) = Listener::new();
    sink.refuse("bad", SinkError::refused("no"));
    let publisher = Publisher::new(sink).tries(1).keep(Duration::from_hours(1));
    let engine =
        Engine::store(model.clone()).clock(hands.clone()).workflow("tells", 1, tells).sink(publisher);
    let engine = engine.start().await.unwrap();
    let run = (String::from("a"), kinds(&["x", "y", "bad", "z"]));
    let run = engine.tenant("acme").unwrap().run(tells, run).key("1").start().await.unwrap();
    let mut left = 0;
    for _ in 0..2000 {
        hands.advance(Duration::from_secs(10));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        left = model.events().len();
        if left == 2 {
            break;
        }
    }
    run.result().await.unwrap();
    assert_eq!((hears.recv().await.unwrap().seq, hears.recv().await.unwrap().seq), (1, 2));
    let mut kinds: Vec<_> = model.events().into_iter().map(|event| event.kind).collect();
    kinds.sort();
    assert_eq!((left, kinds), (2, vec!["bad".to_owned(), "z".to_owned()]));
}
