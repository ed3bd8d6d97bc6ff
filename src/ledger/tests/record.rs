//! Records: the values that rows hold, and the facts that a record shows.

use super::{failure, json, record, started};
use crate::clock::Timestamp;
use crate::id::{QuestionId, RunId};
use crate::ledger::{Basis, Divergence, EffectClass, FinalState, Owner, Record, State};

// Rows of earlier builds hold these codes and names.
#[test]
fn the_numbers_and_names_in_rows_stand_for_ever() {
    assert_eq!(Basis::ALL.map(Basis::code), [0, 1, 2, 3, 4, 5]);
    assert_eq!(EffectClass::ALL.map(EffectClass::code), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (code, basis) in (0..).zip(Basis::ALL) {
        assert_eq!(Basis::from_code(code), Some(basis));
    }
    for (code, class) in (1..).zip(EffectClass::ALL) {
        assert_eq!(EffectClass::from_code(code), Some(class));
    }
    assert_eq!((Basis::from_code(6), EffectClass::from_code(0)), (None, None));
    assert_eq!(FinalState::ALL.map(FinalState::name), ["committed", "compensated", "abandoned"]);
    let (response, compensation) = (json("first"), json("back"));
    let states = [
        State::Started,
        State::Committed { response: response.clone() },
        State::Failed { failure: failure("no") },
        State::Compensated { response, compensation, whole: true },
        State::Abandoned { reason: "left".into() },
        State::Gone { was: FinalState::Committed, outcome: "00".into() },
    ];
    let names = ["started", "committed", "failed", "compensated", "abandoned", "gone"];
    for ((state, name), code) in states.iter().zip(names).zip([1, 2, 3, 4, 5, 7]) {
        assert_eq!((state.name(), state.code()), (name, code));
    }
}

#[test]
fn effect_classes_have_names_that_people_read() {
    let names = [
        "pure",
        "model call",
        "read-only",
        "draft",
        "internal mutation",
        "notification",
        "payment",
        "deletion",
        "memory write",
        "compensation",
    ];
    assert_eq!(EffectClass::ALL.map(EffectClass::name), names);
}

// An effect that cannot be undone, costs money or is shown to somebody is looked up after each send, and a question
// is asked if it is left behind.
#[test]
fn what_cannot_be_taken_back_is_watched() {
    use EffectClass::{Compensation, Deletion, Notification, Payment};
    for class in EffectClass::ALL {
        let grave = matches!(class, Notification | Payment | Deletion);
        assert_eq!(class.needs_one_look(), grave, "{class:?}");
        assert_eq!(class.divergence() == Divergence::Escalate, grave, "{class:?}");
        assert_eq!(class.needs_owner(), class.leaves_mark() && class != Compensation, "{class:?}");
        assert_eq!(class.retention().shortest().is_some(), class.repeatable(), "{class:?}");
    }
}

#[test]
fn attempts_of_executions_that_have_ended_do_not_count() {
    let tries = |attempts, spent| Record { attempts, spent, ..started() }.tries();
    assert_eq!([tries(1, 0), tries(5, 3), tries(2, 2)], [1, 2, 0]);
}

#[test]
fn a_row_is_as_it_was_written_whatever_became_of_its_time() {
    let written = started();
    assert!(written.is_as_written(&written));
    assert!(Record { kept_until: Some(Timestamp(99)), ..written.clone() }.is_as_written(&written));
    assert!(!Record { revision: 2, ..written.clone() }.is_as_written(&written));
}

#[test]
fn a_run_awaits_its_started_call_unless_a_person_is_asked() {
    let run = Some(RunId(3));
    let owner = Owner { run, ..Owner::default() };
    let of =
        |state, escalation| Record::awaited_by(&Record { owner: owner.clone(), escalation, ..record(state) });
    assert_eq!(of(State::Started, None), run);
    assert_eq!(of(State::Started, Some(QuestionId(1))), None);
    assert_eq!(of(State::Committed { response: json("first") }, None), None);
}

#[test]
fn what_happened_has_its_first_result_even_when_it_was_undone() {
    let (response, compensation) = (json("first"), json("back"));
    assert_eq!(record(State::Committed { response: response.clone() }).response(), Some(&response));
    let undone = State::Compensated { response: response.clone(), compensation, whole: false };
    assert_eq!(record(undone).response(), Some(&response));
    assert_eq!(started().response(), None);
}
