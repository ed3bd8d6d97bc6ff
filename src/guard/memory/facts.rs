//! Facts that must be exactly the same before two texts may be called similar: numbers, identifiers, dates,
//! negations, and signs such as a question mark or an emoji. Read from the normal form, each kind in the order of the
//! text. Pure.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::Difference;
use super::normal::{is_unspaced, normal_form};
use super::words::{AUXILIARY, DATES, DENYING, NEGATIONS, NUMBERS, NUMERALS, PREFIXES};

/// A text with its tokens and facts.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) normal: String,
    /// The words; in a script without spaces, the runs of characters.
    pub(super) tokens: Vec<String>,
    facts: Facts,
    /// The tokens without the facts, and without the auxiliary words that accompany a negation.
    rest: Vec<String>,
}

/// The facts of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    numbers: Vec<String>,
    identifiers: Vec<String>,
    dates: Vec<String>,
    /// The words after each negation.
    negations: Vec<String>,
    signs: Vec<String>,
}

/// The relation of two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// The texts have the same normal form.
    Same,
    /// The texts have different facts and are never merged. The difference is given if they agree otherwise.
    Apart(Option<Difference>),
    /// The texts have the same facts in other words: their similarity may be computed.
    Akin,
}

impl Text {
    pub(super) fn of(content: &str) -> Self {
        let normal = normal_form(content);
        let tokens: Vec<String> = normal.split(' ').flat_map(tokens).collect();
        let mut text = Self { normal, facts: Facts::default(), rest: Vec::new(), tokens };
        for i in 0..text.tokens.len() {
            let (token, behind) = (&text.tokens[i], &text.tokens[i + 1..]);
            let rest = sort(token, behind, &mut text.facts);
            text.rest.extend(rest);
        }
        text
    }

    pub(super) fn kinship(&self, other: &Self) -> Kinship {
        if self.normal == other.normal {
            return Kinship::Same;
        }
        if self.facts != other.facts {
            return Kinship::Apart(self.contradiction(other));
        }
        if self.is_denied_by_prefix(other) {
            let alike = self.tokens.len() == other.tokens.len();
            return Kinship::Apart(alike.then_some(Difference::Negation));
        }
        Kinship::Akin
    }

    /// The kind of fact in which the texts differ, if they agree otherwise and differ in one kind only.
    fn contradiction(&self, other: &Self) -> Option<Difference> {
        let (one, two) = (&self.facts, &other.facts);
        let differs = [
            (Difference::Negation, one.negations.len() != two.negations.len()),
            (Difference::Number, one.numbers != two.numbers),
            (Difference::Identifier, one.identifiers != two.identifiers),
            (Difference::Date, one.dates != two.dates),
        ];
        let mut differs =
            differs.into_iter().filter_map(|(difference, differs)| differs.then_some(difference));
        let (only, none) = (differs.next()?, differs.next());
        (none.is_none() && one.signs == two.signs && says_the_same(&self.rest, &other.rest)).then_some(only)
    }

    /// True if one text has a word and the other has it with a negating prefix: `paid`, `unpaid`.
    fn is_denied_by_prefix(&self, other: &Self) -> bool {
        let denies = |one: &Self, other: &Self| {
            let words: HashSet<_> = other.tokens.iter().map(String::as_str).collect();
            let denied = |token: &String| {
                PREFIXES
                    .iter()
                    .filter_map(|prefix| token.strip_prefix(prefix))
                    .any(|word| words.contains(word))
            };
            one.tokens.iter().filter(|token| !words.contains(token.as_str())).any(denied)
        };
        denies(self, other) || denies(other, self)
    }
}

/// The tokens of a word: cut between scripts with and without spaces, and after a French n'.
fn tokens(word: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut unspaced = None;
    for c in word.chars() {
        let kind = Some(is_unspaced(c));
        match tokens.last_mut().filter(|_| kind == unspaced) {
            Some(token) => token.push(c),
            None => tokens.push(c.into()),
        }
        unspaced = kind;
    }
    if let Some(verb) = tokens.first().and_then(|token| token.strip_prefix("n'")).map(str::to_owned) {
        tokens[0] = "n'".into();
        tokens.insert(1, verb);
    }
    tokens
}

/// A set of words for lookups.
type Words = LazyLock<HashSet<&'static str>>;
static NEGATION: Words = LazyLock::new(|| NEGATIONS.iter().copied().collect());
static NUMBER: Words = LazyLock::new(|| NUMBERS.iter().copied().collect());
static DATE: Words = LazyLock::new(|| DATES.iter().copied().collect());

/// Adds a token to the facts that it belongs to. Returns the part of the token that is no fact.
fn sort(token: &str, behind: &[String], facts: &mut Facts) -> Option<String> {
    if token.starts_with(is_unspaced) {
        return unspaced(token, facts);
    }
    let denied = || behind.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" ");
    let has_digit = token.contains(|c: char| c.is_ascii_digit());
    let has_letter = token.contains(char::is_alphabetic);
    let of_date = DATE.contains(token) || (has_digit && is_date(token));
    if of_date {
        facts.dates.push(token.to_owned());
    } else if has_digit || token.contains(char::is_numeric) {
        let measured = token.trim_end_matches(char::is_alphabetic);
        let unit = token[measured.len()..].chars().count();
        if !measured.contains(char::is_alphabetic) && unit <= 4 && !is_grouped(measured) {
            facts.numbers.push(token.to_owned());
        } else {
            facts.identifiers.push(token.to_owned());
        }
    } else if NUMBER.contains(token) {
        facts.numbers.push(token.to_owned());
    } else if NEGATION.contains(token)
        || is_contracted(token)
        || (!token.is_ascii() && DENYING.iter().any(|part| token.contains(part)))
    {
        facts.negations.push(denied());
    } else if !has_letter {
        facts.signs.push(token.to_owned());
    } else if is_identifier(token) {
        facts.identifiers.push(token.to_owned());
    } else if !token.chars().all(|c| c.is_alphabetic() || is_of_words(c)) {
        // For example a word with an emoji in it.
        let signs = token.chars().filter(|c| !c.is_alphabetic() && !is_of_words(*c));
        facts.signs.extend(signs.map(String::from));
        return Some(token.chars().filter(|c| c.is_alphabetic() || is_of_words(*c)).collect());
    } else {
        return (!AUXILIARY.contains(&token)).then(|| token.to_owned());
    }
    None
}

/// Reads the negations and numerals of a run of Chinese or Japanese. Returns the other characters.
fn unspaced(run: &str, facts: &mut Facts) -> Option<String> {
    let mut rest = String::with_capacity(run.len());
    let mut left = run;
    while let Some(c) = left.chars().next() {
        let denying = DENYING.iter().filter(|part| left.starts_with(**part)).max_by_key(|part| part.len());
        if let Some(part) = denying {
            left = &left[part.len()..];
            facts.negations.push(left.chars().take(1).collect());
            continue;
        }
        if NUMERALS.contains(&c) {
            facts.numbers.push(c.into());
        } else {
            rest.push(c);
        }
        left = &left[c.len_utf8()..];
    }
    (!rest.is_empty()).then_some(rest)
}

/// True for a contracted negation such as `doesn't`.
fn is_contracted(token: &str) -> bool {
    token.ends_with("n't")
}

/// True for a date or a time: `2026-01-31`, `31.1.2026`, `1/31`, `10:30`.
fn is_date(token: &str) -> bool {
    let groups: Vec<_> = token.split(['-', '.', '/', ':']).collect();
    let digits = groups.iter().all(|group| !group.is_empty() && group.chars().all(|c| c.is_ascii_digit()));
    let long = groups.iter().filter(|group| group.len() == 4).count();
    let short = groups.iter().filter(|group| group.len() <= 2).count();
    digits
        && short + long == groups.len()
        && match groups.len() {
            2 => token.contains([':', '/']),
            3 => long == 1 || token.contains(':'),
            _ => false,
        }
}

/// True for several groups of digits: a version, a telephone number.
fn is_grouped(token: &str) -> bool {
    token.matches('.').count() > 1 || token.trim_start_matches('-').contains(['-', '/', ':', '#', '@', '_'])
}

fn is_identifier(token: &str) -> bool {
    // The normal form keeps capitals only if they carry meaning.
    let capitals = token.contains(|c: char| c.is_ascii_uppercase());
    let inner = token.trim_matches('.');
    capitals
        || token.starts_with(['-', '.', '#', '@', '/'])
        || token.ends_with(['-', '+', '#'])
        || inner.contains(['.', '_', '@', '/', '\\', '+', '#', '=', '<', '>', '&', '$', '€'])
}

/// True for a character that may be part of a word besides letters: apostrophe, hyphen, combining accents, joiners.
fn is_of_words(c: char) -> bool {
    matches!(c, '\'' | '-' | '\u{200c}' | '\u{200d}' | '・')
        || unicode_normalization::char::is_combining_mark(c)
}

/// True if the words are the same in the same order, apart from their endings.
fn says_the_same(one: &[String], other: &[String]) -> bool {
    if one.is_empty() || other.is_empty() {
        return false;
    }
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_word(one, other))
}

fn is_same_word(one: &str, other: &str) -> bool {
    if one.starts_with(is_unspaced) {
        return one == other || super::similar::dice(one, other, 2) >= 0.6;
    }
    let common = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let (one, other) = (one.chars().count(), other.chars().count());
    common == one.max(other) || (common >= 3 && one.max(other) - common <= 2)
}

#[cfg(test)]
mod tests {
    use super::{Difference, Kinship, Text};

    fn kinship(one: &str, other: &str) -> Kinship {
        let (one, other) = (Text::of(one), Text::of(other));
        assert_eq!(one.kinship(&other), other.kinship(&one), "it goes both ways");
        one.kinship(&other)
    }

    #[test]
    fn facts_are_told_apart_by_kind() {
        let facts = Text::of(
            "On 2026-01-31 at 10:30 Ann paid 3.50 € for order A-17, v1.2.3, not two, www.example.org",
        )
        .facts;
        assert_eq!(facts.dates, ["2026-01-31", "10:30"]);
        assert_eq!(facts.numbers, ["3.50", "two"]);
        assert_eq!(facts.identifiers, ["a-17", "v1.2.3", "www.example.org"]);
        assert_eq!(facts.negations, ["two www.example.org"]);
        assert_eq!(facts.signs, ["€"]);
    }

    #[test]
    fn what_contradicts_is_told_by_what_differs() {
        let apart = |difference| Kinship::Apart(Some(difference));
        assert_eq!(kinship("refund order 17", "refund order 18"), apart(Difference::Number));
        assert_eq!(kinship("Ann likes tea", "Ann does not like tea"), apart(Difference::Negation));
        assert_eq!(kinship("他喜欢茶", "他不喜欢茶"), apart(Difference::Negation));
        assert_eq!(kinship("the invoice is paid", "the invoice is unpaid"), apart(Difference::Negation));
        assert_eq!(kinship("leaves in May", "leaves in June"), apart(Difference::Date));
        assert_eq!(kinship("ticket AB-1", "ticket AB-2"), apart(Difference::Identifier));
        assert_eq!(kinship("Ann likes tea", "Bob does not eat fish"), Kinship::Apart(None));
        assert_eq!(kinship("likes green tea", "is fond of green tea"), Kinship::Akin);
        assert_eq!(kinship("Likes green tea.", "likes GREEN tea"), Kinship::Same);
    }
}
