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

/// What a declared lookup tells the effect of a call by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recognition {
    /// True if a found thing is compared with the call: by its token, a match, a text or an expected field.
    pub(crate) compares: bool,
    /// True if the lookup asks by the call's key.
    pub(crate) asks_by_key: bool,
    /// True if the lookup asks for one thing, by a value of the call.
    pub(crate) asks_for_one: bool,
}

impl Recognition {
    /// What is wrong with a lookup that recognises nothing.
    pub(crate) const NONE: &'static str = "any answer would count as the effect: it needs the call's key, in its request or in a found thing, or \
                                   a value that the effect must have";

    /// False if the effect of another call would count as the one that is looked for. That effect would be recorded as ours, and
    /// ours would never be sent.
    pub(crate) const fn suffices(self) -> bool {
        self.tells_apart() || self.asks_for_one
    }

    /// True if the effect is recognised among several.
    pub(crate) const fn tells_apart(self) -> bool {
        self.compares || self.asks_by_key
    }
}

/// The provider's id for an effect: a text or a number at this pointer.
pub(crate) fn id_at(value: &Value, pointer: &str) -> Option<String> {
    match value.pointer(pointer)? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
