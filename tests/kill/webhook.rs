//! A receiver of webhooks is killed with SIGKILL at random, while senders deliver each event several times, overlapping: each event
//! does what it does once, and no older state of an order overwrites a newer one.
//!
//! `COUNTERFOIL_SEED` repeats one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::routing::post_service;
use counterfoil::door::Reaction;
use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Executor, Failure, Tenant};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::harness::Failed;
use crate::harness::role::TENANT;
use crate::harness::sender::{SECRET, signed};
use crate::own_server::port::Port;
use crate::random::killed_while;
use crate::{full, run};

/// It is killed so often at least.
const KILLS: u32 = 6;
const SENDERS: i64 = 4;
/// So many deliveries of an event are under way at once.
const COPIES: usize = 3;
/// Each order has so many states, one event for each.
const STATES: i64 = 4;

/// What only this program can be: the receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Receives {
    shop_db: PathBuf,
    port: u16,
}

/// Packs an order in a transaction of its own.
async fn parcel(ctx: Ctx, order: String) -> Result<i64, Failure> {
    ctx.transaction("pack", |db: &mut SqliteConnection| {
        Box::pin(async move {
            let packed =
                sqlx::query("INSERT INTO packed (what) VALUES (?)").bind(order).execute(&mut *db).await;
            packed.map_err(|error| Failure::new(error.to_string()))?;
            let count = sqlx::query_scalar("SELECT count(*) FROM packed").fetch_one(db).await;
            count.map_err(|error| Failure::new(error.to_string()))
        })
    })
    .await
}

/// Until it is killed.
pub(crate) async fn play(own: Receives) -> Result<i32, Failed> {
    let engine = Engine::sqlite(&own.shop_db).workflow("parcel", 1, parcel).start().await?;
    let shop = engine.tenant(TENANT)?;
    let source = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], Tenant::new(TENANT)?)?;
    let source = source.tries(1000).version(|event| {
        let said: Value = event.json().ok()?;
        Some((said["order"].as_str()?.to_owned(), said["state"].as_i64()?))
    });
    let webhook = source.on(&engine.executor(), move |event: WebhookEvent| {
        let shop = shop.clone();
        async move {
            let said: Value = event.json()?;
            let (order, state) =
                (said["order"].as_str().unwrap_or_default().to_owned(), said["state"].as_i64());
            Ok::<_, serde_json::Error>(match state {
                None => Reaction::start(shop.run(parcel, order)), // without a key: the event alone keeps it single
                Some(state) => Reaction::transaction(move |db: &mut SqliteConnection| {
                    Box::pin(async move {
                        let entered = sqlx::query("INSERT INTO state VALUES (?, ?)").bind(order).bind(state);
                        entered.execute(db).await.map(drop)
                    })
                }),
            })
        }
    })?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", own.port)).await?;
    axum::serve(listener, Router::new().route("/hook", post_service(webhook))).await?;
    Ok(0)
}

/// Delivers until it is taken.
async fn deliver(client: reqwest::Client, url: String, id: String, body: String) {
    loop {
        let request = signed(client.post(&url), &id, &body);
        match request.send().await.map(|answer| answer.status().as_u16()) {
            Ok(200) => return,
            Ok(503) | Err(_) => {} // it dies, or is dead
            Ok(other) => panic!("{id} is answered {other}"),
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

/// The events of an order, each several times at once: its states overtake one another.
async fn tell(client: reqwest::Client, url: String, order: String) {
    let events = (0..=STATES).map(|state| match state {
        0 => (format!("{order}-placed"), json!({ "order": order })),
        state => (format!("{order}-{state}"), json!({ "order": order, "state": state })),
    });
    let copies = events.flat_map(|(id, body)| {
        let (client, url) = (&client, &url);
        (0..COPIES).map(move |_| deliver(client.clone(), url.clone(), id.clone(), body.to_string()))
    });
    join_all(copies.collect::<Vec<_>>()).await;
}

#[test]
fn each_event_is_done_once() {
    run(async {
        let orders = if full() { 400 } else { 80 };
        let (folder, port) = (tempfile::tempdir().unwrap(), Port::free());
        let port = port.number;
        let receives = Receives { shop_db: folder.path().join("shop.db"), port };
        Executor::sqlite(&receives.shop_db).open().await.unwrap().shutdown(Duration::from_secs(1)).await;
        let own = SqliteConnectOptions::new().filename(&receives.shop_db);
        let mut own = own.busy_timeout(Duration::from_secs(30)).connect().await.unwrap();
        own.execute("CREATE TABLE state (what TEXT NOT NULL, state INTEGER NOT NULL)").await.unwrap();
        own.execute("CREATE TABLE packed (what TEXT NOT NULL)").await.unwrap();

        let kills = Arc::new(AtomicU32::new(0));
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let kills = kills.clone();
                tokio::spawn(async move {
                    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5));
                    let (client, url) = (client.build().unwrap(), format!("http://127.0.0.1:{port}/hook"));
                    let mut told = 0;
                    while told < orders / SENDERS || kills.load(Relaxed) < KILLS {
                        tell(client.clone(), url.clone(), format!("order-{sender}-{told}")).await;
                        told += 1;
                    }
                    told
                })
            })
            .collect();
        let mut life = killed_while(&receives, &senders, &kills, 100..400).await;
        let mut orders = 0;
        for sender in senders {
            orders += sender.await.unwrap();
        }
        // The last life packs what the ones before have begun.
        let (packed, begun) = ("SELECT count(*) FROM packed", SystemClock.boot());
        while sqlx::query_scalar::<_, i64>(packed).fetch_one(&mut own).await.unwrap() < orders {
            assert!(begun.until(SystemClock.boot()) < Duration::from_mins(1), "a parcel is lost");
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
        life.kill_and_wait().await.unwrap();

        let count = async |own: &mut SqliteConnection, sql: &'static str| {
            sqlx::query_scalar::<_, i64>(sql).fetch_one(own).await.unwrap()
        };
        assert_eq!(count(&mut own, packed).await, orders);
        assert_eq!(count(&mut own, "SELECT count(DISTINCT what) FROM packed").await, orders);
        // An order's states only grow, each is there at most once, and the last one always.
        let falls = "SELECT count(*) FROM state one JOIN state two ON one.what = two.what AND one.rowid < two.rowid \
                     WHERE one.state >= two.state";
        assert_eq!(count(&mut own, falls).await, 0);
        let last = "SELECT count(*) FROM state WHERE state = 4";
        assert_eq!(count(&mut own, last).await, orders);
        println!(
            "{kills:?} kills, {} states of {orders} orders",
            count(&mut own, "SELECT count(*) FROM state").await
        );
    });
}
