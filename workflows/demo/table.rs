//! A plain-text table, coloured only where somebody can see it.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

/// What a cell's content means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Told,
    Bad,
    Faint,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// A table in the making.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(|text| Cell::new(Tone::Faint, text)).to_vec()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, colour: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let padding = " ".repeat(width - cell.width() + 2);
                line.push_str(&paint(cell.tone, &cell.text, colour));
                line.push_str(&padding);
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// The text in its tone's colour, if colours are wanted.
pub(crate) fn paint(tone: Tone, text: &str, colour: bool) -> String {
    let code = match tone {
        Tone::Plain => None,
        Tone::Good => Some(32),
        Tone::Told => Some(33),
        Tone::Bad => Some(31),
        Tone::Faint => Some(2),
    };
    match code.filter(|_| colour && !text.is_empty()) {
        Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
        None => text.to_owned(),
    }
}

/// Somebody watches, and does not mind colours (no-color.org).
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
