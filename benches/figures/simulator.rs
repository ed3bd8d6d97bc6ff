//! The speed of the simulator, for which a user waits in each run of the tests.

use std::time::Instant;

use counterfoil::sim::Report;

use crate::options::Options;
use crate::report::{Finding, Values};

#[path = "../../workflows/case_notice.rs"]
#[allow(dead_code, reason = "its program is not what is measured")]
mod case_notice;
#[path = "../../workflows/five_calls.rs"]
mod five_calls;

use case_notice::classes::Class;

/// Measures schedules on one core, because a simulation has one thread.
pub(crate) fn schedules(options: &Options) -> Result<Vec<Finding>, String> {
    let simulation = five_calls::simulation();
    let mut rates = Vec::new();
    for _ in 0..options.rounds {
        let start = Instant::now();
        let report = sound("five guarded calls", simulation.explore())?;
        rates.push(f64::from(report.schedules()) / start.elapsed().as_secs_f64());
    }
    let measure = "simulator: schedules of five guarded calls, per second".to_owned();
    Ok(vec![Finding::absolute("simulator", measure, Values::new("/s", rates), None).at_least(1000.0, 3000.0)])
}

/// Measures every crash point, every pair and every fault with every crash, in front of the six kinds of provider that
/// do what they say.
pub(crate) fn case_notice(options: &Options) -> Result<Vec<Finding>, String> {
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
        Finding::absolute("simulator-case-notice", measure, Values::new("s", took), None).at_most(60.0, 20.0),
    ])
}

fn sound(what: &str, report: Report) -> Result<Report, String> {
    if report.is_ok() { Ok(report) } else { Err(format!("{what}: {report}")) }
}
