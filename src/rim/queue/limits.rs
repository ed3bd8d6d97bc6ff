//! The comparison of a broker's limits with those of the consumer. A message that the broker stops delivering before
//! it was processed or set aside is lost silently. Pure.

use std::fmt;
use std::time::Duration;

use crate::ledger::Backoff;

/// The minimum time for an acknowledgement with keep-alives: one is sent every third of the time, and one may come
/// late.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The limits of a broker for the messages of one place, as the broker declares them. The default has no limit that
/// loses messages, and no capability: no keep-alive, no delay, no place for messages that are set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a promise of its own, and any of them may be missing"
)]
#[non_exhaustive]
pub struct BrokerLimits {
    /// The number of deliveries after which a message is delivered no more; unlimited if absent.
    pub deliveries: Option<u64>,
    /// The time within which a message must be acknowledged before it is delivered again; unlimited if absent.
    pub acknowledge_within: Option<Duration>,
    /// True if [`keep_alive`](super::BrokerDelivery::keep_alive) extends the time for the acknowledgement.
    pub keeps_alive: bool,
    /// True if [`give_back`](super::BrokerDelivery::give_back) delays the redelivery for the requested time.
    pub delays: bool,
    /// The age at which a message is deleted, processed or not; unlimited if absent.
    pub kept_for: Option<Duration>,
    /// The reason why the broker deletes unprocessed messages when there are many; absent if it deletes none.
    pub drops_when_full: Option<String>,
    /// The idle time after which the broker forgets this consumer and its acknowledgements; never if absent.
    pub forgets_after: Option<Duration>,
    /// True if a message that is set aside is kept where a person finds it.
    pub keeps_set_aside: bool,
    /// True if a message is delivered only after the one before it was acknowledged or set aside.
    pub in_order: bool,
}

/// The name of a broker's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BrokerLimit {
    /// [`BrokerLimits::deliveries`].
    Deliveries,
    /// [`BrokerLimits::acknowledge_within`].
    AcknowledgeWithin,
    /// [`BrokerLimits::kept_for`].
    KeptFor,
    /// [`BrokerLimits::drops_when_full`].
    DropsWhenFull,
    /// [`BrokerLimits::forgets_after`].
    ForgetsAfter,
    /// [`BrokerLimits::keeps_set_aside`].
    KeepsSetAside,
    /// [`BrokerLimits::in_order`].
    InOrder,
}

/// A limit of the broker that is stricter than the consumer's: the problem, and the setting to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitProblem {
    /// The limit that is too strict.
    pub limit: BrokerLimit,
    text: String,
}

impl fmt::Display for LimitProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The needs of a consumer, which the broker must meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) tries: u32,
    pub(super) backoff: Backoff,
    /// The maximum time of a try.
    pub(super) try_limit: Duration,
    pub(super) in_order: bool,
    pub(super) may_drop_when_full: bool,
}

impl Needs {
    /// The longest time from the first delivery of a message until it is processed or set aside, while this consumer runs.
    pub(super) fn horizon(&self) -> Duration {
        let pauses = (2..=self.tries).map(|attempt| self.backoff.delay(attempt, u64::MAX));
        let pauses = pauses.fold(Duration::ZERO, Duration::saturating_add);
        self.try_limit.saturating_mul(self.tries).saturating_add(pauses)
    }

    /// All limits that are stricter than ours. `setting` returns the broker's name for the setting behind a limit.
    pub(super) fn problems(
        &self,
        limits: &BrokerLimits,
        setting: impl Fn(BrokerLimit) -> String,
    ) -> Vec<LimitProblem> {
        let mut problems = Vec::new();
        let mut found = |limit, wrong: String, value: String| {
            let text = format!("{wrong}; write instead: {} {value}", setting(limit));
            problems.push(LimitProblem { limit, text: text.trim_end().to_owned() });
        };
        if let Some(deliveries) = limits.deliveries {
            let wrong = format!(
                "the broker stops after {deliveries} deliveries, and restarts and outages use them up, too, beside the {} \
                 tries of the consumer: a message that it stops delivering is lost in silence",
                self.tries
            );
            found(
                BrokerLimit::Deliveries,
                wrong,
                "unlimited (the consumer sets poison aside itself)".to_owned(),
            );
        }
        if let Some((wrong, value)) = self.wait_problem(limits) {
            found(BrokerLimit::AcknowledgeWithin, wrong, value);
        }
        let (horizon, needed) = (self.horizon(), self.horizon().saturating_mul(2));
        if let Some(kept_for) = limits.kept_for.filter(|kept_for| *kept_for < needed) {
            let wrong = format!(
                "the broker deletes messages after {}, and one may be tried for {}",
                seconds(kept_for),
                seconds(horizon)
            );
            let value =
                format!("at least {}, or unlimited (or give the consumer fewer tries)", seconds(needed));
            found(BrokerLimit::KeptFor, wrong, value);
        }
        if let Some(why) = limits.drops_when_full.as_ref().filter(|_| !self.may_drop_when_full) {
            let wrong = format!("the broker deletes messages that were not processed: {why}");
            found(BrokerLimit::DropsWhenFull, wrong, String::new());
        }
        if let Some(idle) = limits.forgets_after {
            let wrong = format!("the broker forgets this consumer when it was idle for {}", seconds(idle));
            found(BrokerLimit::ForgetsAfter, wrong, String::new());
        }
        if !limits.keeps_set_aside {
            let wrong =
                "a message that is set aside would be deleted, while a question about it is open".to_owned();
            found(BrokerLimit::KeepsSetAside, wrong, String::new());
        }
        if self.in_order && !limits.in_order {
            let wrong = "the consumer is to keep the order, and the broker delivers messages before those ahead of them \
                         are acknowledged"
                .to_owned();
            found(BrokerLimit::InOrder, wrong, String::new());
        }
        problems
    }

    fn wait_problem(&self, limits: &BrokerLimits) -> Option<(String, String)> {
        let within = limits.acknowledge_within?;
        if limits.keeps_alive {
            return (within < SHORTEST_WAIT).then(|| {
                let wrong = format!(
                    "the broker delivers a message again after {}, which is too short for keep-alives",
                    seconds(within)
                );
                (wrong, format!("at least {}", seconds(SHORTEST_WAIT)))
            });
        }
        let pause = if limits.delays { Duration::ZERO } else { self.backoff.cap };
        let needed = self.try_limit.max(pause);
        (within <= needed).then(|| {
            let wrong = format!(
                "the broker waits {} for an acknowledgement and knows no keep-alive, and a message may be in hand for {}",
                seconds(within),
                seconds(needed)
            );
            let value = format!(
                "more than {} (or give the consumer a shorter handler limit and shorter pauses)",
                seconds(needed)
            );
            (wrong, value)
        })
    }
}

/// The interval of keep-alives for a message in hand; `None` if they have no use.
pub(super) fn keep_alive_every(limits: &BrokerLimits) -> Option<Duration> {
    limits.acknowledge_within.filter(|_| limits.keeps_alive).map(|within| within / 3)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        tries: 4,
        backoff: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(3) },
        try_limit: Duration::from_secs(10),
        in_order: false,
        may_drop_when_full: false,
    };

    fn kind() -> BrokerLimits {
        BrokerLimits { keeps_alive: true, delays: true, keeps_set_aside: true, ..BrokerLimits::default() }
    }

    fn refused(needs: &Needs, limits: &BrokerLimits) -> Vec<BrokerLimit> {
        needs.problems(limits, |_| "`x`".to_owned()).into_iter().map(|problem| problem.limit).collect()
    }

    #[test]
    fn a_broker_without_limits_is_taken() {
        assert_eq!(refused(&NEEDS, &kind()), []);
    }

    #[test]
    fn the_horizon_holds_all_tries_and_the_longest_pauses() {
        assert_eq!(NEEDS.horizon(), Duration::from_secs(4 * 10 + 1 + 2 + 3));
        let once = Needs { tries: 1, ..NEEDS };
        assert_eq!(once.horizon(), Duration::from_secs(10));
    }

    #[test]
    fn each_limit_that_ends_before_ours_is_refused() {
        let limits = [
            (BrokerLimits { deliveries: Some(1000), ..kind() }, BrokerLimit::Deliveries),
            (
                BrokerLimits { acknowledge_within: Some(Duration::from_millis(999)), ..kind() },
                BrokerLimit::AcknowledgeWithin,
            ),
            (BrokerLimits { kept_for: Some(Duration::from_secs(91)), ..kind() }, BrokerLimit::KeptFor),
            (
                BrokerLimits { drops_when_full: Some("it is full".to_owned()), ..kind() },
                BrokerLimit::DropsWhenFull,
            ),
            (
                BrokerLimits { forgets_after: Some(Duration::from_hours(1)), ..kind() },
                BrokerLimit::ForgetsAfter,
            ),
            (BrokerLimits { keeps_set_aside: false, ..kind() }, BrokerLimit::KeepsSetAside),
        ];
        for (limits, limit) in limits {
            assert_eq!(refused(&NEEDS, &limits), [limit], "{limits:?}");
        }
        let kept = BrokerLimits { kept_for: Some(Duration::from_secs(92)), ..kind() };
        assert_eq!(refused(&NEEDS, &kept), []);
        let ordered = Needs { in_order: true, ..NEEDS };
        assert_eq!(refused(&ordered, &kind()), [BrokerLimit::InOrder]);
        let told = Needs { may_drop_when_full: true, ..NEEDS };
        assert_eq!(refused(&told, &BrokerLimits { drops_when_full: Some(String::new()), ..kind() }), []);
    }

    #[test]
    fn without_keep_alive_the_wait_must_hold_a_try_and_a_pause_that_is_made_in_hand() {
        let within = |seconds, delays| BrokerLimits {
            acknowledge_within: Some(Duration::from_secs(seconds)),
            keeps_alive: false,
            delays,
            ..kind()
        };
        assert_eq!(refused(&NEEDS, &within(10, true)), [BrokerLimit::AcknowledgeWithin]);
        assert_eq!(refused(&NEEDS, &within(11, true)), []);
        let pauses = Needs { backoff: Backoff { cap: Duration::from_secs(20), ..NEEDS.backoff }, ..NEEDS };
        assert_eq!(refused(&pauses, &within(11, true)), []);
        assert_eq!(refused(&pauses, &within(11, false)), [BrokerLimit::AcknowledgeWithin]);
    }

    #[test]
    fn a_problem_says_what_to_write_instead() {
        let limits = BrokerLimits { kept_for: Some(Duration::from_mins(1)), ..kind() };
        let problems = NEEDS.problems(&limits, |_| "`max_age` of the stream".to_owned());
        let text = problems[0].to_string();
        assert!(text.contains("after 60 s"), "{text}");
        assert!(text.contains("write instead: `max_age` of the stream at least 92 s"), "{text}");
    }
}
