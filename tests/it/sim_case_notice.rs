//! The example workflow, with its tools and its transaction, crashed everywhere in front of every kind of provider.

#[path = "../../workflows/case_notice.rs"]
#[allow(dead_code, reason = "its program and its HTTP client are the business of the kill tests")]
mod case_notice;

use counterfoil::sim::{CrashPoint, Report};

use case_notice::classes::Class;
use case_notice::simulated::simulation;

// SIM-2, R-SIM-1: every crash point, every pair, every fault with every crash.
#[test]
fn every_class_sends_one_notice_and_closes_its_case_once() {
    for class in Class::ALL {
        let report = simulation(class).explore();
        assert!(report.is_ok(), "{}: {report}", class.name());
        shows_something(&report);
    }
}

fn shows_something(report: &Report) {
    assert!(report.schedules() > 300, "only {} schedules", report.schedules());
    for point in [CrashPoint::AfterCall, CrashPoint::BeforeTransaction, CrashPoint::AfterTransaction] {
        assert!(report.crashed_at().contains(&point), "never died at {point}");
    }
}
