//! The arithmetic of throttles and budgets: buckets, circuits, and the rest of a run's budget.

use std::time::Duration;

use proptest::prelude::*;

use crate::clock::Boot;
use crate::ledger::{
    Breaker, Bucket, Budget, BudgetExceeded, BudgetUsage, Circuit, CircuitState, ErrorKind, Health, Price,
    Rate,
};

const START: Boot = Boot(Duration::from_secs(100));

const fn at(millis: u64) -> Boot {
    Boot(START.0.saturating_add(Duration::from_millis(millis)))
}

fn rates() -> impl Strategy<Value = Rate> {
    (1..200_u32, 1..10_000_u64, 1..20_u32).prop_map(|(calls, millis, burst)| Rate {
        calls,
        per: Duration::from_millis(millis),
        burst,
    })
}

proptest! {
    // EXE-4, K01: however the calls come, no window holds more than its rate and the burst.
    #[test]
    fn no_window_holds_more_than_rate_and_burst(
        rate in rates(),
        workers in 1..8_u32,
        pauses in proptest::collection::vec(0..200_u64, 1..200),
    ) {
        let mine = rate.shared_by(workers);
        let mut bucket = Bucket::beginning(&mine, START);
        let (mut now, mut taken) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            if bucket.take(&mine, at(now)) {
                taken.push(now);
            }
        }
        for (i, first) in taken.iter().enumerate() {
            for (n, last) in taken[i..].iter().enumerate() {
                let span = Duration::from_millis(last - first).as_nanos();
                let allowed = u128::from(mine.burst) + span / mine.interval().as_nanos().max(1);
                prop_assert!((n as u128) < allowed, "{} in {span} ns of {mine:?}", n + 1);
            }
        }
    }

    // The shares of all workers together are no more than the whole, as soon as a burst has something to share.
    #[test]
    fn the_shares_are_no_more_than_the_whole(rate in rates(), workers in 1..20_u32) {
        let mine = rate.shared_by(workers);
        let rounding = Duration::from_nanos(u64::from(workers));
        prop_assert!(mine.interval() + rounding >= rate.interval() * workers);
        prop_assert!(mine.burst * workers <= rate.burst.max(workers));
    }

    // A caller that waits for the returned time finds a token.
    #[test]
    fn what_is_told_to_wait_for_is_there(rate in rates(), pauses in proptest::collection::vec(0..50_u64, 1..50)) {
        let mut bucket = Bucket::beginning(&rate, START);
        let mut now = START;
        for pause in pauses {
            now = Boot(now.0 + Duration::from_millis(pause));
            let wait = bucket.wait(&rate, now);
            prop_assert_eq!(bucket.clone().take(&rate, now), wait.is_zero());
            now = Boot(now.0 + wait);
            prop_assert!(bucket.take(&rate, now));
        }
    }

    // EXE-9: whatever is reported, an open circuit lets nothing through before its time, then one call, and it never
    // stays open for longer than declared.
    #[test]
    fn an_open_circuit_lets_one_call_ahead(
        steps in proptest::collection::vec((0..4_u8, 0..3_000_u64), 1..300),
    ) {
        let rule = Breaker { at_most: Duration::from_secs(40), ..Breaker::default() };
        let mut circuit = Circuit::closed(START);
        let (mut now, mut ahead, mut out) = (0, None, Vec::new());
        for (what, pause) in steps {
            now += pause;
            let before = circuit.state();
            match what {
                0 => match (before, circuit.pass(&rule, at(now))) {
                    (CircuitState::Closed, through) => out.push(through.expect("closed lets through")),
                    (CircuitState::Open { until } | CircuitState::HalfOpen { until }, through) => {
                        prop_assert_eq!(through.is_some(), until <= at(now));
                        if through.is_some() {
                            ahead = through;
                        }
                    }
                },
                1 => out.drain(..).for_each(|through| circuit.report(&rule, through, Health::Sick, at(now))),
                2 => out.drain(..).for_each(|through| circuit.report(&rule, through, Health::Well, at(now))),
                _ => {
                    if let Some(through) = ahead.take() {
                        let health = match now % 3 {
                            0 => Health::Sick,
                            1 => Health::Well,
                            _ => Health::Unknown,
                        };
                        circuit.report(&rule, through, health, at(now));
                    }
                }
            }
            prop_assert!(circuit.wait(at(now)) <= Duration::from_secs(40));
        }
    }

    // K06: the usage counted from records is the usage of the run, in any order, and with any attempts given back.
    #[test]
    fn a_run_never_spends_more_than_its_budget(
        allowed in 0..50_u64,
        costs in proptest::collection::vec((0..9_u64, any::<bool>()), 0..100),
    ) {
        let budget = Budget::default().cost("cent", allowed);
        let (mut spent, mut sum) = (BudgetUsage::default(), 0);
        for (cost, made) in costs {
            let price = Price::new(cost, "cent");
            let may = budget.afford(&spent, Some(&price), Duration::ZERO).is_ok();
            prop_assert_eq!(may, sum + cost <= allowed);
            if may {
                spent.add(1, Some(&price));
                if made { sum += cost } else { spent.give_back(Some(&price)) }
            }
        }
    }
}

#[test]
fn a_process_that_comes_back_all_the_time_finds_no_full_bucket() {
    let rate = Rate::per_second(1).burst(100);
    let mut bucket = Bucket::beginning(&rate, START);
    assert!(bucket.take(&rate, START));
    assert!(!bucket.take(&rate, START));
}

#[test]
fn repeated_failures_open_a_circuit_and_each_that_goes_ahead_in_vain_doubles_its_time() {
    let rule = Breaker::default();
    let mut circuit = Circuit::closed(START);
    for _ in 0..5 {
        assert_eq!(circuit.state(), CircuitState::Closed);
        let through = circuit.pass(&rule, START).unwrap();
        circuit.report(&rule, through, Health::Sick, START);
    }
    let mut now = START;
    for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
        assert_eq!(circuit.wait(now), Duration::from_secs(pause));
        now = Boot(now.0 + Duration::from_secs(pause));
        let ahead = circuit.pass(&rule, now).unwrap();
        assert!(circuit.pass(&rule, now).is_none(), "one goes ahead, no more");
        circuit.report(&rule, ahead, Health::Sick, now);
    }
    now = Boot(now.0 + Duration::from_mins(5));
    let ahead = circuit.pass(&rule, now).unwrap();
    circuit.report(&rule, ahead, Health::Well, now);
    assert_eq!((circuit.state(), circuit.failures(&rule, now)), (CircuitState::Closed, 0));
}

#[test]
fn an_answer_to_a_call_from_before_does_not_close_a_circuit() {
    let rule = Breaker { failures: 1, ..Breaker::default() };
    let mut circuit = Circuit::closed(START);
    let (early, failing) = (circuit.pass(&rule, START).unwrap(), circuit.pass(&rule, START).unwrap());
    circuit.report(&rule, failing, Health::Sick, START);
    circuit.report(&rule, early, Health::Well, START);
    assert!(matches!(circuit.state(), CircuitState::Open { .. }));
}

#[test]
fn a_closed_circuit_has_forgotten_the_calls_from_before_it_opened() {
    let rule = Breaker { failures: 1, ..Breaker::default() };
    let mut circuit = Circuit::closed(START);
    let (early, failing) = (circuit.pass(&rule, START).unwrap(), circuit.pass(&rule, START).unwrap());
    circuit.report(&rule, failing, Health::Sick, START);
    let ahead = circuit.pass(&rule, at(5_000)).unwrap();
    circuit.report(&rule, early, Health::Well, at(5_000));
    assert!(matches!(circuit.state(), CircuitState::HalfOpen { .. }), "only the one that went ahead tells");
    circuit.report(&rule, ahead, Health::Well, at(6_000));
    circuit.report(&rule, early, Health::Sick, at(6_000));
    assert_eq!((circuit.state(), circuit.since()), (CircuitState::Closed, at(6_000)));
}

// Five failures in 30 seconds: each is remembered for 6 seconds after those before it, or for ten successes.
#[test]
fn a_failure_is_forgotten_with_time_and_made_up_for_by_ten_successes() {
    let rule = Breaker::default();
    let failed = |times: usize| {
        let mut circuit = Circuit::closed(START);
        for _ in 0..times {
            let through = circuit.pass(&rule, START).unwrap();
            circuit.report(&rule, through, Health::Sick, START);
        }
        circuit
    };
    assert_eq!(failed(0).failures(&rule, START), 0);
    let circuit = failed(4);
    assert_eq!(circuit.state(), CircuitState::Closed);
    let remembered = |millis| circuit.failures(&rule, at(millis));
    assert_eq!([0, 1, 6_000, 6_001, 12_000, 23_999, 24_000].map(remembered), [4, 4, 3, 3, 2, 1, 0]);
    // A failure that comes after time has made room for it does not open the circuit.
    for (after, is_open) in [(0, true), (5_999, true), (6_000, false)] {
        let mut circuit = failed(4);
        let through = circuit.pass(&rule, at(after)).unwrap();
        circuit.report(&rule, through, Health::Sick, at(after));
        assert_eq!(circuit.state() != CircuitState::Closed, is_open, "after {after} ms");
    }
    let mut circuit = failed(1);
    for successes in 1..=10 {
        let through = circuit.pass(&rule, START).unwrap();
        circuit.report(&rule, through, Health::Well, START);
        assert_eq!(circuit.failures(&rule, START), u32::from(successes < 10), "after {successes}");
    }
}

#[test]
fn a_call_that_went_ahead_and_says_nothing_lets_another_one_go() {
    let rule = Breaker { failures: 1, ..Breaker::default() };
    let mut circuit = Circuit::closed(START);
    let failing = circuit.pass(&rule, START).unwrap();
    circuit.report(&rule, failing, Health::Sick, START);
    let lost = circuit.pass(&rule, at(5_000)).unwrap();
    assert!(circuit.pass(&rule, at(9_999)).is_none());
    let next = circuit.pass(&rule, at(10_000)).unwrap();
    circuit.report(&rule, lost, Health::Well, at(10_000));
    assert!(matches!(circuit.state(), CircuitState::HalfOpen { .. }), "the first one was given up");
    circuit.report(&rule, next, Health::Unknown, at(10_000));
    assert!(circuit.pass(&rule, at(10_000)).is_some());
}

#[test]
fn a_few_failures_among_many_successes_are_a_providers_usual_self() {
    let rule = Breaker::default();
    let mut circuit = Circuit::closed(START);
    for n in 0..10_000 {
        let through = circuit.pass(&rule, START).unwrap();
        let health = if n % 12 == 0 { Health::Sick } else { Health::Well };
        circuit.report(&rule, through, health, START);
    }
}

#[test]
fn what_is_allowed_may_be_used_up_to_the_last() {
    let price = Price::new(10, "cent").at_most(20);
    assert_eq!([0, 1, 2].map(|attempts| price.afford(attempts).is_ok()), [true, true, false]);
    assert_eq!(Price::new(10, "cent").afford(u32::MAX), Ok(()), "nothing said, nothing limited");
    let minute = Duration::from_mins(1);
    assert_eq!(
        [Budget::default(), Budget::default().timeout(minute)].map(|b| b.time()),
        [None, Some(minute)]
    );
}

#[test]
fn each_budget_that_is_used_up_says_its_name() {
    let mut spent = BudgetUsage::default();
    spent.add(3, Some(&Price::new(10, "cent")));
    let price = Price::new(10, "cent").at_most(20);
    let none = Duration::ZERO;
    let cases = [
        (Budget::default().attempts(3).afford(&spent, None, none), "run.attempts"),
        (
            Budget::default().timeout(Duration::from_secs(1)).afford(&spent, None, Duration::from_secs(1)),
            "run.time",
        ),
        (Budget::default().cost("cent", 39).afford(&spent, Some(&price), none), "run.cost"),
        (price.afford(2), "operation.cost"),
        (Err(BudgetExceeded::OperationTime { allowed: none }), "operation.time"),
    ];
    for (outcome, name) in cases {
        let used_up = outcome.unwrap_err();
        let failure = used_up.failure();
        assert_eq!((used_up.budget(), &failure.detail["budget"]), (name, &serde_json::json!(name)));
        assert_eq!(failure.kind, ErrorKind::BudgetExceeded);
    }
    assert_eq!(Budget::default().cost("page", 0).afford(&spent, Some(&price), none), Ok(()), "another unit");
    assert_eq!(
        Budget::default().afford(&spent, Some(&price), Duration::MAX),
        Ok(()),
        "nothing said, nothing limited"
    );
}
