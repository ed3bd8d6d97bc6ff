//! The binding of a call whose tool has changed its declaration: never more than was promised at either time.

use std::time::Duration;

use proptest::prelude::*;

use crate::id::Tenant;
use crate::ledger::{
    Contract, ContractClass, Declaration, EffectClass, Key, LookupOffer, OperationKey, Terms,
};

fn contract() -> impl Strategy<Value = Contract> {
    let class = prop::sample::select(ContractClass::ALL.to_vec());
    let lookup = prop::sample::select(vec![LookupOffer::None, LookupOffer::Eventual, LookupOffer::Strong]);
    let seconds = || prop::option::of(1..10_000_u64);
    (class, lookup, seconds(), seconds(), any::<bool>(), 25..300_usize).prop_map(
        |(class, lookup, window, settle, repeat, key_max_len)| Contract {
            key_window: window.map(Duration::from_secs),
            settle: settle.map(Duration::from_secs),
            repeat_blindly: repeat,
            key_max_len,
            ..Contract::new(class).lookup(lookup)
        },
    )
}

fn declared(contract: &Contract, effect: EffectClass) -> Declaration {
    Declaration::of("pay", Terms { effect, contract, input_version: 1 }, "blue")
}

/// The key window of a contract, where for ever is the longest.
fn window(contract: &Contract) -> Duration {
    contract.key_window.unwrap_or(Duration::MAX)
}

/// The rank of a lookup by the trust in its miss.
fn worth(contract: &Contract) -> u8 {
    match contract.lookup {
        LookupOffer::None => 0,
        LookupOffer::Eventual => 1,
        LookupOffer::Strong => 2,
    }
}

proptest! {
    #[test]
    fn the_weaker_promise_counts(then in contract(), now in contract()) {
        let bound = declared(&then, EffectClass::Payment).binding(&now);
        prop_assert!(!bound.class.collides() || (then.class.collides() && now.class.collides()));
        prop_assert!(window(&bound) <= window(&then).min(window(&now)));
        prop_assert!(bound.settle_time() >= then.settle_time().max(now.settle_time()));
        prop_assert!(!bound.repeat_blindly || (then.repeat_blindly && now.repeat_blindly));
        prop_assert_eq!(bound.key_max_len, then.key_max_len, "it goes out under the same key");
        prop_assert_eq!(worth(&bound) == 0, worth(&now) == 0, "only the present tool can be asked");
        prop_assert!(worth(&bound) < 2 || (worth(&then), worth(&now)) == (2, 2));
    }

    #[test]
    fn what_has_not_changed_binds_as_it_is(now in contract()) {
        let declaration = declared(&now, EffectClass::Payment);
        let bound = declaration.binding(&now);
        prop_assert_eq!(declared(&bound, EffectClass::Payment), declaration.clone());
        prop_assert_eq!(declaration.changes(&declaration), None);
    }

    #[test]
    fn a_stored_declaration_reads_back(now in contract()) {
        let declaration = declared(&now, EffectClass::Payment);
        let stored = serde_json::to_string(&declaration).unwrap();
        prop_assert_eq!(serde_json::from_str::<Declaration>(&stored).unwrap(), declaration);
    }
}

#[test]
fn a_mark_that_was_left_stays_one() {
    for then in EffectClass::ALL {
        for now in EffectClass::ALL {
            let bound = declared(&Contract::new(ContractClass::Blind), then).binding_effect(now);
            assert_eq!(bound.leaves_mark(), then.leaves_mark() || now.leaves_mark(), "{then:?} {now:?}");
        }
    }
}

/// A declaration, and its origin, with one field changed at a time; and the words for the change.
fn changed() -> Vec<(Declaration, &'static str)> {
    let contract = || Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
    let of = |contract: Contract| declared(&contract, EffectClass::Payment);
    let minute = Duration::from_mins(1);
    vec![
        (of(contract()), ""),
        (
            declared(&contract(), EffectClass::Deletion),
            "the effect class was \"payment\" and is \"deletion\"",
        ),
        (
            of(Contract { class: ContractClass::NaturalKey, ..contract() }),
            "the contract was \"replays key\" and is \"natural key\"",
        ),
        (of(contract().lookup(LookupOffer::Eventual)), "the lookup was Strong and is Eventual"),
        (
            of(contract().key_window(minute)),
            "the time for which keys are remembered was None and is Some(60s)",
        ),
        (of(contract().settle(minute * 2)), "the settle time was 60s and is 120s"),
        (of(contract().scope("eu")), "the scope was None and is Some(\"eu\")"),
        (of(contract().repeat_blindly()), "blind repetition was false and is true"),
        (
            Declaration { namespace: "green".to_owned(), ..of(contract()) },
            "the namespace was \"blue\" and is \"green\"",
        ),
        (of(contract().key_max_len(65)), "the longest key was 64 and is 65"),
        // These are no promises: the call keeps the values under which it went out.
        (Declaration { wire_rule: OperationKey::WIRE_RULE + 1, ..of(contract()) }, ""),
        (Declaration { input_version: 2, ..of(contract()) }, ""),
        (Declaration { sealed_with_effect: true, ..of(contract()) }, ""),
    ]
}

#[test]
fn a_tool_that_declares_anything_else_is_declared_anew_and_told_of() {
    let contract = Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
    let first = declared(&contract, EffectClass::Payment);
    for (other, told) in changed() {
        let terms = Terms { effect: EffectClass::Payment, contract: &contract, input_version: 1 };
        let is_still = other.is_still(terms, "blue");
        assert_eq!(is_still, other == first, "{other:?}");
        assert_eq!(first.changes(&other).unwrap_or_default(), told);
    }
    let two = Declaration { namespace: "green".to_owned(), key_max_len: 65, ..first.clone() };
    let told = "the namespace was \"blue\" and is \"green\", the longest key was 64 and is 65";
    assert_eq!(first.changes(&two).as_deref(), Some(told));
}

// The weaker class protects less against a second effect and binds, whichever was declared first; of two equal
// classes, the one under which the call went out binds.
#[test]
fn the_weaker_class_binds() {
    use ContractClass::{Blind, Idempotent, Lookup, NaturalKey, RejectsKey, ReplaysKey, Transactional};
    let order = [vec![Blind, Transactional], vec![Lookup], vec![RejectsKey, NaturalKey], vec![ReplaysKey]];
    let worth = |class| order.iter().position(|classes| classes.contains(&class));
    for then in ContractClass::ALL {
        for now in ContractClass::ALL {
            let bound =
                declared(&Contract::new(then), EffectClass::Payment).binding(&Contract::new(now)).class;
            let expected = match (then == Idempotent, now == Idempotent) {
                (true, true) => Idempotent,
                (false, false) if worth(now) < worth(then) => now,
                (false, false) => then,
                _ => Blind, // one of them sends no key, and the other one may not repeat
            };
            assert_eq!(bound, expected, "{then:?} {now:?}");
        }
    }
}

#[test]
fn only_what_was_and_is_sealed_with_its_effect_binds_so() {
    for (then, now) in [(false, false), (false, true), (true, false), (true, true)] {
        let of = |sealed_with_effect| Contract {
            sealed_with_effect,
            ..Contract::new(ContractClass::Transactional)
        };
        let bound = declared(&of(then), EffectClass::InternalMutation).binding(&of(now));
        assert_eq!(bound.sealed_with_effect, then && now);
    }
}

#[test]
fn the_key_goes_downstream_as_it_was_declared() {
    let key = Key::of("pay").target("ann").render().unwrap();
    let tenant = Tenant::new("acme").unwrap();
    let declaration =
        declared(&Contract::new(ContractClass::ReplaysKey).key_max_len(40), EffectClass::Payment);
    let wire = declaration.wire_key(&key, &tenant);
    assert_eq!(wire, key.wire_within("blue", &tenant, 40));
    assert!(!wire.is_empty() && wire.len() <= 40, "{wire}");
}
