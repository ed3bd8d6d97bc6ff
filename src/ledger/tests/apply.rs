//! The transitions of a record: all of them, and no sequence of events that leaves the state machine.

use proptest::prelude::*;

use super::{MINE, failure, json, record, started};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, QuestionId};
use crate::ledger::{
    Approval, ApprovalSubject, Basis, EffectClass, Event, InvalidTransition, Record, State, apply,
};
use crate::payload::{Oversized, Payload, Stored};

const OTHER: Fence = Fence(2);

fn oversized() -> State {
    let digest = Payload::stored("\"long\"").digest();
    State::Committed { response: Stored::Oversized(Oversized { digest, bytes: 6 }) }
}

fn commit(response: &str) -> Event {
    Event::Commit { response: json(response), external_ref: None, basis: Basis::Answer }
}

/// The event of a further attempt, under another account than the first one.
fn again_by(fence: Fence, basis: Basis) -> Event {
    Event::Again { fence, basis, declaration: DeclarationId(2), approval: None, scopes: None }
}

/// One event of each kind, with its name in the table. `fence` is the worker that again, adopt and inherit hand the record to.
fn events(fence: Fence) -> [(&'static str, Event); 17] {
    [
        ("again", again_by(fence, Basis::Answer)),
        ("adopt", Event::Adopt { fence }),
        ("note", Event::Note { external_ref: "noted".into() }),
        ("commit", commit("answer")),
        ("fail, go again", Event::Fail { failure: failure("no"), not_before: Some(Timestamp(50)) }),
        ("fail, give up", Event::Fail { failure: failure("no"), not_before: None }),
        ("refuse", Event::Refuse { failure: failure("no") }),
        ("park", Event::Park { escalation: QuestionId(9) }),
        ("unpark", Event::Unpark),
        ("leave", Event::Leave),
        ("inherit", Event::Inherit { fence }),
        ("answer waits", Event::AnswerWaits),
        ("resolve committed", Event::ResolveCommitted { response: json("said"), external_ref: None }),
        ("resolve not committed", Event::ResolveNotCommitted { message: "ann: no".into() }),
        ("resolve abandoned", Event::ResolveAbandoned { reason: "ann: leave it".into() }),
        ("supply", Event::Supply { response: json("looked up") }),
        ("compensate", Event::Compensate { compensation: json("undone"), whole: true }),
    ]
}

/// A started record that no worker handles.
fn left() -> Record {
    Record { not_before: Some(Timestamp(40)), ..record(State::Started) }
}

// A worker that takes up a record that was left handles it from then on; a record whose question was withdrawn is
// left.
#[test]
fn a_record_is_left_until_somebody_takes_it_up() {
    let started = record(State::Started);
    assert!(!started.is_left() && applied(&started, Event::Leave).is_left());
    let parked = applied(&started, Event::Park { escalation: QuestionId(9) });
    assert!(!parked.is_left() && applied(&parked, Event::Unpark).is_left());
    for (name, event) in events(OTHER) {
        if let Ok(next) = apply(&left(), event, OTHER, Timestamp(60)) {
            assert!(!next.is_left(), "{name}");
        }
    }
}

/// The whole state machine: the events that each state takes from the worker that holds the record, and from another
/// one. An event that is not named is refused.
fn table() -> [(&'static str, Record, &'static [&'static str], &'static [&'static str]); 12] {
    let compensated =
        |whole| record(State::Compensated { response: json("first"), compensation: json("undone"), whole });
    let committed = || record(State::Committed { response: json("first") });
    let in_hand: &[_] =
        &["again", "adopt", "note", "commit", "fail, go again", "fail, give up", "refuse", "park", "leave"];
    // The record is taken over or put to a person; its outcome is never reported.
    let elsewhere: &[_] = &["again", "adopt", "park"];
    let resolutions: &[_] = &[
        "unpark",
        "inherit",
        "answer waits",
        "resolve committed",
        "resolve not committed",
        "resolve abandoned",
    ];
    [
        ("started", record(State::Started), in_hand, elsewhere),
        // Its own worker may take the record up again, like any other worker.
        ("left", left(), in_hand, elsewhere),
        // The failure of this attempt says nothing about the earlier one of unknown outcome.
        (
            "in doubt",
            Record { in_doubt: true, ..record(State::Started) },
            &["again", "adopt", "note", "commit", "refuse", "park", "leave"],
            elsewhere,
        ),
        (
            "parked",
            Record { escalation: Some(QuestionId(9)), ..record(State::Started) },
            resolutions,
            resolutions,
        ),
        // Another attempt, or the end of the wait by decision, also by a worker that has taken the run over.
        (
            "failed",
            record(State::Failed { failure: failure("first") }),
            &["again", "fail, give up"],
            &["again", "fail, give up"],
        ),
        (
            "waiting",
            Record { not_before: Some(Timestamp(40)), ..record(State::Failed { failure: failure("first") }) },
            &["again", "fail, give up"],
            &["again", "fail, give up"],
        ),
        // No build writes such a row. If there is one, nothing is sent while its question is open.
        (
            "failed and parked",
            Record { escalation: Some(QuestionId(9)), ..record(State::Failed { failure: failure("first") }) },
            &[],
            &[],
        ),
        ("committed", committed(), &["compensate"], &["compensate"]),
        // Any worker that can look the response up may supply it.
        ("oversized", record(oversized()), &["supply", "compensate"], &["supply", "compensate"]),
        ("partly compensated", compensated(false), &["compensate"], &["compensate"]),
        ("compensated", compensated(true), &[], &[]),
        ("abandoned", record(State::Abandoned { reason: "left".into() }), &[], &[]),
    ]
}

// R-EXE-6: the record keeps the basis of a further attempt of unknown outcome, and a later answer does not replace
// it.
#[test]
fn a_further_attempt_is_in_doubt_and_keeps_its_mark() {
    let again = |record: &Record, basis| applied(record, again_by(MINE, basis));
    let started = record(State::Started);
    let declared = again(&started, Basis::Declaration);
    assert_eq!((declared.in_doubt, declared.basis), (true, Basis::Declaration));
    let further = again(&declared, Basis::Answer);
    assert_eq!((further.in_doubt, further.basis), (true, Basis::Declaration));
    let harmless = Record { class: EffectClass::ReadOnly, ..started };
    assert!(
        !again(&harmless, Basis::Repeat).in_doubt,
        "a repeatable effect has nothing to be in doubt about"
    );
    let failed = record(State::Failed { failure: failure("first") });
    assert!(!again(&failed, Basis::Answer).in_doubt, "it had failed for certain");
}

// A record that was settled by an engine without the field has no instant: it is no longer known.
#[test]
fn what_was_settled_without_an_instant_gets_none_later() {
    let committed = record(State::Committed { response: json("first") });
    let undone = applied(&committed, Event::Compensate { compensation: json("undone"), whole: true });
    assert_eq!((committed.sealed_at, undone.sealed_at), (None, None));
}

// Of two attempts of which one may have had an effect, the record keeps the first one's approval; after certain
// failures, the last one's.
#[test]
fn an_approval_is_kept_like_the_declaration() {
    let of = |by| Some(Box::new(Approval::of(by, &ApprovalSubject::of("notice", "Dear Ann")).unwrap()));
    let again = |record: &Record, by| {
        let event = Event::Again {
            fence: MINE,
            basis: Basis::Answer,
            declaration: DeclarationId(2),
            approval: of(by),
            scopes: None,
        };
        applied(record, event)
    };
    let open = Record { approval: of("ann"), ..record(State::Started) };
    assert_eq!(again(&open, "bob").approval, of("ann"));
    assert_eq!(again(&Record { approval: None, ..open.clone() }, "bob").approval, of("bob"));
    let failed = Record { state: State::Failed { failure: failure("first") }, ..open };
    assert_eq!(again(&failed, "bob").approval, of("bob"));
}

// The basis of a further attempt is the reason for which it is sent. The provider's declaration stays the basis while
// the outcome of the earlier attempt is open; a person's decision stays for good, because the person may be wrong,
// however often the call is tried.
#[test]
fn what_an_attempt_rests_on_stands_under_an_answer() {
    let started = record(State::Started);
    let failed = record(State::Failed { failure: failure("first") });
    for first in Basis::ALL {
        for further in Basis::ALL {
            let open = applied(&Record { basis: first, ..started.clone() }, again_by(MINE, further));
            let stands = first == Basis::Declaration;
            assert_eq!(open.basis, if stands { first } else { further }, "{first:?}, then {further:?}");
            let anew = applied(&Record { basis: first, ..failed.clone() }, again_by(MINE, further));
            let stands = first == Basis::Denial && further == Basis::Answer;
            assert_eq!(anew.basis, if stands { first } else { further }, "{first:?}, then {further:?}");
        }
    }
}

// R-REC-3, invariants 4 and 6
#[test]
fn every_state_takes_what_the_table_says_and_nothing_else() {
    for (state, record, from_mine, from_other) in table() {
        for (fence, allowed) in [(MINE, from_mine), (OTHER, from_other)] {
            for (event, what) in events(fence) {
                let result = apply(&record, what, fence, Timestamp(20));
                assert_eq!(
                    result.is_ok(),
                    allowed.contains(&event),
                    "{state} takes {event} by {fence}: {result:?}"
                );
                if let Err(illegal) = result {
                    assert_eq!(illegal.fenced, fence != MINE);
                    assert_eq!(illegal.parked, record.escalation.is_some());
                }
            }
        }
    }
}

fn applied(record: &Record, event: Event) -> Record {
    apply(record, event, record.fence, Timestamp(20)).unwrap()
}

// R-REC-4: the reference noted during the call stays, unless the answer names another one.
#[test]
fn a_noted_reference_survives_an_answer_without_one() {
    let noted = applied(&started(), Event::Note { external_ref: "r1".into() });
    assert_eq!(noted.state, State::Started);
    assert_eq!(applied(&noted, commit("answer")).external_ref.as_deref(), Some("r1"));
    let named =
        Event::Commit { response: json("answer"), external_ref: Some("r2".into()), basis: Basis::Answer };
    assert_eq!(applied(&noted, named).external_ref.as_deref(), Some("r2"));
}

// The id of an attempt that failed for certain names nothing that a later attempt makes. While the outcome of the attempt
// is open, its id is kept.
#[test]
fn an_attempt_after_a_certain_failure_begins_without_a_reference() {
    let again = |record: &Record| applied(record, again_by(MINE, Basis::Answer));
    let noted = applied(&started(), Event::Note { external_ref: "r1".into() });
    assert_eq!(again(&noted).external_ref.as_deref(), Some("r1"));
    let failed = applied(&noted, Event::Fail { failure: failure("no"), not_before: None });
    assert_eq!(failed.external_ref.as_deref(), Some("r1"));
    assert_eq!(applied(&again(&failed), commit("answer")).external_ref, None);
}

// R-REC-3, invariant 6: the answer of the zombie comes too late, and the record names its present worker.
#[test]
fn a_worker_that_was_adopted_from_can_report_nothing() {
    let adopted = apply(&started(), Event::Adopt { fence: OTHER }, OTHER, Timestamp(20)).unwrap();
    assert_eq!((adopted.fence, adopted.attempts), (OTHER, 1));
    let refused = apply(&adopted, commit("zombie"), MINE, Timestamp(21)).unwrap_err();
    assert!(refused.to_string().contains("belongs to another worker"), "{refused}");
    let found = Event::Commit { response: json("found"), external_ref: None, basis: Basis::Lookup };
    let settled = apply(&adopted, found, OTHER, Timestamp(22)).unwrap();
    assert_eq!((settled.response(), settled.basis), (Some(&json("found")), Basis::Lookup));
}

// R-EXE-4: each execution has its own budget; the attempts of earlier executions do not count against it.
#[test]
fn giving_up_starts_the_next_execution_with_a_full_budget() {
    let again = |record: &Record| applied(record, again_by(MINE, Basis::Answer));
    let fail =
        |record: &Record, not_before| applied(record, Event::Fail { failure: failure("no"), not_before });
    let waiting = fail(&started(), Some(Timestamp(50)));
    assert_eq!((waiting.tries(), waiting.not_before), (1, Some(Timestamp(50))));
    let second = again(&waiting);
    assert_eq!((second.attempts, second.tries(), second.not_before), (2, 2, None));
    let ended = fail(&second, None);
    assert_eq!((ended.attempts, ended.tries()), (2, 0));
    let next = again(&ended);
    assert_eq!((next.attempts, next.tries()), (3, 1));
    // An execution that ended while it waited is the same.
    assert_eq!(fail(&waiting, None).tries(), 0);
}

// Invariant 8: an open question takes an answer, and each answer closes it.
#[test]
fn each_resolution_closes_the_question() {
    let parked = applied(&started(), Event::Park { escalation: QuestionId(9) });
    assert_eq!((parked.escalation, &parked.state), (Some(QuestionId(9)), &State::Started));
    // A person answers, not a worker: the writer need not hold the record.
    let resolve = |event| apply(&parked, event, OTHER, Timestamp(30)).unwrap();
    let yes = resolve(Event::ResolveCommitted { response: json("said"), external_ref: Some("r".into()) });
    assert_eq!((yes.response(), yes.basis, yes.escalation), (Some(&json("said")), Basis::Decision, None));
    assert_eq!(yes.external_ref.as_deref(), Some("r"));
    let no = resolve(Event::ResolveNotCommitted { message: "ann: no".into() });
    assert!(matches!(&no.state, State::Failed { failure } if failure.message == "ann: no"));
    assert_eq!((no.escalation, no.tries()), (None, 0));
    // A send after the answer rests on it until its outcome is known; and the send can fail for certain.
    let again = applied(&no, again_by(MINE, Basis::Answer));
    assert_eq!((again.basis, again.in_doubt), (Basis::Denial, false));
    let failed = applied(&again, Event::Fail { failure: failure("no"), not_before: Some(Timestamp(50)) });
    assert_eq!(applied(&failed, again_by(MINE, Basis::Answer)).basis, Basis::Denial);
    let left = resolve(Event::ResolveAbandoned { reason: "ann: leave it".into() });
    assert_eq!(left.state, State::Abandoned { reason: "ann: leave it".into() });
    assert_eq!(left.escalation, None);
}

// An effect can be undone in part, then wholly; the first result is shown throughout.
#[test]
fn undoing_in_part_can_be_completed_and_not_undone() {
    let committed = applied(&started(), commit("first"));
    let undo = |record: &Record, text: &str, whole| {
        apply(record, Event::Compensate { compensation: json(text), whole }, OTHER, Timestamp(30))
    };
    let partly = undo(&committed, "half", false).unwrap();
    let wholly = undo(&partly, "rest", true).unwrap();
    assert_eq!(wholly.response(), Some(&json("first")));
    assert!(undo(&wholly, "more", false).is_err());
}

// An error names the state of the record.
#[test]
fn a_refusal_says_what_the_record_is() {
    let parked = Record { escalation: Some(QuestionId(9)), ..started() };
    let illegal = apply(&parked, commit("late"), OTHER, Timestamp(20)).unwrap_err();
    let InvalidTransition { state, event, .. } = &illegal;
    assert_eq!((*state, *event), ("started", "commit"));
    let text = illegal.to_string();
    for part in ["send:case", "started", "open question", "`commit`", "another worker"] {
        assert!(text.contains(part), "{text}");
    }
}

fn fence() -> impl Strategy<Value = Fence> {
    prop_oneof![Just(MINE), Just(OTHER)]
}

fn stored() -> impl Strategy<Value = Stored> {
    (0..4_u8).prop_map(|n| json(&n.to_string()))
}

fn instant() -> impl Strategy<Value = Timestamp> {
    (0..40_i64).prop_map(Timestamp)
}

fn event() -> impl Strategy<Value = Event> {
    let reference = || proptest::option::of("[ab]");
    let basis = || prop_oneof![Just(Basis::Answer), Just(Basis::Lookup), Just(Basis::Repeat)];
    prop_oneof![
        2 => fence().prop_map(|fence| again_by(fence, Basis::Answer)),
        2 => fence().prop_map(|fence| Event::Adopt { fence }),
        1 => "[ab]".prop_map(|external_ref| Event::Note { external_ref }),
        1 => (stored(), reference(), basis())
            .prop_map(|(response, external_ref, basis)| Event::Commit { response, external_ref, basis }),
        2 => proptest::option::of(instant())
            .prop_map(|not_before| Event::Fail { failure: failure("no"), not_before }),
        1 => Just(Event::Refuse { failure: failure("no") }),
        1 => (0..3_i64).prop_map(|n| Event::Park { escalation: QuestionId(n) }),
        1 => Just(Event::Unpark),
        1 => Just(Event::Leave),
        1 => fence().prop_map(|fence| Event::Inherit { fence }),
        1 => stored().prop_map(|response| Event::Supply { response }),
        1 => (stored(), reference())
            .prop_map(|(response, external_ref)| Event::ResolveCommitted { response, external_ref }),
        1 => Just(Event::AnswerWaits),
        1 => Just(Event::ResolveNotCommitted { message: "no".into() }),
        1 => Just(Event::ResolveAbandoned { reason: "left".into() }),
        1 => (stored(), any::<bool>())
            .prop_map(|(compensation, whole)| Event::Compensate { compensation, whole }),
    ]
}

/// The fields that never change, whatever happens.
fn same_operation(a: &Record, b: &Record) -> bool {
    (&a.id, &a.tenant, &a.key, &a.operation, &a.class) == (&b.id, &b.tenant, &b.key, &b.operation, &b.class)
        && (&a.request, &a.request_hash) == (&b.request, &b.request_hash)
        && (&a.owner, &a.created_at) == (&b.owner, &b.created_at)
}

/// The properties of every record, however it came about.
fn sound(record: &Record) -> Result<(), TestCaseError> {
    prop_assert_eq!(record.sealed_at.is_some(), record.is_settled(), "sealed is settled");
    let started = record.state == State::Started;
    prop_assert!(record.escalation.is_none() || started, "a question is open about a settled record");
    prop_assert!(
        record.not_before.is_none() || matches!(record.state, State::Failed { .. }) || record.is_left(),
        "nothing waits"
    );
    prop_assert!(!record.is_left() || record.escalation.is_none(), "a person is asked about it");
    prop_assert!(record.spent <= record.attempts && record.attempts >= 1);
    prop_assert!(record.updated_at >= record.created_at);
    Ok(())
}

/// The properties of every step from one record to the next.
fn step(before: &Record, event: &Event, by: Fence, after: &Record) -> Result<(), TestCaseError> {
    prop_assert!(same_operation(before, after));
    prop_assert_eq!(after.revision, before.revision + 1);
    prop_assert!(after.updated_at >= before.updated_at, "time runs backwards");
    prop_assert!(after.spent >= before.spent);
    // An effect that may have happened, happened under the account that is recorded.
    let failed = matches!(before.state, State::Failed { .. });
    prop_assert!(
        after.declaration == before.declaration || failed,
        "its attempt went out under another account"
    );
    let again = matches!(event, Event::Again { .. });
    prop_assert!(!failed || !again || after.declaration == DeclarationId(2));
    prop_assert!(!failed || !again || after.external_ref.is_none(), "the id of a failed attempt");
    prop_assert_eq!(after.attempts, before.attempts + u32::from(again));

    // Invariant 4: the first result wins.
    if let Some(first) = before.response() {
        prop_assert_eq!(after.response(), Some(first));
        prop_assert_eq!((&after.external_ref, after.basis), (&before.external_ref, before.basis));
        prop_assert!(
            !matches!(after.state, State::Started | State::Failed { .. }),
            "a committed effect is gone"
        );
    }
    // Invariant 6: a worker that does not hold the record cannot report the outcome of its attempt.
    if before.fence != by && before.state == State::Started {
        prop_assert!(
            !matches!(event, Event::Commit { .. } | Event::Fail { .. } | Event::Note { .. }),
            "a zombie"
        );
    }
    prop_assert!(
        !matches!(event, Event::Commit { .. } | Event::Note { .. }) || before.fence == by,
        "a zombie"
    );
    if !matches!(event, Event::Again { .. } | Event::Adopt { .. } | Event::Inherit { .. }) {
        prop_assert_eq!(after.fence, before.fence);
    }
    // The instant of settlement does not move with later knowledge.
    prop_assert!(
        !(before.is_settled() && after.is_settled()) || before.sealed_at == after.sealed_at,
        "sealed twice"
    );
    // Invariant 8: an open question is closed only by an answer, or withdrawn; then the record is as open as before.
    let answer = matches!(
        event,
        Event::ResolveCommitted { .. } | Event::ResolveNotCommitted { .. } | Event::ResolveAbandoned { .. }
    );
    let withdrawn = *event == Event::Unpark;
    let stays_open = matches!(event, Event::AnswerWaits | Event::Inherit { .. });
    prop_assert_eq!(before.escalation.is_some(), answer || withdrawn || stays_open);
    prop_assert!(!stays_open || after.escalation == before.escalation, "nobody has answered");
    prop_assert!(!withdrawn || after.state == State::Started, "withdrawn is not settled");
    // Nothing is sent for a settled record, and a settled effect is undone only by a compensation.
    prop_assert!(!again || matches!(before.state, State::Started | State::Failed { .. }), "settled");
    prop_assert!(!matches!(before.state, State::Abandoned { .. }), "left is left");
    prop_assert!(!matches!(before.state, State::Compensated { whole: true, .. }), "undone");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // R-REC-1, R-REC-3, invariants 4, 6, 8
    #[test]
    fn no_sequence_leaves_the_state_machine(
        events in proptest::collection::vec((event(), fence(), instant()), 1..40),
    ) {
        let mut record = started();
        for (event, by, at) in events {
            let before = record.clone();
            let result = apply(&record, event.clone(), by, at);
            prop_assert_eq!(&record, &before, "whatever the answer, the record that was given is as it was");
            if let Ok(after) = result {
                step(&before, &event, by, &after)?;
                sound(&after)?;
                record = after;
            }
        }
    }
}
