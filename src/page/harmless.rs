//! Text of others, for a terminal or a page: it can hold escape sequences, which a terminal would obey, and marks that turn the
//! direction of writing, which would hide what it says.

/// A text with control characters, and those that turn the direction of writing, in their escaped form. Ends of lines stay.
pub(crate) fn harmless(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn a_text_with_escape_sequences_is_shown_escaped() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\u{9b}c\r\u{202e}d\ne é"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{d}\\u{202e}d\ne é"
        );
    }
}
