//! HTTP writes under an `Idempotency-Key`, with axum: a POST that comes twice has one effect and one answer.
//!
//! ```text
//! cargo run --features http --example http_writes              # in a temporary folder, and shows itself
//! cargo run --features http --example http_writes -- folder    # serves until it is killed; kill it anywhere and run it again
//! ```

#![allow(missing_docs, reason = "an example")]

#[path = "http_writes/user.rs"]
mod user;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{MatchedPath, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use counterfoil::Executor;
use counterfoil::http::{HandlerCall, Idempotency, RequestScope};
use counterfoil::ledger::{Contract, ContractClass, LookupResult};
use serde_json::{Value, json};

use user::{User, authenticated};

/// The outside world: charges, here the lines of a text file. It knows nothing of keys, but a charge can be found again by the
/// reference that it was made with.
#[derive(Clone)]
struct Bank(Arc<Path>);

impl Bank {
    fn charge(&self, reference: &str, cents: u64) -> std::io::Result<usize> {
        use std::io::Write as _;
        let mut file = std::fs::File::options().append(true).create(true).open(&self.0)?;
        writeln!(file, "{reference} {cents}")?;
        Ok(self.lines().len())
    }

    fn find(&self, reference: &str) -> Option<usize> {
        self.lines().iter().position(|line| line.starts_with(reference)).map(|place| place + 1)
    }

    fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

async fn charge(
    State(bank): State<Bank>,
    Extension(call): Extension<HandlerCall>,
    Json(body): Json<Value>,
) -> Response {
    let Some(cents) = body["cents"].as_u64() else {
        return (StatusCode::UNPROCESSABLE_ENTITY, "say how many cents").into_response(); // the key stays free
    };
    match bank.charge(&call.key, cents) {
        Ok(number) => charged(number).map(Into::into),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn charged(number: usize) -> axum::http::Response<axum::body::Bytes> {
    let mut response = axum::http::Response::new(json!({ "charge": number }).to_string().into());
    *response.status_mut() = StatusCode::CREATED;
    response
}

fn app(executor: &Executor, bank: &Bank) -> Result<Router, Box<dyn Error>> {
    let asked = bank.clone();
    let layer = Idempotency::new(executor, |request| {
        let User(tenant) = request.extensions.get::<User>()?;
        let route = request.extensions.get::<MatchedPath>()?;
        Some(RequestScope::new(tenant.clone(), route.as_str()))
    })
    // A handler that died with its process: the bank is asked what became of its charge, before anybody else is let in.
    .reconcile(Contract::new(ContractClass::Lookup).ends_with_sender(), move |call, _| {
        let found = asked.find(&call.key);
        let finding = found.map_or(LookupResult::NotFound, |number| LookupResult::Committed {
            output: charged(number),
            external_ref: Some(format!("charge-{number}")),
        });
        async move { Ok(finding) }
    })
    .layer()?;
    let charges = Router::new().route("/charges", post(charge)).with_state(bank.clone());
    Ok(charges.layer(layer).layer(from_fn(authenticated)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1);
    let temporary = tempfile::tempdir()?;
    let place = folder.as_deref().map_or(temporary.path(), Path::new);
    std::fs::create_dir_all(place)?;
    let bank = Bank(place.join("charges.txt").into());
    let executor = Executor::sqlite(place.join("ledger.db")).open().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/charges", listener.local_addr()?);
    let server = tokio::spawn(axum::serve(listener, app(&executor, &bank)?).into_future());
    if folder.is_some() {
        println!("{url}");
        return Ok(server.await??);
    }
    for (key, cents) in [("order-1", 100), ("order-1", 100), ("order-1", 900), ("order-2", 100)] {
        let request =
            reqwest::Client::new().post(&url).bearer_auth("token-of-acme").header("idempotency-key", key);
        let response = request.json(&json!({ "cents": cents })).send().await?;
        let replayed =
            if response.headers().contains_key("idempotent-replayed") { " (replayed)" } else { "" };
        println!("{key} {cents} cents: {}{replayed} {}", response.status(), response.text().await?);
    }
    println!("charged {} times", bank.lines().len());
    Ok(())
}
