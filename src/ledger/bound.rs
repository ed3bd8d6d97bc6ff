//! The fields of a tool's input that its key is bound to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payload::{Payload, PayloadError};

/// The fields of a tool's input that its key is bound to. Two requests under one key are the same if these fields are
/// equal. A request that differs only in another field is answered from the first one's record and is no conflict.
///
/// Fields are named by JSON pointers ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) into the recorded input.
/// The rule is part of the declaration that a record names. Raise its version when the fields or their meaning
/// change.
///
/// ```
/// use counterfoil::Payload;
/// use counterfoil::ledger::{BoundFields, RequestHash};
/// use serde_json::json;
///
/// let bound = BoundFields::only(1, ["/to", "/cents"]);
/// let first = Payload::of(&json!({"to": "ann", "cents": 100, "note": "rent"}))?;
/// let again = Payload::of(&json!({"to": "ann", "cents": 100, "note": "the rent"}))?;
/// assert_eq!(RequestHash::bound("pay", &first, &bound)?, RequestHash::bound("pay", &again, &bound)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundFields {
    /// All fields of the input.
    #[default]
    All,
    /// The named fields, by a version of the rule.
    Only {
        /// The version of the rule.
        version: u32,
        /// The JSON pointers of the fields.
        fields: Vec<String>,
    },
}

impl BoundFields {
    /// Binds the key to these fields, by this version of the rule.
    pub fn only(version: u32, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Only { version, fields: fields.into_iter().map(Into::into).collect() }
    }

    /// True if the rule binds all fields, as nearly always.
    pub(crate) const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Checks the rule, as far as possible without an input.
    ///
    /// # Errors
    /// The rule names no field, the whole input, one field twice, or text that is no JSON pointer.
    pub fn check(&self) -> Result<(), BoundFieldsError> {
        let Self::Only { fields, .. } = self else { return Ok(()) };
        if fields.is_empty() {
            return Err(BoundFieldsError::None);
        }
        for (place, field) in fields.iter().enumerate() {
            if !is_pointer_to_field(field) {
                return Err(BoundFieldsError::NoPointer { field: field.clone() });
            }
            if fields[..place].contains(field) {
                return Err(BoundFieldsError::Twice { field: field.clone() });
            }
        }
        Ok(())
    }

    /// The bound part of a request, in canonical form: an object with a value for each pointer.
    pub(super) fn of(&self, request: &Payload) -> Result<Option<Payload>, UnboundField> {
        let Self::Only { fields, .. } = self else { return Ok(None) };
        let missing = |field: &str| UnboundField { field: field.to_owned() };
        let unreadable = |_: PayloadError| missing(fields.first().map_or("", String::as_str));
        let request = request.value().map_err(unreadable)?;
        let mut bound: BTreeMap<&str, &Value> = BTreeMap::new();
        for field in fields {
            bound.insert(field, request.pointer(field).ok_or_else(|| missing(field))?);
        }
        Payload::of(&bound).map(Some).map_err(unreadable)
    }
}

/// True if the text is a JSON pointer (RFC 6901) to a part of a value, and not to the whole of it.
pub(crate) fn is_pointer_to_field(text: &str) -> bool {
    // A `~` begins an escape: `~0` or `~1`.
    text.starts_with('/') && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

/// An error: the request has no such field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the input has no field {field}")]
pub struct UnboundField {
    /// The JSON pointer of the missing field.
    pub field: String,
}

/// The reason why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundFieldsError {
    /// The rule names no field.
    #[error(
        "it names no field, so that all requests under one key would be the same: name those that matter, or use `BoundFields::All`"
    )]
    None,
    /// The rule names text that is no JSON pointer to a field.
    #[error("{field:?} is no JSON pointer to a field: write `/amount`, or `/order/lines/0`")]
    NoPointer {
        /// The text that the rule names.
        field: String,
    },
    /// The rule names a field twice.
    #[error("it names {field:?} twice: name it once")]
    Twice {
        /// The JSON pointer of the field.
        field: String,
    },
}
