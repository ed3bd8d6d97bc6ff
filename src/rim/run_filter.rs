//! The filter of a list of runs: the same words in every place where an operator lists them.

use std::str::FromStr;

use serde::Deserialize;

use crate::clock::Timestamp;
use crate::flow::{RunFilter, RunStateName};
use crate::id::{Name, checked};
use crate::store::Labels;

/// The runs to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct RunConditions {
    /// Only runs in this state, such as waiting or blocked
    #[cfg_attr(feature = "cli", arg(long))]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    state: Option<RunStateName>,
    /// Only runs of this workflow
    #[cfg_attr(feature = "cli", arg(long))]
    workflow: Option<String>,
    /// Only runs whose start key begins so, in the order of their keys
    #[cfg_attr(feature = "cli", arg(long))]
    key: Option<String>,
    /// Only runs with this label, such as `customer=c-7`, in the order of their starts
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE"))]
    label: Option<Labelled>,
    /// Only runs that were started at this time (UTC) or later: `2026-11-26T09:30` or a beginning of it
    #[cfg_attr(feature = "cli", arg(long))]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    since: Option<Start>,
    /// Only runs that were started before this time (UTC)
    #[cfg_attr(feature = "cli", arg(long))]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    before: Option<Start>,
    /// Begin with the run that was started last
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(default)]
    newest_first: bool,
}

impl RunConditions {
    /// The filter in the form that the library takes.
    pub(super) fn filter(&self) -> RunFilter {
        let mut filter = RunFilter::new();
        if let Some(state) = self.state {
            filter = filter.state(state);
        }
        if let Some(workflow) = &self.workflow {
            filter = filter.workflow(workflow);
        }
        if let Some(beginning) = &self.key {
            filter = filter.key(beginning);
        }
        if let Some(Labelled(name, value)) = &self.label {
            filter = filter.label(name, value);
        }
        if let Some(Start(at)) = self.since {
            filter = filter.since(at);
        }
        if let Some(Start(at)) = self.before {
            filter = filter.before(at);
        }
        if self.newest_first { filter.newest_first() } else { filter }
    }
}

/// A label as operators write it: its name, `=` and its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Labelled(pub(super) String, pub(super) String);

impl TryFrom<String> for Labelled {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Labelled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let short: String = text.chars().take(40).collect();
        let form = || format!("{short:?} is no label: customer=c-7, a name and a value");
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        checked("label", name, Name::MAX_BYTES).map_err(|error| error.to_string())?;
        checked("label", value, Labels::MAX_VALUE).map_err(|error| error.to_string())?;
        Ok(Self(name.to_owned(), value.to_owned()))
    }
}

/// The start of a run, or of something else: a time in RFC 3339 and UTC, of which a beginning is enough. It is the first instant that
/// begins so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Start(pub(super) Timestamp);

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let short: String = text.chars().take(40).collect();
        first_instant(text).map(Self).ok_or_else(|| {
            format!("{short:?} is no time in UTC: 2026-11-26T09:30:00Z, or a beginning of it that ends with a whole part")
        })
    }
}

/// The first instant whose text begins so.
fn first_instant(text: &str) -> Option<Timestamp> {
    const FIRST: &str = "0000-01-01T00:00:00.000000";
    let text = text.strip_suffix('Z').filter(|text| text.len() >= 19).unwrap_or(text);
    let is_whole = matches!(text.len(), 4 | 7 | 10 | 13 | 16 | 19 | 21..=26);
    let is_like =
        |(one, first): (u8, u8)| if first.is_ascii_digit() { one.is_ascii_digit() } else { one == first };
    if !is_whole || !text.bytes().zip(FIRST.bytes()).all(is_like) {
        return None;
    }
    let full = format!("{text}{}", &FIRST[text.len()..]);
    let number = |from: usize, to: usize| full[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_time =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    is_time.then_some(Timestamp(seconds * 1_000_000 + number(20, 26)?))
}

/// The number of days from 1970-01-01 to a day of the Gregorian calendar, by the calculation that `clock.rs` turns round.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::Start;

    // The instant prints as the text that was read, filled up to the first instant that begins so.
    #[test]
    fn a_beginning_of_a_time_is_its_first_instant() {
        for (text, first) in [
            ("1969", "1969-01-01T00:00:00.000000Z"),
            ("2026-11", "2026-11-01T00:00:00.000000Z"),
            ("2024-02-29", "2024-02-29T00:00:00.000000Z"),
            ("2026-11-26T09", "2026-11-26T09:00:00.000000Z"),
            ("2026-11-26T09:30", "2026-11-26T09:30:00.000000Z"),
            ("2026-11-26T09:30:59Z", "2026-11-26T09:30:59.000000Z"),
            ("2026-11-26T09:30:59.5", "2026-11-26T09:30:59.500000Z"),
            ("2026-11-26T09:30:59.000001Z", "2026-11-26T09:30:59.000001Z"),
            ("9999", "9999-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(text.parse::<Start>().unwrap().0.to_string(), first, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2",
            "2026-1",
            "2026-11-2",
            "2026-13",
            "2026-00-01",
            "2026-11-26 09:30",
            "2026-11-26T24",
            "+026",
            "<script>",
            "2026-11-26T09:30:59.0000001Z",
            "2026-11-26T09:30:59+01:00",
            "２０２６",
        ] {
            assert!(text.parse::<Start>().is_err(), "{text}");
        }
    }
}
