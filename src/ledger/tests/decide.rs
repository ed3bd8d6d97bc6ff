//! The answers of the ledger: every state, against every request, alive or not.

use super::{failure, json, record, started};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::ledger::{Decision, Facts, FinalState, Record, Request, RequestHash, State, decide};

/// Each state, with its name in the table.
fn states() -> [(&'static str, Record); 10] {
    let compensated =
        |whole| State::Compensated { response: json("first"), compensation: json("undone"), whole };
    [
        ("started", record(State::Started)),
        ("left", Record { not_before: Some(Timestamp(50)), ..record(State::Started) }),
        ("parked", Record { escalation: Some(QuestionId(9)), ..record(State::Started) }),
        ("committed", record(State::Committed { response: json("first") })),
        ("failed", record(State::Failed { failure: failure("no") })),
        (
            "waiting",
            Record { not_before: Some(Timestamp(50)), ..record(State::Failed { failure: failure("no") }) },
        ),
        ("compensated", record(compensated(true))),
        ("partly", record(compensated(false))),
        ("abandoned", record(State::Abandoned { reason: "ann: leave it".into() })),
        ("gone", record(State::Gone { was: FinalState::Compensated, outcome: "00".into() })),
    ]
}

fn answer(name: &str, alive: bool) -> Decision {
    match (name, alive) {
        ("started", true) => Decision::InProgress,
        ("started", false) | ("left", _) => Decision::Reconcile,
        ("parked", _) => Decision::Parked { question: QuestionId(9) },
        ("committed", _) => Decision::Duplicate { response: json("first") },
        ("failed", _) => Decision::Retry { failure: failure("no"), not_before: None },
        ("waiting", _) => Decision::Retry { failure: failure("no"), not_before: Some(Timestamp(50)) },
        ("compensated" | "partly", _) => {
            Decision::Compensated { response: json("first"), compensation: json("undone") }
        }
        ("abandoned", _) => Decision::Abandoned { reason: "ann: leave it".into() },
        ("gone", _) => Decision::Gone { was: FinalState::Compensated },
        _ => unreachable!("{name} is not in the table"),
    }
}

/// The hash of another payload under the same key.
fn other_hash() -> RequestHash {
    RequestHash { version: 1, digest: [7; 32] }
}

const ALIVE: [bool; 2] = [true, false];

// R-REC-3
#[test]
fn a_key_never_heard_of_is_new() {
    for attempt_alive in ALIVE {
        for stored_rehashed in [None, Some(other_hash()), Some(started().request_hash)] {
            let request = Request { hash: other_hash(), stored_rehashed };
            assert_eq!(decide(None, &request, &Facts { attempt_alive }), Decision::New);
        }
    }
}

// R-REC-3, D10: the table. Equal requests get the record's answer; others a conflict, whatever the state.
#[test]
fn every_state_has_its_answer() {
    for (name, record) in states() {
        let same = record.request_hash;
        let requests = [
            ("same", Request { hash: same, stored_rehashed: None }, true),
            // R-KEY-5: the stored request was written by another version of the type and equals this one in the
            // present version.
            ("rehashed equal", Request { hash: other_hash(), stored_rehashed: Some(other_hash()) }, true),
            // The stored request reads differently in the present version, but is requested as it was written.
            ("same, rehashed other", Request { hash: same, stored_rehashed: Some(other_hash()) }, true),
            ("other", Request { hash: other_hash(), stored_rehashed: None }, false),
            // A rehash that leads back to the old hash says nothing about the new one.
            ("rehashed unlike", Request { hash: other_hash(), stored_rehashed: Some(same) }, false),
            (
                "other scheme",
                Request { hash: RequestHash { version: 2, ..same }, stored_rehashed: None },
                false,
            ),
        ];
        for (asked, request, equal) in requests {
            for attempt_alive in ALIVE {
                let decision = decide(Some(&record), &request, &Facts { attempt_alive });
                let expected = if equal { answer(name, attempt_alive) } else { Decision::Conflict };
                assert_eq!(decision, expected, "{name}, {asked}, alive: {attempt_alive}");
            }
        }
    }
}

// R-REC-3, invariant 4: a duplicate gets the first response, byte for byte, however often and whatever was learned
// since.
#[test]
fn a_duplicate_is_answered_with_the_first_result() {
    let committed = record(State::Committed { response: json("first") });
    let later = Record {
        attempts: 9,
        revision: 40,
        external_ref: Some("other".into()),
        not_before: Some(Timestamp(9)),
        updated_at: Timestamp::MAX,
        ..committed.clone()
    };
    let request = Request { hash: committed.request_hash, stored_rehashed: None };
    for record in [committed, later] {
        for attempt_alive in ALIVE {
            let decision = decide(Some(&record), &request, &Facts { attempt_alive });
            assert_eq!(decision, Decision::Duplicate { response: json("first") });
        }
    }
}

// D10, invariant 4: the decision reads the record and changes nothing; the same request gets the same answer.
#[test]
fn deciding_is_pure() {
    for (name, record) in states() {
        let before = record.clone();
        let request = Request { hash: other_hash(), stored_rehashed: None };
        let facts = Facts { attempt_alive: false };
        assert_eq!(decide(Some(&record), &request, &facts), decide(Some(&record), &request, &facts));
        assert_eq!(record, before, "{name}");
    }
}
