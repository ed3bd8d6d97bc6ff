//! The decision after an error, and the delay before the next attempt.

use std::time::Duration;

use proptest::prelude::*;

use crate::ledger::RetryDecision::{DoNotRetry, Escalate, Reconcile, Retry};
use crate::ledger::{Backoff, ContractClass, EffectClass, ErrorKind, RetryDecision, RetryPolicy};

/// Each kind, with its decision for an effect that may be repeated, for one that leaves a mark at a provider whose
/// key collides, and for one that leaves a mark at a provider where nothing collides.
const TABLE: [(ErrorKind, RetryDecision, RetryDecision, RetryDecision); 16] = [
    (ErrorKind::Validation, DoNotRetry, DoNotRetry, DoNotRetry),
    (ErrorKind::PolicyDenied, DoNotRetry, DoNotRetry, DoNotRetry),
    (ErrorKind::Unauthorized, Retry, Retry, Retry),
    (ErrorKind::RateLimited, Retry, Retry, Retry),
    (ErrorKind::Unreachable, Retry, Retry, Retry),
    (ErrorKind::TimeoutBeforeEffect, Retry, Retry, Retry),
    (ErrorKind::TimeoutDuringEffect, Retry, Reconcile, Reconcile),
    (ErrorKind::Disconnected, Retry, Reconcile, Reconcile),
    (ErrorKind::Server, Retry, Reconcile, Reconcile),
    (ErrorKind::InProgress, Retry, Retry, Reconcile),
    (ErrorKind::BudgetExceeded, DoNotRetry, DoNotRetry, DoNotRetry),
    (ErrorKind::ApprovalMissing, Escalate, Escalate, Escalate),
    (ErrorKind::Duplicate, Reconcile, Reconcile, Reconcile),
    (ErrorKind::VersionConflict, DoNotRetry, DoNotRetry, DoNotRetry),
    (ErrorKind::Panic, Retry, Reconcile, Reconcile),
    (ErrorKind::Unknown, Retry, Reconcile, Reconcile),
];

/// The kinds after which something may have reached the world.
const AMBIGUOUS: [ErrorKind; 7] = [
    ErrorKind::TimeoutDuringEffect,
    ErrorKind::Disconnected,
    ErrorKind::Server,
    ErrorKind::InProgress,
    ErrorKind::Duplicate,
    ErrorKind::Panic,
    ErrorKind::Unknown,
];

// R-EXE-2, F01, F02, F06, F07, F09
#[test]
fn every_error_has_one_decision_per_effect_and_contract() {
    for (kind, repeatable, colliding, marking) in TABLE {
        for effect in EffectClass::ALL {
            for class in ContractClass::ALL {
                let expected = match (effect.repeatable(), class.collides()) {
                    (true, _) => repeatable,
                    (false, true) => colliding,
                    (false, false) => marking,
                };
                assert_eq!(kind.decision(effect, class), expected, "{kind:?} {effect:?} {class:?}");
            }
        }
    }
}

// R-EXE-2, invariant 3: the table says so, and this test gives the reason.
#[test]
fn what_may_have_reached_the_world_is_not_simply_sent_again() {
    for kind in AMBIGUOUS {
        for effect in EffectClass::ALL.into_iter().filter(|effect| effect.leaves_mark()) {
            for class in ContractClass::ALL {
                let decision = kind.decision(effect, class);
                let key_answers = kind == ErrorKind::InProgress && class.collides();
                assert_eq!(
                    decision,
                    if key_answers { Retry } else { Reconcile },
                    "{kind:?} {effect:?} {class:?}"
                );
            }
        }
    }
}

// R-EXE-1: the effects that leave a mark are decided by hand, class by class.
#[test]
fn effect_classes_carry_their_rules() {
    use EffectClass::{Deletion, ModelCall, Notification, Payment, Pure, ReadOnly};
    for effect in EffectClass::ALL {
        assert_eq!(effect.repeatable(), matches!(effect, Pure | ModelCall | ReadOnly));
        assert_eq!(effect.leaves_mark(), !effect.repeatable());
        assert_eq!(effect.needs_approval(), matches!(effect, Notification | Deletion));
        assert_eq!(effect.needs_reconcile(), effect == Payment);
        assert!(effect.leaves_mark() || !effect.needs_approval());
    }
}

// Rows hold the name: it must be what serde writes, and no two kinds may share it.
#[test]
fn names_are_those_that_rows_hold() {
    let mut names: Vec<_> = TABLE.iter().map(|(kind, ..)| kind.name()).collect();
    for (kind, ..) in TABLE {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts: 5,
        backoff: Backoff { base: millis(100), cap: millis(1000) },
        attempt_timeout: millis(3000),
        retry_after_cap: millis(10_000),
    }
}

// R-EXE-3: full jitter: from zero to the ceiling, both ends included, and evenly.
#[test]
fn backoff_doubles_up_to_its_cap_and_uses_all_of_it() {
    let backoff = policy().backoff;
    for (attempt, ceiling) in [(2, 100), (3, 200), (4, 400), (5, 800), (6, 1000), (7, 1000), (u32::MAX, 1000)]
    {
        assert_eq!(backoff.delay(attempt, 0), Duration::ZERO);
        assert_eq!(backoff.delay(attempt, u64::MAX), millis(ceiling), "{attempt}");
        let half = backoff.delay(attempt, u64::MAX / 2).as_micros();
        assert!(half.abs_diff(u128::from(ceiling) * 500) <= 1, "{half}");
    }
}

// R-EXE-3
#[test]
fn attempts_are_counted_out() {
    let delay = |made, kind| policy().next_delay(made, kind, None, 7);
    for made in 1..5 {
        assert!(delay(made, ErrorKind::RateLimited).is_some(), "{made}");
    }
    assert_eq!(delay(5, ErrorKind::RateLimited), None);
    assert_eq!(delay(6, ErrorKind::RateLimited), None);
    let once = RetryPolicy { attempts: 1, ..policy() };
    assert_eq!(once.next_delay(1, ErrorKind::RateLimited, None, 0), None);
}

// R-EXE-2, F10: one retry with a fresh token, and no second.
#[test]
fn a_refused_credential_is_tried_once_more() {
    let delay = |made| policy().next_delay(made, ErrorKind::Unauthorized, None, 0);
    assert!(delay(1).is_some());
    assert_eq!(delay(2), None);
    let once = RetryPolicy { attempts: 1, ..policy() };
    assert_eq!(once.next_delay(1, ErrorKind::Unauthorized, None, 0), None);
}

// R-EXE-2, F09
#[test]
fn retry_after_is_obeyed_up_to_its_cap() {
    let delay = |after, chance| policy().next_delay(1, ErrorKind::RateLimited, Some(after), chance);
    assert_eq!(delay(millis(5000), 0), Some(millis(5000)));
    assert_eq!(delay(millis(10_000), 0), Some(millis(10_000)));
    assert_eq!(delay(Duration::from_hours(10 * 365 * 24), 0), Some(millis(10_000)));
    assert_eq!(delay(Duration::MAX, u64::MAX), Some(millis(10_000)));
    // The delay is never shorter than the backoff.
    assert_eq!(delay(Duration::ZERO, u64::MAX), Some(millis(100)));
    assert_eq!(policy().next_delay(5, ErrorKind::RateLimited, Some(millis(1)), 0), None);
}

// R-EXE-3, invariant 9: the defaults fit a provider that keeps its keys for a day, as usual.
#[test]
fn the_default_policy_fits_the_usual_key_window() {
    assert!(RetryPolicy::default().horizon() < Duration::from_hours(24));
}

// Invariant 9: long retries are counted in full.
#[test]
fn the_horizon_counts_every_attempt() {
    let many = |attempts| RetryPolicy { attempts, ..policy() }.horizon();
    assert_eq!(many(0), millis(3000));
    assert_eq!(many(1), millis(3000));
    // Each delay may be the longest Retry-After.
    assert_eq!(many(2), millis(3000 + 10_000 + 3000));
    assert_eq!(many(5000), millis(3000 + 4999 * 13_000));
    let by_backoff = RetryPolicy { retry_after_cap: Duration::ZERO, ..policy() };
    assert_eq!(by_backoff.horizon(), millis(5 * 3000 + 100 + 200 + 400 + 800));
    // From the 33rd attempt on the delays no longer double.
    let doubling = RetryPolicy {
        attempts: 36,
        backoff: Backoff { base: millis(1), cap: Duration::MAX },
        attempt_timeout: Duration::ZERO,
        retry_after_cap: Duration::ZERO,
    };
    assert_eq!(doubling.horizon(), millis((1 << 32) - 1 + 3 * (1 << 31)));
    // The result is a number, whatever is declared.
    let endless = RetryPolicy {
        attempts: u32::MAX,
        backoff: Backoff { base: Duration::MAX, cap: Duration::MAX },
        attempt_timeout: Duration::MAX,
        retry_after_cap: Duration::MAX,
    };
    assert_eq!(endless.horizon(), Duration::MAX);
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..100_000_u64).prop_map(Duration::from_millis),
        (0..100_000_000_u64).prop_map(Duration::from_secs),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let attempts = prop_oneof![9 => 0..12_u32, 1 => 900..1500_u32];
    (attempts, duration(), duration(), duration(), duration()).prop_map(
        |(attempts, base, cap, attempt_timeout, retry_after_cap)| RetryPolicy {
            attempts,
            backoff: Backoff { base, cap },
            attempt_timeout,
            retry_after_cap,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // R-EXE-3
    #[test]
    fn backoff_stays_between_nothing_and_its_ceiling(
        base in duration(), cap in duration(), attempt in any::<u32>(), chance in any::<u64>(), more in any::<u64>(),
    ) {
        let backoff = Backoff { base, cap };
        let delay = backoff.delay(attempt, chance);
        prop_assert!(delay <= cap);
        prop_assert!(attempt > 2 || delay <= base);
        prop_assert!(backoff.delay(attempt, chance.saturating_add(more)) >= delay, "more chance, less delay");
        prop_assert!(backoff.delay(attempt.saturating_add(1), chance) >= delay, "a later retry, less delay");
    }

    // R-EXE-3, invariant 9: no history of attempts and delays takes longer than the horizon.
    #[test]
    fn no_retries_outlast_the_horizon(
        policy in any_policy(),
        draws in proptest::collection::vec((any::<u64>(), proptest::option::of(duration())), 20),
    ) {
        // An attempt without a timeout adds nothing.
        let timeout = policy.timeout().unwrap_or_default();
        let (mut made, mut spent) = (1, timeout);
        let mut draws = draws.iter().cycle();
        let mut next = || *draws.next().unwrap();
        loop {
            let (chance, after) = next();
            let Some(delay) = policy.next_delay(made, ErrorKind::RateLimited, after, chance) else { break };
            spent = spent.saturating_add(delay).saturating_add(timeout);
            made += 1;
        }
        prop_assert_eq!(made, policy.attempts.max(1));
        prop_assert!(spent <= policy.horizon(), "{:?} > {:?}", spent, policy.horizon());
    }
}
