//! A receiver of webhooks: orders are placed and paid by events that are delivered several times, and out of order.
//!
//! ```text
//! cargo run --features webhook --example webhooks              # in a temporary folder, and shows itself
//! cargo run --features webhook --example webhooks -- folder    # serves until it is killed; kill it anywhere and run it again
//! ```

#![allow(missing_docs, reason = "an example")]

#[path = "webhooks/sender.rs"]
mod sender;

use std::error::Error;
use std::path::Path;

use axum::Router;
use axum::routing::post_service;
use counterfoil::door::Reaction;
use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
use counterfoil::{Ctx, Engine, Failure, Tenant};
use serde::Deserialize;
use serde_json::json;
use sqlx::sqlite::SqliteConnection;

use sender::{SECRET, signed};

type Failed = Box<dyn Error + Send + Sync>;

#[derive(Deserialize)]
struct Said {
    order: String,
    #[serde(default)]
    cents: i64,
}

/// Waits until its order is paid, for as long as that takes.
async fn order(ctx: Ctx, number: String) -> Result<String, Failure> {
    let cents: i64 = ctx.signal("paid").await?;
    Ok(format!("order {number} was paid with {cents} cents"))
}

/// The door: what each kind of event does, once.
pub fn door(engine: &Engine) -> Result<Webhook, Failed> {
    let shop = engine.tenant("acme")?;
    let source = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], Tenant::new("acme")?)?;
    let door = source.on(&engine.executor(), move |event: WebhookEvent| {
        let shop = shop.clone();
        async move {
            let reaction: Reaction<SqliteConnection> = match event.kind() {
                Some("placed") => {
                    let Said { order: number, .. } = event.json()?;
                    Reaction::start(shop.run(order, number.clone()).key(number))
                }
                Some("paid") => {
                    let Said { order: number, cents } = event.json()?;
                    // A payment that overtakes its order fails here, and is delivered again.
                    let run =
                        shop.run_of(order, &number).find().await?.ok_or("the order was not placed yet")?;
                    Reaction::signal(run.signal("paid", cents))
                }
                _ => Reaction::ignore(),
            };
            Ok::<_, Failed>(reaction)
        }
    });
    Ok(door?)
}

async fn serve(folder: &Path, port: u16) -> Result<(Engine, std::net::SocketAddr), Failed> {
    let engine = Engine::sqlite(folder.join("shop.db")).workflow("order", 1, order).start().await?;
    let app = Router::new().route("/webhooks/shop", post_service(door(&engine)?));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((engine, address))
}

/// What the sender does: it signs an event and delivers it.
async fn deliver(address: std::net::SocketAddr, id: &str, body: &str) -> Result<u16, Failed> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let request = client.post(format!("http://{address}/webhooks/shop"));
    Ok(signed(request, id, body).send().await?.status().as_u16())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    if let Some(folder) = std::env::args().nth(1) {
        let (_engine, address) = serve(Path::new(&folder), 8080).await?;
        println!("POST http://{address}/webhooks/shop, signed as Standard Webhooks says, with {SECRET}");
        std::future::pending::<()>().await;
    }
    let folder = tempfile::tempdir()?;
    let (engine, address) = serve(folder.path(), 0).await?;
    let placed = json!({"type": "placed", "order": "9"}).to_string();
    let paid = json!({"type": "paid", "order": "9", "cents": 4200}).to_string();
    for (id, body, what) in [
        ("evt_2", &paid, "the payment overtakes its order: 503, it comes again"),
        ("evt_1", &placed, "the order is placed"),
        ("evt_1", &placed, "the same event once more: the same receipt, nothing is done"),
        ("evt_2", &paid, "the payment comes again"),
        ("evt_2", &paid, "and again"),
    ] {
        println!("{} {what}", deliver(address, id, body).await?);
    }
    let run = engine.tenant("acme")?.run_of(order, "9").find().await?.ok_or("the run is there")?;
    println!("{}", run.result().await?);
    Ok(())
}
