//! The whole desk around a notice in the simulator: approval, artifact, sending, events, memory, withdrawal and correction,
//! wherever a process dies.

use crate::sim::case_notice::case_notice::desk::simulated::simulation;

// The whole case-notice system: no silent duplicate, no silent loss, no forgotten effect. With COUNTERFOIL_FULL=1 ten
// thousand random mixtures of incidents.
#[test]
fn the_whole_desk_wherever_it_is_crashed() {
    let full = std::env::var_os("COUNTERFOIL_FULL").is_some();
    let report = simulation().random(if full { 10_000 } else { 100 }).explore();
    report.assert_ok();
}
