//! Deadlines in the simulator: wherever the process dies, a run that is past its deadline is cancelled, what it did is undone, and
//! nothing is begun after it.

use std::time::Duration;

use counterfoil::Ctx;
use counterfoil::flow::{Failure, FailureCode};
use counterfoil::sim::{CrashPoint, Offer, Simulation};
use counterfoil::store::RunState;

use crate::sim::{Looks, quick};

const DAY: Duration = Duration::from_hours(24);

/// Pays twice, with ten days in between.
async fn pay(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    ctx.call::<Looks>(format!("{invoice} first")).await?;
    ctx.sleep(10 * DAY).await?;
    ctx.call::<Looks>(format!("{invoice} second")).await?;
    Ok(invoice)
}

/// Pays, and has somebody else pay.
async fn office(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    ctx.call::<Looks>(format!("{invoice} of the office")).await?;
    ctx.child(pay, invoice).await
}

#[test]
fn a_run_past_its_deadline_is_cancelled_with_its_child_wherever_it_is_crashed() {
    let simulation = Simulation::of(office, "one".to_owned())
        .engine(|engine, world| {
            let engine = engine.workflow("pay", 1, pay);
            engine.tool(Looks(world.service("bank", Offer::Lookup)))
        })
        .workflow(|workflow| workflow.deadline(5 * DAY))
        .check("all are cancelled in time", |end| {
            for run in end.rows() {
                let RunState::Failed { failure } = &run.state else {
                    return Err(format!("{}: {:?}", run.id, run.state));
                };
                let failure: Failure = failure.decode().unwrap();
                let refused = [FailureCode::ToolFailed, FailureCode::ChildFailed];
                let in_time =
                    failure.code == FailureCode::Cancelled && failure.message.contains("its deadline");
                if !in_time && !refused.contains(&failure.code) && run.parent.is_none() {
                    return Err(format!("{}: {failure}", run.id));
                }
            }
            Ok(())
        })
        .check("nothing is paid after the deadline", |end| match end.count("bank", "one second") {
            0 => Ok(()),
            times => Err(format!("it was paid {times} times")),
        });
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterSignal), "never died at the command");
}
