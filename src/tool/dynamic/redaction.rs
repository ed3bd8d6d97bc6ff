//! Fields of JSON values that are not kept: a digest or a mark takes their place before anything is recorded.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::ledger::is_pointer_to_field;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
use crate::payload::DigestKey;
use crate::payload::{Secret, is_secret};
use crate::tool::ToolError;

/// The length from which on a value is removed from the text of an error. A shorter one would be found by chance in the middle of
/// words.
const SHORTEST: usize = 4;

/// The fields of an input and of an output that are not kept, as JSON pointers (RFC 6901).
#[derive(Clone, Default)]
pub(super) struct Redaction {
    pub(super) input: Vec<String>,
    pub(super) output: Vec<String>,
}

impl Redaction {
    /// The first field that is no JSON pointer to a field.
    pub(super) fn malformed(&self) -> Option<&String> {
        self.input.iter().chain(&self.output).find(|field| !is_pointer_to_field(field))
    }
}

/// Adds fields to a list. The list is sorted, so that the order in which fields were named changes no digest: of two fields of which
/// one is inside of the other, the outer one is redacted.
pub(super) fn add<F: Into<String>>(list: &mut Vec<String>, fields: impl IntoIterator<Item = F>) {
    list.extend(fields.into_iter().map(Into::into));
    list.sort_unstable();
    list.dedup();
}

/// A value in whose serialised form each of the fields is a [`Secret`]. A field that is absent or null stays as it is.
pub(crate) struct Redacted<'v> {
    pub(crate) value: &'v Value,
    pub(crate) fields: &'v [String],
}

impl<'v> Redacted<'v> {
    /// The value with a mark in place of each field, for people.
    pub(crate) fn shown(&self) -> Cow<'v, Value> {
        // A secret that JSON cannot carry exactly is refused before anybody is shown anything.
        self.marked().unwrap_or(Cow::Owned(Value::Null))
    }

    /// The value as it is recorded for the tenant that has this key.
    ///
    /// # Errors
    /// JSON cannot carry a field exactly.
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    pub(crate) fn keyed(&self, key: &DigestKey) -> serde_json::Result<Cow<'v, Value>> {
        key.scoped(|| self.marked())
    }

    fn marked(&self) -> serde_json::Result<Cow<'v, Value>> {
        if self.fields.is_empty() {
            return Ok(Cow::Borrowed(self.value));
        }
        let mut value = self.value.clone();
        for field in self.fields {
            if let Some(found) =
                value.pointer_mut(field).filter(|found| !found.is_null() && !is_secret(found))
            {
                *found = serde_json::to_value(Secret::new(found.take()))?;
            }
        }
        Ok(Cow::Owned(value))
    }

    /// An error without the values of the fields, which a provider may have repeated in its text.
    pub(super) fn without(&self, mut error: ToolError) -> ToolError {
        let mut values = Vec::new();
        for found in self.fields.iter().filter_map(|field| self.value.pointer(field)) {
            leaves(found, &mut values);
        }
        for value in values.iter().filter(|value| value.len() >= SHORTEST) {
            error.message = error.message.replace(value, "…");
        }
        error
    }
}

/// The texts and numbers inside of a value.
fn leaves(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, texts)),
        Value::Object(fields) => fields.values().for_each(|item| leaves(item, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

impl Serialize for Redacted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.marked().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ledger::ErrorKind;
    use crate::payload::{DigestKey, Payload};

    fn fields(fields: &[&str]) -> Vec<String> {
        let mut list = Vec::new();
        add(&mut list, fields.iter().copied());
        list
    }

    #[test]
    fn a_redacted_field_is_a_keyed_digest_and_the_rest_is_as_it_was() {
        let key = DigestKey::new([7; 32]);
        let digest = |value: &Value, list: &[&str]| {
            let fields = fields(list);
            key.scoped(|| Payload::of(&Redacted { value, fields: &fields })).unwrap().value().unwrap()
        };
        let input = json!({ "card": { "number": "4111", "holder": "Ann" }, "cents": 1200, "note": null });
        let one = digest(&input, &["/card/number", "/note", "/absent/field"]);
        assert_eq!(one["card"]["holder"], "Ann");
        assert_eq!((&one["cents"], &one["note"]), (&json!(1200), &Value::Null));
        assert!(is_secret(&one["card"]["number"]), "{one}");
        assert_eq!(digest(&one, &["/card/number"]), one, "a digest stays what it is");
        let other = json!({ "card": { "number": "4112", "holder": "Ann" }, "cents": 1200, "note": null });
        assert_ne!(digest(&other, &["/card/number"]), one);
        assert_eq!(digest(&input, &["/card/number", "/card"]), digest(&input, &["/card", "/card/number"]));
    }

    #[test]
    fn the_text_of_an_error_repeats_no_redacted_value() {
        let (value, fields) = (json!({ "card": ["4111 1111", 98765, "x"] }), fields(&["/card"]));
        let error = ToolError::new(ErrorKind::Validation, "card 4111 1111 (98765) declined: fix it");
        let told = Redacted { value: &value, fields: &fields }.without(error);
        assert_eq!(told.message, "card … (…) declined: fix it");
    }
}
