//! The provider over real HTTP: each contract, then each fault.
//!
//! Nothing sleeps to synchronise: what happens elsewhere is awaited by asking the provider until it shows.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(
    clippy::disallowed_methods,
    reason = "real sockets to a world with its own time: nothing here is simulated"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::server::{self, Behaviour, Contract};

/// Long enough for any machine; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

struct Provider {
    address: SocketAddr,
    client: Client,
    server: JoinHandle<()>,
    dir: tempfile::TempDir,
}

async fn listen(db: &Path) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let db = db.to_owned();
    (address, tokio::spawn(async move { server::serve(&db, listener).await.unwrap() }))
}

impl Provider {
    async fn healthy() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (address, server) = listen(&dir.path().join("provider.db")).await;
        Self { address, client: Client::builder().timeout(PATIENCE).build().unwrap(), server, dir }
    }

    async fn that(behaviour: Behaviour) -> Self {
        let provider = Self::healthy().await;
        provider.behave(&json!(behaviour)).await;
        provider
    }

    async fn of(contract: Contract) -> Self {
        Self::that(Behaviour { contract, ..Behaviour::default() }).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn behave(&self, behaviour: &Value) {
        let response = self.client.put(self.url("/behaviour")).json(behaviour).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.client.get(self.url(path)).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn create(&self, key: Option<&str>, text: &str) -> Response {
        let request = self.client.post(self.url("/notices")).json(&content(text));
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        request.send().await.unwrap()
    }

    async fn put(&self, id: &str, text: &str) -> (u16, Value) {
        let request = self.client.put(self.url(&format!("/notices/{id}"))).json(&content(text));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn cancel(&self, id: &str) -> (u16, Value) {
        let response = self.client.post(self.url(&format!("/notices/{id}/cancel"))).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// A client in a task of its own, for those that are never answered or that die.
    fn create_in_background(&self, key: Option<&'static str>) -> JoinHandle<()> {
        let request = Client::new().post(self.url("/notices")).json(&content("hello"));
        tokio::spawn(async move {
            let request = match key {
                Some(key) => request.header("Idempotency-Key", key),
                None => request,
            };
            let _ = request.send().await;
        })
    }

    async fn effects(&self) -> i64 {
        self.get("/effects").await.1["effects"]["order-1"].as_i64().unwrap_or(0)
    }

    async fn unseen(&self) -> i64 {
        self.get("/effects").await.1["unseen"].as_i64().unwrap()
    }

    async fn requests(&self) -> i64 {
        self.get("/effects").await.1["requests"].as_i64().unwrap()
    }

    async fn until_effects(&self, wanted: i64) {
        timeout(PATIENCE, async { while self.effects().await != wanted {} }).await.unwrap();
    }

    async fn until_requests(&self, wanted: i64) {
        timeout(PATIENCE, async { while self.requests().await != wanted {} }).await.unwrap();
    }

    async fn found(&self) -> usize {
        let (status, page) = self.get("/notices?reference=order-1").await;
        assert_eq!(status, 200);
        page["items"].as_array().unwrap().len()
    }
}

fn content(text: &str) -> Value {
    json!({ "reference": "order-1", "recipient": "ada", "text": text })
}

async fn body(response: Response) -> Value {
    response.json().await.unwrap()
}

#[tokio::test]
async fn replays_key_gives_the_first_answer_and_has_one_effect() {
    let provider = Provider::of(Contract::ReplaysKey).await;
    let first = provider.create(Some("k"), "hello").await;
    assert_eq!(first.status(), 201);
    assert!(!first.headers().contains_key("idempotent-replayed"));
    let first = body(first).await;
    assert!(first["id"].as_str().unwrap().starts_with("ntc_"));
    assert_eq!((&first["reference"], &first["status"]), (&json!("order-1"), &json!("sent")));

    // The stored answer, even though the notice has changed since.
    assert_eq!(provider.cancel(first["id"].as_str().unwrap()).await.0, 200);
    let again = provider.create(Some("k"), "hello").await;
    assert_eq!(again.status(), 200);
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(body(again).await, first);

    let other = provider.create(Some("k"), "goodbye").await;
    assert_eq!(other.status(), 400);
    assert_eq!(body(other).await["error"], "idempotency_error");
    assert_eq!((provider.effects().await, provider.requests().await), (1, 3));

    assert_eq!(provider.create(Some("another"), "hello").await.status(), 201);
    assert_eq!(provider.create(None, "hello").await.status(), 201);
    assert_eq!(provider.effects().await, 3);
}

#[tokio::test]
async fn one_key_sent_by_many_at_once_has_one_effect() {
    let provider = Provider::of(Contract::ReplaysKey).await;
    let clients: Vec<_> = (0..20).map(|_| provider.create_in_background(Some("k"))).collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!((provider.effects().await, provider.requests().await), (1, 20));
}

#[tokio::test]
async fn rejects_key_refuses_without_the_result() {
    let provider = Provider::of(Contract::RejectsKey).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 201);
    for text in ["hello", "goodbye"] {
        let again = provider.create(Some("k"), text).await;
        assert_eq!(again.status(), 409);
        assert_eq!(body(again).await, json!({ "error": "duplicate" }));
    }
    assert_eq!((provider.effects().await, provider.found().await), (1, 1));
}

#[tokio::test]
async fn a_key_is_forgotten_after_its_window() {
    let window_ms = 50;
    let provider = Provider::that(Behaviour { key_window_ms: Some(window_ms), ..Behaviour::default() }).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 201);
    tokio::time::sleep(Duration::from_millis(window_ms + 10)).await; // the window itself
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 201);
    assert_eq!(provider.effects().await, 2);
}

#[tokio::test]
async fn natural_key_creates_only_what_is_not_there() {
    let provider = Provider::of(Contract::NaturalKey).await;
    let (status, created) = provider.put("mine", "hello").await;
    assert_eq!((status, &created["id"]), (201, &json!("mine")));
    assert_eq!(provider.put("mine", "goodbye").await, (412, created.clone()));
    assert_eq!(provider.get("/notices/mine").await, (200, created));
    assert_eq!(provider.get("/notices/other").await.0, 404);
    assert_eq!((provider.effects().await, provider.requests().await), (1, 2));
}

#[tokio::test]
async fn lookup_ignores_keys_and_shows_all_pages_oldest_first() {
    let provider = Provider::of(Contract::Lookup).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(body(provider.create(Some("k"), "hello").await).await["id"].clone());
    }
    let mut found = Vec::new();
    let mut page = json!(1);
    while !page.is_null() {
        let (status, answer) = provider.get(&format!("/notices?reference=order-1&page={page}")).await;
        assert_eq!(status, 200);
        let items = answer["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        found.extend(items.iter().map(|notice| notice["id"].clone()));
        page = answer["next"].clone();
    }
    assert_eq!(found, ids);
    let first = provider.get("/notices?reference=order-1&page=1").await;
    assert_eq!(provider.get("/notices?reference=order-1").await, first);
    assert_eq!(provider.get("/notices?reference=order-1&page=0").await, first);
    assert_eq!(provider.get("/notices?reference=order-2").await.1, json!({ "items": [], "next": null }));
}

#[tokio::test]
async fn a_full_last_page_has_no_next() {
    let provider = Provider::of(Contract::Lookup).await;
    provider.create(None, "hello").await;
    provider.create(None, "hello").await;
    assert!(provider.get("/notices?reference=order-1").await.1["next"].is_null());
}

#[tokio::test]
async fn blind_and_ignores_key_have_neither_keys_nor_lookups() {
    for contract in [Contract::Blind, Contract::IgnoresKey] {
        let provider = Provider::of(contract).await;
        let mut last = Value::Null;
        for _ in 0..2 {
            let response = provider.create(Some("k"), "hello").await;
            assert_eq!(response.status(), 201);
            last = body(response).await;
        }
        let id = last["id"].as_str().unwrap();
        for path in ["/notices?reference=order-1", &format!("/notices/{id}")] {
            assert_eq!(provider.get(path).await, (404, json!({ "error": "lookup not offered" })));
        }
        assert_eq!(provider.effects().await, 2);
    }
}

#[tokio::test]
async fn cancelling_twice_is_cancelling_once_and_leaves_the_effect_counted() {
    let provider = Provider::healthy().await;
    let id = body(provider.create(None, "hello").await).await["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let (status, notice) = provider.cancel(&id).await;
        assert_eq!((status, &notice["status"]), (200, &json!("cancelled")));
    }
    assert_eq!(provider.cancel("nobody").await.0, 404);
    let seen =
        json!({ "effects": { "order-1": 1 }, "cancelled": { "order-1": 1 }, "requests": 1, "unseen": 0 });
    assert_eq!(provider.get("/effects").await, (200, seen));
    let (_, page) = provider.get("/notices?reference=order-1").await;
    assert_eq!(page["items"][0]["status"], "cancelled");
}

#[tokio::test]
async fn effects_and_keys_survive_a_restart() {
    let mut provider = Provider::healthy().await;
    let first = body(provider.create(Some("k"), "hello").await).await;
    provider.server.abort();
    (provider.address, provider.server) = listen(&provider.dir.path().join("provider.db")).await;
    let again = provider.create(Some("k"), "hello").await;
    assert_eq!(again.status(), 200);
    assert_eq!(body(again).await, first);
    assert_eq!((provider.effects().await, provider.requests().await), (1, 2));
}

#[tokio::test]
async fn behaviour_is_set_as_a_whole_and_a_misspelt_fault_is_refused() {
    let provider = Provider::healthy().await;
    provider.behave(&json!({ "contract": "blind", "store_twice": true })).await;
    provider.behave(&json!({ "contract": "rejects_key" })).await;
    let expected = Behaviour { contract: Contract::RejectsKey, ..Behaviour::default() };
    assert_eq!(provider.get("/behaviour").await, (200, json!(expected)));
    let misspelt = provider.client.put(provider.url("/behaviour")).json(&json!({ "store_thrice": true }));
    assert_eq!(misspelt.send().await.unwrap().status(), 422);
}

#[tokio::test]
async fn faults_for_next_end_and_the_class_stays() {
    let provider = Provider::healthy().await;
    let behaviour = json!({ "contract": "rejects_key", "status_before": 503, "faults_for_next": 2 });
    provider.behave(&behaviour).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(provider.create(Some("k"), "hello").await.status().as_u16());
    }
    assert_eq!(statuses, [503, 503, 201, 409]);
    let expected = Behaviour { contract: Contract::RejectsKey, ..Behaviour::default() };
    assert_eq!(provider.get("/behaviour").await.1, json!(expected));

    provider.behave(&json!({ "status_before": 503, "faults_for_next": 0 })).await;
    assert_eq!(provider.create(None, "hello").await.status(), 201);
}

#[tokio::test]
async fn status_before_has_no_effect_and_says_when_to_retry() {
    let provider = Provider::healthy().await;
    for (status, retry_after) in [(503, Some("7")), (429, Some("7")), (500, None)] {
        provider.behave(&json!({ "status_before": status, "retry_after_s": 7 })).await;
        let response = provider.create(Some("k"), "hello").await;
        assert_eq!(response.status(), status);
        assert_eq!(response.headers().get("retry-after").map(|value| value.to_str().unwrap()), retry_after);
    }
    assert_eq!((provider.effects().await, provider.requests().await), (0, 3));
}

#[tokio::test]
async fn status_after_has_the_effect_and_the_key_replays_it() {
    let provider = Provider::healthy().await;
    provider.behave(&json!({ "status_after": 500, "faults_for_next": 1 })).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 500);
    assert_eq!(provider.effects().await, 1);
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 200);
    assert_eq!(provider.effects().await, 1);
}

#[tokio::test]
async fn answer_late_shows_the_effect_before_the_answer() {
    let provider = Provider::that(Behaviour { answer_late_ms: 1000, ..Behaviour::default() }).await;
    let sent = Instant::now();
    let client = provider.create_in_background(None);
    provider.until_effects(1).await;
    assert!(!client.is_finished());
    client.await.unwrap();
    assert!(sent.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn apply_late_answers_after_the_effect() {
    let provider = Provider::that(Behaviour { apply_late_ms: 300, ..Behaviour::default() }).await;
    let sent = Instant::now();
    assert_eq!(provider.create(None, "hello").await.status(), 201);
    assert!(sent.elapsed() >= Duration::from_millis(300));
    assert_eq!(provider.effects().await, 1);
}

#[tokio::test]
async fn apply_late_has_the_effect_though_the_client_is_gone() {
    let provider = Provider::that(Behaviour { apply_late_ms: 1000, ..Behaviour::default() }).await;
    let client = provider.create_in_background(None);
    provider.until_requests(1).await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    assert_eq!((provider.effects().await, provider.found().await), (0, 0));
    provider.until_effects(1).await;
}

#[tokio::test]
async fn a_request_held_back_collides_with_the_one_that_overtook_it_only_if_keys_are_honoured() {
    for (contract, effects) in [(Contract::ReplaysKey, 1), (Contract::Lookup, 2)] {
        let provider = Provider::healthy().await;
        let faults = json!({ "contract": contract, "apply_late_ms": 1000, "faults_for_next": 1 });
        provider.behave(&faults).await;
        let held_back = provider.create_in_background(Some("k"));
        provider.until_requests(1).await;
        assert_eq!(provider.create(Some("k"), "hello").await.status(), 201);
        assert_eq!((provider.effects().await, provider.unseen().await), (1, 1));
        held_back.await.unwrap(); // it is answered after it was applied
        assert_eq!(provider.unseen().await, 0);
        assert_eq!(provider.effects().await, effects);
    }
}

#[tokio::test]
async fn hang_after_commit_has_the_effect_and_lasts_until_the_client_leaves() {
    let provider = Provider::that(Behaviour { hang_after_commit: true, ..Behaviour::default() }).await;
    let mut client = provider.create_in_background(Some("k"));
    provider.until_effects(1).await;
    assert!(timeout(Duration::from_millis(200), &mut client).await.is_err());
    client.abort();
    provider.behave(&json!({})).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 200);
    assert_eq!(provider.effects().await, 1);
}

#[tokio::test]
async fn truncate_answer_is_a_201_that_cannot_be_read() {
    let provider = Provider::that(Behaviour { truncate_answer: true, ..Behaviour::default() }).await;
    let response = provider.create(None, "hello").await;
    assert_eq!(response.status(), 201);
    let text = response.text().await.unwrap();
    assert!(text.starts_with('{') && serde_json::from_str::<Value>(&text).is_err());
    assert_eq!(provider.effects().await, 1);
}

#[tokio::test]
async fn store_twice_is_two_effects_for_one_request() {
    let provider = Provider::that(Behaviour { store_twice: true, ..Behaviour::default() }).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 201);
    assert_eq!((provider.effects().await, provider.requests().await), (2, 1));
    assert_eq!(provider.found().await, 2);
    assert_eq!(provider.put("mine", "hello").await.0, 201);
    assert_eq!(provider.effects().await, 4);
}

#[tokio::test]
async fn a_forgotten_notice_is_answered_like_any_other_and_has_no_effect() {
    let provider = Provider::that(Behaviour { forget: true, ..Behaviour::default() }).await;
    let response = provider.create(Some("k"), "hello").await;
    assert_eq!(response.status(), 201);
    assert!(body(response).await["id"].as_str().unwrap().starts_with("ntc_"));
    assert_eq!((provider.effects().await, provider.found().await), (0, 0));
    provider.behave(&json!({})).await;
    assert_eq!(provider.create(Some("k"), "hello").await.status(), 201, "the key was forgotten as well");
}

#[tokio::test]
async fn lookup_lag_hides_from_lookups_and_from_nothing_else() {
    let provider = Provider::healthy().await;
    provider.behave(&json!({ "lookup_lag_ms": 1000, "faults_for_next": 1 })).await;
    assert_eq!(provider.put("slow", "hello").await.0, 201);
    assert_eq!(provider.found().await, 0);
    assert_eq!(provider.get("/notices/slow").await.0, 404);
    assert_eq!((provider.effects().await, provider.unseen().await), (1, 1));
    assert_eq!(provider.put("slow", "hello").await.0, 412);
    timeout(PATIENCE, async { while provider.found().await != 1 {} }).await.unwrap();
    assert_eq!(provider.get("/notices/slow").await.0, 200);
}

#[tokio::test]
async fn lookup_status_fails_lookups_until_the_behaviour_is_set_again() {
    let provider = Provider::healthy().await;
    let faults =
        json!({ "lookup_status": 503, "retry_after_s": 1, "hang_after_commit": true, "faults_for_next": 1 });
    provider.behave(&faults).await;
    let client = provider.create_in_background(None);
    provider.until_effects(1).await;
    client.abort();
    for path in ["/notices?reference=order-1", "/notices/any"] {
        assert_eq!(provider.get(path).await.0, 503);
    }
    provider.behave(&json!({})).await;
    assert_eq!(provider.found().await, 1);
}

#[tokio::test]
async fn an_unreadable_key_is_not_taken_for_no_key() {
    let provider = Provider::healthy().await;
    let key = reqwest::header::HeaderValue::from_bytes(b"\xff").unwrap();
    let request = provider.client.post(provider.url("/notices")).header("Idempotency-Key", key);
    assert_eq!(request.json(&content("hello")).send().await.unwrap().status(), 400);
    assert_eq!(provider.effects().await, 0);
}
