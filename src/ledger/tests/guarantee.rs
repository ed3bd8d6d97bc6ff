//! The guarantees of a call (FLOW-10): a table, and random worlds in which they must hold: with late requests,
//! lookups that lag or do not answer, keys that expire, providers that break their declaration.

use std::time::Duration;

use proptest::prelude::*;

use crate::ledger::resolve::{Known, Looked, Next, next};
use crate::ledger::{Contract, ContractClass, EffectClass, LookupOffer, WorstCase, on_unknown};

use ContractClass::{Blind, Idempotent, Lookup, NaturalKey, RejectsKey, ReplaysKey, Transactional};

fn worst(contract: &Contract) -> WorstCase {
    WorstCase::of(EffectClass::InternalMutation, contract)
}

#[test]
fn each_class_has_its_worst_case() {
    let day = Duration::from_hours(24);
    let plain = Contract::new;
    let looked_up = |class| plain(class).lookup(LookupOffer::Strong);
    let lagging = |class| plain(class).lookup(LookupOffer::Eventual);
    for (contract, expected) in [
        (plain(ReplaysKey), WorstCase::Declared),
        (plain(ReplaysKey).key_window(day), WorstCase::Declared),
        (looked_up(ReplaysKey), WorstCase::Declared),
        (looked_up(ReplaysKey).key_window(day), WorstCase::DeclaredThenSettled),
        (lagging(ReplaysKey).key_window(day), WorstCase::Declared),
        (plain(RejectsKey), WorstCase::Declared),
        (plain(NaturalKey), WorstCase::Declared),
        (plain(Lookup), WorstCase::Settled),
        (lagging(Lookup), WorstCase::AtMostOnce),
        (plain(Blind), WorstCase::AtMostOnce),
        (plain(Blind).repeat_blindly(), WorstCase::Repeats),
        (looked_up(Blind), WorstCase::Settled),
        (plain(Idempotent), WorstCase::MayOverwrite),
        (plain(Idempotent).versioned(), WorstCase::RepeatsHarmlessly),
        // No call of a tool is a change in the ledger's own database, whatever it declares: `ctx.transaction` is.
        (plain(Transactional), WorstCase::AtMostOnce),
    ] {
        assert_eq!(worst(&contract), expected, "{contract:?}");
    }
    for effect in EffectClass::ALL.into_iter().filter(|effect| effect.repeatable()) {
        for class in ContractClass::ALL {
            assert_eq!(WorstCase::of(effect, &plain(class)), WorstCase::RepeatsHarmlessly);
        }
    }
}

#[test]
fn what_is_done_when_an_outcome_is_unknown_ends_as_it_is_promised() {
    let steps = |contract: &Contract, honoured| on_unknown(EffectClass::Payment, contract, honoured);
    let (lookup, keyed) = (Contract::new(Lookup), Contract::new(ReplaysKey));
    assert_eq!(steps(&lookup, true), [Next::Look, Next::Settle, Next::Look, Next::SendAndConfirm]);
    assert_eq!(steps(&lookup.settle(Duration::ZERO), true), [Next::Look, Next::SendAndConfirm]);
    assert_eq!(steps(&keyed, true), [Next::Resend { on_declaration: true }]);
    assert!(matches!(steps(&keyed, false)[..], [Next::Escalate(_)]));
}

/// A provider, and its behaviour for one operation.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fact")]
struct World {
    /// True if the provider recognises a repeat by its key, as its class says, for as long as it remembers the key.
    keeps_its_word: bool,
    /// The arrival of the first request: before its sender died, within the settle time or after it, or never.
    first: Arrival,
    /// True if the lookup shows the applied effects. A strong lookup always does, if its provider keeps its
    /// declaration.
    shows: bool,
    answers: bool,
    key_expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    AtOnce,
    WithinSettle,
    Later,
    Never,
}

/// The effects that happened, and the result that was found out.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    effects: u32,
    confirmed: bool,
}

fn play(effect: EffectClass, contract: &Contract, world: World, mut known: Known) -> Seen {
    let collides = contract.class.collides() && world.keeps_its_word && !world.key_expired;
    let mut effects = u32::from(world.first == Arrival::AtOnce);
    known.looked = Looked::NotYet;
    known.settled = contract.settle_time().is_zero();
    known.key_honoured = !world.key_expired;
    let send = |effects: &mut u32| *effects = if collides && *effects > 0 { *effects } else { *effects + 1 };
    let late = |effects: &mut u32| {
        if world.first == Arrival::Later {
            send(effects);
        }
    };
    for _ in 0..8 {
        match next(effect, contract, &known) {
            Next::Look if !world.answers => known.looked = Looked::Unanswered,
            Next::Look if effects > 0 && world.shows => break, // the effect is there and recorded
            Next::Look if known.settled => known.looked = Looked::MissedSettled,
            Next::Look => known.looked = Looked::MissedEarly,
            Next::Settle => {
                known.settled = true;
                effects += u32::from(world.first == Arrival::WithinSettle);
            }
            Next::Resend { .. } | Next::Repeat => {
                send(&mut effects);
                if world.first == Arrival::WithinSettle && !known.settled {
                    send(&mut effects);
                }
                late(&mut effects);
                return Seen { effects, confirmed: false };
            }
            Next::SendAndConfirm => {
                send(&mut effects);
                late(&mut effects);
                return Seen { effects, confirmed: true };
            }
            Next::Escalate(_) => break,
        }
    }
    late(&mut effects);
    Seen { effects, confirmed: false }
}

fn contract() -> impl Strategy<Value = Contract> {
    let class = proptest::sample::select(ContractClass::ALL.to_vec());
    let lookup =
        proptest::sample::select(vec![LookupOffer::None, LookupOffer::Eventual, LookupOffer::Strong]);
    (class, lookup, any::<[bool; 3]>()).prop_map(|(class, lookup, [window, blindly, at_once])| {
        let contract = Contract::new(class).lookup(lookup);
        let contract = if window { contract.key_window(Duration::from_hours(24)) } else { contract };
        let contract = if blindly { contract.repeat_blindly() } else { contract };
        if at_once { contract.settle(Duration::ZERO) } else { contract }
    })
}

fn world() -> impl Strategy<Value = World> {
    let arrivals = vec![Arrival::AtOnce, Arrival::WithinSettle, Arrival::Later, Arrival::Never];
    (proptest::sample::select(arrivals), any::<[bool; 4]>()).prop_map(
        |(first, [keeps_its_word, shows, answers, key_expired])| World {
            keeps_its_word,
            first,
            shows,
            answers,
            key_expired,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The report never promises too much: whatever the world does, nothing worse than promised happens.
    #[test]
    fn nothing_worse_than_promised_happens(
        contract in contract(),
        effect in proptest::sample::select(EffectClass::ALL.to_vec()),
        mut world in world(),
        refused_as_duplicate: bool,
        may_send: bool,
        attempts_left: bool,
    ) {
        // A strong lookup shows the effects that are there; a key expires only if there is a window.
        world.shows |= contract.lookup == LookupOffer::Strong && world.keeps_its_word;
        world.key_expired &= contract.key_window.is_some();
        // Without a settle time nothing is on its way any more.
        if contract.settle_time().is_zero() && world.first == Arrival::WithinSettle {
            world.first = Arrival::Never;
        }
        let known = Known {
            looked: Looked::NotYet, key_honoured: true, settled: false, refused_as_duplicate, may_send, attempts_left,
            noted: false,
        };
        let seen = play(effect, &contract, world, known);
        let timely = world.first != Arrival::Later;
        let once = seen.effects <= 1;
        let kept = match WorstCase::of(effect, &contract) {
            WorstCase::AtMostOnce | WorstCase::ExactlyOnce => once,
            WorstCase::Declared => once || !world.keeps_its_word,
            WorstCase::Settled | WorstCase::DeclaredThenSettled if world.keeps_its_word => {
                once || (!timely && seen.confirmed)
            }
            WorstCase::RepeatsHarmlessly => effect.repeatable() || contract.versioned,
            WorstCase::MayOverwrite => effect.may_repeat(contract.class) && !contract.versioned,
            WorstCase::Repeats => contract.repeat_blindly,
            _ => true,
        };
        prop_assert!(kept, "{:?}: {seen:?} in {world:?}", WorstCase::of(effect, &contract));
    }
}

// FLOW-10: the report describes each case differently, and says what is left to a person.
#[test]
fn each_promise_has_words_of_its_own() {
    let all = [
        (WorstCase::ExactlyOnce, "exactly once"),
        (WorstCase::AtMostOnce, "at most once, then a person decides"),
        (WorstCase::Declared, "no duplicate, resting on the provider's declaration"),
        (WorstCase::Settled, "no duplicate within the settle time, later found and counted"),
        (
            WorstCase::DeclaredThenSettled,
            "no duplicate, resting on the provider's declaration; once the key has expired, within the settle time",
        ),
        (WorstCase::RepeatsHarmlessly, "may repeat, harmless"),
        (WorstCase::MayOverwrite, "may repeat; a late repeat may overwrite a later value"),
        (WorstCase::Repeats, "may repeat (opted in)"),
    ];
    for (promise, words) in all {
        assert_eq!(promise.words(), words);
    }
}

#[test]
fn only_what_is_sealed_with_its_effect_happens_exactly_once() {
    assert_eq!(worst(&Contract::sealed_with_effect()), WorstCase::ExactlyOnce);
}
