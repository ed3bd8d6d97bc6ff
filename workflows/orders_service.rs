//! All doors in one service: orders over HTTP under an `Idempotency-Key`, payments by a webhook that start runs and signal them, notes
//! with nonces, invoices from a NATS queue, a fence on Redis in front of the orders; and one policy file for all of them.
//!
//! ```text
//! cargo run --features full --example orders_service                  # in a temporary folder: sends everything several times, and counts
//! cargo run --features full --example orders_service -- folder        # serves until it is killed; kill it anywhere and run it again
//! cargo run --features full --example orders_service -- postgres://…  # the same on PostgreSQL
//! ```
//!
//! `NATS_URL` brings the queue, `REDIS_URL` the fence; without them the service works without these two. `BANK_WEBHOOK_SECRET` is
//! the webhook's secret, needed where it serves.
//!
//! Each door is a file in `orders_service/`; here is what opens them. `orders_service/policy.yml` is the policy.

#![allow(missing_docs, reason = "an example")]

#[path = "orders_service/books.rs"]
mod books;
#[path = "orders_service/invoices.rs"]
mod invoices;
#[path = "orders_service/notes.rs"]
mod notes;
#[path = "orders_service/orders.rs"]
mod orders;
#[path = "orders_service/payments.rs"]
mod payments;
#[path = "webhooks/sender.rs"]
pub(crate) mod sender;
#[path = "orders_service/show.rs"]
pub(crate) mod show;
#[path = "demo/table.rs"]
#[allow(dead_code, reason = "the demo has more colours")]
mod table;
#[path = "http_writes/user.rs"]
mod user;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::post_service;
use counterfoil::Engine;
use counterfoil::fence::{Fenced, RedisFence};
use counterfoil::flow::EngineBuilder;
use counterfoil::policy::Policy;
use counterfoil::queue::Consuming;
use sqlx::PgConnection;
use sqlx::sqlite::SqliteConnection;

use books::Books;
use user::authenticated;

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// The tenant whose shop it is.
const SHOP: &str = "acme";
const POLICY: &str = include_str!("orders_service/policy.yml");

/// By the names of the environment variables that hold them.
pub(crate) type Secrets = BTreeMap<String, String>;

/// Where the servers are, if there are any, and what the bank signs with.
pub(crate) struct Surroundings {
    pub(crate) nats: Option<String>,
    pub(crate) redis: Option<String>,
    /// How long an order waits for an answer of Redis. After it, the ledger is asked without the fence.
    pub(crate) redis_time_limit: Duration,
    pub(crate) secrets: Secrets,
}

/// A service that is open.
pub(crate) struct Service<C> {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    pub(crate) consuming: Option<Consuming>,
    pub(crate) own: C,
}

impl Surroundings {
    /// What the environment says, by the names that the policy has for it.
    fn from_environment(policy: &Policy) -> Result<Self, Failed> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let redis = policy.fence().and_then(|fence| variable(fence.url_variable()));
        let bank = policy.webhook("bank")?;
        let secrets =
            bank.secret_variables().filter_map(|name| Some((name.to_owned(), variable(name)?))).collect();
        let redis_time_limit = Duration::from_millis(50);
        Ok(Self { nats: variable("NATS_URL"), redis, redis_time_limit, secrets })
    }
}

/// Opens all doors, on a store of either kind.
pub(crate) async fn open<C: Books>(
    engine: EngineBuilder,
    ledger: &str,
    around: &Surroundings,
    port: u16,
) -> Result<Service<C>, Failed> {
    let policy = Policy::parse(POLICY)?.checked()?;
    let mut engine = engine.workflow("payment", 1, payments::payment::<C>);
    let nats = match &around.nats {
        Some(url) => Some(invoices::broker(&policy, url).await?),
        None => None,
    };
    if let Some(nats) = &nats {
        engine = engine.sink(invoices::sink(&policy, nats.clone())?);
    }
    let engine = engine.start().await?;
    let own = C::open(ledger).await?; // before anything can come in
    let executor = engine.executor();
    let consuming = match nats {
        Some(nats) => Some(invoices::consume::<C>(&policy, &executor, nats).await?),
        None => None,
    };
    let redis = around.redis.as_deref();
    let fence = redis.map(|url| fence(&policy, &engine, url, around.redis_time_limit)).transpose()?;

    let of_users = orders::routes::<C>(&policy, &executor, fence)?
        .merge(notes::routes::<C>(policy.nonce("note")?.nonces(&executor)?))
        .layer(from_fn(authenticated));
    let bank = payments::door::<C>(&policy, &engine, &around.secrets)?;
    let app = Router::new().route("/webhooks/bank", post_service(bank)).merge(of_users);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, app).into_future());
    Ok(Service { engine, address, consuming, own })
}

fn fence(policy: &Policy, engine: &Engine, url: &str, time_limit: Duration) -> Result<Fenced, Failed> {
    let redis = RedisFence::new(url)?.prefix("counterfoil:orders_service:").time_limit(time_limit);
    let fence = policy.fence().ok_or("the policy has a fence")?;
    Ok(fence.fenced(&engine.executor(), redis).time_limit(time_limit))
}

impl<C> Service<C> {
    pub(crate) async fn close(self) {
        if let Some(consuming) = self.consuming {
            consuming.shutdown(Duration::from_secs(5)).await;
        }
        self.engine.shutdown(Duration::from_secs(5)).await;
    }
}

async fn serve<C: Books>(engine: EngineBuilder, ledger: &str, around: &Surroundings) -> Result<(), Failed> {
    let service = open::<C>(engine, ledger, around, 8080).await?;
    println!("http://{}: POST /orders, /webhooks/bank and /{{author}}/notes", service.address);
    std::future::pending().await
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut around = Surroundings::from_environment(&Policy::parse(POLICY)?)?;
    match std::env::args().nth(1) {
        Some(url) if url.starts_with("postgres") => {
            serve::<PgConnection>(Engine::postgres(&url), &url, &around).await
        }
        Some(folder) => {
            std::fs::create_dir_all(&folder)?;
            let file = format!("{folder}/orders.db");
            serve::<SqliteConnection>(Engine::sqlite(&file), &file, &around).await
        }
        None => {
            around.secrets = show::secrets();
            let folder = tempfile::tempdir()?;
            let shown = show::storm(&folder.path().join("orders.db"), &around).await?;
            print!("{}", show::table(&shown));
            if around.nats.is_none() {
                println!("no invoices: NATS_URL is not set");
            }
            if around.redis.is_none() {
                println!("no fence: REDIS_URL is not set");
            }
            Ok(())
        }
    }
}
