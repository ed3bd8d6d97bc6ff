//! Pieces of pages: states, tables.

use maud::{Markup, html};

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
