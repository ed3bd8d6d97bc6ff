//! The contract of a provider, and its consequences for lookups.

use std::time::Duration;

use crate::ledger::{
    Confirm, Contract, ContractClass, ContractError, EffectClass, LookupOffer, LookupResult, Retention,
    RetryPolicy, Sight,
};

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn contract_classes_have_names_that_people_read() {
    let names =
        ["transactional", "replays key", "rejects key", "natural key", "lookup", "blind", "idempotent"];
    assert_eq!(ContractClass::ALL.map(ContractClass::name), names);
}

// The network may have doubled the request: a copy is looked for if it would be a second effect that the lookup can
// show.
#[test]
fn copies_are_looked_for_where_they_would_be_second_effects() {
    for effect in EffectClass::ALL {
        for class in ContractClass::ALL {
            for lookup in [LookupOffer::None, LookupOffer::Eventual, LookupOffer::Strong] {
                for confirm in [None, Some(Confirm::AfterDoubt), Some(Confirm::Always)] {
                    let contract = Contract { confirm, ..Contract::new(class).lookup(lookup) };
                    let wanted = match confirm {
                        None => effect.needs_one_look(),
                        Some(confirm) => confirm == Confirm::Always,
                    };
                    let tells_no_copies = matches!(class, ContractClass::Lookup | ContractClass::Blind);
                    let seen = effect.leaves_mark() && lookup != LookupOffer::None;
                    assert_eq!(
                        contract.looks_for_copies(effect),
                        wanted && tells_no_copies && seen,
                        "{effect:?} {contract:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_attempt_that_may_take_longer_settles_for_longer() {
    let contract = Contract::new(ContractClass::Lookup);
    let settled = |contract: &Contract, attempt_timeout| {
        let retry = RetryPolicy { attempt_timeout, ..RetryPolicy::default() };
        contract.clone().settled_for(&retry).settle_time()
    };
    assert_eq!(settled(&contract, Duration::from_secs(30)), MINUTE);
    assert_eq!(settled(&contract, MINUTE * 3), MINUTE * 3);
    let declared = contract.settle(Duration::from_secs(5));
    assert_eq!(settled(&declared, MINUTE * 3), Duration::from_secs(5), "what is declared stands");
}

#[test]
fn a_contract_that_rests_on_a_kind_of_lookup_takes_over_what_that_can_know() {
    let sight = Sight {
        by: "a list",
        offer: LookupOffer::Eventual,
        settle: MINUTE,
        outlives_sender: false,
        knows: &[],
        blind_spots: &["what was moved"],
    };
    let contract = Contract::new(ContractClass::NaturalKey).sight(&sight);
    let taken = (contract.lookup, contract.settle, contract.outlives_sender, contract.blind_spots);
    assert_eq!(taken, (LookupOffer::Eventual, Some(MINUTE), false, sight.blind_spots));
}

#[test]
fn confirming_lookups_go_on_for_long_enough() {
    let contract = Contract::new(ContractClass::Lookup);
    let horizon = |contract: Contract| contract.horizon();
    assert_eq!(horizon(contract.clone()), MINUTE * 60);
    assert_eq!(horizon(contract.clone().settle(MINUTE * 7)), MINUTE * 70);
    assert_eq!(horizon(contract.clone().confirm_for(MINUTE * 5)), MINUTE * 5);
    assert_eq!(horizon(contract.clone().confirm_for(Duration::ZERO)), MINUTE, "never before it is settled");
    assert_eq!(horizon(contract.ends_with_sender()), MINUTE, "one lookup");
}

#[test]
fn the_records_of_the_doors_are_sealed_with_their_effects() {
    let sealed = Contract::sealed_with_effect();
    let plain = Contract::new(ContractClass::Transactional);
    assert!(sealed.sealed_with_effect && !plain.sealed_with_effect);
    assert_eq!(Contract { sealed_with_effect: false, ..sealed }, plain);
}

#[test]
fn a_finding_keeps_what_it_is_whatever_its_output_becomes() {
    let tenfold = |n: u32| n.checked_mul(10).ok_or(n);
    let one = |output| LookupResult::Committed { output, external_ref: Some("a".into()) };
    let two = |output| LookupResult::duplicated([("a", output), ("b", output)]);
    assert_eq!(one(1).try_map(tenfold), Ok(one(10)));
    assert_eq!(two(1).try_map(tenfold), Ok(two(10)));
    assert_eq!(LookupResult::NotFound.try_map(tenfold), Ok(LookupResult::NotFound));
    assert_eq!(LookupResult::Unknown.try_map(tenfold), Ok(LookupResult::Unknown));
    let pending =
        || LookupResult::Pending { external_ref: Some("a".into()), look_again: Duration::from_secs(1) };
    assert_eq!(pending().try_map(tenfold), Ok(pending()));
    let foreign = || LookupResult::Foreign { what: "another amount".into() };
    assert_eq!(foreign().try_map(tenfold), Ok(foreign()));
    assert_eq!(one(u32::MAX).try_map(tenfold), Err(u32::MAX));
    assert_eq!(two(u32::MAX).try_map(tenfold), Err(u32::MAX));
}

// A miss is believed when nothing of the attempt can be on its way any more, exactly to the instant.
#[test]
fn where_a_send_rests_on_a_miss_an_attempt_must_have_ended_before() {
    let retry = RetryPolicy::default();
    let timeout = retry.attempt_timeout;
    let check = |contract: &Contract| contract.check(EffectClass::Payment, &retry, &Retention::default());
    let moment = Duration::from_millis(1);
    let lookup = Contract::new(ContractClass::Lookup);
    assert_eq!(check(&lookup.clone().settle(timeout)), Ok(()));
    assert_eq!(check(&lookup.clone().settle(timeout + moment)), Ok(()));
    let settle = timeout.checked_sub(moment).unwrap();
    let short = lookup.settle(settle);
    assert_eq!(check(&short), Err(ContractError::SettleBelowTimeout { settle, timeout }));
    assert_eq!(check(&short.clone().ends_with_sender()), Ok(()), "nothing of it is on its way");
    assert_eq!(check(&short.lookup(LookupOffer::Eventual)), Ok(()), "no miss is believed");
    let replays = Contract::new(ContractClass::ReplaysKey).settle(settle);
    assert_eq!(check(&replays), Ok(()), "no send rests on it");
}
