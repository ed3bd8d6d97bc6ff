//! Rows about HTTP writes: the speed of a replayed answer, and the cost of the layer for the first request.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use counterfoil::http::{Idempotency, RequestScope};
use counterfoil::{Executor, Key, Tenant};
use futures_util::future::join_all;
use sqlx::Executor as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::options::Options;
use crate::place::{Database, Home};
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::TENANT;
use crate::wire::{Wire, serve};

/// The number of concurrent connections, and the requests of each in a round.
const CONNECTIONS: usize = 64;
const REQUESTS: usize = 50;
const BODY: &str = r#"{"cents": 100, "to": "ann"}"#;

/// Sends requests one after the other over one connection.
async fn connection(address: std::net::SocketAddr, keys: Vec<String>) {
    let mut wire = Wire::to(address).await;
    for key in keys {
        wire.post("/orders", &format!("idempotency-key: {key}"), BODY).await;
    }
}

/// Requests per second over all connections.
async fn storm(address: std::net::SocketAddr, key: impl Fn(usize, usize) -> String) -> f64 {
    let start = Instant::now();
    let connections = (0..CONNECTIONS).map(|one| {
        let keys = (0..REQUESTS).map(|number| key(one, number)).collect();
        tokio::spawn(connection(address, keys))
    });
    for ended in join_all(connections).await {
        ended.expect("a client");
    }
    (CONNECTIONS * REQUESTS) as f64 / start.elapsed().as_secs_f64()
}

fn layered(executor: &Executor) -> Router {
    let tenant = Tenant::new(TENANT).expect("a tenant");
    let layer = Idempotency::new(executor, move |request| {
        Some(RequestScope::new(tenant.clone(), request.uri.path()))
    });
    Router::new().route("/orders", post(|| async { "order 1" })).layer(layer.layer().expect("a layer"))
}

/// The handler without the layer, which reads one row by the key.
async fn reading(State(pool): State<SqlitePool>, request: Request) -> String {
    let key = request.headers()["idempotency-key"].to_str().expect("a key").to_owned();
    let row = sqlx::query_scalar("SELECT answer FROM reply WHERE key = ?").bind(key).fetch_one(&pool);
    row.await.expect("a row")
}

pub(crate) fn replay(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let (subjects, raws) = multi_thread().block_on(async {
        let (subject, raw) = (home.place("subject"), home.place("raw"));
        let executor = Executor::sqlite(subject.file()).open().await.expect("an executor");
        let ours = serve(layered(&executor)).await;
        let pool = SqlitePool::connect_with(
            SqliteConnectOptions::new().filename(raw.file()).create_if_missing(true),
        );
        let pool = pool.await.expect("a file");
        pool.execute("CREATE TABLE reply (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            .await
            .expect("a table");
        let key = |one: usize, number: usize| format!("{one}-{number}");
        for (one, number) in (0..CONNECTIONS).flat_map(|one| (0..REQUESTS).map(move |number| (one, number))) {
            let row = sqlx::query("INSERT INTO reply VALUES (?, 'order 1')").bind(key(one, number));
            row.execute(&pool).await.expect("a row");
        }
        let theirs = serve(Router::new().route("/orders", post(reading)).with_state(pool)).await;
        let (mut subjects, mut raws) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            let (subject, raw) = (storm(ours, key).await, storm(theirs, key).await);
            if round > 0 {
                subjects.push(subject);
                raws.push(raw);
            }
        }
        (subjects, raws)
    });
    let measure = "answers given again, 64 connections ÷ the same handler reading one row by key".to_owned();
    let (subject, raw) = (Values::new("/s", subjects), Values::new("/s", raws));
    Ok(vec![Finding::ratio("http-replay", measure, subject, raw).at_least(0.5, 0.8)])
}

pub(crate) fn first(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let (subjects, raws) = multi_thread().block_on(async {
        let executor = Executor::sqlite(home.place("subject").file()).open().await.expect("an executor");
        let alone = Arc::new(Executor::sqlite(home.place("raw").file()).open().await.expect("an executor"));
        let ours = serve(layered(&executor)).await;
        let (mut subjects, mut raws) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            let subject = storm(ours, |one, number| format!("{round}-{one}-{number}")).await;
            let raw = calls(&alone, round).await;
            if round > 0 {
                subjects.push(subject);
                raws.push(raw);
            }
        }
        (subjects, raws)
    });
    let measure =
        "first requests, 64 connections ÷ the same calls by the executor alone, 64 callers".to_owned();
    let (subject, raw) = (Values::new("/s", subjects), Values::new("/s", raws));
    Ok(vec![Finding::ratio("http-first", measure, subject, raw).at_least(0.5, 0.7)])
}

/// Calls per second without HTTP.
async fn calls(executor: &Arc<Executor>, round: usize) -> f64 {
    let start = Instant::now();
    let callers = (0..CONNECTIONS).map(|one| {
        let executor = executor.clone();
        tokio::spawn(async move {
            let tenant = Tenant::new(TENANT).expect("a tenant");
            for number in 0..REQUESTS {
                let key = Key::given("POST /orders", format!("{round}-{one}-{number}"));
                let outcome =
                    executor.execute_once(&tenant, key, BODY, || async { Ok("order 1".to_owned()) });
                assert!(outcome.await.expect("an outcome").answer().is_some());
            }
        })
    });
    for ended in join_all(callers).await {
        ended.expect("a caller");
    }
    (CONNECTIONS * REQUESTS) as f64 / start.elapsed().as_secs_f64()
}
