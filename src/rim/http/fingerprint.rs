//! The fingerprint that a key is bound to: method, path, query, chosen headers and the body of its first request.

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::payload::{Secret, hex, is_exact, parse};

/// The parts of a request that are compared, and the exclusions.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    /// The names of headers, in lower case.
    pub(super) headers: Vec<String>,
    /// The names of query parameters; the whole query if absent.
    pub(super) query: Option<Vec<String>>,
    /// JSON pointers (RFC 6901) into the body: fields that may differ between tries.
    pub(super) excluded: Vec<String>,
    /// JSON pointers into the body: fields of which the ledger keeps keyed digests.
    pub(super) secret: Vec<String>,
    /// True if the body is not compared.
    pub(super) ignores_body: bool,
}

/// A request as it is recorded and compared.
#[derive(Serialize)]
pub(super) struct Fingerprint {
    method: String,
    path: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    query: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, Vec<String>>,
    body: Body,
    /// Part of the comparison: a request that was bound without a field is no retry of one with the field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excluded: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    None,
    /// JSON, compared by value.
    Json(Redacted),
    /// The SHA-256 digest of any other body, and its length in bytes.
    #[serde(untagged)]
    Bytes {
        sha256: String,
        bytes: usize,
    },
}

impl Fingerprint {
    /// The fingerprint of a request. A body of a JSON content type is compared by value, if it has one value: a body
    /// that is malformed, repeats a member, nests too deep or contains a number that JSON cannot carry exactly is
    /// compared byte for byte.
    pub(super) fn of(parts: &Parts, body: &[u8], bound: &Bound) -> Self {
        Self {
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            query: query(parts.uri.query().unwrap_or_default(), bound.query.as_deref()),
            headers: headers(parts, &bound.headers),
            body: body_of(parts, body, bound),
            // The empty pointer is that of the whole body.
            excluded: if bound.ignores_body { vec![String::new()] } else { bound.excluded.clone() },
        }
    }
}

fn query(text: &str, chosen: Option<&[String]>) -> BTreeMap<String, Vec<String>> {
    let mut query = BTreeMap::<_, Vec<_>>::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if chosen.is_none_or(|chosen| chosen.iter().any(|one| one == name)) {
            query.entry(name.to_owned()).or_default().push(value.to_owned());
        }
    }
    query
}

fn headers(parts: &Parts, chosen: &[String]) -> BTreeMap<String, Vec<String>> {
    let values = |name: &String| {
        let values = parts.headers.get_all(name.as_str()).iter();
        // A value that is not text is compared by its bytes.
        values.map(|value| value.to_str().map_or_else(|_| hex(value.as_bytes()), str::to_owned)).collect()
    };
    chosen
        .iter()
        .map(|name| (name.clone(), values(name)))
        .filter(|(_, values): &(_, Vec<_>)| !values.is_empty())
        .collect()
}

fn body_of(parts: &Parts, body: &[u8], bound: &Bound) -> Body {
    if body.is_empty() || bound.ignores_body {
        return Body::None;
    }
    let bytes = || Body::Bytes { sha256: hex(&Sha256::digest(body)), bytes: body.len() };
    if !says_json(parts) {
        return bytes();
    }
    let Some(mut value) = exact(body) else { return bytes() };
    for pointer in &bound.excluded {
        remove(&mut value, pointer);
    }
    let secret: Vec<_> =
        bound.secret.iter().filter(|pointer| value.pointer(pointer).is_some()).cloned().collect();
    Body::Json(Redacted { value, secret })
}

/// True if the content type is JSON: `application/json`, or a type with the suffix `+json` (RFC 6839).
fn says_json(parts: &Parts) -> bool {
    let Some(value) = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// The body's value, if JSON carries it exactly at its position in the fingerprint, which is two levels deep.
fn exact(body: &[u8]) -> Option<Value> {
    let value = parse(std::str::from_utf8(body).ok()?).ok()?;
    is_exact(&[[&value]]).then_some(value)
}

fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&last)),
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                *item = Value::Null; // a removal would shift the other items
            }
        }
        _ => {}
    }
}

/// JSON whose secret fields are serialized as digests by the tenant's key.
struct Redacted {
    value: Value,
    secret: Vec<String>,
}

impl Serialize for Redacted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.secret.is_empty() {
            return self.value.serialize(serializer);
        }
        let mut value = self.value.clone();
        for pointer in &self.secret {
            if let Some(field) = value.pointer_mut(pointer) {
                let digest =
                    serde_json::to_value(Secret::new(field.take())).map_err(serde::ser::Error::custom)?;
                *field = digest;
            }
        }
        value.serialize(serializer)
    }
}
