//! The compensation of a run that did not end well: over all states, owners, policies, sharers and answers.

use super::{json, record};
use crate::id::{QuestionId, RunId};
use crate::ledger::{
    Compensation, Contract, ContractClass, Due, EffectClass, FinalState, LookupOffer, Owner, Record, State,
    UndoRequest, Undone, due, undoing_looks_first,
};

fn policies() -> [Option<Compensation>; 5] {
    let never = Compensation::Never { remedy: "call them".to_owned() };
    let reviewed = Compensation::reviewed(["ann", "bob"], 2);
    [None, Some(Compensation::Automatic), Some(Compensation::Approved), Some(reviewed), Some(never)]
}

fn states() -> Vec<Record> {
    let compensated =
        |whole| record(State::Compensated { compensation: json("back"), response: json("first"), whole });
    let parked = Record { escalation: Some(QuestionId(7)), ..record(State::Started) };
    vec![
        record(State::Started),
        parked,
        record(State::Committed { response: json("first") }),
        compensated(true),
        compensated(false),
    ]
}

// SAGA-1, SAGA-2, SAGA-5, SAGA-6.
#[test]
fn only_a_committed_effect_of_ones_own_that_nobody_rests_on_is_undone() {
    use Compensation::{Approved, Automatic, Reviewed};
    let (mine, child, theirs) = (RunId(1), RunId(3), RunId(2));
    for record in states() {
        for owner in [Some(mine), Some(child), Some(theirs), None] {
            for class in EffectClass::ALL {
                for policy in policies() {
                    for (sharers, allowed) in
                        [(vec![], false), (vec![], true), (vec![theirs], false), (vec![theirs], true)]
                    {
                        let owner = Owner { run: owner, ..Owner::default() };
                        let record = Record { class, owner, ..record.clone() };
                        let (policy, sharers) = (policy.as_ref(), sharers.as_slice());
                        let due =
                            due(&record, UndoRequest { family: &[mine, child], policy, sharers, allowed });
                        let own = record.owner.run != Some(theirs);
                        let free =
                            own && sharers.is_empty() && matches!(record.state, State::Committed { .. });
                        let asks = matches!(policy, Some(Approved | Reviewed { .. })) && !allowed;
                        let may = matches!(policy, Some(Automatic | Approved | Reviewed { .. }));
                        let counts = class.needs_owner();
                        let context = format!("{record:?} {policy:?} {sharers:?} {allowed}: {due:?}");
                        assert_eq!(due == Due::Undo, counts && free && may && !asks, "{context}");
                        assert_eq!(due == Due::Ask, counts && free && asks, "{context}");
                        // An effect that may be in the world is never skipped silently.
                        let stands = matches!(record.state, State::Committed { .. } | State::Started);
                        assert_eq!(due == Due::Nothing, !counts || !stands, "{context}");
                    }
                }
            }
        }
    }
}

// SAGA-5, H03: an effect of unknown outcome with an open question: its own run waits for it and never undoes it
// before.
#[test]
fn what_may_have_happened_is_settled_first() {
    let (run, family) = (Some(RunId(1)), [RunId(1)]);
    let owner = Owner { run, ..Owner::default() };
    let parked = Record { escalation: Some(QuestionId(7)), owner, ..record(State::Started) };
    let policies = policies();
    let wanted = |policy| UndoRequest { family: &family, policy, sharers: &[], allowed: true };
    for policy in policies.iter().flatten() {
        assert_eq!(due(&parked, wanted(Some(policy))), Due::Settle(QuestionId(7)));
    }
    assert!(matches!(due(&parked, wanted(None)), Due::Leave(_)));
}

// A second compensation collides with the first one only if both are ours, and the provider tells keys apart.
#[test]
fn an_undoing_is_looked_for_unless_a_second_one_would_collide() {
    for effect in EffectClass::ALL {
        for class in ContractClass::ALL {
            for lookup in [LookupOffer::None, LookupOffer::Eventual, LookupOffer::Strong] {
                for look_first in [false, true] {
                    let contract = Contract { look_first, ..Contract::new(class).lookup(lookup) };
                    let can_be_asked = contract.lookup != LookupOffer::None;
                    let would_collide = class.collides() && !look_first;
                    let expected = effect == EffectClass::Compensation && can_be_asked && !would_collide;
                    assert_eq!(undoing_looks_first(effect, &contract), expected, "{effect:?} {contract:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_left_of_an_effect_is_said() {
    assert_eq!((Undone::whole().is_whole(), Undone::whole().rest()), (true, None));
    let part = Undone::part("500 cents").detail(7);
    assert_eq!((part.is_whole(), part.rest()), (false, Some("500 cents")));
    let read_back: Undone = serde_json::from_value(serde_json::to_value(&part).unwrap()).unwrap();
    assert_eq!(read_back, part);
    assert_eq!(serde_json::to_value(part).unwrap(), serde_json::json!({"rest": "500 cents", "detail": 7}));
}

#[test]
fn the_report_says_when_an_effect_is_undone() {
    let never = Compensation::Never { remedy: "call them".to_owned() };
    let words = [Compensation::Automatic, Compensation::Approved, never].map(|policy| policy.words());
    assert_eq!(words, ["automatic", "after approval", "never: call them"]);
}

// An effect whose retention was over before it could be undone is not forgotten.
#[test]
fn what_is_gone_is_told_of_if_it_had_happened() {
    for (was, is_left) in
        [(FinalState::Committed, true), (FinalState::Compensated, false), (FinalState::Abandoned, false)]
    {
        let gone = record(State::Gone { was, outcome: "00".to_owned() });
        let policy = Some(&Compensation::Automatic);
        let due = due(&gone, UndoRequest { family: &[], policy, sharers: &[], allowed: false });
        assert_eq!(matches!(due, Due::Leave(_)), is_left, "{was:?}");
        assert!(is_left || due == Due::Nothing);
    }
}
