//! The provider: a bank with an HTTP interface that replays keys, can be searched by key, and fails on demand.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

/// A fault of one request to charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// 429, with `Retry-After: 1`.
    Busy,
    /// 503, before anything has happened.
    Down,
    /// The charge is made, and no answer ever comes.
    AnswerLost,
}

#[derive(Default)]
struct Books {
    charges: Vec<Value>,
    faults: VecDeque<Fault>,
    requests: usize,
    lookups: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Bank(Arc<Mutex<Books>>);

#[derive(Deserialize)]
struct Search {
    key: String,
}

impl Bank {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next requests to charge meet, one after the other.
    pub(crate) fn fails(&self, faults: impl IntoIterator<Item = Fault>) {
        self.books().faults.extend(faults);
    }

    /// The numbers of requests to charge, of lookups and of charges.
    pub(crate) fn counted(&self) -> (usize, usize, usize) {
        let books = self.books();
        (books.requests, books.lookups, books.charges.len())
    }

    /// Serves on a free port of the loopback.
    pub(crate) async fn open(&self) -> std::io::Result<SocketAddr> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/charges", get(search).post(charge)).with_state(self.clone());
        tokio::spawn(axum::serve(listener, routes).into_future());
        Ok(address)
    }
}

async fn charge(State(bank): State<Bank>, headers: HeaderMap, Json(order): Json<Value>) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let (fault, answer) = {
        let mut books = bank.books();
        books.requests += 1;
        let fault = books.faults.pop_front();
        let known = books.charges.iter().find(|charge| charge["key"] == key).cloned();
        let answer = match (fault, known) {
            (Some(Fault::Busy), _) => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
            (Some(Fault::Down), _) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            (_, Some(charge)) => Json(charge).into_response(),
            _ if order["cents"] == 0 => (StatusCode::UNPROCESSABLE_ENTITY, "nothing to pay").into_response(),
            _ => {
                let id = format!("ch_{}", books.charges.len() + 1);
                let charge = json!({ "id": id, "key": key, "cents": order["cents"] });
                books.charges.push(charge.clone());
                (StatusCode::CREATED, Json(charge)).into_response()
            }
        };
        (fault, answer)
    };
    match fault {
        Some(Fault::AnswerLost) => pending().await,
        _ => answer,
    }
}

async fn search(State(bank): State<Bank>, Query(search): Query<Search>) -> Json<Value> {
    let mut books = bank.books();
    books.lookups += 1;
    let found: Vec<_> = books.charges.iter().filter(|charge| charge["key"] == search.key).cloned().collect();
    Json(json!({ "data": found }))
}
