//! Spans of time as the file writes them: `30 days`, `72 h`, `5 min`, `300 s`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::nearest::nearest;
use super::word::word;

/// The units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Minutes,
    Hours,
    Days,
}

/// The names of each unit: the singular, the plural, and other accepted names.
const UNITS: [(Unit, [&str; 2], &[&str]); 4] = [
    (Unit::Seconds, ["s", "s"], &["sec", "second", "seconds"]),
    (Unit::Minutes, ["min", "min"], &["minute", "minutes"]),
    (Unit::Hours, ["hour", "hours"], &["h"]),
    (Unit::Days, ["day", "days"], &["d"]),
];

impl Unit {
    const fn seconds(self) -> u64 {
        match self {
            Self::Seconds => 1,
            Self::Minutes => 60,
            Self::Hours => 3600,
            Self::Days => 86_400,
        }
    }

    fn named(name: &str) -> Option<Self> {
        let is_named = |(_, names, others): &&(Self, [&str; 2], &[&str])| {
            names.contains(&name) || others.contains(&name)
        };
        UNITS.iter().find(is_named).map(|(unit, ..)| *unit)
    }
}

/// A span of time that is not empty, in the amount and the unit of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in crate::rim) struct Span {
    amount: u32,
    unit: Unit,
}

word!(
    Span,
    "^[1-9][0-9]{0,8} ?(s|sec|seconds?|min|minutes?|h|hours?|d|days?)$",
    "A time with its unit: `300 s`, `5 min`, `72 hours`, `30 days`."
);

impl Span {
    pub(in crate::rim) fn duration(self) -> Duration {
        Duration::from_secs(u64::from(self.amount) * self.unit.seconds())
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        let unit = rest.strip_prefix(' ').unwrap_or(rest);
        if number.is_empty() {
            return Err(format!("{text:?} is no time; write a number and its unit, `30 days`"));
        }
        if unit.is_empty() {
            return Err(format!(
                "{text:?} has no unit; write `{number} days`, `{number} hours`, `{number} min` or `{number} s`"
            ));
        }
        let Some(unit) = Unit::named(unit) else {
            let names = UNITS.iter().flat_map(|(_, names, others)| names.iter().chain(*others)).copied();
            let meant = nearest(unit, names).unwrap_or("days");
            return Err(format!("there is no unit {unit:?}; write `{number} {meant}`"));
        };
        match number.parse() {
            Ok(amount) if number.len() <= 9 && !number.starts_with('0') => Ok(Self { amount, unit }),
            _ => Err(format!(
                "{text:?} is no time; write a number from 1 to 999999999 and its unit, `30 days`"
            )),
        }
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, unit } = self;
        let [one, many] =
            UNITS.iter().find(|(known, ..)| known == unit).map_or(["", ""], |(_, names, _)| *names);
        write!(f, "{amount} {}", if *amount == 1 { one } else { many })
    }
}

/// The time for which requests are remembered, in days or hours: a shorter window is that of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in crate::rim) struct Ttl(Span);

word!(Ttl, "^[1-9][0-9]{0,8} ?(h|hours?|d|days?)$", "A time in days or hours: `30 days`, `72 hours`.");

impl Ttl {
    pub(in crate::rim) fn duration(self) -> Duration {
        self.0.duration()
    }
}

impl TryFrom<String> for Ttl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let span = Span::try_from(text)?;
        match span.unit {
            Unit::Hours | Unit::Days => Ok(Self(span)),
            Unit::Minutes | Unit::Seconds => {
                Err(format!("`{span}` is too fine for a ttl; write days or hours, `72 hours`"))
            }
        }
    }
}

impl From<Ttl> for String {
    fn from(ttl: Ttl) -> Self {
        ttl.0.to_string()
    }
}

/// A duration for people, to the minute: `75 h 35 min`.
pub(in crate::rim) fn told(duration: Duration) -> String {
    let exact = written(duration);
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    let is_short = exact.split(' ').next().is_some_and(|amount| amount.len() <= 3);
    if is_short || hours == 0 { exact } else { format!("{hours} h {minutes} min") }
}

/// A duration in the form of the file, in the largest unit that divides it.
pub(in crate::rim) fn written(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (unit, names) = UNITS
        .iter()
        .rev()
        .map(|(unit, names, _)| (unit.seconds(), names))
        .find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit))
        .unwrap_or((1, &["s", "s"]));
    let amount = seconds / unit;
    format!("{amount} {}", names[usize::from(amount != 1)])
}
