//! An axum service with tenants, in as many processes as you like on one PostgreSQL. An order is a run that waits for its
//! payment, and is entered into the books once. Each request may go to any process, and one that is killed is replaced by the
//! others.
//!
//! ```text
//! cargo run --features postgres --example tenants_service -- postgres://app@localhost/agents books.txt 8080
//! cargo run --features postgres --example tenants_service -- postgres://app@localhost/agents books.txt 8081
//! curl -H 'Authorization: Bearer token-of-acme' -X POST localhost:8080/orders/o-1 --json '{"cents": 4200}'
//! curl -H 'Authorization: Bearer token-of-acme' -X POST localhost:8081/orders/o-1/paid --json '"evt_1"'
//! curl -H 'Authorization: Bearer token-of-acme' localhost:8080/orders/o-1
//! ```

#![allow(missing_docs, reason = "an example")]
#![allow(unreachable_pub, reason = "tests and `counterfoil simulate` include it as a module")]

#[path = "tenants_service/books.rs"]
pub mod books;
#[cfg(feature = "sim")]
#[path = "tenants_service/simulated.rs"]
pub mod simulated;
#[path = "http_writes/user.rs"]
mod user;

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use counterfoil::flow::{EngineBuilder, RunError, SignalName};
use counterfoil::{Ctx, Engine, ErrorCode, Failure};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use books::{Books, Enter, Entry};
use user::{User, authenticated};

const PAID: SignalName<String> = SignalName::new("paid");

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
}

/// Waits for the payment for as long as that takes, and enters it into the books.
pub async fn order(ctx: Ctx, order: Order) -> Result<usize, Failure> {
    let payment = ctx.signal(PAID).await?;
    ctx.call::<Enter>(Entry { order: order.id, cents: order.cents, payment }).await
}

/// Everything that the service registers.
pub fn engine(engine: EngineBuilder, books: Books) -> EngineBuilder {
    engine.workflow("order", 1, order).tool(Enter(books))
}

#[derive(Deserialize)]
struct Ordered {
    cents: u64,
}

/// An error of the engine, as a client gets it.
struct Refused(RunError);

impl<E: Into<RunError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            RunError::Failed { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            RunError::Over { .. } | RunError::Expired { .. } => StatusCode::GONE, // the order has ended
            error => match error.code() {
                ErrorCode::Name | ErrorCode::Payload => StatusCode::BAD_REQUEST,
                ErrorCode::NotFound => StatusCode::NOT_FOUND,
                ErrorCode::Conflict => StatusCode::CONFLICT, // the same order with another amount
                // Nothing is lost: the client asks again.
                ErrorCode::Closed
                | ErrorCode::DatabaseAway
                | ErrorCode::DiskFull
                | ErrorCode::WriteRefused => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        (status, self.0.to_string()).into_response()
    }
}

async fn start(
    State(engine): State<Engine>,
    Extension(User(tenant)): Extension<User>,
    Path(id): Path<String>,
    Json(Ordered { cents }): Json<Ordered>,
) -> Result<StatusCode, Refused> {
    let tenant = engine.tenant(tenant.as_str())?;
    tenant.run(order, Order { id: id.clone(), cents }).key(id).start().await?;
    Ok(StatusCode::ACCEPTED)
}

async fn paid(
    State(engine): State<Engine>,
    Extension(User(tenant)): Extension<User>,
    Path(id): Path<String>,
    Json(payment): Json<String>,
) -> Result<StatusCode, Refused> {
    let tenant = engine.tenant(tenant.as_str())?;
    // Told twice, it is received once.
    tenant.run_of(order, id).signal(PAID, payment.clone()).id(payment).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn status(
    State(engine): State<Engine>,
    Extension(User(tenant)): Extension<User>,
    Path(id): Path<String>,
) -> Result<&'static str, Refused> {
    let tenant = engine.tenant(tenant.as_str())?;
    Ok(tenant.run_of(order, id).status().await?.state.name())
}

/// Whether this process is to go on.
async fn live(State(engine): State<Engine>) -> (StatusCode, String) {
    let health = engine.health();
    (code(health.is_live()), health.to_string())
}

/// Whether requests are to come to this process.
async fn ready(State(engine): State<Engine>) -> (StatusCode, String) {
    let health = engine.health();
    (code(health.is_ready()), health.to_string())
}

const fn code(is_well: bool) -> StatusCode {
    if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// The routes of the service. The probes need no token.
pub fn routes(engine: &Engine) -> Router {
    let orders = Router::new().route("/orders/{id}", post(start).get(status));
    let orders = orders.route("/orders/{id}/paid", post(paid)).layer(from_fn(authenticated));
    let probes = Router::new().route("/healthz", get(live)).route("/readyz", get(ready));
    orders.merge(probes).with_state(engine.clone())
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [_, url, file, port] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("give the URL of the database, the file of the books, and a port".into());
    };
    let engine = engine(Engine::postgres(url), Books::File(file.into())).start().await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    let mut term = signal(SignalKind::terminate())?;
    let stopped = engine.clone();
    let serving = axum::serve(listener, routes(&engine)).with_graceful_shutdown(async move {
        tokio::select! {
            _ = term.recv() => {}
            () = stopped.fenced() => {} // another worker has taken over
        }
    });
    serving.await?;
    engine.shutdown(Duration::from_secs(40)).await; // takes no new call, and hands its runs over
    Ok(())
}
