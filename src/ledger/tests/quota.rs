//! The limits that a tool declares: a value that is set counts, and nothing else.

use std::time::Duration;

use crate::ledger::{Breaker, Price, Quota, Rate, Throttle};

const RATE: Rate = Rate::per_second(5);

/// Each value that can be set; true if it may hold calls back, and true if it does so by a breaker.
fn said() -> [(Quota, bool, bool); 7] {
    let none = Quota::default;
    let breaker = Breaker::default();
    [
        (none(), false, false),
        (none().rate(RATE), true, false),
        (none().breaker(breaker), true, true),
        (none().provider("mail", Throttle::rate(RATE)), true, false),
        (none().provider("mail", Throttle::breaker(breaker)), true, true),
        (none().timeout(Duration::from_secs(1)), false, false),
        (none().price(Price::new(1, "cent")), false, false),
    ]
}

#[test]
fn what_is_said_limits_and_nothing_else_does() {
    for (quota, holds_back, has_breaker) in said() {
        assert_eq!(quota.is_none(), quota == Quota::default(), "{quota:?}");
        assert_eq!((quota.holds_back(), quota.has_breaker()), (holds_back, has_breaker), "{quota:?}");
    }
}

#[test]
fn what_is_said_first_stands_beside_what_is_said_later() {
    let quota = Quota::default()
        .rate(RATE)
        .breaker(Breaker::default())
        .provider("mail", Throttle::rate(RATE))
        .timeout(Duration::from_secs(1))
        .price(Price::new(1, "cent"));
    let own = Throttle { rate: Some(RATE), breaker: Some(Breaker::default()) };
    let provider = Some(("mail".into(), Throttle { rate: Some(RATE), breaker: None }));
    let (timeout, price) = (Some(Duration::from_secs(1)), Some(Price::new(1, "cent")));
    assert_eq!(quota, Quota { own, provider, timeout, price });
}

#[test]
fn a_throttle_holds_back_by_either_of_its_parts() {
    assert!(Throttle::default().is_none());
    assert!(!Throttle::rate(RATE).is_none());
    assert!(!Throttle::breaker(Breaker::default()).is_none());
}

#[test]
fn a_rate_is_calls_in_a_time() {
    assert_eq!(Rate::per_second(4).interval(), Duration::from_millis(250));
    assert_eq!(Rate::per_minute(4).interval(), Duration::from_secs(15));
    assert_eq!(Rate::per_minute(4).burst(6).shared_by(3).interval(), Duration::from_secs(45));
    assert_eq!(Rate::per_minute(4).burst(6).shared_by(3).burst, 2);
    assert_eq!(Rate::per_minute(4).burst(6).shared_by(9).burst, 1, "at least one");
    assert_eq!(Rate::per_minute(4).burst(6).shared_by(0), Rate::per_minute(4).burst(6), "nobody is one");
    assert_eq!(Rate { calls: 0, ..RATE }.interval(), RATE.per, "at least one call");
}
