//! The child's side of the doors: an order service on one SQLite file, as one writes it, or behind counterfoil's doors. Both take
//! orders over HTTP and payments by a webhook, and enter each in a table; the rows are what is counted.

use std::path::PathBuf;
use std::time::Duration;

use axum::extract::{MatchedPath, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{post, post_service};
use axum::{Extension, Json, Router};
use counterfoil::door::Reaction;
use counterfoil::http::{Idempotency, LedgerTransaction, RequestScope};
use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool};

use super::Failed;
use super::role::TENANT;
use super::sender::SECRET;

/// An effect takes so long before its row is written, and again behind it: kills fall into all of it.
const PACE: Duration = Duration::from_millis(5);
/// A request waits so long for the first one under its key.
const WAIT: Duration = Duration::from_secs(2);
/// The table that both sides write to.
pub const TABLE: &str = "CREATE TABLE entered (door TEXT NOT NULL, number INTEGER NOT NULL)";

/// Who takes the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Plain handlers, which do not look at keys and ids.
    Naive,
    /// The `http` layer and the webhook door.
    Counterfoil,
}

/// A service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shop {
    pub side: Side,
    pub db: PathBuf,
    pub port: u16,
}

/// What comes in: an order, or the payment of one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Asked {
    pub number: u32,
}

impl Shop {
    /// Until it is killed.
    pub async fn serve(&self) -> Result<i32, Failed> {
        let app = match self.side {
            Side::Naive => naive(self.own()).await?,
            Side::Counterfoil => behind_doors(&Executor::sqlite(&self.db).open().await?)?,
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", self.port)).await?;
        axum::serve(listener, app).await?;
        Ok(0)
    }

    /// How to open its file beside it.
    pub fn own(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.db)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30))
    }
}

/// The effect, which both sides have in common. The answer is how many there are.
fn enter<'c>(
    db: &'c mut SqliteConnection,
    door: &'static str,
    asked: Asked,
) -> BoxFuture<'c, Result<i64, sqlx::Error>> {
    Box::pin(async move {
        SystemClock.sleep(PACE).await;
        let insert = sqlx::query("INSERT INTO entered (door, number) VALUES (?, ?)");
        insert.bind(door).bind(asked.number).execute(&mut *db).await?;
        SystemClock.sleep(PACE).await;
        let count = sqlx::query_scalar("SELECT count(*) FROM entered WHERE door = ?");
        count.bind(door).fetch_one(db).await
    })
}

fn entered<E: ToString>(entered: Result<i64, E>) -> Response {
    match entered {
        Ok(place) => (StatusCode::CREATED, place.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn naive(own: SqliteConnectOptions) -> Result<Router, Failed> {
    let handler = |door: &'static str| {
        post(move |State(db): State<SqlitePool>, Json(asked): Json<Asked>| async move {
            let placed = async { enter(&mut *db.acquire().await?, door, asked).await };
            entered(placed.await)
        })
    };
    let app = Router::new().route("/orders", handler("orders")).route("/payments", handler("payments"));
    Ok(app.with_state(SqlitePool::connect_with(own).await?))
}

fn behind_doors(executor: &Executor) -> Result<Router, Failed> {
    let orders = Idempotency::new(executor, |request| {
        let route = request.extensions.get::<MatchedPath>()?;
        Some(RequestScope::new(Tenant::new(TENANT).ok()?, route.as_str()))
    });
    let orders = orders.transactional::<SqliteConnection>().wait_at_most(WAIT).layer()?;
    let payments = Webhook::source("bank", Scheme::standard_webhooks(), [SECRET], Tenant::new(TENANT)?)?;
    // Each kill is a failed try for whoever was at work, and none of them is the event's fault.
    let payments = payments.tries(10_000).on(executor, |event: WebhookEvent| async move {
        let asked = event.json()?;
        Ok::<_, serde_json::Error>(Reaction::transaction(move |db: &mut SqliteConnection| {
            Box::pin(async move { enter(db, "payments", asked).await.map(drop) })
        }))
    })?;
    let app = Router::new().route("/orders", post(order).layer(orders));
    Ok(app.route("/payments", post_service(payments)))
}

async fn order(
    Extension(transaction): Extension<LedgerTransaction<SqliteConnection>>,
    Json(asked): Json<Asked>,
) -> Response {
    entered(transaction.run(move |db| enter(db, "orders", asked)).await)
}
