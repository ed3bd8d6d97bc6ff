//! How fast the simulator tries things: what a user waits for in each run of the tests.

use std::time::Instant;

use counterfoil::ledger::Finding;
use counterfoil::sim::{Offer, Report, Service, Simulation};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure};
use serde_json::Value;

use crate::options::Options;
use crate::report::{Finding as Row, Values};

#[path = "../../workflows/case_notice.rs"]
#[allow(dead_code, reason = "its program is not what is measured")]
mod case_notice;

use case_notice::classes::Class;

struct Touch(Service);

impl Tool for Touch {
    const NAME: &'static str = "touch";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    async fn call(&self, call: &Call, input: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, input).await
    }
}

impl Reconcile for Touch {
    async fn reconcile(&self, call: &Call, input: &String) -> Result<Finding<Value>, ToolError> {
        self.0.find(call, input).await
    }
}

async fn five(ctx: Ctx, case: String) -> Result<(), Failure> {
    for n in 1..=5 {
        ctx.call::<Touch>(format!("{case}/{n}")).await?;
    }
    Ok(())
}

/// On one core: a simulation has one thread.
pub(crate) fn schedules(options: &Options) -> Result<Vec<Row>, String> {
    let simulation = Simulation::of(five, "case".to_owned())
        .engine(|engine, world| engine.tool(Touch(world.service("desk", Offer::Lookup))));
    let mut rates = Vec::new();
    for _ in 0..options.rounds {
        let start = Instant::now();
        let report = sound("five guarded calls", simulation.explore())?;
        rates.push(f64::from(report.schedules()) / start.elapsed().as_secs_f64());
    }
    let measure = "simulator: schedules of five guarded calls, per second".to_owned();
    Ok(vec![Row::absolute("simulator", measure, Values::new("/s", rates), None).at_least(1000.0, 3000.0)])
}

/// Every crash point, every pair and every fault with every crash, in front of the six kinds of provider that do
/// what they say.
pub(crate) fn case_notice(options: &Options) -> Result<Vec<Row>, String> {
    let (mut took, mut schedules) = (Vec::new(), 0);
    for _ in 0..options.rounds {
        let start = Instant::now();
        schedules = 0;
        for class in Class::ALL.into_iter().filter(|class| *class != Class::IgnoresKey) {
            let report = case_notice::simulated::simulation(class).explore();
            schedules += sound(class.name(), report)?.schedules();
        }
        took.push(start.elapsed().as_secs_f64());
    }
    let measure =
        format!("simulator: case_notice, all points and pairs, six classes ({schedules} schedules)");
    Ok(vec![
        Row::absolute("simulator-case-notice", measure, Values::new("s", took), None).at_most(60.0, 20.0),
    ])
}

fn sound(what: &str, report: Report) -> Result<Report, String> {
    if report.is_ok() { Ok(report) } else { Err(format!("{what}: {report}")) }
}
