//! Whether a broker's own limits end before the consumer's. A message that the broker stops delivering before it was processed or
//! set aside is lost in silence. Pure.

use std::fmt;
use std::time::Duration;

use crate::ledger::Backoff;

/// Shortest time for an acknowledgement that keep-alives can serve: one is sent every third of it, and one may come late.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Limits of a broker for the messages of one place, as it says itself. The default promises nothing that loses messages, and nothing
/// that helps, either: no keep-alive, no delay, no place for what is set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a promise of its own, and any of them may be missing"
)]
#[non_exhaustive]
pub struct BrokerLimits {
    /// Number of deliveries after which a message is delivered no more; unlimited if absent.
    pub deliveries: Option<u64>,
    /// Time in which a message must be acknowledged before it is delivered again; unlimited if absent.
    pub acknowledge_within: Option<Duration>,
    /// [`keep_alive`](super::BrokerDelivery::keep_alive) begins that time anew.
    pub keeps_alive: bool,
    /// [`give_back`](super::BrokerDelivery::give_back) keeps a message back for as long as it is told.
    pub delays: bool,
    /// Age at which a message is deleted, whether it was processed or not; for ever if absent.
    pub kept_for: Option<Duration>,
    /// What makes the broker delete messages that were not processed when there are many; nothing if absent.
    pub drops_when_full: Option<String>,
    /// Idle time after which the broker forgets this consumer and what it has acknowledged; never if absent.
    pub forgets_after: Option<Duration>,
    /// A message that is set aside is kept where a person finds it.
    pub keeps_set_aside: bool,
    /// A message is delivered only after the one before it was acknowledged, or set aside.
    pub in_order: bool,
}

/// One of a broker's limits.
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

/// A limit of the broker that ends before the consumer's: what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitProblem {
    /// Which limit it is.
    pub limit: BrokerLimit,
    text: String,
}

impl fmt::Display for LimitProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What the consumer asks of the broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) tries: u32,
    pub(super) backoff: Backoff,
    /// The longest time that a try may take.
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

    /// All limits that end before ours. `setting` is how the broker names the setting behind a limit.
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

/// How often a message in hand is kept alive; never where that is of no use.
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
