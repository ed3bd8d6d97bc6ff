//! The difference between two requests under one key, with secrets redacted.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payload::{Payload, PayloadError, Secret};

/// A JSON Patch (RFC 6902) from the first request to the other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Diff(pub Value);

impl Diff {
    /// The number of differences.
    pub fn changes(&self) -> u32 {
        self.0.as_array().map_or(0, |changes| u32::try_from(changes.len()).unwrap_or(u32::MAX))
    }
}

/// The maximum number of characters shown of a difference: it is part of a sentence that a person reads.
const SHOWN: usize = 2_000;

impl std::fmt::Display for Diff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.0.to_string();
        match all.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}… ({} bytes in all)", &all[..end], all.len()),
            None => f.write_str(&all),
        }
    }
}

/// Compares two requests. A secret that differs is shown as different, without its digest.
///
/// ```
/// use counterfoil::{Payload, ledger::diff};
/// use serde_json::json;
/// let first = Payload::of(&json!({"to": "ann", "cents": 100}))?;
/// let other = Payload::of(&json!({"to": "ann", "cents": 900}))?;
/// assert_eq!(diff(&first, &other)?.0, json!([{"op": "replace", "path": "/cents", "value": 900}]));
/// # Ok::<(), counterfoil::PayloadError>(())
/// ```
pub fn diff(first: &Payload, other: &Payload) -> Result<Diff, PayloadError> {
    let patch = json_patch::diff(&first.value()?, &other.value()?);
    let mut patch =
        serde_json::to_value(patch).map_err(|e| PayloadError::NotJson { reason: e.to_string() })?;
    for operation in patch.as_array_mut().into_iter().flatten() {
        let inside_secret = operation["path"].as_str().is_some_and(|path| path.ends_with("/$secret"));
        if let Some(value) = operation.get_mut("value") {
            if inside_secret {
                *value = Value::from("redacted");
            }
            redact(value);
        }
    }
    Ok(Diff(patch))
}

fn redact(value: &mut Value) {
    if crate::payload::is_secret(value) {
        // A secret that is serialized outside a tenant's digest scope shows nothing.
        *value = serde_json::to_value(Secret::new(())).unwrap_or(Value::Null);
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => fields.values_mut().for_each(redact),
        _ => {}
    }
}
