//! The rule of a schedule: the instants at which it is due. Pure: the present time is given.

use std::str::FromStr as _;

use croner::Cron;
use jiff::Zoned;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The number of missed ticks that are counted one by one.
const COUNTED: u32 = 10_000;

/// The handling of a tick while the run of the tick before is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The tick begins no run, and counts as missed.
    #[default]
    Skip,
    /// The tick begins its run all the same.
    Allow,
    /// The tick's run begins when the run before has ended. At most one run waits so; further ticks are skipped.
    After,
}

/// A schedule's rule, as its row holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rule {
    pub(super) when: When,
    pub(super) overlap: Overlap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue_key: Option<String>,
    #[serde(default)]
    pub(super) priority: i32,
}

/// The instants of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum When {
    Cron { pattern: String, zone: String },
    Every { micros: i64, from: Timestamp },
}

/// The due ticks of a schedule: the last one that has come, the number of those before it, and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) tick: Timestamp,
    pub(super) missed: u32,
    pub(super) next: Option<Timestamp>,
}

impl When {
    /// The first tick after an instant. `None` if there is none.
    ///
    /// A time of day that a clock change leaves out comes at the first moment after the gap. A time that
    /// comes twice is one tick, the first time. Patterns that name no hour go on by the hour through both.
    pub(super) fn next(&self, after: Timestamp) -> Result<Option<Timestamp>, String> {
        match self {
            Self::Every { micros, from } => {
                let passed = after.0.saturating_sub(from.0).div_euclid((*micros).max(1)).saturating_add(1);
                let next = from.0.saturating_add(passed.max(1).saturating_mul((*micros).max(1)));
                Ok((next > after.0 && next < i64::MAX).then_some(Timestamp(next)))
            }
            Self::Cron { pattern, zone } => {
                let cron = Cron::from_str(pattern).map_err(|e| format!("the pattern {pattern:?}: {e}"))?;
                let zone = TimeZone::get(zone).map_err(|e| format!("the time zone {zone:?}: {e}"))?;
                let Ok(after) = jiff::Timestamp::from_microsecond(after.0) else { return Ok(None) };
                let next: Option<Zoned> = cron.find_next_occurrence(&after.to_zoned(zone), false).ok();
                Ok(next.map(|next| Timestamp(next.timestamp().as_microsecond())))
            }
        }
    }

    /// The ticks that are due at `now`, if `first` is the earliest of them.
    pub(super) fn due(&self, first: Timestamp, now: Timestamp) -> Result<Due, String> {
        let (mut tick, mut missed) = (first, 0);
        loop {
            match self.next(tick)? {
                Some(next) if next <= now && missed < COUNTED => {
                    tick = next;
                    missed += 1;
                }
                Some(next) if next <= now => {
                    return Ok(Due { tick, missed, next: self.next(now)? }); // an outage of weeks: enough was counted
                }
                next => return Ok(Due { tick, missed, next }),
            }
        }
    }

    /// The rule in words, for people.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Cron { pattern, zone } => format!("{pattern} ({zone})"),
            Self::Every { micros, .. } => {
                format!("every {:?}", std::time::Duration::from_micros(micros.unsigned_abs()))
            }
        }
    }

    /// True if both rules say the same, whenever they were set.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every { micros: one, .. }, Self::Every { micros: two, .. }) => one == two,
            (one, two) => one == two,
        }
    }
}

#[allow(clippy::unwrap_used, reason = "tests")]
#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    fn ticks(pattern: &str, zone: &str, from: &str, n: usize) -> Vec<String> {
        let when = When::Cron { pattern: pattern.into(), zone: zone.into() };
        let mut now = at(from);
        let mut ticks = Vec::new();
        while ticks.len() < n {
            now = when.next(now).unwrap().unwrap();
            ticks.push(jiff::Timestamp::from_microsecond(now.0).unwrap().to_string());
        }
        ticks
    }

    // Central European clocks go from 2:00 to 3:00 on 29 March 2026, and from 3:00 back to 2:00 on 25 October.
    #[test]
    fn a_time_that_is_left_out_comes_after_the_gap() {
        let days = ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3);
        assert_eq!(days, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn a_time_that_comes_twice_is_one_tick() {
        let days = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(days, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn hours_go_on_through_a_clock_change() {
        let hours = ticks("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 4);
        assert_eq!(
            hours,
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"]
        );
        let hours = ticks("0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", 3);
        assert_eq!(hours, ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]);
    }

    #[test]
    fn the_zone_says_when_it_is_three() {
        assert_eq!(ticks("0 3 * * *", "Europe/Berlin", "2026-07-01T12:00:00Z", 1), ["2026-07-02T01:00:00Z"]);
        assert_eq!(ticks("0 3 * * *", "UTC", "2026-07-01T12:00:00Z", 1), ["2026-07-02T03:00:00Z"]);
        assert_eq!(ticks("0 0 29 2 *", "UTC", "2026-07-01T12:00:00Z", 1), ["2028-02-29T00:00:00Z"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let refused = |pattern: &str, zone: &str| {
            When::Cron { pattern: pattern.into(), zone: zone.into() }.next(Timestamp(0)).unwrap_err()
        };
        assert!(refused("61 * * * *", "UTC").contains("61 * * * *"));
        assert!(refused("0 3 * * *", "Europe/Atlantis").contains("Europe/Atlantis"));
    }

    #[test]
    fn of_the_ticks_that_have_come_the_last_one_counts() {
        let when = When::Every { micros: 10, from: Timestamp(3) };
        assert_eq!(when.next(Timestamp(3)).unwrap(), Some(Timestamp(13)));
        assert_eq!(when.next(Timestamp(13)).unwrap(), Some(Timestamp(23)));
        assert_eq!(when.next(Timestamp(-50)).unwrap(), Some(Timestamp(13)), "the first one");
        let due = |now: i64| when.due(Timestamp(13), Timestamp(now)).unwrap();
        let expected =
            |tick, missed, next| Due { tick: Timestamp(tick), missed, next: Some(Timestamp(next)) };
        assert_eq!(due(13), expected(13, 0, 23));
        assert_eq!(due(22), expected(13, 0, 23));
        assert_eq!(due(47), expected(43, 3, 53));
        let long = due(10_000_000);
        assert_eq!(
            (long.missed, long.next),
            (COUNTED, Some(Timestamp(10_000_003))),
            "it does not count for ever"
        );
    }
}
