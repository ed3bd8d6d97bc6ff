//! The strict reading of a file's bytes into sections: anything unknown is an error with its place.

use serde::de::DeserializeOwned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, Options};

use super::finding::{PolicyFinding, PolicyRule, Written};
use super::nearest::nearest;
use super::place::{Place, Places, Tree};
use super::word::SECRET;

/// The maximum size of a file, in bytes.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The maximum depth of nested sections: a policy has four levels.
const MAX_DEPTH: usize = 16;

/// Reads the bytes of a file into its sections.
pub(in crate::rim) fn read<F: DeserializeOwned>(bytes: &[u8]) -> Result<(F, Places), PolicyFinding> {
    let text = text(bytes)?;
    let places = places(text)?;
    let file = parse(text).map_err(|error| finding(&error, &places))?;
    Ok((file, places))
}

/// The places of all fields of a text, which may be JSON as well.
pub(super) fn places(text: &str) -> Result<Places, PolicyFinding> {
    let tree: Tree = parse(text).map_err(|error| finding(&error, &Places::default()))?;
    Ok(Places::of(&tree))
}

fn text(bytes: &[u8]) -> Result<&str, PolicyFinding> {
    if bytes.len() > MAX_BYTES {
        let why = format!("the file has more than {MAX_BYTES} bytes, and no policy is as large");
        let instead = "a policy; if it is one, give each service its own";
        return Err(PolicyFinding::new(PolicyRule::TooLarge, Written::at(Place::START, ""), &why, instead));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count() as u64;
        let why = format!("the bytes from {} on are no UTF-8", error.valid_up_to());
        PolicyFinding::new(
            PolicyRule::NotUtf8,
            Written::at(Place { line, column: 1 }, ""),
            &why,
            "the file saved as UTF-8",
        )
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The strict options of the parser: no anchors and aliases, no merges, no tags, one document, and no guessed types.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        no_schema: true, // a text that looks like a number must be quoted
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        with_snippet: false, // a snippet would show the value, which may be a secret
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// The finding for an error of the parser, in the words of a policy.
fn finding(error: &Error, places: &Places) -> PolicyFinding {
    let error = error.without_snippet();
    let place = error.location().map_or(Place::START, Place::of);
    let path = places.at(place).unwrap_or_default();
    let (rule, why, instead) = named(error).unwrap_or_else(|| match value(error) {
        Some((why, instead)) => (PolicyRule::WrongValue, why, instead),
        None => (PolicyRule::Syntax, without_place(error), AS_DOCUMENTED.to_owned()),
    });
    PolicyFinding::new(rule, Written::at(place, path), &why, &instead)
}

/// The advice for an error without a better one.
const AS_DOCUMENTED: &str = "what the guide of the file shows";

/// The rule, the reason and the advice for errors that have a rule of their own.
fn named(error: &Error) -> Option<(PolicyRule, String, String)> {
    Some(match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let why = format!("there is no field {} here, so what it says would not be done", shown(field));
            (PolicyRule::UnknownField, why, known(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let why = format!("there is no value {} here", shown(variant));
            (PolicyRule::UnknownValue, why, known(variant, expected))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = shown(key.as_deref().unwrap_or_default());
            let why = format!("{key} stands twice, and it is not clear which one counts");
            (PolicyRule::DuplicateField, why, "it once".to_owned())
        }
        Error::Budget { .. } => {
            let why =
                "the file is too deep or uses anchors, aliases or several documents, which a policy does not";
            (PolicyRule::Syntax, why.to_owned(), "each value where it belongs, in one document".to_owned())
        }
        Error::Message { msg, .. } if msg.starts_with(SECRET) => {
            let why =
                format!("{SECRET}; if this is the secret, it is known to others now, and is to be replaced");
            (
                PolicyRule::SecretInFile,
                why,
                "the name of an environment variable, `STRIPE_WEBHOOK_SECRET`".to_owned(),
            )
        }
        _ => return None,
    })
}

/// The reason why a value is wrong, and the advice. The value is not repeated, because it may be a misplaced secret.
fn value(error: &Error) -> Option<(String, String)> {
    let (why, instead) = match error {
        Error::Message { msg, .. } => msg.split_once("; write ").unwrap_or((msg, AS_DOCUMENTED)),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            ("the value is of another kind", expected.as_str())
        }
        Error::QuotingRequired { .. } => (
            "a number or a truth value stands where a text is meant",
            "a time with its unit, `30 days`; any other text in quotes",
        ),
        Error::NullIntoString { .. } => ("the field is empty", "its value, or leave the field out"),
        Error::Unexpected { expected, .. } => {
            let instead = match *expected {
                "mapping start" => "a section, `name: value`; `{}` if it has nothing to say",
                "sequence start" => "a list, `[a, b]`",
                other => other,
            };
            ("the value is empty or of another kind", instead)
        }
        Error::InvalidScalar { .. }
        | Error::InvalidBooleanStrict { .. }
        | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => {
            ("the value is of another kind", AS_DOCUMENTED)
        }
        _ => return None,
    };
    Some((why.to_owned(), instead.to_owned()))
}

/// The parser's error message without its place, which the finding holds.
fn without_place(error: &Error) -> String {
    let why = error.to_string();
    why.split_once(" at line ").map_or(why.as_str(), |(why, _)| why).to_owned()
}

/// The first characters of a text, as many as a message needs.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}

/// The nearest of the known names, or all of them.
fn known(name: &str, known: &[&'static str]) -> String {
    let list = || known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    nearest(name, known.iter().copied())
        .map_or_else(|| format!("one of {}", list()), |meant| format!("`{meant}`"))
}
