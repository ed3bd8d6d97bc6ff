//! Pieces of pages: lengths of time, states, tables.

use maud::{Markup, html};

use crate::clock::Timestamp;

/// The distance of an instant from now, in words.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.0.saturating_sub(at.0) {
        past if past >= 0 => format!("{} ago", span(past)),
        coming => format!("in {}", span(coming.saturating_neg())),
    }
}

/// A length of time in words, from microseconds: its two largest units.
pub(crate) fn span(micros: i64) -> String {
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

/// A word with a sign, in the colours of its kind: colour alone says nothing.
pub(crate) fn sign(kind: &str, sign: &str, word: &str) -> Markup {
    html! { span.state.(kind) { span aria-hidden="true" { (sign) } " " (word) } }
}

/// A state as a word with a sign of its own.
pub(crate) fn state(name: &str) -> Markup {
    let (kind, mark) = match name {
        "succeeded" | "committed" | "approved" | "answered" | "effect" => ("good", "✓"),
        "failed" | "rejected" | "blocked" | "worker lost" | "several effects" => ("bad", "✕"),
        "ambiguous" | "unknown" | "expired" | "withdrawn" | "abandoned" | "open" | "paused" => ("doubt", "?"),
        "active" | "started" | "running" => ("busy", "▸"),
        _ => ("calm", "○"),
    };
    sign(kind, mark, name)
}

/// A table with these heads. The words say what is missing if it has no rows.
pub(crate) fn table(heads: &[&str], rows: &[Markup], none: &str) -> Markup {
    html! {
        @if rows.is_empty() {
            p.none { (none) }
        } @else {
            div.wide tabindex="0" role="group" aria-label=(heads.join(", ")) {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody { @for row in rows { (row) } }
                }
            }
        }
    }
}

/// A number of things, with its noun.
pub(crate) fn count(number: u64, one: &str, more: &str) -> String {
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
