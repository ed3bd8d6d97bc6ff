//! What binds a call whose tool has changed what it declares: never more than was promised at either time.

use std::time::Duration;

use proptest::prelude::*;

use crate::ledger::{Contract, ContractClass, Declaration, EffectClass, LookupOffer};

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
    Declaration::of("pay", effect, contract, 1, "blue")
}

/// How long a key may be counted on, for ever being the longest.
fn window(contract: &Contract) -> Duration {
    contract.key_window.unwrap_or(Duration::MAX)
}

/// What a miss is worth.
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
