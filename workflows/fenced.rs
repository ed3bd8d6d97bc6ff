//! A fence on Redis in front of the ledger, in a storm of duplicates: fifty events, each delivered forty times. Each is booked once, with
//! the fence or without; with it, the ledger is asked once for each event.
//!
//! ```text
//! redis-server --port 6379 --save ''                             # in another terminal; kill it whenever you like
//! cargo run --features redis --example fenced                    # or: … --example fenced -- redis://host:6379/
//! ```

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil::exec::ExecError;
use counterfoil::fence::{
    FenceTtl, Fenced, FencedAnswer, KeyFence as _, LedgerDecision, OnceAtFence, RedisFence,
};
use counterfoil::{Executor, Key, Outcome, Tenant, client_key};
use futures_util::{StreamExt as _, stream};

const EVENTS: u32 = 50;
const COPIES: u32 = 40;

#[derive(Clone)]
struct Books {
    executor: Executor,
    tenant: Tenant,
    fenced: Fenced,
    booked: Arc<AtomicU32>,
    ledger_asked: Arc<AtomicU32>,
}

impl Books {
    /// The one function behind the door: it is called for each delivery of an event, and gives each of them one receipt.
    async fn deliver(&self, event: &str) -> Result<String, ExecError> {
        // The tenant is a part of the key: two tenants never meet.
        let key = format!("{}/events/{event}", self.tenant);
        match self.fenced.through(&key, event.as_bytes(), || self.decide(event)).await? {
            FencedAnswer::Sealed(receipt) => Ok(String::from_utf8_lossy(&receipt).into_owned()),
            FencedAnswer::Ledger(outcome) => Ok(receipt(&outcome)),
            FencedAnswer::InProgress => Ok("come again".to_owned()),
        }
    }

    async fn decide(&self, event: &str) -> Result<LedgerDecision<Outcome>, ExecError> {
        self.ledger_asked.fetch_add(1, Ordering::Relaxed);
        let booked = self.booked.clone();
        let book = async move || Ok(booked.fetch_add(1, Ordering::Relaxed) + 1);
        let outcome =
            self.executor.execute_once(&self.tenant, Key::of("book").target(event), event, book).await?;
        Ok(match &outcome {
            Outcome::Done(_) => LedgerDecision::settled(outcome.clone(), receipt(&outcome)),
            _ => LedgerDecision::open(outcome), // asked again next time
        })
    }
}

fn receipt(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(answer) => format!("booked as number {}", answer.response.as_str()),
        other => format!("{other:?}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let fence = RedisFence::new(&url)?.prefix("counterfoil:example:");

    // Alone: for what may be lost or, rarely, made twice.
    let greet = async || Ok::<_, ExecError>("hello".to_owned());
    match fence.once(&client_key(), FenceTtl::default(), greet).await {
        Ok(OnceAtFence::Now { .. }) => println!("Redis answers."),
        Ok(other) => println!("Redis answers: {other:?}"),
        Err(error) => {
            println!("{error}");
            println!(
                "No Redis: the ledger is asked each time. Start one: redis-server --port 6379 --save ''"
            );
        }
    }

    // In front of the ledger: losing it loses nothing.
    let folder = tempfile::tempdir()?;
    let executor = Executor::sqlite(folder.path().join("books.db")).open().await?;
    let fenced = Fenced::new(&executor, fence);
    // New names in each run, for the ledger is new and the fence may be an old one.
    let (tenant, run) = (Tenant::new("acme")?, client_key());
    let books = Books { executor, tenant, fenced, booked: Arc::default(), ledger_asked: Arc::default() };
    let deliveries = (0..EVENTS * COPIES).map(|n| format!("{run}-{}", n % EVENTS));
    let answered =
        stream::iter(deliveries).map(async |event| books.deliver(&event).await).buffer_unordered(64);
    let answered: Vec<_> = answered.collect().await;
    for receipt in answered {
        receipt?;
    }
    let (booked, asked) = (books.booked.load(Ordering::Relaxed), books.ledger_asked.load(Ordering::Relaxed));
    println!(
        "{EVENTS} events, {} deliveries: {booked} booked, the ledger was asked {asked} times.",
        EVENTS * COPIES
    );
    Ok(())
}
