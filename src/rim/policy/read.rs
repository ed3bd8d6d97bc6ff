//! From the file's bytes to its sections, strictly: what is not understood is an error with its place.

use serde::de::DeserializeOwned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, Options};

use super::file::File;
use super::finding::{PolicyFinding, PolicyRule};
use super::nearest::nearest;
use super::place::{Place, Places, Tree};
use super::word::SECRET;

/// The largest file that is read, in bytes.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// Sections in sections: a policy has four levels.
const MAX_DEPTH: usize = 16;

/// Reads a file.
pub(super) fn read(bytes: &[u8]) -> Result<(File, Places), PolicyFinding> {
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
        let instead = "a policy; if it is one, give each service its own".to_owned();
        return Err(PolicyFinding::new(PolicyRule::TooLarge, "", Place::START, why, instead));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        let why = format!("the bytes from {} on are no UTF-8", error.valid_up_to());
        let instead = "the file saved as UTF-8".to_owned();
        PolicyFinding::new(PolicyRule::NotUtf8, "", Place { line, column: 1 }, why, instead)
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Nothing is expanded, guessed or passed over: no anchors and aliases, no merges, no tags, one document.
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
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        with_snippet: false, // a snippet would show what stands there, which may be a secret
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// What is wrong, in the words of a policy.
fn finding(error: &Error, places: &Places) -> PolicyFinding {
    let error = error.without_snippet();
    let place = error.location().map_or(Place::START, Place::of);
    let path = places.at(place).unwrap_or_default();
    let (rule, why, instead) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let (why, instead) = unknown("field", field, expected);
            (PolicyRule::UnknownField, why, instead)
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let (why, instead) = unknown("value", variant, expected);
            (PolicyRule::UnknownValue, why, instead)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or_default();
            (
                PolicyRule::DuplicateField,
                format!("{key:?} stands twice, and it is not clear which one counts"),
                "it once".into(),
            )
        }
        Error::Budget { .. } => (
            PolicyRule::Syntax,
            "the file is too deep or uses anchors, aliases or several documents, which a policy does not"
                .to_owned(),
            "each value where it belongs, in one document".to_owned(),
        ),
        Error::Message { msg, .. } if msg.starts_with(SECRET) => (
            PolicyRule::SecretInFile,
            format!(
                "{msg}; what stands here is not repeated, and is to be taken for known to others if it was the secret"
            ),
            "the name of an environment variable, `STRIPE_WEBHOOK_SECRET`".to_owned(),
        ),
        Error::Message { msg, .. } => {
            (PolicyRule::WrongValue, msg.clone(), "a value of the form that the message names".to_owned())
        }
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            (PolicyRule::WrongValue, "the value is of another kind".to_owned(), expected.clone())
        }
        other => (rule_of(other), other.to_string(), "YAML as docs/policy.md shows it".to_owned()),
    };
    PolicyFinding::new(rule, path, place, why, instead)
}

/// Errors that the parser itself finds are of the syntax; others are of a value.
fn rule_of(error: &Error) -> PolicyRule {
    match error {
        Error::InvalidScalar { .. }
        | Error::InvalidBooleanStrict { .. }
        | Error::NullIntoString { .. }
        | Error::Unexpected { .. }
        | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::SerdeInvalidLength { .. } => PolicyRule::WrongValue,
        _ => PolicyRule::Syntax,
    }
}

fn unknown(what: &str, name: &str, known: &[&'static str]) -> (String, String) {
    let shown: String = name.chars().take(64).collect();
    let list = || known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let instead = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("`{meant}`"),
        None => format!("one of {}", list()),
    };
    let why = match what {
        "field" => format!("there is no field {shown:?} here, so what it says would not be done"),
        _ => format!("there is no value {shown:?} here; there are {}", list()),
    };
    (why, instead)
}
