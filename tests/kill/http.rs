//! An HTTP service is killed with SIGKILL at random, while its clients retry as clients do: each request takes effect once, and
//! each key has one answer.
//!
//! `COUNTERFOIL_SEED` repeats one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Extension, MatchedPath, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use counterfoil::http::{HandlerCall, Idempotency, LedgerTransaction, RequestScope};
use counterfoil::ledger::LookupResult;
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::harness::Failed;
use crate::harness::role::TENANT;
use crate::own_server::port::Port;
use crate::random::killed_while;
use crate::service::{append, find, lookup};
use crate::{full, run};

/// Each client has one request after the other.
const CLIENTS: usize = 8;
/// So often it is killed at least.
const KILLS: u32 = 6;
/// A handler takes so long before its effect, and again behind it: kills fall into all of it.
const PACE: Duration = Duration::from_millis(5);

/// What only this program can be: the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serves {
    /// The ledger, which is the service's database, too.
    service_db: PathBuf,
    /// The outside world: a line for each charge.
    charges: PathBuf,
    port: u16,
}

/// Until it is killed.
pub(crate) async fn play(own: Serves) -> Result<i32, Failed> {
    let executor = Executor::sqlite(&own.service_db).open().await?;
    let bank: Arc<Path> = own.charges.into();
    let asked = bank.clone();
    let charges = guard(&executor).reconcile(lookup(), move |call, _| {
        let found = find(&asked, &call.key);
        async move {
            Ok(found.map_or(LookupResult::NotFound, |number| LookupResult::Committed {
                output: Response::new(Bytes::from(number.to_string())),
                external_ref: Some(number.to_string()),
            }))
        }
    });
    let entries = guard(&executor).transactional::<SqliteConnection>();
    let app = Router::new()
        .route("/charges", post(charge).with_state(bank).layer(charges.layer()?))
        .route("/entries", post(entry).layer(entries.layer()?));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", own.port)).await?;
    axum::serve(listener, app).await?;
    Ok(0)
}

fn guard(executor: &Executor) -> Idempotency {
    Idempotency::new(executor, |request| {
        let route = request.extensions.get::<MatchedPath>()?;
        Some(RequestScope::new(Tenant::new(TENANT).ok()?, route.as_str()))
    })
}

async fn charge(State(bank): State<Arc<Path>>, Extension(call): Extension<HandlerCall>) -> String {
    SystemClock.sleep(PACE).await;
    let place = append(&bank, &call.key);
    SystemClock.sleep(PACE).await;
    place.to_string()
}

async fn entry(
    Extension(transaction): Extension<LedgerTransaction<SqliteConnection>>,
    Json(body): Json<Value>,
) -> impl IntoResponse {
    SystemClock.sleep(PACE).await;
    let what = body["what"].as_i64().unwrap();
    let entered = transaction.run(move |db: &mut SqliteConnection| {
        Box::pin(async move {
            sqlx::query("INSERT INTO entry (what) VALUES (?)").bind(what).execute(&mut *db).await?;
            sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(db).await
        })
    });
    let number: i64 = entered.await.unwrap();
    SystemClock.sleep(PACE).await;
    (StatusCode::CREATED, number.to_string())
}

/// Sends until there is an answer, twice: what is given again is the same.
async fn asks(url: &str, key: &str, what: usize) -> String {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
    let mut first: Option<String> = None;
    loop {
        let request = client.post(url).header("idempotency-key", key).json(&json!({ "what": what }));
        let answer = match request.send().await {
            Ok(response) => Some((response.status(), response.text().await)),
            Err(_) => None, // it is dead, or dies in it
        };
        match answer {
            Some((status, Ok(text))) if status.is_success() => match first.replace(text.clone()) {
                Some(first) => {
                    assert_eq!(first, text, "{key} at {url}");
                    return text;
                }
                None => continue,
            },
            Some((status, Ok(text))) => {
                let passing = ["request-in-progress", "ledger-unavailable", "transaction-rolled-back"];
                let passes =
                    text.contains("outcome-unknown") || passing.iter().any(|problem| text.contains(problem));
                assert!(passes, "{key} at {url}: {status} {text}");
            }
            _ => {}
        }
        SystemClock.sleep(PACE).await;
    }
}

#[test]
fn each_request_takes_effect_once() {
    run(async {
        let requests = if full() { 60 } else { 15 };
        let (folder, port) = (tempfile::tempdir().unwrap(), Port::free());
        let port = port.number;
        let service_db = folder.path().join("service.db");
        let serves =
            Serves { service_db: service_db.clone(), charges: folder.path().join("charges.txt"), port };
        Executor::sqlite(&service_db).open().await.unwrap().shutdown(Duration::from_secs(1)).await;
        let own = SqliteConnectOptions::new().filename(&service_db).busy_timeout(Duration::from_secs(30));
        let mut own = own.connect().await.unwrap();
        own.execute("CREATE TABLE entry (what INTEGER NOT NULL)").await.unwrap();

        let kills = Arc::new(AtomicU32::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let kills = kills.clone();
                tokio::spawn(async move {
                    let mut answers = Vec::new();
                    for number in (0..).take_while(|n| *n < requests || kills.load(Relaxed) < KILLS) {
                        let route = ["charges", "entries"][number % 2];
                        let (url, key) =
                            (format!("http://127.0.0.1:{port}/{route}"), format!("{client}-{number}"));
                        answers.push((route, asks(&url, &key, client * 1000 + number).await));
                    }
                    answers
                })
            })
            .collect();
        let mut life = killed_while(&serves, &clients, &kills, 200..700).await;
        life.kill_and_wait().await.unwrap();

        let mut answers = HashMap::<_, u32>::new();
        for client in clients {
            for answer in client.await.unwrap() {
                *answers.entry(answer).or_default() += 1;
            }
        }
        assert!(answers.values().all(|times| *times == 1), "two requests have one answer: {answers:?}");
        let count = |route| answers.keys().filter(|(of, _)| *of == route).count();
        let charged = std::fs::read_to_string(&serves.charges).unwrap().lines().count();
        let entered: i64 =
            sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(&mut own).await.unwrap();
        println!("{kills:?} kills, {charged} charges, {entered} entries");
        assert_eq!(count("charges"), charged);
        assert_eq!(count("entries"), usize::try_from(entered).unwrap());
        assert!(answers.len() >= CLIENTS * requests, "{} requests were answered", answers.len());
    });
}
