//! A shop behind the layer: its handler does what the body of a request says, and its orders are counted.

#![allow(unreachable_pub, reason = "shared by all files of this folder")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use counterfoil::http::{
    HandlerCall, Idempotency, IdempotencyLayer, NothingHappened, RequestScope, TookEffect,
};
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::world::soon;

/// What the world outside holds, and what lets handlers go on.
#[derive(Clone)]
pub struct Shop {
    orders: Arc<Mutex<Vec<String>>>,
    arrived: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Default for Shop {
    fn default() -> Self {
        let (arrived, released) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { orders: Arc::default(), arrived, released }
    }
}

impl Shop {
    /// The orders that were taken, each by the key that went downstream.
    pub fn orders(&self) -> Vec<String> {
        self.orders.lock().unwrap().clone()
    }

    fn order(&self, key: &str) -> usize {
        let mut orders = self.orders.lock().unwrap();
        orders.push(key.to_owned());
        orders.len()
    }

    /// Waits until so many handlers wait to be released.
    pub async fn waiting(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let come = async { arrived.wait_for(|arrived| *arrived >= count).await.map(drop) };
        soon(format!("there are no {count} handlers that wait"), come).await;
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

async fn handler(
    State(shop): State<Shop>,
    Extension(call): Extension<HandlerCall>,
    Json(body): Json<Value>,
) -> Response {
    match body["do"].as_str().unwrap_or("order") {
        "refuse" => return (StatusCode::UNPROCESSABLE_ENTITY, "no such article").into_response(),
        "busy" => return (StatusCode::SERVICE_UNAVAILABLE, Extension(NothingHappened)).into_response(),
        "die" => panic!("the handler dies before its effect"),
        _ => {}
    }
    let number = shop.order(&call.key);
    match body["do"].as_str().unwrap_or("order") {
        "fail" => (StatusCode::INTERNAL_SERVER_ERROR, format!("order {number} failed")).into_response(),
        "deny" => (StatusCode::FORBIDDEN, Extension(TookEffect), "blocked now").into_response(),
        "panic" => panic!("the handler dies after its effect"),
        "wait" => {
            shop.arrived.send_modify(|arrived| *arrived += 1);
            shop.released.subscribe().wait_for(|released| *released).await.unwrap();
            format!("order {number}").into_response()
        }
        "binary" => ([(header::CONTENT_TYPE, "image/png")], vec![0, 159, 146, 150, 255]).into_response(),
        "large" => "x".repeat(4096).into_response(),
        "stream" => {
            let frames = futures_util::stream::pending::<Result<String, std::io::Error>>();
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
        }
        "broken" => {
            let frames = [Ok("half"), Err(std::io::Error::other("the disk is gone"))];
            Body::from_stream(futures_util::stream::iter(frames)).into_response()
        }
        _ => {
            let headers = AppendHeaders([
                ("location", format!("/orders/{number}")),
                ("set-cookie", format!("visit={number}")),
                ("x-trace", format!("{number}")),
            ]);
            (StatusCode::CREATED, headers, Json(json!({ "order": number }))).into_response()
        }
    }
}

/// The test's host knows its users by a token, which stands for their tenant.
pub fn scope(request: &axum::http::request::Parts) -> Option<RequestScope> {
    let token = request.headers.get("authorization")?.to_str().ok()?;
    let route = request.extensions.get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    Some(RequestScope::new(Tenant::new(token).ok()?, route))
}

pub fn guard(executor: &Executor) -> Idempotency {
    Idempotency::new(executor, scope)
}

pub fn app(shop: &Shop, layer: IdempotencyLayer) -> Router {
    let handlers = post(handler).get(|| async { "orders" });
    let routes = Router::new().route("/orders", handlers.clone()).route("/carts/{cart}/orders", handlers);
    routes.with_state(shop.clone()).fallback(|| async { StatusCode::NOT_FOUND }).layer(layer)
}

/// Serves it on the loopback, and gives its URL.
pub async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// A shop on a ledger of its own.
pub struct Scene {
    pub dir: tempfile::TempDir,
    pub executor: Executor,
    pub shop: Shop,
    pub url: String,
}

pub async fn open(dir: &tempfile::TempDir) -> Executor {
    Executor::sqlite(dir.path().join("orders.db")).open().await.unwrap()
}

impl Scene {
    pub async fn new() -> Self {
        Self::with(|guard| guard).await
    }

    pub async fn with(say: impl FnOnce(Idempotency) -> Idempotency) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let executor = open(&dir).await;
        let shop = Shop::default();
        let url = serve(app(&shop, say(guard(&executor)).layer().unwrap())).await;
        Self { dir, executor, shop, url }
    }

    pub fn post(&self, key: &str, body: &Value) -> reqwest::RequestBuilder {
        post_to(&format!("{}/orders", self.url), key, body)
    }

    pub async fn send(&self, key: &str, body: &Value) -> Answered {
        answered(self.post(key, body)).await
    }
}

pub fn post_to(url: &str, key: &str, body: &Value) -> reqwest::RequestBuilder {
    reqwest::Client::new().post(url).header("authorization", "acme").header("idempotency-key", key).json(body)
}

/// A response, read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answered {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn is_replayed(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// The name of the problem, which is stable.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], json!(self.status), "{problem}");
        let name = problem["type"].as_str().unwrap().strip_prefix("urn:counterfoil:problem:").unwrap();
        (self.status, name.to_owned())
    }

    pub fn member(&self, name: &str) -> Value {
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        problem[name].clone()
    }
}

pub async fn answered(request: reqwest::RequestBuilder) -> Answered {
    let response = request.timeout(Duration::from_secs(60)).send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answered { status, headers, body: response.bytes().await.unwrap().to_vec() }
}
