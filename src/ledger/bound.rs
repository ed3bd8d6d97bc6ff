//! Which fields of a tool's input its key is bound to (KEY-5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payload::{Payload, PayloadError};

/// Which fields of a tool's input its key is bound to: two requests under one key are the same if these are equal. A request that
/// differs in another field is answered from the first one's record, and is no conflict.
///
/// Fields are named by JSON pointers ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) into the input as it is recorded. The rule is part of the declaration
/// that a record names. Raise its version when the fields change, or what they mean.
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
    /// All of them.
    #[default]
    All,
    /// These, by this version of the rule.
    Only {
        /// The version of the rule.
        version: u32,
        /// JSON pointers.
        fields: Vec<String>,
    },
}

impl BoundFields {
    /// These fields, by this version of the rule.
    pub fn only(version: u32, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Only { version, fields: fields.into_iter().map(Into::into).collect() }
    }

    /// All fields, as nearly always.
    pub(crate) const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Checks the rule, as far as that can be done without an input.
    ///
    /// # Errors
    /// It names no field, the whole input, one field twice, or what is no JSON pointer.
    pub fn check(&self) -> Result<(), BoundFieldsError> {
        let Self::Only { fields, .. } = self else { return Ok(()) };
        if fields.is_empty() {
            return Err(BoundFieldsError::None);
        }
        for (place, field) in fields.iter().enumerate() {
            // `~` begins an escape, and there are two of them.
            let is_escaped = field.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            if !field.starts_with('/') || !is_escaped {
                return Err(BoundFieldsError::NoPointer { field: field.clone() });
            }
            if fields[..place].contains(field) {
                return Err(BoundFieldsError::Twice { field: field.clone() });
            }
        }
        Ok(())
    }

    /// The part of a request that is bound, in canonical form: an object with a value for each pointer.
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

/// The request has no such field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the input has no field {field}")]
pub struct UnboundField {
    /// The pointer.
    pub field: String,
}

/// Why a rule cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundFieldsError {
    /// It names no field.
    #[error(
        "it names no field, so that all requests under one key would be the same: name those that matter, or use `BoundFields::All`"
    )]
    None,
    /// It names what is no JSON pointer to a field.
    #[error("{field:?} is no JSON pointer to a field: write `/amount`, or `/order/lines/0`")]
    NoPointer {
        /// What it names.
        field: String,
    },
    /// It names a field twice.
    #[error("it names {field:?} twice: name it once")]
    Twice {
        /// The pointer.
        field: String,
    },
}
