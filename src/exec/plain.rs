//! Text of others in one line of a terminal.

use std::fmt;

/// A text whose control characters are shown and not obeyed: a provider's message moves no cursor and begins no line.
pub(super) struct Plain<'a>(pub(super) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn a_control_character_is_shown_and_not_obeyed() {
        assert_eq!(Plain("Ünï\u{1b}[2J\nx\u{9b}").to_string(), "Ünï\\u{1b}[2J\\nx\\u{9b}");
    }
}
