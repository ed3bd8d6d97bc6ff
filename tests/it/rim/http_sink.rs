//! The HTTP sink: what it posts, and what it makes of the answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use counterfoil::ledger::Backoff;
use counterfoil::outbox::{self, NewEvent, Publisher};
use counterfoil::{Ctx, Engine, Failure, HttpSink, Payload, Tenant};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use tokio::sync::mpsc;

use crate::world::serve;

/// Answers as it is told to, then with 204; and hands on what it took.
#[derive(Clone)]
struct Consumer {
    answers: Arc<Mutex<VecDeque<StatusCode>>>,
    took: mpsc::UnboundedSender<(HeaderMap, Value)>,
}

async fn takes(
    State(consumer): State<Consumer>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, HeaderMap) {
    let answer = consumer.answers.lock().unwrap().pop_front().unwrap_or(StatusCode::NO_CONTENT);
    if answer.is_success() {
        consumer.took.send((headers, serde_json::from_str(&body).unwrap())).unwrap();
    }
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", "0".parse().unwrap());
    (answer, headers)
}

async fn consumer(answers: &[u16]) -> (String, mpsc::UnboundedReceiver<(HeaderMap, Value)>) {
    let (took, taken) = mpsc::unbounded_channel();
    let answers = answers.iter().map(|code| StatusCode::from_u16(*code).unwrap()).collect();
    let app = Router::new().route("/events", post(takes));
    let app = app.with_state(Consumer { answers: Arc::new(Mutex::new(answers)), took });
    (format!("{}/events", serve(app).await), taken)
}

async fn tells(ctx: Ctx, kinds: Vec<String>) -> Result<(), Failure> {
    for kind in kinds {
        ctx.emit("order/9", kind.as_str(), &json!({ "of": kind })).await?;
    }
    Ok(())
}

async fn engine(folder: &tempfile::TempDir, url: &str, tries: u32) -> Engine {
    let sink = HttpSink::new(url, Duration::from_secs(5)).unwrap();
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(10) };
    let publisher = Publisher::new(sink).tries(tries).backoff(backoff);
    let engine = Engine::sqlite(folder.path().join("test.db")).workflow("tells", 1, tells).sink(publisher);
    engine.start().await.unwrap()
}

#[tokio::test]
async fn events_are_posted_with_their_names_and_places() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mut taken) = consumer(&[503, 429, 408]).await;
    let engine = engine(&folder, &url, 1).await;
    let run = vec!["placed".to_owned(), "paid".to_owned()];
    engine.tenant("acme").unwrap().run(tells, run).key("1").await.unwrap();
    let mut ids = Vec::new();
    for (seq, kind) in [(1, "placed"), (2, "paid")] {
        let (headers, body) = taken.recv().await.unwrap();
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(body["seq"], json!(seq));
        assert_eq!(
            (&body["kind"], &body["aggregate"], &body["tenant"]),
            (&json!(kind), &json!("order/9"), &json!("acme"))
        );
        assert_eq!(body["payload"], json!({ "of": kind }));
        assert_eq!(
            (header("event-aggregate"), header("event-sequence")),
            ("order/9".into(), seq.to_string())
        );
        assert_eq!((&json!(header("event-id")), header("event-tenant")), (&body["id"], "acme".into()));
        assert_eq!(header("idempotency-key"), format!("acme/{}", header("event-id")));
        ids.push(header("event-id"));
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn events_of_two_tenants_with_one_id_have_two_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mut taken) = consumer(&[]).await;
    let engine = engine(&folder, &url, 1).await;
    let path = folder.path().join("test.db");
    let mut own = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let long = "b".repeat(250);
    for (tenant, id) in
        [("acme", "17/paid"), ("acme/17", "paid"), ("globex", "17/paid"), ("globex", long.as_str())]
    {
        let payload = Payload::of(&1999).unwrap();
        let event = NewEvent { id: id.into(), aggregate: "order/17".into(), kind: "paid".into(), payload };
        outbox::add(&mut own, &Tenant::new(tenant).unwrap(), event).await.unwrap();
    }
    engine.executor().notify_publisher();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let (headers, _) = taken.recv().await.unwrap();
        keys.insert(headers["idempotency-key"].to_str().unwrap().to_owned());
    }
    let hashed = keys.pop_last().unwrap();
    assert!(hashed.starts_with("sha256:") && hashed.len() == 71, "{hashed}");
    assert_eq!(Vec::from_iter(keys), ["acme%2F17/paid", "acme/17/paid", "globex/17/paid"]);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_event_that_is_refused_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (url, mut taken) = consumer(&[201, 422, 500, 302, 400]).await;
    let engine = engine(&folder, &url, 3).await;
    let run = vec!["placed".to_owned(), "paid".to_owned()];
    engine.tenant("acme").unwrap().run(tells, run).key("1").await.unwrap();
    assert_eq!(taken.recv().await.unwrap().1["kind"], json!("placed"));
    let (executor, acme) = (engine.executor(), Tenant::new("acme").unwrap());
    let asked = loop {
        if let [asked] = &executor.questions(&acme).await.unwrap()[..] {
            break asked.question.clone();
        }
        tokio::task::yield_now().await;
    };
    assert!(asked.contains("refused 3 times") && asked.contains("400"), "{asked}");
}
