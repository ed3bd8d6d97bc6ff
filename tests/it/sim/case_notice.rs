//! The example workflow, with its tools and its transaction, crashed everywhere in front of every kind of provider.

#[path = "../../../workflows/case_notice.rs"]
#[allow(dead_code, reason = "its program and its HTTP client are the business of the kill tests")]
pub(crate) mod case_notice;

use counterfoil::sim::CrashPoint;

use case_notice::classes::Class;
use case_notice::simulated::simulation;

use crate::sim::quick;

macro_rules! classes {
    ($($name:ident: $class:ident;)*) => {$(
        #[test]
        fn $name() {
            sends_one_notice_and_closes_its_case_once(Class::$class);
        }
    )*};
}

// SIM-2, R-SIM-1: every crash point and every fault; every pair, too, in `counterfoil simulate` and in the figures.
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
    let report = quick(simulation(class)).explore();
    report.assert_ok();
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    for point in [CrashPoint::AfterCall, CrashPoint::BeforeTransaction, CrashPoint::AfterTransaction] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
}
