//! The parts that tools share which are declared and not written: holes, the meaning of answers, keys of fields, secrets.

mod meaning;
pub(crate) mod template;
mod tool;

pub use meaning::Meaning;
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
pub(crate) use tool::relies_on_key;
pub(crate) use tool::{Declaration, dynamic, expected, find, send};

use serde_json::Value;

use crate::payload::is_secret;

/// True if the input holds a secret. The record of a call keeps no secret, so a later attempt could not send it.
pub(crate) fn holds_secret(value: &Value) -> bool {
    is_secret(value)
        || match value {
            Value::Array(items) => items.iter().any(holds_secret),
            Value::Object(fields) => fields.values().any(holds_secret),
            _ => false,
        }
}

/// A provider's text without the secrets that it repeats. Providers repeat a credential without its scheme: `Bearer `,
/// `Basic `.
#[cfg(any(feature = "tool-http", feature = "tool-command"))]
pub(crate) fn without_secrets<'s>(text: &str, secrets: impl Iterator<Item = &'s str>) -> String {
    let words = secrets.flat_map(str::split_whitespace).filter(|word| word.len() >= 8);
    words.fold(text.to_owned(), |text, word| text.replace(word, "…"))
}

/// The provider's id for an effect: a text or a number at this pointer.
pub(crate) fn id_at(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
