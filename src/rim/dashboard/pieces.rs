//! Pieces that several pages are made of: times, states, values, lists.

use maud::{Markup, html};
use serde_json::Value;

use super::site::{Site, escaped};
use crate::clock::Timestamp;
use crate::id::RunId;
pub(super) use crate::page::pieces::{state, table};

/// The longest value that a page shows, in bytes.
const VALUE: usize = 16 * 1024;

/// An instant, exactly and from now.
pub(super) fn time(site: &Site, at: Timestamp) -> Markup {
    let exact = at.to_string();
    html! {
        time datetime=(exact) title=(exact) { (exact[..10]) " " (exact[11..19]) " UTC" }
        " " span.ago { (ago(at, site.now)) }
    }
}

/// An instant, if there is one.
pub(super) fn some_time(site: &Site, at: Option<Timestamp>) -> Markup {
    html! { @match at { Some(at) => { (time(site, at)) } None => { span.none { "never" } } } }
}

/// The distance of an instant from now, in words.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.0.saturating_sub(at.0) {
        past if past >= 0 => format!("{} ago", span(past)),
        coming => format!("in {}", span(coming.saturating_neg())),
    }
}

/// A length of time in words, from microseconds: its two largest units.
pub(super) fn span(micros: i64) -> String {
    let millis = micros.max(0) / 1000;
    let (seconds, minutes, hours, days) =
        (millis / 1000, millis / 60_000, millis / 3_600_000, millis / 86_400_000);
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        small => format!("{large} {large_unit} {small} {small_unit}"),
    };
    if millis < 1000 {
        format!("{millis} ms")
    } else if seconds < 10 {
        format!("{seconds}.{} s", millis % 1000 / 100)
    } else if minutes < 1 {
        format!("{seconds} s")
    } else if hours < 1 {
        two(minutes, "min", seconds % 60, "s")
    } else if days < 1 {
        two(hours, "h", minutes % 60, "min")
    } else {
        two(days, "d", hours % 24, "h")
    }
}

/// A link to a run.
pub(super) fn run_link(site: &Site, run: RunId) -> Markup {
    html! { a.run href=(site.of_tenant(&format!("/runs/{run}"))) { (run) } }
}

/// A link to the evidence of a call.
pub(super) fn evidence_link(site: &Site, key: &str) -> Markup {
    html! { a.key href=(site.of_tenant(&format!("/evidence?key={}", escaped(key)))) { (key) } }
}

/// A value, in lines. The end of a long one is left out, and the page says so.
pub(super) fn value(value: &Value) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let shown = &text[..text.floor_char_boundary(VALUE)];
    html! {
        pre tabindex="0" { (shown) }
        @if shown.len() < text.len() { p.hint { "This is the beginning. The value has " (text.len()) " bytes." } }
    }
}

/// The link to the next page of a list.
pub(super) fn next_page(address: Option<&str>) -> Markup {
    html! { @if let Some(address) = address { p.next { a rel="next" href=(address) { "Next page" } } } }
}

/// A number of things, with its noun.
pub(super) fn count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_told_by_its_two_largest_units() {
        for (micros, words) in [
            (0, "0 ms"),
            (-5, "0 ms"),
            (999_999, "999 ms"),
            (1_250_000, "1.2 s"),
            (59_999_999, "59 s"),
            (60_000_000, "1 min"),
            (3_599_000_000, "59 min 59 s"),
            (7_260_000_000, "2 h 1 min"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(micros), words);
        }
        assert_eq!(ago(Timestamp(0), Timestamp(5_000_000)), "5.0 s ago");
        assert_eq!(ago(Timestamp(60_000_000), Timestamp(0)), "in 1 min");
    }
}
