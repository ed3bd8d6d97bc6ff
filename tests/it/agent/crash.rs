//! The example agents, crashed wherever a process can die: no tool call is made twice.

#[path = "../../../workflows/case_agent.rs"]
#[allow(dead_code, reason = "its program is not tested")]
pub(crate) mod case_agent;
#[path = "../../../workflows/research_agent.rs"]
#[allow(dead_code, reason = "its program is not tested")]
mod research_agent;

use counterfoil::sim::CrashPoint;

use crate::sim::quick;

#[test]
fn the_case_agent_does_nothing_twice() {
    let report = quick(case_agent::simulated::simulation()).explore();
    report.assert_ok();
    assert!(report.schedules() > 200, "only {} schedules", report.schedules());
    for point in [CrashPoint::BeforeCall, CrashPoint::AfterCall] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
}

#[test]
fn research_survives_every_crash() {
    quick(research_agent::simulation()).explore().assert_ok();
}
