//! The needs of a send: over all combinations of needs and instants.

use proptest::option;
use proptest::prelude::*;

use crate::clock::Timestamp;
use crate::ledger::{Contract, ContractClass, Need, Needs};

fn at() -> impl Strategy<Value = Timestamp> {
    (0_i64..50).prop_map(Timestamp)
}

fn needs() -> impl Strategy<Value = Needs> {
    let key = (at(), at()).prop_map(|(a, b)| a.min(b)..a.max(b));
    let at = || option::of(at());
    (option::of(key), at(), at(), at(), at(), at()).prop_map(
        |(key, approval, lease, operation_time, run_time, deadline)| Needs {
            key,
            approval,
            lease,
            operation_time,
            run_time,
            deadline,
        },
    )
}

/// Each need that is set, with its end.
fn ends(needs: &Needs) -> Vec<(Timestamp, Need)> {
    let key = needs.key.as_ref().map(|window| window.end);
    let all = [
        (key, Need::Key),
        (needs.approval, Need::Approval),
        (needs.lease, Need::Lease),
        (needs.operation_time, Need::OperationTime),
        (needs.run_time, Need::RunTime),
        (needs.deadline, Need::Deadline),
    ];
    all.into_iter().filter_map(|(at, need)| Some((at?, need))).collect()
}

proptest! {
    #[test]
    fn something_is_missing_from_the_earliest_end_on_and_before_the_key_was_sent(needs in needs(), now in at()) {
        let over = ends(&needs).iter().any(|(at, _)| *at <= now);
        let before = needs.key.as_ref().is_some_and(|window| now < window.start);
        prop_assert_eq!(needs.lapsed(now).is_some(), over || before);
        if let Some(need) = needs.lapsed(now) {
            prop_assert!(ends(&needs).iter().any(|(_, there)| *there == need), "{need:?} is not needed");
        }
    }

    #[test]
    fn the_earliest_end_is_one_that_none_precedes(needs in needs()) {
        let ends = ends(&needs);
        prop_assert_eq!(needs.earliest().is_none(), ends.is_empty());
        if let Some(earliest) = needs.earliest() {
            prop_assert!(ends.contains(&earliest));
            prop_assert!(ends.iter().all(|(at, _)| earliest.0 <= *at));
        }
    }

    #[test]
    fn a_lease_and_a_deadline_cut_nothing_off(needs in needs()) {
        let without = Needs { lease: None, deadline: None, ..needs.clone() };
        prop_assert_eq!(needs.cut_off(), without.earliest());
    }

    // The contract and the permit answer the same question alike.
    #[test]
    fn a_key_is_safe_exactly_while_the_permit_says_so(first in at(), now in at(), window in 1_u64..60) {
        let window = std::time::Duration::from_micros(window);
        let contract = Contract::new(ContractClass::ReplaysKey).key_window(window);
        let needs = Needs { key: contract.key_safe_from(first), ..Needs::default() };
        prop_assert_eq!(contract.key_is_safe(first, now), needs.lapsed(now).is_none());
    }
}

#[test]
fn what_is_missing_is_told() {
    for (need, words) in [
        (Need::Key, "the provider may have forgotten the key by now"),
        (Need::Approval, "the approval has expired"),
        (Need::Lease, "this worker's lease has run out"),
        (Need::OperationTime, "the operation's time is over"),
        (Need::RunTime, "the run's time is over"),
        (Need::Deadline, "the run's deadline has passed"),
    ] {
        assert_eq!(need.words(), words);
    }
}
