//! The next state of an aggregate after its events were tried. Pure code, without I/O, clock and randomness.

use std::time::Duration;

use super::sink::{PublishResult, SinkError};
use crate::clock::Timestamp;
use crate::ledger::Backoff;
use crate::store::{Aggregate, Resolution};

/// The longest `Retry-After` that is obeyed.
const LONGEST: Duration = Duration::from_hours(1);

/// The result of a try, for one aggregate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tried<'a> {
    /// The number of its events that were taken, from the first on.
    pub(super) taken: usize,
    /// The reason why the next event was not taken.
    pub(super) failure: Option<&'a SinkError>,
}

impl<'a> Tried<'a> {
    /// The result for the aggregate with the events from place `first` on in the batch, `events` in number.
    pub(super) fn of(acked: &'a PublishResult, first: usize, events: usize) -> Self {
        let own = acked.failed.iter().filter(|(place, _)| (first..first + events).contains(place));
        match own.min_by_key(|(place, _)| *place) {
            Some((place, error)) => Self { taken: place - first, failure: Some(error) },
            None => Self { taken: events, failure: None },
        }
    }
}

/// The policy for failures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// The number of refusals after which an event is set aside.
    pub(super) tries: u32,
    pub(super) backoff: Backoff,
}

impl Policy {
    /// The aggregate's next state, but for the question if the next event is [set aside](Self::gives_up).
    pub(super) fn after(
        &self,
        before: &Aggregate,
        tried: &Tried<'_>,
        now: Timestamp,
        chance: u64,
    ) -> Aggregate {
        let mut after = next(before);
        if tried.taken > 0 {
            after.published += i64::try_from(tried.taken).unwrap_or(i64::MAX);
            (after.tries, after.refusals) = (0, 0);
        }
        after.due_at = now; // after all that have waited for longer
        if let Some(failure) = tried.failure {
            after.tries = after.tries.saturating_add(1);
            after.refusals = after.refusals.saturating_add(u32::from(failure.refused));
            after.due_at = now.after(self.pause(after.tries, failure, chance));
        }
        after
    }

    /// The pause after `tries` failures.
    pub(super) fn pause(&self, tries: u32, failure: &SinkError, chance: u64) -> Duration {
        let drawn = self.backoff.delay(tries.saturating_add(1), chance);
        failure.retry_after.map_or(drawn, |after| after.min(LONGEST).max(drawn))
    }

    /// True if a person has to decide about the aggregate's next event.
    pub(super) const fn gives_up(&self, after: &Aggregate) -> bool {
        after.refusals >= self.tries
    }

    /// The longest pause that this policy gives.
    pub(super) fn longest(&self) -> Duration {
        self.backoff.cap.max(LONGEST)
    }
}

/// The state of an aggregate after the answer to its question: it goes on, with the event in question or without it.
pub(crate) fn answered(before: &Aggregate, resolution: &Resolution, now: Timestamp) -> Aggregate {
    let mut after = next(before);
    (after.tries, after.refusals, after.escalation, after.due_at) = (0, 0, None, now);
    if *resolution != Resolution::Again {
        after.published += 1;
    }
    after
}

fn next(before: &Aggregate) -> Aggregate {
    Aggregate { revision: before.revision.saturating_add(1), ..before.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{QuestionId, Tenant};

    const POLICY: Policy =
        Policy { tries: 3, backoff: Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(5) } };

    fn aggregate(tries: u32, refusals: u32) -> Aggregate {
        Aggregate {
            tenant: Tenant::new("acme").unwrap(),
            name: "order/17".into(),
            last: 9,
            published: 2,
            tries,
            refusals,
            due_at: Timestamp(5),
            escalation: None,
            revision: 4,
        }
    }

    #[test]
    fn what_is_taken_counts_up_to_the_first_failure() {
        let refused = || SinkError::refused("no");
        let acked = PublishResult::all().except(7, refused()).except(4, SinkError::unavailable("later"));
        assert_eq!(Tried::of(&acked, 0, 3), Tried { taken: 3, failure: None });
        let later = SinkError::unavailable("later");
        assert_eq!(Tried::of(&acked, 3, 5), Tried { taken: 1, failure: Some(&later) });
        assert_eq!(Tried::of(&acked, 7, 1), Tried { taken: 0, failure: Some(&refused()) });
    }

    #[test]
    fn failures_add_up_until_something_is_taken() {
        let (refused, away) = (SinkError::refused("no"), SinkError::unavailable("away"));
        let after = |before: &Aggregate, taken, failure| {
            POLICY.after(before, &Tried { taken, failure }, Timestamp(100), u64::MAX)
        };
        let one = after(&aggregate(0, 0), 0, Some(&refused));
        assert_eq!((one.published, one.tries, one.refusals, one.revision), (2, 1, 1, 5));
        assert_eq!(one.due_at, Timestamp(100 + 1_000_000));
        let two = after(&one, 0, Some(&away));
        assert_eq!((two.tries, two.refusals), (2, 1), "a sink that is away refuses nothing");
        assert_eq!(two.due_at, Timestamp(100 + 2_000_000));
        let some = after(&two, 3, Some(&refused));
        assert_eq!(
            (some.published, some.tries, some.refusals),
            (5, 1, 1),
            "another event is the next one now"
        );
        let all = after(&some, 4, None);
        assert_eq!((all.published, all.tries, all.refusals, all.due_at), (9, 0, 0, Timestamp(100)));
    }

    #[test]
    fn a_refused_event_is_given_up_and_an_unreachable_sink_is_not() {
        assert!(!POLICY.gives_up(&aggregate(2, 2)));
        assert!(POLICY.gives_up(&aggregate(3, 3)));
        assert!(!POLICY.gives_up(&aggregate(1_000_000, 2)));
    }

    #[test]
    fn a_retry_after_is_obeyed_within_limits() {
        let wait = |secs| SinkError::unavailable("busy").retry_after(Duration::from_secs(secs));
        assert_eq!(POLICY.pause(1, &wait(40), u64::MAX), Duration::from_secs(40));
        assert_eq!(
            POLICY.pause(8, &wait(1), u64::MAX),
            Duration::from_secs(128),
            "and the backoff grows all the same"
        );
        assert_eq!(POLICY.pause(1, &wait(1_000_000), 0), LONGEST);
    }

    #[test]
    fn an_answer_lets_it_go_on() {
        let before = Aggregate { escalation: Some(QuestionId(7)), ..aggregate(3, 3) };
        let again = answered(&before, &Resolution::Again, Timestamp(9));
        assert_eq!((again.published, again.tries, again.refusals, again.escalation), (2, 0, 0, None));
        let without = answered(&before, &Resolution::Skip, Timestamp(9));
        assert_eq!((without.published, without.revision, without.due_at), (3, 5, Timestamp(9)));
    }
}
