//! The pages that stand alone in a file: the browser opens them as files.

use std::fs;

use counterfoil::sim::{Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure};
use serde_json::Value;

use super::barriers;
use super::desk::Desk;
use super::driver::Browser;

/// A payment that says it may be repeated, which is not true.
struct Pay(Service);

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::InternalMutation;
    type Contract = contract::Idempotent;
    type Input = String;
    type Output = Value;

    async fn call(&self, call: &Call, order: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, order).await
    }
}

/// The page of a simulation that fails, and the page of one schedule.
fn findings() -> [String; 2] {
    async fn pay(ctx: Ctx, order: String) -> Result<Value, Failure> {
        ctx.call::<Pay>(order).await
    }
    let simulation = Simulation::of(pay, "order/17".to_owned())
        .engine(|engine, world| engine.tool(Pay(world.service("bank", Offer::Blind))))
        .check("paid once", |end| end.exactly_once_if_succeeded("bank", "order/17"))
        .single_crashes();
    let report = simulation.explore();
    let failing = report.failures().first().expect("a payment that is repeated is made twice");
    [report.html(), simulation.replay(&failing.schedule).html()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_in_a_file_has_a_barrier() {
    let desk = Desk::open().await;
    let [report, replay] = std::thread::spawn(findings).join().unwrap(); // a simulation has runtimes of its own
    let evidence = desk.evidence("pay_back:order/lost").await.html();
    let dir = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for scheme in ["light", "dark"] {
        let browser = Browser::start(scheme).await;
        for (name, page, shows) in [
            ("findings", &report, "●● duplicate"),
            ("schedule", &replay, "●● duplicate"),
            ("evidence-file", &evidence, "worker lost"),
        ] {
            let file = dir.path().join(format!("{name}.html"));
            fs::write(&file, page).unwrap();
            for (size, width) in [("wide", 1280), ("narrow", 320)] {
                browser.resize(width, 900).await;
                browser.open(&format!("file://{}", file.display())).await;
                browser.shows(shows).await;
                browser.picture(&format!("{name}-{scheme}-{size}")).await;
                let overflow =
                    browser.run("return document.documentElement.scrollWidth - window.innerWidth").await;
                if overflow.as_i64().unwrap() > 0 {
                    found.push(format!("{name}, {scheme}, {size}: {overflow} pixels too wide"));
                }
                let barriers = barriers(&browser).await;
                found.extend(
                    barriers.into_iter().map(|barrier| format!("{name}, {scheme}, {size}: {barrier:#}")),
                );
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    desk.close().await;
}
