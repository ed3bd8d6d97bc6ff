//! The example workflow, with its tools and its transaction, crashed everywhere in front of every kind of provider.

#[path = "../../workflows/case_notice.rs"]
#[allow(dead_code, reason = "its program and its HTTP client are the business of the kill tests")]
mod case_notice;

use counterfoil::sim::CrashPoint;

use case_notice::classes::Class;
use case_notice::simulated::simulation;

macro_rules! classes {
    ($($name:ident: $class:ident;)*) => {$(
        #[test]
        fn $name() {
            sends_one_notice_and_closes_its_case_once(Class::$class);
        }
    )*};
}

// SIM-2, R-SIM-1: every crash point, every pair, every fault with every crash.
classes! {
    replays_key_with_lookup: ReplaysKeyWithLookup;
    replays_key: ReplaysKey;
    rejects_key: RejectsKey;
    natural_key: NaturalKey;
    lookup: Lookup;
    blind: Blind;
    ignores_key: IgnoresKey;
}

fn sends_one_notice_and_closes_its_case_once(class: Class) {
    let report = simulation(class).explore();
    report.assert_ok();
    assert!(report.schedules() > 300, "only {} schedules", report.schedules());
    for point in [CrashPoint::AfterCall, CrashPoint::BeforeTransaction, CrashPoint::AfterTransaction] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
}
