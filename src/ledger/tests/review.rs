//! Reviews, over all sequences of votes: people are counted, not clicks; one person against it ends the review; and a
//! review that has ended does not change.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use crate::clock::Timestamp;
use crate::id::RunId;
use crate::ledger::{Approval, ApprovalError, Review, ReviewOutcome, Vote, VoteRefused};

const PEOPLE: [&str; 5] = ["ann", "bob", "carl", "dora", "mallory"];
const END: i64 = 20;

/// A review by four people, requested by Ann. It is read from its stored form, which must not change.
fn review(quorum: u32) -> Review {
    let stored = json!({
        "run": RunId(7), "turn": 0, "version": 2, "what": "notice", "content": "granted", "digest": "00",
        "reviewers": ["ann", "bob", "carl", "dora"], "quorum": quorum, "requested_by": "ann",
        "expires_at": Timestamp(END), "votes": [],
    });
    serde_json::from_value(stored).unwrap()
}

fn vote(by: &str, approves: bool, at: i64) -> Vote {
    Vote { by: by.into(), approves, reason: "so".into(), at: Timestamp(at) }
}

proptest! {
    // GUARD-1
    #[test]
    fn votes_in_any_order_count_people(
        quorum in 1_u32..5,
        votes in prop::collection::vec((0..PEOPLE.len(), prop::bool::weighted(0.8), 1_u32..4, prop::bool::weighted(0.9)), 0..12),
    ) {
        let mut review = review(quorum);
        let (mut in_favour, mut said, mut ended) = (BTreeSet::new(), BTreeSet::new(), None);
        for (at, (who, approves, version, entitled)) in votes.into_iter().enumerate() {
            let (by, at) = (PEOPLE[who], i64::try_from(at).unwrap() * 2);
            let counted = review.counted(vote(by, approves, at), version, entitled);
            let before = review.clone();
            if let Ok(after) = counted {
                prop_assert_eq!(version, 2, "of another version");
                if said.insert((by, approves)) {
                    prop_assert!(ended.is_none() && at < END && entitled && by != "mallory");
                    prop_assert!(!approves || by != "ann", "her own request");
                    prop_assert!(!said.contains(&(by, !approves)), "a changed vote");
                    if approves { in_favour.insert(by); }
                } else {
                    prop_assert_eq!(&after, &before, "the same once more");
                }
                review = after;
            }
            if ended.is_some() {
                prop_assert_eq!(&review.outcome, &ended, "what has ended stays");
            }
            ended.clone_from(&review.outcome);
            prop_assert_eq!(review.approvals() as usize, in_favour.len());
            match &review.outcome {
                None => prop_assert!(review.approvals() < quorum),
                Some(ReviewOutcome::Approved { .. }) => prop_assert_eq!(review.approvals(), quorum),
                Some(ReviewOutcome::Rejected { by, .. }) => prop_assert!(said.contains(&(by.as_str(), false))),
                Some(other) => prop_assert!(false, "{:?}", other),
            }
            prop_assert_eq!(review.approval("r").is_some(), matches!(review.outcome, Some(ReviewOutcome::Approved { .. })));
        }
    }
}

// Each refusal has its reason: the first one that applies.
#[test]
fn what_does_not_count_says_why() {
    let open = review(2);
    let why = |review: &Review, by: &str, approves: bool, at: i64| {
        review.counted(vote(by, approves, at), 2, true).unwrap_err()
    };
    assert!(matches!(why(&open, "bob", true, END), VoteRefused::Expired { .. }));
    assert!(matches!(why(&open, "mallory", true, 1), VoteRefused::NotEntitled { .. }));
    assert!(matches!(why(&open, "ann", true, 1), VoteRefused::OwnRequest { .. }));
    let rejected = open.counted(vote("ann", false, 1), 2, true).unwrap(); // her own request, withdrawn
    assert!(matches!(why(&rejected, "bob", true, 2), VoteRefused::Over { .. }));
    assert!(matches!(why(&rejected, "ann", true, 2), VoteRefused::Changed { approved: false, .. }));
    assert_eq!(rejected.ended(ReviewOutcome::Expired), None);
    let stale = open.counted(vote("bob", true, 1), 1, true).unwrap_err();
    assert_eq!(
        stale.to_string(),
        "version 1 of this notice is out of date: version 2 is to be decided; look at it first [vote]"
    );
}

fn approved_by(people: &[&str]) -> Review {
    let mut review = review(u32::try_from(people.len()).unwrap());
    for (by, at) in people.iter().zip(1..) {
        review = review.counted(vote(by, true, at), 2, true).unwrap();
    }
    review
}

// I04, I05: an effect goes out as it was approved, by people who may still decide, and only once if the approval is
// for a single use.
#[test]
fn an_approval_is_used_as_it_was_meant() {
    let approved = approved_by(&["bob", "carl"]);
    let everybody = |_: &str| true;
    assert_eq!(approved.check_use(2, "k1", everybody), Ok(()));
    let what = || "notice".to_owned();
    let superseded = |version| Err(ApprovalError::Superseded { what: what(), version });
    assert_eq!(approved.check_use(1, "k1", everybody), superseded(1));
    for outcome in [None, Some(ReviewOutcome::Withdrawn)] {
        let undecided = Review { outcome, ..approved.clone() };
        assert_eq!(undecided.check_use(2, "k1", everybody), superseded(2));
    }
    let lost = Err(ApprovalError::NotEntitled { what: what(), by: "carl".into() });
    assert_eq!(approved.check_use(2, "k1", |who| who != "carl"), lost);
    for (single_use, used_by, may) in
        [(true, None, true), (true, Some("k1"), true), (true, Some("k2"), false), (false, Some("k2"), true)]
    {
        let used = Review { single_use, used_by: used_by.map(Into::into), ..approved.clone() };
        let other = ApprovalError::Used { what: what(), key: "k2".into() };
        assert_eq!(used.check_use(2, "k1", everybody), if may { Ok(()) } else { Err(other) });
    }
}

#[test]
fn an_approval_names_who_was_in_favour_and_until_when_it_counts() {
    let approved = approved_by(&["bob", "carl"]);
    let given = |review: &Review| review.approval("r1").unwrap();
    let expected = Approval {
        by: "bob, carl".into(),
        package: "00".into(),
        expires_at: None,
        review: Some(("r1".into(), 2)),
        policy: None,
    };
    assert_eq!(given(&approved), expected);
    let limited = Review { valid_ms: Some(5), ..approved };
    assert_eq!(given(&limited).expires_at, Some(Timestamp(2 + 5_000)), "from the decision on");
}

#[test]
fn a_review_is_over_at_its_end_and_ends_once() {
    let open = review(2);
    assert_eq!([END - 1, END].map(|at| open.is_expired(Timestamp(at))), [false, true]);
    assert!(!Review { expires_at: None, ..open.clone() }.is_expired(Timestamp::MAX));
    let expired = open.ended(ReviewOutcome::Expired).unwrap();
    assert_eq!(expired, Review { outcome: Some(ReviewOutcome::Expired), ..open.clone() });
    assert_eq!(expired.ended(ReviewOutcome::Withdrawn), None);
    assert_eq!([open.is_named("bob"), open.is_named("mallory")], [true, false]);
    assert!(Review { reviewers: BTreeSet::new(), ..open }.is_named("mallory"), "nobody was named");
}

#[test]
fn a_vote_that_comes_too_late_is_told_what_became_of_the_review() {
    for (outcome, told) in [
        (ReviewOutcome::Approved { at: Timestamp(1) }, "it was approved"),
        (ReviewOutcome::Rejected { by: "bob".into(), reason: "so".into() }, "bob has rejected it"),
        (ReviewOutcome::Expired, "it has expired"),
        (ReviewOutcome::Withdrawn, "its run has moved on"),
    ] {
        let over = Review { outcome: Some(outcome), ..review(2) };
        let refused = over.counted(vote("carl", true, 1), 2, true).unwrap_err();
        let said = format!(
            "nothing is left to be decided about this notice: {told}; the decision was not counted [vote]"
        );
        assert_eq!(refused.to_string(), said);
    }
}
