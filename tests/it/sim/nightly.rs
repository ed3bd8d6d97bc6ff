//! Schedules in the simulator, and the nightly ingest: wherever a process dies, no tick is lost and none begins two runs.

#[path = "../../../workflows/nightly_ingest.rs"]
#[allow(dead_code, reason = "its program is not what is simulated")]
mod nightly_ingest;

use counterfoil::sim::CrashPoint;

// FLOW-11, SIM-2: two nights of two pages each, in a simulated year that begins on 1 January 2026.
#[test]
fn each_night_is_ingested_once_wherever_it_is_crashed() {
    let report = nightly_ingest::simulated::simulation().single_crashes().random(50).explore();
    report.assert_ok();
    let missed = report.never_crossed();
    for point in [CrashPoint::BeforeTick, CrashPoint::AfterTick, CrashPoint::AfterAdmission] {
        assert!(!missed.contains(&point), "{} was not tried", point.name());
    }
}
