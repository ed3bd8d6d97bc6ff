//! The steps for a call of unknown outcome: every combination, and every path.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::ledger::resolve::{Known, Looked, Next, Why, next};
use crate::ledger::{
    Backoff, Contract, ContractClass, ContractError, EffectClass, LookupOffer, Retention, RetentionMode,
    RetryPolicy,
};

const LOOKUPS: [LookupOffer; 3] = [LookupOffer::None, LookupOffer::Eventual, LookupOffer::Strong];
const LOOKED: [Looked; 6] = [
    Looked::NotYet,
    Looked::MissedEarly,
    Looked::MissedSettled,
    Looked::MissedElsewhere,
    Looked::Unanswered,
    Looked::Foreign,
];

/// A question to [`next`], and its answer.
#[derive(Debug)]
struct Case {
    effect: EffectClass,
    contract: Contract,
    known: Known,
}

impl Case {
    fn next(&self) -> Next {
        next(self.effect, &self.contract, &self.known)
    }

    fn strong_miss(&self) -> bool {
        self.contract.lookup == LookupOffer::Strong && self.known.looked == Looked::MissedSettled
    }
}

fn contracts() -> impl Iterator<Item = Contract> {
    ContractClass::ALL.into_iter().flat_map(|class| {
        LOOKUPS.into_iter().flat_map(move |lookup| {
            let contract = Contract::new(class).lookup(lookup);
            [contract.clone(), contract.repeat_blindly()]
        })
    })
}

fn known() -> impl Iterator<Item = Known> {
    LOOKED.into_iter().flat_map(|looked| {
        (0..64_u8).map(move |bits| Known {
            looked,
            key_honoured: bits & 1 != 0,
            settled: bits & 2 != 0,
            refused_as_duplicate: bits & 4 != 0,
            may_send: bits & 8 != 0,
            attempts_left: bits & 16 != 0,
            noted: bits & 32 != 0,
        })
    })
}

/// All combinations: 10 effects × 42 contracts × 384 states of knowledge.
fn cases() -> impl Iterator<Item = Case> {
    EffectClass::ALL.into_iter().flat_map(|effect| {
        contracts().flat_map(move |contract| {
            known().map(move |known| Case { effect, contract: contract.clone(), known })
        })
    })
}

fn sends(next: Next) -> bool {
    matches!(next, Next::Resend { .. } | Next::SendAndConfirm | Next::Repeat)
}

/// Checks a property of the answer for every combination.
fn always(holds: impl Fn(&Case, Next) -> bool) {
    let mut seen = 0;
    for case in cases() {
        let next = case.next();
        assert!(holds(&case, next), "{next:?} for {case:?}");
        seen += 1;
    }
    assert_eq!(seen, 10 * 42 * 384);
}

/// Checks a property for every combination in which a repeat would be a second effect.
fn always_when_marking(holds: impl Fn(&Case, Next) -> bool) {
    always(|case, next| case.effect.may_repeat(case.contract.class) || holds(case, next));
}

// R-EXE-6, invariant 3: "not found" is believed only after the settle time, and only from a strong lookup.
#[test]
fn a_send_that_does_not_collide_follows_a_settled_miss() {
    always(|case, next| next != Next::SendAndConfirm || case.strong_miss());
}

// Invariant 3, in one sentence.
#[test]
fn no_marking_effect_is_sent_again_blindly() {
    always_when_marking(|case, next| {
        let collides = case.contract.class.collides() && case.known.key_honoured;
        !sends(next) || collides || case.strong_miss() || case.contract.repeat_blindly
    });
}

// R-EXE-7
#[test]
fn the_same_key_goes_again_only_where_it_collides() {
    always(|case, next| {
        !matches!(next, Next::Resend { .. }) || case.contract.class.collides() && case.known.key_honoured
    });
}

// A duplicate is *silent* if only the provider's declaration prevents it, and no mark is set.
#[test]
fn a_send_that_rests_on_the_providers_word_is_marked() {
    always(|case, next| match next {
        Next::Resend { on_declaration } => on_declaration != case.strong_miss(),
        _ => true,
    });
}

// F07: *duplicate* is not *done*, and a call that the provider knows is not sent again.
#[test]
fn a_refused_duplicate_is_never_sent_again() {
    always(|case, next| !case.known.refused_as_duplicate || !sends(next));
}

#[test]
fn a_blind_call_goes_to_a_person_unless_somebody_opted_in() {
    always_when_marking(|case, next| {
        let blind = case.contract.class == ContractClass::Blind && case.contract.lookup == LookupOffer::None;
        let known = case.known;
        if !blind {
            return true;
        }
        let may = known.may_send && known.attempts_left && !known.refused_as_duplicate;
        match next {
            Next::Repeat => case.contract.repeat_blindly && may,
            Next::Escalate(Why::Blind) => !case.contract.repeat_blindly,
            Next::Escalate(_) => !may,
            _ => false,
        }
    });
}

// R-EXE-6: a lookup that lags proves nothing by a miss.
#[test]
fn a_lagging_lookup_never_leads_to_a_second_effect() {
    always_when_marking(|case, next| {
        case.contract.lookup != LookupOffer::Eventual || !sends(next) || matches!(next, Next::Resend { .. })
    });
}

// R-EXE-4
#[test]
fn nothing_is_sent_without_attempts_or_approval() {
    always(|case, next| !sends(next) || case.known.attempts_left && case.known.may_send);
}

// An available answer is fetched before anything else, and no wait is without purpose.
#[test]
fn what_can_be_asked_is_asked_first_and_nobody_waits_for_nothing() {
    always_when_marking(|case, next| {
        let can_look = case.contract.lookup != LookupOffer::None;
        let first = can_look && case.known.looked == Looked::NotYet;
        let waits = next == Next::Settle;
        (!first || next == Next::Look) && (next != Next::Look || can_look) && (!waits || !case.known.settled)
    });
    // A person is not asked while the provider still can be asked.
    always_when_marking(|case, next| {
        let early = case.contract.lookup != LookupOffer::None && case.known.looked == Looked::MissedEarly;
        let collides = case.contract.class.collides() && case.known.key_honoured;
        !matches!(next, Next::Escalate(_)) || !early || collides
    });
}

// A repeatable effect is repeated, and uses neither the provider's lookup nor a person.
#[test]
fn a_repeatable_effect_is_repeated() {
    always(|case, next| {
        let may = case.known.may_send && case.known.attempts_left;
        !case.effect.repeatable()
            || case.known.refused_as_duplicate
            || if may { next == Next::Repeat } else { matches!(next, Next::Escalate(_)) }
    });
}

/// Carries `next` out with every possible result except a found effect, which ends the matter.
fn outcomes(known: Known, next: Next) -> Vec<Known> {
    match next {
        Next::Look => {
            let miss = if known.settled { Looked::MissedSettled } else { Looked::MissedEarly };
            let looked = [miss, Looked::MissedElsewhere, Looked::Unanswered, Looked::Foreign];
            looked.map(|looked| Known { looked, ..known }).into()
        }
        Next::Settle => vec![Known { settled: true, ..known }],
        _ => Vec::new(),
    }
}

fn longest_way(effect: EffectClass, contract: &Contract, known: Known, steps: u32) -> u32 {
    assert!(steps <= 6, "no end in sight: {effect:?} {contract:?} {known:?}");
    let next = next(effect, contract, &known);
    outcomes(known, next)
        .into_iter()
        .map(|known| longest_way(effect, contract, known, steps + 1))
        .max()
        .unwrap_or(steps)
}

// Invariant 8: every path reaches an end: a send, or a person. There is no livelock.
#[test]
fn every_way_ends() {
    let longest = cases().map(|case| longest_way(case.effect, &case.contract, case.known, 0)).max();
    // The longest path is look, settle, look.
    assert_eq!(longest, Some(3));
}

/// The state of knowledge after a crash: nothing is asked, nothing is settled, and all means are available.
const FRESH: Known = Known {
    looked: Looked::NotYet,
    key_honoured: true,
    settled: false,
    refused_as_duplicate: false,
    may_send: true,
    attempts_left: true,
    noted: false,
};

/// The steps of a path on which every lookup shows nothing.
fn way(contract: &Contract, mut known: Known) -> Vec<Next> {
    let mut way = Vec::new();
    loop {
        let next = next(EffectClass::Payment, contract, &known);
        way.push(next);
        assert!(way.len() <= 6, "no end in sight: {way:?}");
        match outcomes(known, next).first() {
            Some(then) => known = *then,
            None => return way,
        }
    }
}

// R-EXE-6, R-EXE-7: the table of the contract classes, with a lookup that shows nothing.
#[test]
fn each_class_goes_its_way() {
    use ContractClass::{Blind, Lookup, NaturalKey, RejectsKey, ReplaysKey};
    let none = |class| Contract::new(class).lookup(LookupOffer::None);
    let strong = |class| Contract::new(class).lookup(LookupOffer::Strong);
    let eventual = |class| Contract::new(class).lookup(LookupOffer::Eventual);
    let expired = Known { key_honoured: false, ..FRESH };
    let refused = Known { refused_as_duplicate: true, ..FRESH };
    let marked = Next::Resend { on_declaration: true };
    let person = Next::Escalate;
    let believed = |last| vec![Next::Look, Next::Settle, Next::Look, last];

    for class in [ReplaysKey, NaturalKey] {
        assert_eq!(way(&none(class), FRESH), [marked]);
        assert_eq!(way(&none(class), expired), [person(Why::KeyExpired)]);
        assert_eq!(way(&none(class), refused), [person(Why::KeyBurned)]);
    }
    for class in [ReplaysKey, NaturalKey, RejectsKey] {
        // The second send collides: no wait is needed.
        assert_eq!(way(&strong(class), FRESH), [Next::Look, marked]);
        assert_eq!(way(&strong(class), expired), believed(Next::SendAndConfirm));
        assert_eq!(way(&eventual(class), expired), believed(person(Why::LookupLags)));
        assert_eq!(way(&strong(class), refused), believed(person(Why::KeyBurned)));
    }
    assert_eq!(way(&strong(Lookup), FRESH), believed(Next::SendAndConfirm));
    assert_eq!(way(&eventual(Lookup), FRESH), believed(person(Why::LookupLags)));
    assert_eq!(way(&none(Blind), FRESH), [person(Why::Blind)]);
    assert_eq!(way(&none(Blind).repeat_blindly(), FRESH), [Next::Repeat]);
    assert_eq!(
        way(&strong(Lookup), Known { may_send: false, ..FRESH }),
        believed(person(Why::ApprovalExpired))
    );
    assert_eq!(
        way(&strong(Lookup), Known { attempts_left: false, ..FRESH }),
        believed(person(Why::AttemptsUsedUp))
    );
    // A miss under another account is no miss.
    let elsewhere = Known { looked: Looked::MissedElsewhere, ..expired };
    for class in [ReplaysKey, NaturalKey, RejectsKey, Lookup] {
        for settled in [false, true] {
            assert_eq!(way(&strong(class), Known { settled, ..elsewhere }), [person(Why::OtherScope)]);
        }
    }
    // An effect of another request would be there at the next lookup as well.
    for class in [ReplaysKey, NaturalKey, RejectsKey, Lookup] {
        for known in [FRESH, expired, refused] {
            let known = Known { looked: Looked::Foreign, ..known };
            assert_eq!(way(&strong(class), known), [person(Why::Foreign)]);
        }
    }
    // A miss that was believed prevents a duplicate by itself.
    let missed = Known { looked: Looked::MissedSettled, settled: true, ..FRESH };
    assert_eq!(way(&strong(ReplaysKey), missed), [Next::Resend { on_declaration: false }]);
}

// Every text that is put to a person is a question.
#[test]
fn each_reason_has_a_question() {
    let reasons = [
        Why::Blind,
        Why::KeyExpired,
        Why::KeyBurned,
        Why::LookupUnanswered,
        Why::LookupLags,
        Why::OtherScope,
        Why::ApprovalExpired,
        Why::AttemptsUsedUp,
        Why::Foreign,
        Why::NeverFinished,
        Why::Unwanted,
    ];
    let mut questions: Vec<_> = reasons.map(Why::question).into();
    assert!(questions.iter().all(|question| question.ends_with('?')));
    questions.sort_unstable();
    questions.dedup();
    assert_eq!(questions.len(), reasons.len());
}

fn check(contract: &Contract, effect: EffectClass) -> Result<(), ContractError> {
    contract.check(effect, &RetryPolicy::default(), &Retention::default())
}

// R-EXE-1: a payment whose outcome could not be found out.
#[test]
fn a_payment_to_a_blind_provider_is_refused() {
    for effect in EffectClass::ALL {
        let blind = check(&Contract::new(ContractClass::Blind).repeat_blindly(), effect);
        let expected = match effect {
            EffectClass::Payment => Err(ContractError::Unreconcilable { effect }),
            EffectClass::Notification => Err(ContractError::BlindNotice),
            _ => Ok(()),
        };
        assert_eq!(blind, expected);
        let named = Contract::new(ContractClass::Blind).allow_blind_notices();
        assert_eq!(check(&named, effect).is_ok(), effect != EffectClass::Payment);
        for class in ContractClass::ALL.into_iter().filter(|class| *class != ContractClass::Blind) {
            let is_idempotent = class != ContractClass::Idempotent || effect.can_be_idempotent();
            let expected = if is_idempotent { Ok(()) } else { Err(ContractError::NotIdempotent { effect }) };
            assert_eq!(check(&Contract::new(class), effect), expected, "{class:?} {effect:?}");
        }
    }
}

#[test]
fn a_class_that_stands_on_a_lookup_is_refused_without_one() {
    for class in ContractClass::ALL {
        let result = check(&Contract::new(class).lookup(LookupOffer::None), EffectClass::InternalMutation);
        assert_eq!(result.is_err(), class.needs_lookup());
        assert!(result.is_ok() || result == Err(ContractError::NoLookup { class }));
    }
}

// R-KEY-7
#[test]
fn keys_too_short_to_be_unique_are_refused() {
    let of = |n| check(&Contract::new(ContractClass::ReplaysKey).key_max_len(n), EffectClass::Payment);
    assert_eq!(of(24), Err(ContractError::KeyTooShort { characters: 24 }));
    assert_eq!(of(25), Ok(()));
}

/// A policy of three attempts of 10 s with at most 5 s between them: 40 s.
fn retry() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        backoff: Backoff { base: Duration::from_secs(5), cap: Duration::from_secs(5) },
        attempt_timeout: Duration::from_secs(10),
        retry_after_cap: Duration::from_secs(5),
    }
}

// R-REC-6, invariant 9
#[test]
fn forgetting_before_the_last_retry_is_refused() {
    let contract = Contract::new(ContractClass::NaturalKey);
    let of = |retention| contract.check(EffectClass::Deletion, &retry(), &retention);
    let horizon = Duration::from_secs(40);
    let kept = Duration::from_secs(39);
    assert_eq!(of(Retention::forget_after(horizon)), Ok(()));
    assert_eq!(
        of(Retention::forget_after(kept)),
        Err(ContractError::RetentionBelowHorizon { kept, horizon })
    );
    for mode in [RetentionMode::Tombstone, RetentionMode::Keep] {
        assert_eq!(
            of(Retention { mode, ..Retention::forget_after(Duration::ZERO) }),
            Ok(()),
            "nothing is forgotten"
        );
    }
}

// R-REC-6: the provider answers for its key, and the record must last as long as the provider's answer.
#[test]
fn forgetting_inside_the_key_window_is_refused() {
    let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
    let of = |class, retention: Retention| {
        Contract::new(class).key_window(day).lookup(LookupOffer::Strong).check(
            EffectClass::Deletion,
            &retry(),
            &retention,
        )
    };
    let refused = Err(ContractError::RetentionBelowKeyWindow { kept: hour, window: day });
    assert_eq!(of(ContractClass::ReplaysKey, Retention::forget_after(hour)), refused);
    assert_eq!(of(ContractClass::ReplaysKey, Retention::forget_after(day)), Ok(()));
    assert_eq!(
        of(ContractClass::ReplaysKey, Retention::tombstone_after(hour)),
        Ok(()),
        "the key stays taken"
    );
    assert_eq!(of(ContractClass::Lookup, Retention::forget_after(hour)), Ok(()), "there is no key");
}

// R-REC-6: the default of each class. Effects that may be repeated are forgotten, and never before their retries have
// ended.
#[test]
fn each_class_has_its_retention() {
    use EffectClass::{Deletion, InternalMutation, ModelCall, Notification, Payment, Pure, ReadOnly};
    for (class, said) in [
        (Pure, "for 24 h, then its key is new"),
        (ReadOnly, "for 24 h, then its key is new"),
        (ModelCall, "for 7 d, then its key is new"),
        (InternalMutation, "whole for 30 d, then digests"),
        (Notification, "whole for 365 d, then digests"),
        (Deletion, "whole for 365 d, then digests"),
        (Payment, "whole for 3650 d, then digests"),
    ] {
        assert_eq!(class.retention().to_string(), said, "{class:?}");
    }
    for class in EffectClass::ALL {
        let forgets = class.retention().mode == RetentionMode::Forget;
        assert_eq!(forgets, class.repeatable(), "{class:?}");
    }
}

// R-EXE-7, invariant 9: the window is refused, unless a lookup can answer when the provider has forgotten the key.
#[test]
fn a_key_window_below_the_horizon_is_refused() {
    let horizon = Duration::from_secs(40);
    let of = |class, window, lookup| {
        let contract = Contract::new(class).key_window(Duration::from_secs(window)).lookup(lookup);
        contract.check(EffectClass::Payment, &retry(), &Retention::default())
    };
    for class in [ContractClass::ReplaysKey, ContractClass::NaturalKey] {
        let window = Duration::from_secs(39);
        let refused = Err(ContractError::WindowBelowHorizon { window, horizon });
        assert_eq!(of(class, 39, LookupOffer::None), refused);
        assert_eq!(of(class, 40, LookupOffer::None), Ok(()));
        assert_eq!(of(class, 100, LookupOffer::None), Ok(()));
        assert_eq!(of(class, 39, LookupOffer::Strong), Ok(()));
    }
    assert_eq!(of(ContractClass::Lookup, 39, LookupOffer::Strong), Ok(()));
}

// R-EXE-7: a key is safe before its last safe instant, which lies ahead of the window's end.
#[test]
fn a_key_has_a_last_safe_instant() {
    let hour = Duration::from_hours(1);
    let contract = Contract::new(ContractClass::ReplaysKey).key_window(hour);
    let sent = Timestamp(1_000_000);
    let last = sent.after(hour.saturating_sub(Contract::WINDOW_MARGIN));
    assert!(contract.key_is_safe(sent, sent));
    assert!(contract.key_is_safe(sent, Timestamp(last.0 - 1)));
    assert!(!contract.key_is_safe(sent, last));
    assert!(!contract.key_is_safe(sent, sent.after(hour)));
    assert!(!contract.key_is_safe(sent, Timestamp(sent.0 - 1)), "a clock that ran backwards proves nothing");
    assert!(Contract::new(ContractClass::ReplaysKey).key_is_safe(sent, Timestamp::MAX), "kept for ever");
    // A short window keeps most of its length.
    let short = Contract::new(ContractClass::ReplaysKey).key_window(Duration::from_secs(10));
    assert!(short.key_is_safe(sent, sent.after(Duration::from_secs(8))));
    assert!(!short.key_is_safe(sent, sent.after(Duration::from_secs(9))));
}

// The rules about collisions and lookups must cover each class on purpose.
#[test]
fn the_classes_are_what_the_table_says() {
    use ContractClass::{Blind, Idempotent, Lookup, NaturalKey, RejectsKey, ReplaysKey, Transactional};
    for class in ContractClass::ALL {
        let (collides, needs_lookup) = match class {
            Transactional | Blind | Idempotent => (false, false),
            ReplaysKey | NaturalKey => (true, false),
            RejectsKey => (true, true),
            Lookup => (false, true),
        };
        assert_eq!((class.collides(), class.needs_lookup()), (collides, needs_lookup), "{class:?}");
    }
}

// A call that is sealed in the transaction of its effect did not happen while it is not sealed, unless somebody else
// has committed.
#[test]
fn what_is_sealed_with_its_effect_goes_again_without_a_look() {
    let mut contract = Contract::new(ContractClass::Transactional);
    contract.sealed_with_effect = true;
    let next = |known: &Known| crate::ledger::resolve::next(EffectClass::InternalMutation, &contract, known);
    assert_eq!(next(&FRESH), Next::Resend { on_declaration: false });
    assert_eq!(next(&Known { noted: true, ..FRESH }), Next::Escalate(Why::EndedInside));
    assert_eq!(next(&Known { attempts_left: false, ..FRESH }), Next::Escalate(Why::AttemptsUsedUp));
}

// The record's mark is the transaction's first write. If the mark is visible, the transaction was committed inside.
#[test]
fn what_is_sealed_with_its_effect_is_done_again_unless_it_was_committed_inside() {
    let contract = Contract::sealed_with_effect();
    for bits in 0..8_u8 {
        let (noted, may_send, attempts_left) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let known = Known {
            looked: Looked::NotYet,
            key_honoured: false,
            settled: false,
            refused_as_duplicate: false,
            may_send,
            attempts_left,
            noted,
        };
        let expected = match (noted, may_send, attempts_left) {
            (true, ..) => Next::Escalate(Why::EndedInside),
            (false, false, _) => Next::Escalate(Why::ApprovalExpired),
            (false, true, false) => Next::Escalate(Why::AttemptsUsedUp),
            (false, true, true) => Next::Resend { on_declaration: false },
        };
        assert_eq!(next(EffectClass::InternalMutation, &contract, &known), expected, "{known:?}");
    }
}

#[test]
fn each_question_is_another_one() {
    let mut questions: Vec<_> = [
        Why::Blind,
        Why::KeyExpired,
        Why::KeyBurned,
        Why::LookupUnanswered,
        Why::LookupLags,
        Why::OtherScope,
        Why::ApprovalExpired,
        Why::CallerGone,
        Why::AttemptsUsedUp,
        Why::Unwanted,
        Why::Restored,
        Why::EndedInside,
    ]
    .map(Why::question)
    .into();
    assert!(questions.iter().all(|question| question.ends_with('?')), "{questions:?}");
    questions.sort_unstable();
    questions.dedup();
    assert_eq!(questions.len(), 12);
}
