//! The normal form of a text: two texts that differ only in case, white space, Unicode form and punctuation have the
//! same normal form. Pure.
//!
//! Characters that may carry a fact are unchanged: a sign, a decimal point, `C++`, `v1.2`, `.net`, `A-`, a question
//! mark, an emoji, a superscript (Unicode's compatibility forms would make it a digit: `10²` is not `102`). In case
//! of doubt two texts keep different forms: they are then separate memories, and suggested to each other.

use unicode_normalization::UnicodeNormalization as _;

/// The normal form of a text. Applied twice, the function returns the same as once.
///
/// ```
/// use counterfoil::guard::memory::normal_form;
/// assert_eq!(normal_form("  Likes  “Earl Grey” tea. "), "likes earl grey tea");
/// assert_eq!(normal_form("ＳＴＲＡＳＳＥ １７"), normal_form("straße 17"));
/// assert_ne!(normal_form("it is -5 °C"), normal_form("it is 5 °C"));
/// assert_ne!(normal_form("knows C++"), normal_form("knows C"));
/// ```
pub fn normal_form(text: &str) -> String {
    let mut form = once(text);
    // One pass may enable the next: an accent after ß moves to the second s of its ss. Each pass only removes or
    // joins characters, so a few passes are enough.
    for _ in 0..8 {
        let next = once(&form);
        if next == form {
            break;
        }
        form = next;
    }
    form
}

fn once(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { by_rule(text) }
}

fn by_rule(text: &str) -> String {
    let unified = unify(text);
    // In Turkish and related languages I is the capital of ı, and İ that of i. Such a text contains ı or İ.
    let turkic = unified.contains(['ı', 'İ']);
    let mut words = Vec::new();
    let mut quotes = Quotes::default();
    for word in unified.split_whitespace() {
        for part in parts(word) {
            trimmed(&part, &mut quotes, &mut words);
        }
    }
    let mut form = String::with_capacity(unified.len());
    for (i, word) in words.iter().enumerate() {
        if word == "-" && !joins_numbers(&words, i) {
            continue;
        }
        let before = form.chars().next_back();
        let word = folded(word, before.is_some_and(|c| c.is_ascii_digit()), turkic);
        if before.is_some_and(|before| is_apart(before, &word)) {
            form.push(' ');
        }
        form.push_str(&word);
    }
    if form.is_empty() {
        // The text has nothing but punctuation, which is then its content.
        return unified.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    form
}

/// True for lower-case letters, digits, and single spaces between words, which no rule changes. Most texts are so
/// after the first pass, and each statement is compared with many texts, so this check saves time.
fn is_plain(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.split(' ').all(is_word)
}

/// Replaces characters with several spellings and one meaning by a single character.
fn unify(text: &str) -> String {
    if text.is_ascii() {
        // Most texts are ASCII, and each statement is compared with many: the other rules do not change ASCII text.
        return text.replace('`', "'");
    }
    unified(text)
}

fn unified(text: &str) -> String {
    text.chars().flat_map(of_one_width).filter_map(plain).nfc().collect()
}

/// Replaces wide and narrow forms, ligatures and the positional forms of Arabic letters. Other compatibility forms
/// are unchanged: they would make ² a 2 and ½ a 1⁄2.
fn of_one_width(c: char) -> impl Iterator<Item = char> {
    let variant = matches!(c, '\u{fb00}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{ff00}'..='\u{ffef}' | '\u{1d400}'..='\u{1d7ff}');
    let whole = variant.then(|| std::iter::once(c).nfkc());
    let same = (!variant).then_some(c);
    whole.into_iter().flatten().chain(same)
}

fn plain(c: char) -> Option<char> {
    Some(match c {
        // Invisible characters: soft hyphen, zero width, direction, variation. Not the joiners, which make other
        // letters.
        '\u{ad}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2060}'
        | '\u{feff}'
        | '\u{640}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{fe00}'..='\u{fe0f}' => return None,
        '\u{2010}'..='\u{2013}' | '\u{2212}' => '-',
        '\u{2014}' | '\u{2015}' => '—',
        '‘' | '’' | '‚' | '‛' | 'ʼ' | '´' | '`' | '′' => '\'',
        '“' | '”' | '„' | '‟' | '″' => '"',
        '«' | '»' | '‹' | '›' | '「' | '」' | '『' | '』' | '【' | '】' | '《' | '》' | '〈' | '〉'
        | '〔' | '〕' | '、' | '。' | '…' | '‥' | '।' | '॥' | '•' | '‣' | '◦' | '¡' | '¿' => {
            ' '
        }
        '،' | '٬' => ',',
        '؛' => ';',
        '؟' => '?',
        '٪' => '%',
        '٫' => '.',
        '\u{b5}' => 'μ',
        _ => digit(c).unwrap_or(c),
    })
}

/// The zeros of the decimal digits of other scripts; nine more digits follow each.
const ZEROS: [u32; 37] = [
    0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66, 0x0de6,
    0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0,
    0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0,
];

fn digit(c: char) -> Option<char> {
    let code = u32::from(c);
    let zero = ZEROS.into_iter().find(|zero| (*zero..zero + 10).contains(&code))?;
    char::from_digit(code - zero, 10)
}

/// The parts of a word, cut at separating punctuation: not between digits, and not in an address.
fn parts(word: &str) -> Vec<String> {
    if is_address(word) || is_emoticon(word) {
        return vec![word.to_owned()];
    }
    let chars: Vec<_> = word.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or(' ');
    let mut parts = vec![String::new()];
    for (i, &c) in chars.iter().enumerate() {
        let before = if i == 0 { ' ' } else { at(i - 1) };
        let after = at(i + 1);
        let between_digits = before.is_ascii_digit() && after.is_ascii_digit();
        let kept = match c {
            ',' | ';' | ':' => between_digits,
            '!' => after == '=',
            '.' => !(before == '.' || after == '.') || around_dots(&chars, i),
            '—' => after.is_ascii_digit(),
            '?' => before.is_alphanumeric() && after.is_alphanumeric(),
            _ => true,
        };
        match (kept, parts.last_mut()) {
            (true, Some(part)) => part.push(if c == '—' { '-' } else { c }),
            _ if c == '?' => parts.extend(["?".to_owned(), String::new()]),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.dedup_by(|one, other| one == "?" && other == "?");
    parts
}

/// True if there are digits on both sides of the dots: `1..5` is a range.
fn around_dots(chars: &[char], i: usize) -> bool {
    let is_digit = |c: Option<&char>| c.is_some_and(char::is_ascii_digit);
    let before = chars[..i].iter().rev().find(|c| **c != '.');
    let after = chars[i..].iter().find(|c| **c != '.');
    is_digit(before) && is_digit(after)
}

/// True for an address or a path, whose exact letters matter.
fn is_address(word: &str) -> bool {
    let path = word.strip_prefix('/').is_some_and(|rest| rest.contains(char::is_alphanumeric));
    path || word.contains("://") || word.contains('\\')
}

/// True for an emoticon: `:)` and `:(` differ in punctuation only.
fn is_emoticon(word: &str) -> bool {
    let mut chars = word.chars();
    let eyes = chars.next().is_some_and(|c| matches!(c, ':' | ';' | '='));
    let mut mouth = chars.as_str();
    mouth = mouth.strip_prefix(['-', '\'', '^']).unwrap_or(mouth);
    eyes && mouth.chars().count() == 1
        && mouth.contains(['(', ')', '[', ']', 'D', 'P', 'p', '/', '|', '*', '3', '<', '>', 'O', 'o'])
}

/// The quotation marks that are open.
#[derive(Default)]
struct Quotes {
    single: bool,
    double: bool,
}

impl Quotes {
    fn of(&mut self, mark: char) -> &mut bool {
        if mark == '"' { &mut self.double } else { &mut self.single }
    }
}

/// Removes the punctuation around a word that carries no meaning.
fn trimmed(part: &str, quotes: &mut Quotes, words: &mut Vec<String>) {
    if part == "-" || part == "?" || is_emoticon(part) {
        words.push(part.to_owned());
        return;
    }
    let mut word = part;
    loop {
        let mut rest = word.chars();
        let (first, next) = (rest.next(), rest.clone().next());
        let Some(first) = first else { return };
        let number_in_brackets = first == '(' && next.is_some_and(is_numeric) && in_brackets(word);
        let strips = match first {
            '"' | '\'' | ',' | ';' | ':' | '!' => true,
            '(' | ')' | '[' | ']' | '{' | '}' => !number_in_brackets,
            '.' | '-' => !next.is_some_and(|c| c.is_alphanumeric() || is_numeric(c)),
            _ => false,
        };
        if !strips {
            break;
        }
        if matches!(first, '"' | '\'') {
            *quotes.of(first) = true;
        }
        word = rest.as_str();
    }
    loop {
        let mut rest = word.chars();
        let Some(last) = rest.next_back() else { return };
        let before = rest.clone().next_back();
        let strips = match last {
            // After a digit the mark means inches, feet or minutes, unless it closes an open quotation.
            '"' | '\'' => {
                let open = std::mem::take(quotes.of(last));
                open || !before.is_some_and(|c| c.is_ascii_digit())
            }
            '(' | ')' | '[' | ']' | '{' | '}' => !(last == ')' && word.starts_with('(')),
            '.' | ',' | ';' | ':' | '!' => true,
            '-' => !before.is_some_and(char::is_alphanumeric),
            _ => false,
        };
        if !strips {
            break;
        }
        word = rest.as_str();
    }
    words.push(word.to_owned());
}

/// True if the word ends with a closing bracket: some books write a negative amount in brackets.
fn in_brackets(word: &str) -> bool {
    word.trim_end_matches(['.', ',', ';', ':', '!', '"', '\'']).ends_with(')')
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '$' | '€' | '£' | '¥' | '₹' | '.' | '-')
}

/// True if a number is beside this word: a single dash is then a minus.
fn joins_numbers(words: &[String], i: usize) -> bool {
    let has_digit = |i: Option<usize>| {
        i.and_then(|i| words.get(i)).is_some_and(|word| word.contains(|c: char| c.is_ascii_digit()))
    };
    has_digit(i.checked_sub(1)) || has_digit(i.checked_add(1))
}

/// Units whose case distinguishes them: milli and mega, bits and bytes.
const UNITS: [&str; 27] = [
    "m", "b", "mm", "mg", "ml", "mw", "mv", "ma", "mj", "mpa", "mhz", "mb", "kb", "gb", "tb", "pb", "mbit",
    "mbps", "kbps", "gbps", "mib", "kib", "gib", "mbq", "mn", "k", "g",
];

/// The word in lower case, except where the case carries meaning.
fn folded(word: &str, behind_digit: bool, turkic: bool) -> String {
    if is_address(word) || is_emoticon(word) || is_opaque(word) {
        return word.to_owned();
    }
    let letters = word.len() - word.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (head, tail) = word.split_at(word.len() - letters);
    let measured = if head.is_empty() { behind_digit } else { head.ends_with(|c: char| c.is_ascii_digit()) };
    let is_unit = measured && UNITS.contains(&tail.to_ascii_lowercase().as_str());
    let (head, tail) = if is_unit { (head, tail) } else { (word, "") };
    let mut folded = String::with_capacity(word.len());
    for c in head.chars() {
        match c {
            'I' if turkic => folded.push('ı'),
            'İ' => folded.push('i'),
            'ß' | 'ẞ' => folded.push_str("ss"),
            'ς' => folded.push('σ'),
            c => folded.extend(c.to_lowercase()),
        }
    }
    folded.push_str(tail);
    folded
}

/// True for a mix of letters of both cases and digits, which is no word: `dQw4w9`.
fn is_opaque(word: &str) -> bool {
    let mut letters = word.chars().filter(char::is_ascii_alphabetic);
    let lower = word.contains(|c: char| c.is_ascii_lowercase());
    letters.next();
    lower && letters.any(|c| c.is_ascii_uppercase()) && word.contains(|c: char| c.is_ascii_digit())
}

/// True if a space belongs between both. Chinese and Japanese have no spaces between words; a space in such a text,
/// or beside a number, has no meaning.
fn is_apart(before: char, word: &str) -> bool {
    let Some(after) = word.chars().next() else { return false };
    if word == "%" && before.is_ascii_digit() {
        return false;
    }
    let joins =
        |one: char, other: char| is_unspaced(one) && (is_unspaced(other) || other.is_ascii_alphanumeric());
    !(joins(before, after) || joins(after, before))
}

/// True for a character of a script without spaces between words.
pub(super) const fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '々' | '〇')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{by_rule, is_plain, unified, unify};

    proptest! {
        #[test]
        fn no_rule_changes_a_plain_text(text in "[a-z0-9]{1,9}( [a-z0-9]{1,9}){0,6}") {
            prop_assert!(is_plain(&text));
            prop_assert_eq!(by_rule(&text), text);
        }
    }

    #[test]
    fn the_short_way_of_plain_ascii_ends_where_the_long_one_does() {
        let all: String = (0..128_u8).map(char::from).collect();
        assert_eq!(unify(&all), unified(&all));
    }
}
