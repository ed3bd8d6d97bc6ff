//! What of a run that did not end well is undone: over all states, owners, policies, sharers and answers.

use super::{json, record};
use crate::id::{EscalationId, RunId};
use crate::ledger::{Compensation, Due, EffectClass, Owner, Record, State, due};

fn policies() -> [Option<Compensation>; 4] {
    let never = Compensation::Never { remedy: "call them".to_owned() };
    [None, Some(Compensation::Automatic), Some(Compensation::Approved), Some(never)]
}

fn states() -> Vec<Record> {
    let compensated =
        |whole| record(State::Compensated { compensation: json("back"), response: json("first"), whole });
    let parked = Record { escalation: Some(EscalationId(7)), ..record(State::Started) };
    vec![
        record(State::Started),
        parked,
        record(State::Committed { response: json("first") }),
        compensated(true),
        compensated(false),
    ]
}

// SAGA-1, SAGA-2, SAGA-5, SAGA-6, DESIGN 4.12.
#[test]
fn only_a_committed_effect_of_ones_own_that_nobody_rests_on_is_undone() {
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
                        let due = due(&record, &[mine, child], policy.as_ref(), &sharers, allowed);
                        let own = record.owner.run != Some(theirs);
                        let free =
                            own && sharers.is_empty() && matches!(record.state, State::Committed { .. });
                        let asks = policy == Some(Compensation::Approved) && !allowed;
                        let may = matches!(policy, Some(Compensation::Automatic | Compensation::Approved));
                        let counts = class.needs_owner();
                        let context = format!("{record:?} {policy:?} {sharers:?} {allowed}: {due:?}");
                        assert_eq!(due == Due::Undo, counts && free && may && !asks, "{context}");
                        assert_eq!(due == Due::Ask, counts && free && asks, "{context}");
                        // What may stand in the world is never passed over in silence.
                        let stands = matches!(record.state, State::Committed { .. } | State::Started);
                        assert_eq!(due == Due::Nothing, !counts || !stands, "{context}");
                    }
                }
            }
        }
    }
}

// SAGA-5, H03: of unknown outcome, and asked about: by its own run it is waited for, never undone.
#[test]
fn what_may_have_happened_is_settled_first() {
    let (run, family) = (Some(RunId(1)), [RunId(1)]);
    let owner = Owner { run, ..Owner::default() };
    let parked = Record { escalation: Some(EscalationId(7)), owner, ..record(State::Started) };
    for policy in policies().iter().flatten() {
        assert_eq!(due(&parked, &family, Some(policy), &[], true), Due::Settle(EscalationId(7)));
    }
    assert!(matches!(due(&parked, &family, None, &[], true), Due::Leave(_)));
}
