//! An upgrade with the check in CI: runs that version 1 has recorded wait behind a charge, and the next version of the code
//! is run against their records. Nothing is written and nothing is called.
//!
//! ```text
//! cargo run --example upgrade_check                           # in a temporary folder: candidates for the next version
//! cargo run --example upgrade_check -- record orders.db       # version 1 begins some orders
//! cargo run --example upgrade_check -- check orders.db patched    # in CI: exit code 0, 1 (breaks) or 2 (cannot tell)
//! ```

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use counterfoil::flow::RunState;
use counterfoil::flow::check::{ReplayAnswer, ReplayReport};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Failure, Key, Tenant};

/// The candidates for the next version, and whether their check runs new steps.
pub(crate) const CANDIDATES: [(&str, bool); 4] =
    [("patched", true), ("unpatched", true), ("titled", true), ("titled", false)];

/// Charges for an order. In a check it is asked for its key, and never called.
struct Charge;

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = String;

    fn key(&self, order: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(order))
    }

    async fn call(&self, _: &Call, order: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("charge for {order}")))
    }
}

/// The code that is in production.
async fn version_1(ctx: Ctx, order: String) -> Result<String, Failure> {
    let charge = ctx.call::<Charge>(order).await?;
    let parcel: String = ctx.signal("shipped").await?;
    Ok(format!("{charge}, {parcel}"))
}

/// A candidate: it waits before it charges, which only new runs do.
async fn patched(ctx: Ctx, order: String) -> Result<String, Failure> {
    if ctx.patched("cooling-off").await? {
        ctx.sleep(Duration::from_hours(1)).await?;
    }
    version_1(ctx, order).await
}

/// A candidate that forgets the runs in flight: each would be blocked.
async fn unpatched(ctx: Ctx, order: String) -> Result<String, Failure> {
    ctx.sleep(Duration::from_hours(1)).await?;
    version_1(ctx, order).await
}

/// A candidate with a new synchronous step. The check sees what comes behind it if it may run new steps.
async fn titled(ctx: Ctx, order: String) -> Result<String, Failure> {
    let title = ctx.step("title", &order, |order| format!("order {order}")).await?;
    Ok(format!("{title}: {}", version_1(ctx, order).await?))
}

/// Begins orders with the code in production, and stops when each of them waits behind its charge.
pub(crate) async fn record(file: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::sqlite(file).workflow("order", 1, version_1).tool(Charge).start().await?;
    for order in ["o-1", "o-2"] {
        let run = engine.default_tenant().run(version_1, order.to_owned()).key(order).start().await?;
        while run.status().await?.state == RunState::Active {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    }
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Runs a candidate against each recorded run: also beside a living engine, or on a backup.
pub(crate) async fn check(
    file: &Path,
    candidate: &str,
    run_new_steps: bool,
) -> Result<Vec<ReplayReport>, Box<dyn Error>> {
    let mut replayer = Engine::sqlite(file).tool(Charge).replayer().await?;
    if run_new_steps {
        replayer = replayer.run_new_steps();
    }
    let (tenant, mut reports, mut last) = (Tenant::default(), Vec::new(), None);
    loop {
        let runs = replayer.runs(&tenant, last).await?;
        let Some(run) = runs.last() else { return Ok(reports) };
        last = Some(run.id);
        for run in runs.iter().filter(|run| run.workflow.as_str() == "order") {
            reports.push(match candidate {
                "patched" => replayer.run(&tenant, run.id, patched).await?,
                "unpatched" => replayer.run(&tenant, run.id, unpatched).await?,
                "titled" => replayer.run(&tenant, run.id, titled).await?,
                other => return Err(format!("there is no candidate {other:?}").into()),
            });
        }
    }
}

/// 0: every run goes on. 1: a run breaks. 2: of a run the check cannot tell.
pub(crate) fn exit_code(reports: &[ReplayReport]) -> u8 {
    let code = |report: &ReplayReport| match report.answer {
        ReplayAnswer::Ok => 0,
        ReplayAnswer::Breaks => 1,
        ReplayAnswer::CannotTell { .. } => 2,
    };
    // One that breaks outweighs all others.
    reports.iter().map(code).min_by_key(|code| [2, 0, 1][usize::from(*code)]).unwrap_or(0)
}

fn shown(reports: &[ReplayReport]) -> String {
    reports.iter().map(ToString::to_string).collect()
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["record", file] => record(Path::new(file)).await?,
        ["check", file, candidate] => {
            let reports = check(Path::new(file), candidate, true).await?;
            print!("{}", shown(&reports));
            return Ok(ExitCode::from(exit_code(&reports)));
        }
        _ => {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("orders.db");
            record(&file).await?;
            for (candidate, run_new_steps) in CANDIDATES {
                let reports = check(&file, candidate, run_new_steps).await?;
                println!("{candidate}, new steps run: {run_new_steps}: exit code {}", exit_code(&reports));
                print!("{}", shown(&reports));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
