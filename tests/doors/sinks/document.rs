//! The document sink, against an index that keeps external versions as Elasticsearch does: what is not newer is answered with 409.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use counterfoil::outbox::{PublishResult, Sink as _};
use counterfoil::{DocumentSink, IndexDocument, Tenant};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Events, MINUTE, Service, refused};

#[derive(Clone, Default)]
struct Index {
    documents: Arc<Mutex<BTreeMap<String, (i64, Value)>>>,
    /// The next answers, before it looks at anything.
    answers: Arc<Mutex<VecDeque<u16>>>,
    /// Puts that were answered with 409.
    conflicts: Arc<Mutex<u32>>,
}

async fn takes(
    State(index): State<Index>,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    if let Some(answer) = index.answers.lock().unwrap().pop_front() {
        return StatusCode::from_u16(answer).unwrap();
    }
    assert_eq!(query["version_type"], "external");
    assert_eq!(headers["content-type"], "application/json");
    let version: i64 = query["version"].parse().unwrap();
    let Ok(body) = serde_json::from_str::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    if body == json!("mapper_parsing_exception") {
        return StatusCode::BAD_REQUEST;
    }
    let mut documents = index.documents.lock().unwrap();
    match documents.get(&id) {
        Some((stored, _)) if *stored >= version => {
            *index.conflicts.lock().unwrap() += 1;
            StatusCode::CONFLICT
        }
        _ => {
            documents.insert(id, (version, body));
            StatusCode::CREATED
        }
    }
}

impl Index {
    async fn serve(&self, listener: TcpListener) {
        let app = Router::new().route("/orders/_doc/{id}", put(takes)).layer(DefaultBodyLimit::max(1 << 20));
        axum::serve(listener, app.with_state(self.clone())).await.unwrap();
    }

    async fn start() -> (Self, DocumentSink) {
        let index = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sink = sink(&listener);
        let serving = index.clone();
        tokio::spawn(async move { serving.serve(listener).await });
        (index, sink)
    }

    fn answer(&self, answers: &[u16]) {
        self.answers.lock().unwrap().extend(answers);
    }

    fn documents(&self) -> Vec<(String, i64, Value)> {
        let documents = self.documents.lock().unwrap();
        documents.iter().map(|(id, (version, body))| (id.clone(), *version, body.clone())).collect()
    }

    fn conflicts(&self) -> u32 {
        *self.conflicts.lock().unwrap()
    }
}

fn sink(listener: &TcpListener) -> DocumentSink {
    let url = format!("http://{}/orders/_doc", listener.local_addr().unwrap());
    DocumentSink::new(&url, MINUTE).unwrap()
}

fn document(id: &str, version: i64) -> (String, i64, Value) {
    (id.to_owned(), version, json!({ "version": version }))
}

#[tokio::test]
async fn a_replay_changes_nothing_and_an_older_version_overwrites_no_newer_one() {
    let (index, sink) = Index::start().await;
    let events = Events::new().await;
    let batch = [events.of("order/1", 1), events.of("order/1", 2), events.of("order/2", 1)];
    assert_eq!(sink.publish(&batch).await, Ok(PublishResult::all()));
    let stored = [document("acme/order/1", 2), document("acme/order/2", 1)];
    assert_eq!(index.documents(), stored);
    assert_eq!(sink.publish(&batch).await, Ok(PublishResult::all()));
    assert_eq!(sink.publish(&batch[..1]).await, Ok(PublishResult::all()));
    assert_eq!((index.documents(), index.conflicts()), (stored.into(), 4));
    assert_eq!(sink.publish(&[events.of("order/1", 3)]).await, Ok(PublishResult::all()));
    assert_eq!(index.documents()[0], document("acme/order/1", 3));
}

#[tokio::test]
async fn an_index_that_is_away_is_tried_again() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (place, sink) = (free.local_addr().unwrap(), sink(&free));
    drop(free);
    let events = Events::new().await;
    let batch = [events.of("order/1", 1), events.of("order/2", 1)];
    let away = sink.publish(&batch).await.unwrap_err();
    assert!(!away.to_string().contains("orders"), "no address: {away}");
    let mut service = Service::with(sink).await;
    service.emit("order/1", "placed").await;
    service.emit("order/1", "paid").await;
    let index = Index::default();
    index.answer(&[503, 429, 408, 500]);
    let listener = TcpListener::bind(place).await.unwrap();
    let serving = index.clone();
    tokio::spawn(async move { serving.serve(listener).await });
    while index.documents() != [("acme/order/1".to_owned(), 2, json!({ "of": "paid" }))] {
        tokio::task::yield_now().await;
    }
    assert!(service.asked(0).await.is_empty());
}

#[tokio::test]
async fn a_refused_document_holds_back_its_aggregate_alone() {
    let (index, sink) = Index::start().await;
    let events = Events::new().await;
    let bad = events.told("order/2", 1, "said", &json!("mapper_parsing_exception"));
    let batch = [events.of("order/1", 1), bad, events.of("order/2", 2), events.of("order/3", 1)];
    refused(&sink.publish(&batch).await, 1, "400");
    assert_eq!(index.documents(), [document("acme/order/1", 1), document("acme/order/3", 1)]);

    let sink = sink.documents(|event| {
        let mut document = IndexDocument::of(event);
        if event.kind == "bad" {
            document.body = "no JSON".into();
        }
        (event.kind != "left out").then_some(document)
    });
    let mut service = Service::with(sink).await;
    for (aggregate, kind) in [("a", "bad"), ("a", "good"), ("b", "left out"), ("b", "good")] {
        service.emit(aggregate, kind).await;
    }
    let asked = service.asked(1).await;
    assert!(asked[0].contains("refused 2 times") && asked[0].contains("400"), "{asked:?}");
    while !index.documents().contains(&("acme/b".to_owned(), 2, json!({ "of": "good" }))) {
        tokio::task::yield_now().await;
    }
    assert!(index.documents().iter().all(|(id, ..)| id != "acme/a"), "{:?}", index.documents());
}

#[tokio::test]
async fn a_huge_document_is_refused_and_a_large_one_is_taken() {
    let (index, sink) = Index::start().await;
    let events = Events::new().await;
    let of_size = |aggregate, bytes| events.told(aggregate, 1, "said", &json!("x".repeat(bytes)));
    let batch = [of_size("huge", 8 << 20), of_size("large", 1 << 19)];
    let acked = sink.publish(&batch).await;
    // A server that refuses while it is still being sent to may close the connection before its 413 is read.
    let Ok(acked) = acked else { panic!("{acked:?}") };
    assert_ne!(acked, PublishResult::all());
    assert_eq!(index.documents().len(), 1);
    assert_eq!(index.documents()[0].0, "acme/large");
}

#[tokio::test]
async fn hostile_names_stay_ids() {
    let (index, sink) = Index::start().await;
    let events = Events::new().await;
    let names =
        ["../../_all/_doc/x", "a/b?version=99&refresh", "a#b", "%2e%2e", "ä 💥", "a\\b", "a;b,c", "acme%2Fb"];
    for name in names {
        assert_eq!(sink.publish(&[events.of(name, 1)]).await, Ok(PublishResult::all()), "{name}");
        let id = format!("acme/{name}");
        assert!(
            index.documents().iter().any(|(stored, version, _)| *stored == id && *version == 1),
            "{name}"
        );
    }
    assert_eq!(index.documents().len(), names.len());
    let bare = sink
        .clone()
        .documents(|event| Some(IndexDocument { id: event.aggregate.clone(), ..IndexDocument::of(event) }));
    for name in ["", ".", ".."] {
        refused(&bare.publish(&[events.of(name, 1)]).await, 0, "cannot be the id of a document");
    }
    assert_eq!(index.documents().len(), names.len());

    let of_tenant = |tenant: &str, aggregate: &str| {
        let mut event = events.of(aggregate, 1);
        event.tenant = Tenant::new(tenant).unwrap();
        event
    };
    let ids = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]
        .map(|(tenant, aggregate)| IndexDocument::of(&of_tenant(tenant, aggregate)).id);
    assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2], "{ids:?}");
}

#[test]
fn a_url_that_is_none_is_refused() {
    for wrong in ["", "orders/_doc", "mailto:ann@example.org", "http://h/_doc?pretty", "http://h/_doc#x"] {
        assert!(DocumentSink::new(wrong, MINUTE).is_err(), "{wrong}");
    }
}
