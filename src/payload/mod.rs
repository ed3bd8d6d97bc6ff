//! Payloads: JSON in the one canonical spelling of RFC 8785, checked before it is hashed or stored.
//!
//! A value that JSON cannot carry exactly is refused, never rounded: RFC 8785 turns every number into a double, so
//! 9007199254740993 and …992 would get one hash, and two different requests would pass for one.

mod encrypted;
mod exact;
mod parse;
mod secret;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) use encrypted::Encrypted;
#[cfg(feature = "postgres")]
pub(crate) use encrypted::NAMES_KEY;
pub use secret::Secret;
pub(crate) use secret::{is_secret, noticing};

unstable_core! {
    pub use parse::parse;
    pub use secret::DigestKey;
}

/// True if JSON carries the value exactly and the value nests no deeper than `serde_json` reads back.
#[cfg(feature = "http")]
pub(crate) fn is_exact<T: Serialize + ?Sized>(value: &T) -> bool {
    exact::check(value).is_ok()
}

/// The deepest nesting that is accepted: the deepest that `serde_json` reads back.
pub const MAX_DEPTH: usize = 127;
/// The largest integer that a double carries exactly: 2^53 - 1.
pub const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// The size limits of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload that is stored in its row, in bytes. A larger one goes into the payload table, by digest.
    /// Default: 16 KiB.
    pub inline_bytes: usize,
    /// The largest payload that is accepted, in bytes. A larger one is refused. Default: 4 MiB.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { inline_bytes: 16 * 1024, max_bytes: 4 * 1024 * 1024 }
    }
}

/// A JSON document in canonical form. Documents with the same meaning have the same bytes.
///
/// ```
/// use counterfoil::Payload;
/// use serde_json::json;
/// let a = Payload::of(&json!({"b": 1.0, "a": [true, null]}))?;
/// assert_eq!(a.as_str(), r#"{"a":[true,null],"b":1}"#);
/// let error = Payload::of(&json!({"order": {"id": 9007199254740993_u64}})).unwrap_err();
/// assert!(error.to_string().contains("$.order.id"));
/// # Ok::<(), counterfoil::PayloadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

impl Payload {
    /// The canonical form of a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        exact::check(value)?;
        let text = serde_json_canonicalizer::to_string(&value)
            .map_err(|e| PayloadError::NotJson { reason: e.to_string() })?;
        Ok(Self(text.into()))
    }

    /// Reads JSON text that came from outside, refusing duplicate keys, and brings it into canonical form.
    pub fn parse(text: &str) -> Result<Self, PayloadError> {
        Self::of(&parse(text)?)
    }

    /// A payload from text that was canonical when it was stored.
    pub(crate) fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The canonical text, as a shared string.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the payload as a Rust value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        serde_json::from_str(&self.0).map_err(|e| match Encrypted::of(&self.0) {
            Some(Encrypted { key, .. }) => PayloadError::Encrypted { key: key.to_owned() },
            None => PayloadError::Mismatch { expected: std::any::type_name::<T>(), reason: e.to_string() },
        })
    }

    /// The payload as a JSON value.
    pub fn value(&self) -> Result<Value, PayloadError> {
        self.decode()
    }

    /// True if the payload holds a secret, as its digest.
    pub(crate) fn holds_secret(&self) -> bool {
        fn within(value: &Value) -> bool {
            is_secret(value)
                || match value {
                    Value::Array(items) => items.iter().any(within),
                    Value::Object(fields) => fields.values().any(within),
                    _ => false,
                }
        }
        // Most payloads lack the mark and need not be parsed.
        self.0.contains(secret::MARK) && self.value().is_ok_and(|value| within(&value))
    }

    /// Refuses a payload that is too large to be stored.
    pub fn within(self, limits: &Limits) -> Result<Self, PayloadError> {
        if self.0.len() > limits.max_bytes {
            return Err(PayloadError::TooLarge { bytes: self.0.len(), max: limits.max_bytes });
        }
        Ok(self)
    }

    /// The SHA-256 of the canonical bytes: the address in the payload table. An encrypted payload names its address.
    pub fn digest(&self) -> PayloadDigest {
        let named = Encrypted::of(&self.0).and_then(|encrypted| encrypted.address);
        named.unwrap_or_else(|| PayloadDigest(Sha256::digest(self.0.as_bytes()).into()))
    }
}

/// The address of a large payload: its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadDigest(pub [u8; 32]);

/// A payload as a row holds it: in place, by its address in the payload table, or only by its digest and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The payload is in the row.
    Inline(Payload),
    /// The payload is in the payload table and is read only on demand.
    At(PayloadDigest),
    /// The payload is stored nowhere: a response over the limit, of which only the digest and the size are kept.
    Oversized(Oversized),
}

/// The digest and the size of a response over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// The SHA-256 of the canonical bytes of the response.
    pub digest: PayloadDigest,
    /// The size of the response, in bytes.
    pub bytes: usize,
}

/// A response, or the digest and size of one over the limit.
pub(crate) type Response = Result<Payload, Oversized>;

impl Payload {
    /// A response that has arrived. Its effect has happened, so a response over the limit is not an error.
    pub(crate) fn response(self, limits: &Limits) -> Response {
        if self.0.len() <= limits.max_bytes {
            return Ok(self);
        }
        Err(Oversized { digest: self.digest(), bytes: self.0.len() })
    }
}

/// As JSON: `{"value": …}` for a payload in its row, `{"digest": "…"}` for one in the payload table, and with `bytes` for one that is
/// not kept.
impl Serialize for Stored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Inline(payload) => {
                map.serialize_entry("value", &payload.value().map_err(serde::ser::Error::custom)?)?;
            }
            Self::At(digest) => {
                map.serialize_entry("digest", &hex(&digest.0))?;
            }
            Self::Oversized(Oversized { digest, bytes }) => {
                map.serialize_entry("digest", &hex(&digest.0))?;
                map.serialize_entry("bytes", bytes)?;
            }
        }
        map.end()
    }
}

impl Stored {
    /// The payload, if it is in the row.
    pub(crate) const fn inline(&self) -> Option<&Payload> {
        match self {
            Self::Inline(payload) => Some(payload),
            Self::At(_) | Self::Oversized(_) => None,
        }
    }

    /// The address of the payload, if it is in the payload table.
    pub(crate) const fn address(&self) -> Option<PayloadDigest> {
        match self {
            Self::Inline(_) | Self::Oversized(_) => None,
            Self::At(digest) => Some(*digest),
        }
    }

    /// The text of the column. Canonical JSON never begins with `@`, so the forms cannot be confused. An engine that
    /// does not know the form with the size treats the row as damaged, and neither returns the payload nor repeats
    /// its effect.
    pub(crate) fn column(&self) -> Arc<str> {
        match self {
            Self::Inline(payload) => payload.0.clone(),
            Self::At(PayloadDigest(digest)) => format!("@{}", hex(digest)).into(),
            Self::Oversized(Oversized { digest: PayloadDigest(digest), bytes }) => {
                format!("@{} {bytes}", hex(digest)).into()
            }
        }
    }

    /// Reads the column back; `None` if the text has none of these forms.
    pub(crate) fn from_column(text: &str) -> Option<Self> {
        let Some(address) = text.strip_prefix('@') else { return Some(Self::Inline(Payload::stored(text))) };
        let digest = |text| Some(PayloadDigest(unhex(text)?));
        Some(match address.split_once(' ') {
            None => Self::At(digest(address)?),
            Some((address, bytes)) => {
                Self::Oversized(Oversized { digest: digest(address)?, bytes: bytes.parse().ok()? })
            }
        })
    }
}

/// Lower-case hexadecimal digits, from a table: each call spells its keys and digests, and `write!` took as long as
/// hashing them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Reads the hexadecimal form of a digest back; `None` if the text is not one.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// The reason why a payload was refused. Nothing was stored and nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The value has no JSON form (NaN, infinity, a map whose keys are not text), or the text is not JSON.
    #[error("this cannot be written or read as JSON: {reason} [payload]")]
    NotJson {
        /// The message of the serializer or parser.
        reason: String,
    },
    /// An integer is beyond 2^53 - 1: it would be rounded, and two different requests would hash alike.
    #[error(
        "the integer {number} at {path} is beyond 2^53 - 1 and would be rounded: send it as a string [payload]"
    )]
    InexactInteger {
        /// The JSON path of the number.
        path: String,
        /// The number, as it was given.
        number: String,
    },
    /// A JSON object names a field twice; the reader decides which one counts.
    #[error("the field {field:?} stands twice in one object: remove one [payload]")]
    DuplicateField {
        /// The name of the field.
        field: String,
    },
    /// The JSON nests deeper than [`MAX_DEPTH`].
    #[error("the JSON nests deeper than {max} levels: flatten it [payload]")]
    TooDeep {
        /// The maximum depth, in levels.
        max: usize,
    },
    /// The payload is larger than [`Limits::max_bytes`].
    #[error(
        "the payload has {bytes} bytes, {max} at most: store it elsewhere and pass a reference [payload]"
    )]
    TooLarge {
        /// The size of the payload, in bytes.
        bytes: usize,
        /// The maximum size, in bytes.
        max: usize,
    },
    /// Stored JSON does not fit the present Rust type.
    #[error("the stored JSON does not fit {expected}: {reason} [mismatch]")]
    Mismatch {
        /// The name of the Rust type.
        expected: &'static str,
        /// The message of the parser.
        reason: String,
    },
    /// The payload is encrypted.
    #[error(
        "the payload is encrypted under the key {key}, which this process does not have: give it the key [encryption]"
    )]
    Encrypted {
        /// The id of the key.
        key: String,
    },
}
