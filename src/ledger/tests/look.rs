//! The instants at which committed records are looked up again, and the meaning of the answers.

use std::time::Duration;

use proptest::prelude::*;

use super::{json, record};
use crate::clock::Timestamp;
use crate::ledger::{
    Contract, ContractClass, Key, Look, LookupOffer, Missing, Reason, Record, State, may_be_missing,
    pause_after, removal_key,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const SEALED: Timestamp = Timestamp(1_000_000);

fn committed() -> Record {
    record(State::Committed { response: json("first") })
}

fn contract(settle: Duration) -> Contract {
    Contract::new(ContractClass::Lookup).settle(settle)
}

/// The times after the seal of the looks of a series, if each look is made on time and finds one effect.
fn series(contract: &Contract) -> Vec<Duration> {
    let mut look = Look::first(&committed(), Reason::Doubt, contract, SEALED);
    let mut made = Vec::new();
    while let Some(at) = look.due_at {
        made.push(SEALED.until(at));
        assert!(made.len() < 100, "for ever: {made:?}");
        look = look.taken_up(contract, at).answered(contract, at);
    }
    made
}

#[test]
fn a_series_doubles_its_distance_and_ends_at_the_horizon() {
    let minutes = |contract| series(&contract).iter().map(|at| at.as_secs() / 60).collect::<Vec<_>>();
    assert_eq!(minutes(contract(MINUTE)), [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!(minutes(contract(MINUTE).confirm_for(3 * MINUTE)), [1, 2, 3]);
    assert_eq!(minutes(contract(20 * MINUTE)), [20, 40, 80, 160, 200], "ten settle times");
    assert_eq!(minutes(contract(MINUTE).ends_with_sender()), [1], "nothing arrives later");
    let at_once = series(&contract(Duration::ZERO));
    assert_eq!(at_once[..4], [Duration::ZERO, SECOND, 2 * SECOND, 4 * SECOND]);
    assert_eq!(at_once.last(), Some(&Duration::from_hours(1)));
}

#[test]
fn beside_a_question_pauses_double_from_five_seconds_for_about_a_day() {
    let contract = contract(MINUTE);
    for reason in [Reason::Unanswered, Reason::Asked] {
        assert!(reason.is_beside_question());
        let mut look = Look::beside_question(&committed(), reason, SEALED);
        let mut made = Vec::new();
        while let Some(at) = look.due_at {
            made.push(SEALED.until(at).as_secs());
            look = look.taken_up(&contract, at);
            if look.is_last_try(&contract) {
                look = look.done();
            }
        }
        assert_eq!(made[..4], [5, 15, 35, 75]);
        let last = Duration::from_secs(*made.last().unwrap());
        assert!((Duration::from_hours(8)..Duration::from_hours(48)).contains(&last), "{last:?}");
    }
}

#[test]
fn a_pending_call_is_looked_up_when_the_provider_wants_it_until_its_longest_time_is_over() {
    let contract = contract(MINUTE).completes_within(10 * MINUTE);
    let look = Look::while_pending(&committed(), 3 * MINUTE, &contract, SEALED);
    assert!(look.reason.is_beside_question());
    let due = |look: &Look| SEALED.until(look.due_at.unwrap());
    assert_eq!(due(&look), 3 * MINUTE);

    // A lookup without an answer is repeated, however often; after an answer the series of pauses begins again.
    let mut unanswered = look.clone();
    for pause in [10 * SECOND, 20 * SECOND, 40 * SECOND] {
        let now = unanswered.due_at.unwrap();
        unanswered = unanswered.taken_up(&contract, now);
        assert_eq!(now.until(unanswered.due_at.unwrap()), pause);
        assert!(!unanswered.is_last_try(&contract));
    }
    let now = SEALED.after(4 * MINUTE);
    let pending = unanswered.still_pending(Duration::ZERO, &contract, now);
    assert_eq!((due(&pending), pending.tries), (4 * MINUTE + SECOND, 0), "a pause of nothing is a second");

    // No look is made later than at the end of the longest time, and the look at that end asks a person.
    let last = look.still_pending(Duration::MAX, &contract, now);
    assert_eq!(due(&last), 10 * MINUTE);
    assert!(!look.is_overdue(&contract, now) && last.is_overdue(&contract, last.due_at.unwrap()));
    let asked = last.asked(last.due_at.unwrap());
    assert_eq!((asked.reason, asked.revision), (Reason::Asked, last.revision + 1));
    assert!(!asked.is_overdue(&contract, SEALED.after(Duration::from_hours(9))));
}

// The wall clock was set forward, or the process was away: the missed steps are still made, at their distances.
#[test]
fn no_step_is_left_out_although_its_instant_has_passed() {
    let contract = contract(MINUTE);
    let mut look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
    let mut now = SEALED.after(Duration::from_hours(5));
    let mut distances = Vec::new();
    loop {
        look = look.taken_up(&contract, now).answered(&contract, now);
        let Some(due) = look.due_at else { break };
        distances.push(now.until(due));
        assert_eq!(look.distance(&contract), now.until(due));
        now = due;
    }
    assert_eq!(distances, [1, 2, 4, 8, 16, 28].map(|minutes| minutes * MINUTE));
}

proptest! {
    // A request that lands after the seal and before the horizon is found at the latest when it has been under way
    // twice as long, or one settle time longer.
    #[test]
    fn whatever_lands_before_the_horizon_is_looked_for_soon_after(settle in 1..10_000_u64, horizon in 1..1_000_000_u64, lands in 1..1_000_000_u64) {
        let contract = contract(Duration::from_secs(settle)).confirm_for(Duration::from_secs(horizon));
        let lands = Duration::from_secs(lands);
        let series = series(&contract);
        prop_assert_eq!(series.last(), Some(&contract.horizon()));
        if let Some(found) = series.iter().find(|at| **at >= lands) {
            prop_assert!(*found <= (2 * lands).max(contract.settle_time()));
        } else {
            prop_assert!(lands > contract.horizon());
        }
    }

    // A series ends and does not skip its horizon, however late each look is made, and however the wall clock jumps.
    #[test]
    fn a_series_ends_whatever_the_clock_does(jumps in proptest::collection::vec(-5_000_i64..50_000, 1..60)) {
        let contract = contract(MINUTE);
        let mut look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
        let mut now = SEALED;
        for jump in jumps {
            let Some(due) = look.due_at else { break };
            now = Timestamp(due.0.max(now.0) + jump * 1_000_000);
            let next = look.taken_up(&contract, now).answered(&contract, now);
            match next.due_at {
                Some(at) => {
                    prop_assert!(now.until(at) <= contract.horizon(), "{:?}", now.until(at));
                    prop_assert!(next.made > look.made);
                }
                None => prop_assert!(SEALED.until(now) >= contract.horizon() || look.made >= 6),
            }
            prop_assert_eq!(next.revision, look.revision + 2);
            look = next;
        }
    }
}

#[test]
fn a_lookup_without_an_answer_is_made_ever_more_rarely_and_not_for_ever() {
    for (settle, tries, hours) in [(0, 11, 18), (1, 10, 18), (30, 5, 18), (24 * 60, 3, 24 * 8)] {
        let contract = contract(settle * MINUTE);
        let mut look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
        let (mut made, mut last) = (0, Duration::ZERO);
        let ended = loop {
            let now = look.due_at.unwrap();
            look = look.taken_up(&contract, now);
            made += 1;
            let pause = now.until(look.due_at.unwrap());
            assert!(pause >= last && pause >= MINUTE, "{settle} min: {pause:?} after {last:?}");
            last = pause;
            if look.is_last_try(&contract) {
                break now;
            }
            assert!(made < 100, "{settle} min: for ever");
        };
        assert_eq!(made, tries, "with a settle time of {settle} min");
        assert!(SEALED.until(ended) <= hours * 60 * MINUTE, "{settle} min: {ended:?}");
    }
}

#[test]
fn one_look_is_made_after_a_single_send() {
    let contract = contract(MINUTE);
    for reason in [Reason::Doubled, Reason::Audit] {
        let look = Look::first(&committed(), reason, &contract, SEALED);
        let at = SEALED.after(MINUTE);
        assert_eq!(look.due_at, Some(at));
        assert_eq!(look.taken_up(&contract, at).answered(&contract, at).due_at, None);
    }
}

#[test]
fn what_is_missing_twice_is_asked_about_and_what_is_found_again_is_not() {
    let contract = contract(MINUTE);
    let look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
    let at = SEALED.after(MINUTE);
    let Missing::LookAgain(again) = look.taken_up(&contract, at).missed(&contract, at) else {
        panic!("a single miss is no question")
    };
    assert_eq!((again.due_at, again.made, again.tries), (Some(at.after(MINUTE)), 0, 0));
    let at = at.after(MINUTE);
    let taken = again.taken_up(&contract, at);
    assert!(matches!(taken.missed(&contract, at), Missing::Ask(done) if done.due_at.is_none()));
    let found = taken.answered(&contract, at);
    assert_eq!((found.missed, found.due_at), (false, Some(SEALED.after(3 * MINUTE))));
}

#[test]
fn a_miss_asks_nothing_where_the_effect_need_not_be_shown() {
    let now = SEALED.after(10 * MINUTE);
    let may_miss = |record: &Record, contract: &Contract, removed| {
        may_be_missing(record, contract, SEALED.until(now), removed)
    };
    let strong = contract(MINUTE);
    assert!(!may_miss(&committed(), &strong, false));
    assert!(may_miss(&committed(), &strong, true), "its own removal");
    assert!(may_miss(&committed(), &strong.clone().shown_for(10 * MINUTE), false));
    assert!(!may_miss(&committed(), &strong.clone().shown_for(11 * MINUTE), false));
    assert!(may_miss(&committed(), &strong.clone().lookup(LookupOffer::Eventual), false), "it lags");
    let undone = |whole| State::Compensated { response: json("first"), compensation: json("undone"), whole };
    for whole in [true, false] {
        assert!(may_miss(&record(undone(whole)), &strong, false), "undone");
    }
}

#[test]
fn a_removal_is_known_by_its_target() {
    let removal = |key: Key| removal_key(&key.render().unwrap(), "cancel: all");
    let target = |key: Key| key.render().unwrap().as_str().to_owned();
    let cancelled = Some(target(Key::of("cancel: all").target("room:7")));
    assert_eq!(removal(Key::of("book").target("room:7")), cancelled);
    assert_eq!(removal(Key::of("book").target("room:7").operation("monday").revision(2)), cancelled);
    let given = removal(Key::given("book", "k1"));
    assert_eq!(given, Some(target(Key::given("cancel: all", "k1"))));
    let scoped = |kind: &str| Key::of(kind).target("room:7").scope(crate::ledger::Scope::User("ann".into()));
    assert_eq!(removal(scoped("book")), Some(target(scoped("cancel: all"))));
    assert_eq!(removal(Key::derived("book", [("a", "b")])), None, "it names no target");
    assert_eq!(removal(Key::of("book").operation("monday")), None);
}

// Rows of earlier builds hold these codes.
#[test]
fn the_numbers_of_reasons_stand_for_ever() {
    assert_eq!(Reason::ALL.map(Reason::code), [1, 2, 3, 4, 5, 6]);
    for (code, reason) in (1..).zip(Reason::ALL) {
        assert_eq!(Reason::from_code(code), Some(reason));
    }
    assert_eq!(Reason::from_code(7), None);
}

#[test]
fn a_look_after_an_audit_is_the_second_one() {
    let contract = contract(MINUTE);
    let now = SEALED.after(30 * MINUTE);
    let look = Look::after_audit(&committed(), &contract, now);
    assert_eq!(look, Look { missed: true, ..Look::first(&committed(), Reason::Audit, &contract, now) });
    assert!(matches!(look.missed(&contract, now), Missing::Ask(_)));
}

#[test]
fn a_look_was_tried_if_it_had_no_answer_or_showed_nothing() {
    let contract = contract(MINUTE);
    let look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
    assert!(!look.was_tried());
    let taken = look.taken_up(&contract, SEALED);
    assert!(taken.was_tried());
    let Missing::LookAgain(missed) = taken.missed(&contract, SEALED) else { panic!("a single miss") };
    assert!(missed.was_tried());
    assert!(!taken.answered(&contract, SEALED).was_tried());
}

// An answer that came before its time proves nothing, for or against.
#[test]
fn an_answer_that_came_too_early_is_asked_for_again() {
    let contract = contract(MINUTE);
    let look = Look::first(&committed(), Reason::Doubt, &contract, SEALED);
    let taken = Look { missed: true, ..look.taken_up(&contract, SEALED) };
    let again = taken.too_early(MINUTE, SEALED);
    let due_at = Some(SEALED.after(MINUTE));
    assert_eq!(again, Look { revision: taken.revision + 1, due_at, tries: 0, missed: false, ..taken });
}

#[test]
fn looks_of_a_call_that_nobody_wants_sent_keep_the_distances_of_the_series() {
    let contract = contract(MINUTE);
    let pauses: Vec<_> = (0..).map_while(|made| pause_after(&contract, made)).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 28].map(|minutes| minutes * MINUTE));
}
