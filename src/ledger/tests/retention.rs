//! The retention of records, and the part that is left of them.

use std::time::Duration;

use super::{failure, json, record, started};
use crate::clock::Timestamp;
use crate::ledger::{FinalState, Owner, Record, RequestHash, Retention, State};
use crate::payload::{DigestKey, Payload, Stored, hex};

const DAY: Duration = Duration::from_hours(24);
const WEEK: Duration = DAY.saturating_mul(7);
const MOMENT: Duration = Duration::from_micros(1);

fn key() -> DigestKey {
    DigestKey::new([7; 32])
}

fn committed() -> Record {
    record(State::Committed { response: json("first") })
}

#[test]
fn a_record_is_kept_whole_as_long_as_is_declared() {
    let from = Timestamp(10);
    for retention in [Retention::forget_after(WEEK), Retention::tombstone_after(WEEK)] {
        assert_eq!(retention.until(from), Some(from.after(WEEK)));
    }
    assert_eq!(Retention::keep().until(from), None);
    assert_eq!(Retention::default(), Retention::tombstone_after(DAY * 30));
}

// Invariant 9
#[test]
fn only_what_is_forgotten_could_be_taken_for_new() {
    assert_eq!(Retention::forget_after(WEEK).shortest(), Some(WEEK));
    assert_eq!(Retention::tombstone_after(WEEK).shortest(), None);
    assert_eq!(Retention::keep().shortest(), None);
}

#[test]
fn an_access_is_worth_a_write_when_a_tenth_of_the_time_has_passed() {
    let retention = Retention::tombstone_after(DAY * 10).from_last_access();
    let born = committed().created_at;
    let record = Record { kept_until: Some(born.after(DAY * 10)), ..committed() };
    assert_eq!(retention.touched(&record, born.after(DAY)), None);
    let late = retention.touched(&record, born.after(DAY + MOMENT)).unwrap();
    let kept_until = Some(born.after(DAY * 11 + MOMENT));
    assert_eq!(late, Record { kept_until, revision: record.revision + 1, ..record.clone() });
    let never = [Retention::tombstone_after(DAY * 10), Retention::keep().from_last_access()];
    assert!(never.iter().all(|retention| retention.touched(&record, born.after(DAY * 9)).is_none()));
    assert_eq!(retention.touched(&committed(), born.after(DAY * 9)), None, "it is kept for ever");
}

// REC-6, invariant 9: the retention holds to the instant.
#[test]
fn nothing_goes_before_its_time_nor_before_the_last_retry() {
    let record = Record { updated_at: committed().created_at.after(DAY), ..committed() };
    let born = record.created_at;
    let left = |retention: Retention, horizon, now| retention.left(&record, horizon, &key(), now);
    let until = |until| Some(Record { kept_until: until, revision: record.revision + 1, ..record.clone() });
    let forever = left(Retention::keep(), WEEK, Timestamp::MAX);
    assert_eq!(forever, until(None));
    for retention in [Retention::forget_after(WEEK), Retention::tombstone_after(WEEK)] {
        let end = born.after(WEEK);
        assert_eq!(left(retention, DAY, born), until(Some(end)), "the horizon ends before");
        assert_eq!(left(retention, DAY, Timestamp(end.0 - 1)), until(Some(end)));
        let end = born.after(DAY + WEEK);
        assert_eq!(left(retention, WEEK, Timestamp(end.0 - 1)), until(Some(end)), "the horizon ends later");
    }
    let end = born.after(WEEK);
    assert_eq!(left(Retention::forget_after(WEEK), DAY, end), None);
    let gone = left(Retention::tombstone_after(WEEK), DAY, end).unwrap();
    assert!(matches!(gone.state, State::Gone { .. }), "{gone:?}");
}

// REC-8: a late retry is answered `gone`, and no earlier content can be read.
#[test]
fn a_tombstone_holds_the_key_and_digests() {
    let owner =
        Owner { run: Some(crate::id::RunId(3)), turn: 4, step: Some("s".into()), call_id: Some("c".into()) };
    let of = |state| Record {
        state,
        owner: owner.clone(),
        external_ref: Some("ch_1".into()),
        not_before: Some(Timestamp(20)),
        kept_until: Some(Timestamp(30)),
        ..started()
    };
    let (response, compensation) = (json("first"), json("back"));
    for (state, was, said) in [
        (State::Committed { response: response.clone() }, FinalState::Committed, "\"first\""),
        (
            State::Compensated { response, compensation, whole: true },
            FinalState::Compensated,
            "\"first\"\0\"back\"",
        ),
        (State::Abandoned { reason: "left".into() }, FinalState::Abandoned, "left"),
    ] {
        let before = of(state);
        let left = Retention::erased(&before, &key()).unwrap();
        let expected = Record {
            state: State::Gone { was, outcome: hex(&key().digest(said.as_bytes())) },
            request: Stored::Inline(Payload::of(&()).unwrap()),
            request_hash: before.request_hash.keyed(&key()),
            owner: Owner { run: owner.run, turn: owner.turn, ..Owner::default() },
            external_ref: None,
            not_before: None,
            kept_until: None,
            revision: before.revision + 1,
            ..before
        };
        assert_eq!(left, expected);
    }
    let failed = of(State::Failed { failure: failure("no") });
    assert_eq!(Retention::erased(&failed, &key()), None, "it did not happen");
    for state in [State::Started, State::Gone { was: FinalState::Committed, outcome: "00".into() }] {
        let before = of(state);
        let revision = before.revision + 1;
        let as_it_was = Record { kept_until: None, revision, ..before.clone() };
        assert_eq!(Retention::erased(&before, &key()), Some(as_it_was));
    }
}

#[test]
fn a_keyed_hash_is_told_from_a_plain_one_and_from_that_of_another_key() {
    let plain = RequestHash { version: 1, digest: [1; 32] };
    let keyed = plain.keyed(&key());
    assert_eq!(keyed, RequestHash { version: 0x81, digest: key().digest(&plain.column()) });
    assert_eq!(keyed.keyed(&key()).version, 0x81, "it stays one");
    assert_ne!(keyed, plain.keyed(&DigestKey::new([8; 32])));
}
