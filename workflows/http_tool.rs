//! A tool against a provider over HTTP, with key, lookup and errors that are sorted: `http_tool/charge.rs`, twenty lines; and the same
//! as a declaration: `http_tool/declared.rs`, ten lines.
//! The provider runs beside it (`http_tool/bank.rs`): it is busy, down, and loses an answer.
//!
//! ```text
//! cargo run --features tool-http --example http_tool
//! ```

#![allow(missing_docs, reason = "an example")]

#[path = "http_tool/bank.rs"]
mod bank;
#[path = "http_tool/charge.rs"]
mod charge;
#[path = "http_tool/declared.rs"]
mod declared;

use std::error::Error;
use std::time::Duration;

use counterfoil::flow::{RunError, WorkflowFn};
use counterfoil::ledger::RetryPolicy;
use counterfoil::tool::lookup::HttpGet;
use counterfoil::{Ctx, Engine, Failure};
use reqwest::{Client, redirect, retry};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use bank::Bank;
use bank::Fault;
use charge::Charge;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) cents: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) id: String,
}

async fn pay(ctx: Ctx, order: Order) -> Result<Receipt, Failure> {
    ctx.call::<Charge>(order).await
}

async fn pay_by_declaration(ctx: Ctx, order: Order) -> Result<Receipt, Failure> {
    let charge = ctx.call_named("charge", json!({ "id": order.id, "cents": order.cents })).await?;
    Ok(serde_json::from_value(charge)?)
}

/// An order, what its requests meet, and what came of it: the receipt, or the failure's text.
pub(crate) type Paid = (&'static str, Vec<Fault>, Result<Receipt, String>);

const TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) async fn show() -> Result<(Vec<Paid>, Bank), Box<dyn Error>> {
    let bank = Bank::default();
    let url = format!("http://{}/charges", bank.open().await?);
    // One place sends again, and it is the engine.
    let client = Client::builder().no_proxy().timeout(TIMEOUT).redirect(redirect::Policy::none());
    let client = client.retry(retry::never()).build()?;
    let charges = HttpGet::list(format!("{url}?key={{token}}"), "/data", TIMEOUT)?.client(client.clone());
    let engine = Engine::in_memory().workflow("pay", 1, pay).tool(Charge(client, url, charges));
    Ok((payments(engine.start().await?, pay, &bank).await?, bank))
}

/// The same orders and faults with the declared tool.
pub(crate) async fn show_declared() -> Result<(Vec<Paid>, Bank), Box<dyn Error>> {
    let bank = Bank::default();
    let tool = declared::charge(&format!("http://{}/charges", bank.open().await?))?;
    let tool = tool.retry(RetryPolicy { attempt_timeout: TIMEOUT, ..RetryPolicy::default() });
    let engine = Engine::in_memory().workflow("pay", 1, pay_by_declaration).dynamic_tool(tool);
    Ok((payments(engine.start().await?, pay_by_declaration, &bank).await?, bank))
}

async fn payments(
    engine: Engine,
    pay: impl WorkflowFn<Order, Receipt> + Copy,
    bank: &Bank,
) -> Result<Vec<Paid>, Box<dyn Error>> {
    let mut paid = Vec::new();
    for (id, cents, faults) in [
        ("quiet", 4200, vec![]),
        ("busy", 4200, vec![Fault::Busy, Fault::Down]),
        ("lost", 4200, vec![Fault::AnswerLost]),
        ("empty", 0, vec![]),
    ] {
        bank.fails(faults.clone());
        let order = Order { id: id.to_owned(), cents };
        let receipt = match engine.default_tenant().run(pay, order).key(id).await {
            Ok(receipt) => Ok(receipt),
            Err(RunError::Failed { failure, .. }) => Err(failure.message),
            Err(error) => return Err(error.into()),
        };
        paid.push((id, faults, receipt));
    }
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(paid)
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for (what, (paid, bank)) in [("by hand", show().await?), ("declared", show_declared().await?)] {
        println!("{what}:");
        for (order, faults, receipt) in paid {
            println!("  {order:6} {faults:?}: {receipt:?}");
        }
        let (requests, lookups, charges) = bank.counted();
        println!("  {requests} requests and {lookups} lookups made {charges} charges");
    }
    Ok(())
}
