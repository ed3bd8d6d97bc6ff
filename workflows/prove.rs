//! Prove it: your workflow, your tool, a few lines of your provider, crashed wherever a process can die.
//!
//! ```text
//! cargo run --release --features sim --example prove
//! cargo test --features sim --example prove
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which `counterfoil simulate` includes as a module"
)]

use counterfoil::ledger::LookupResult;
use counterfoil::sim::{Simulation, World};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};

/// A tool that books a payment with a bank of which we know this: it takes no key, and can be asked.
struct Book(World);

impl Tool for Book {
    const NAME: &'static str = "book";
    type Effect = effect::Payment;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    fn key(&self, invoice: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(invoice))
    }

    async fn call(&self, call: &Call, invoice: &String) -> Result<Done<String>, ToolError> {
        let invoice = invoice.clone();
        self.0.send(call, move |request| Ok(Done::new(request.happen("bank", &invoice)))).await
    }
}

impl Reconcile for Book {
    async fn reconcile(&self, call: &Call, invoice: &String) -> Result<LookupResult<String>, ToolError> {
        self.0.find(call, "bank", invoice).await
    }
}

async fn pay(ctx: Ctx, order: String) -> Result<String, Failure> {
    let invoice = ctx.step("invoice", &order, |order| format!("invoice for {order}")).await?;
    ctx.call::<Book>(invoice).await
}

pub fn simulation() -> Simulation {
    Simulation::of(pay, "order 17".to_owned())
        .engine(|engine, world| engine.tool(Book(world.clone())))
        .check("paid once", |end| end.exactly_once_if_succeeded("bank", "invoice for order 17"))
        .random(200)
}

#[test]
fn no_crash_pays_twice() {
    simulation().explore().assert_ok();
}

#[allow(dead_code, reason = "`counterfoil simulate` has a main of its own")]
fn main() {
    let report = simulation().explore();
    report.print();
    std::process::exit(i32::from(!report.is_ok()));
}
