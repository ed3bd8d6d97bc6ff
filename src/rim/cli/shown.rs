//! Text for a terminal.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::page::harmless::harmless;

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
