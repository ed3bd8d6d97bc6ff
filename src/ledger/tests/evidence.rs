//! Late answers, and the proof of an effect beyond the one that a record is of.

use proptest::prelude::*;

use super::{failure, json, started};
use crate::ledger::{ContractClass, EffectClass, FinalState, Record, State, is_second_effect};

fn committed() -> State {
    State::Committed { response: json("answer") }
}

fn undone(whole: bool) -> State {
    State::Compensated { response: json("answer"), compensation: json("undone"), whole }
}

/// The states in which no effect is there, as far as the record knows, and nothing was undone.
fn denying() -> [State; 3] {
    [
        State::Failed { failure: failure("no") },
        State::Abandoned { reason: "ann left it".to_owned() },
        State::Gone { was: FinalState::Committed, outcome: String::new() },
    ]
}

/// A record in this state, with this number of attempts and this external id.
fn record(state: State, attempts: u32, id: Option<&str>) -> Record {
    Record { state, attempts, external_ref: id.map(ToOwned::to_owned), ..started() }
}

#[test]
fn another_id_is_a_second_effect_and_the_same_id_is_not() {
    for contract in ContractClass::ALL {
        for attempts in [1, 2] {
            let record = record(committed(), attempts, Some("ch_1"));
            let other_is_second = contract != ContractClass::Idempotent;
            assert_eq!(is_second_effect(&record, Some("ch_2"), contract), other_is_second, "{contract:?}");
            assert!(!is_second_effect(&record, Some("ch_1"), contract), "{contract:?}");
        }
    }
}

#[test]
fn without_an_id_the_contract_tells() {
    for contract in ContractClass::ALL {
        for (kept, late) in [(None, None), (Some("ch_1"), None), (None, Some("ch_2"))] {
            let sent_twice = is_second_effect(&record(committed(), 2, kept), late, contract);
            let is_second = !contract.collides() && contract != ContractClass::Idempotent;
            assert_eq!(sent_twice, is_second, "{contract:?} {kept:?} {late:?}");
            let sent_once = is_second_effect(&record(committed(), 1, kept), late, contract);
            assert!(!sent_once, "it was sent once, and happened once: {contract:?} {kept:?} {late:?}");
        }
    }
}

#[test]
fn a_record_that_says_that_nothing_stands_is_contradicted() {
    for contract in ContractClass::ALL {
        for state in denying() {
            for (kept, late) in [(None, None), (Some("ch_1"), Some("ch_1")), (None, Some("ch_2"))] {
                assert!(is_second_effect(&record(state.clone(), 1, kept), late, contract), "{state:?}");
            }
        }
        for whole in [true, false] {
            assert!(is_second_effect(&record(undone(whole), 1, Some("ch_1")), Some("ch_2"), contract));
            assert!(is_second_effect(&record(undone(whole), 1, None), None, contract));
        }
    }
}

#[test]
fn an_effect_that_was_undone_is_not_there_again_because_its_answer_is_late() {
    for contract in ContractClass::ALL {
        let record = record(undone(true), 1, Some("ch_1"));
        // An id that the caller chose may have been used once more.
        let reused = matches!(contract, ContractClass::NaturalKey | ContractClass::RejectsKey);
        assert_eq!(is_second_effect(&record, Some("ch_1"), contract), reused, "{contract:?}");
    }
}

fn any_state() -> impl Strategy<Value = State> {
    let [failed, abandoned, gone] = denying();
    prop::sample::select(vec![
        State::Started,
        committed(),
        failed,
        abandoned,
        gone,
        undone(true),
        undone(false),
    ])
}

fn any_id() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![None, Some("ch_1"), Some("ch_2")])
}

proptest! {
    // A started record reads its evidence before anything is asked, and an effect that may be repeated has no second
    // effect.
    #[test]
    fn nothing_follows_for_what_is_under_way_or_may_be_repeated(
        state in any_state(), kept in any_id(), late in any_id(), attempts in 1..3_u32,
        contract in prop::sample::select(ContractClass::ALL.to_vec()),
    ) {
        prop_assert!(!is_second_effect(&record(State::Started, attempts, kept), late, contract));
        let model_call = Record { class: EffectClass::ModelCall, ..record(state, attempts, kept) };
        prop_assert!(!is_second_effect(&model_call, late, contract));
    }
}
