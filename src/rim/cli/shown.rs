//! Text for a terminal. What others have written can hold escape sequences, which a terminal would obey.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// A text with control characters, and those that turn the direction of writing, in their escaped form. Ends of lines stay.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for one in text.chars() {
        let turns =
            matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if turns || (one.is_control() && one != '\n') {
            shown.extend(one.escape_unicode());
        } else {
            shown.push(one);
        }
    }
    shown
}

/// Prints a text.
pub(super) fn text(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", harmless(text))
}

/// Clears a terminal. Other outputs get nothing.
pub(super) fn clear() -> io::Result<()> {
    let mut out = io::stdout();
    if out.is_terminal() { write!(out, "\u{1b}[2J\u{1b}[H") } else { Ok(()) }
}

/// Prints a value as one line of JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(value)?)
}

/// Prints a list: as lines of JSON, or as rows under their heads.
pub(super) fn list<T: Serialize, const N: usize>(
    as_json: bool,
    items: Vec<T>,
    heads: [&str; N],
    row: impl FnMut(T) -> [String; N],
) -> io::Result<()> {
    if as_json {
        return items.iter().try_for_each(json);
    }
    table(heads, items.into_iter().map(row).collect())
}

/// Prints rows under their heads.
pub(super) fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(heads);
    for row in rows {
        table.add_row(row.map(|cell| harmless(&cell)));
    }
    writeln!(io::stdout(), "{table}")
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn a_text_with_escape_sequences_reaches_the_terminal_escaped() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\u{9b}c\r\u{202e}d\ne é"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{d}\\u{202e}d\ne é"
        );
    }
}
