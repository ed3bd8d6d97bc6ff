//! Approvals: bound to exactly the package that was seen, and for the approved time.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::ledger::{Approval, ApprovalError, ApprovalSubject};

const NOW: Timestamp = Timestamp(1_000);

fn notice(text: &str) -> ApprovalSubject {
    ApprovalSubject::of("notice", &json!({"to": "ann", "text": text}))
}

fn approved(package: &ApprovalSubject) -> Approval {
    Approval::of("bob", package).unwrap()
}

fn other_content() -> Result<(), ApprovalError> {
    Err(ApprovalError::OtherContent { what: "notice".into(), by: "bob".into() })
}

#[test]
fn an_approval_holds_for_what_was_seen() {
    assert_eq!(notice("Dear Ann").what(), "notice");
    let approval = approved(&notice("Dear Ann"));
    assert_eq!(approval.check(&notice("Dear Ann"), NOW), Ok(()));
    // The same content in another spelling.
    let same = ApprovalSubject::of("notice", &json!({"text": "Dear Ann", "to": "ann"}));
    assert_eq!(approval.check(&same, Timestamp::MAX), Ok(()));
}

// The draft changed after it was approved.
#[test]
fn an_approval_does_not_hold_for_other_content() {
    let approval = approved(&notice("Dear Ann"));
    assert_eq!(approval.check(&notice("Dear Bob"), NOW), other_content());
    let to_another = ApprovalSubject::of("notice", &json!({"to": "bob", "text": "Dear Ann"}));
    assert_eq!(approval.check(&to_another, NOW), other_content());
    let more = ApprovalSubject::of("notice", &json!({"to": "ann", "text": "Dear Ann", "cc": null}));
    assert_eq!(approval.check(&more, NOW), other_content());
}

// An approval for one kind of action does not count for another kind.
#[test]
fn an_approval_does_not_hold_for_another_kind() {
    let content = json!({"id": 7});
    let approval = approved(&ApprovalSubject::of("archive", &content));
    let refused = approval.check(&ApprovalSubject::of("delete", &content), NOW).unwrap_err();
    assert_eq!(refused, ApprovalError::OtherContent { what: "delete".into(), by: "bob".into() });
    assert!(refused.to_string().contains("ask again"), "{refused}");
}

#[test]
fn an_approval_ends_at_its_instant() {
    let package = notice("Dear Ann");
    let approval = approved(&package).expires_at(NOW);
    assert_eq!(approval.check(&package, Timestamp(NOW.0 - 1)), Ok(()));
    let expired = Err(ApprovalError::Expired { by: "bob".into() });
    assert_eq!(approval.check(&package, NOW), expired);
    assert_eq!(approval.check(&package, Timestamp::MAX), expired);
    // The change of the content matters more: a new approval of the old content would not help.
    assert_eq!(approval.check(&notice("Dear Bob"), Timestamp::MAX), other_content());
}

// Content that cannot be hashed can be neither approved nor sent.
#[test]
fn content_without_a_json_form_is_refused() {
    let bad = ApprovalSubject::of("notice", &[f64::NAN]);
    assert!(Approval::of("bob", &bad).is_err());
    let checked = approved(&notice("Dear Ann")).check(&bad, NOW);
    assert!(matches!(checked, Err(ApprovalError::Unreadable { .. })), "{checked:?}");
    // Two amounts that a double would round together are not approved together.
    assert!(Approval::of("bob", &ApprovalSubject::of("pay", &9_007_199_254_740_993_u64)).is_err());
}

// An approval may wait for days in the store and comes back unchanged.
#[test]
fn an_approval_round_trips() {
    for approval in [approved(&notice("Dear Ann")), approved(&notice("x")).expires_at(NOW)] {
        let stored = serde_json::to_string(&approval).unwrap();
        assert_eq!(serde_json::from_str::<Approval>(&stored).unwrap(), approval);
    }
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ab\",\\[\\]]{0,3}".prop_map(Value::from),
        (0..3_i32).prop_map(Value::from),
        proptest::collection::vec("[ab]{0,2}", 0..3).prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // The border between kind and content cannot be moved.
    #[test]
    fn an_approval_is_for_one_package(
        a in ("[ab\",]{0,2}", content()),
        b in ("[ab\",]{0,2}", content()),
    ) {
        let (pa, pb) = (ApprovalSubject::of(&a.0, &a.1), ApprovalSubject::of(&b.0, &b.1));
        prop_assert_eq!(approved(&pa).check(&pb, NOW).is_ok(), a == b);
    }
}
