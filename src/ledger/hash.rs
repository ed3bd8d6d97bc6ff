//! The request hash: a digest of the input that a key is bound to.

use sha2::{Digest, Sha256};

use super::bound::{BoundFields, UnboundField};
use crate::payload::{Payload, hex};

/// The SHA-256 of the canonical request, with a version of the scheme and a domain: a hash of one operation type
/// never equals a hash of another one, and an old record is always checked by its own scheme.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHash {
    /// The number of the scheme: 1 is `SHA-256("counterfoil/request/1\0" operation "\0" canonical JSON)` of the whole
    /// request, 2 is `SHA-256("counterfoil/request/2\0" operation "\0" canonical JSON)` of an object that holds the
    /// bound fields by their pointers.
    pub version: u8,
    /// The digest of the request.
    pub digest: [u8; 32],
}

impl RequestHash {
    /// The scheme of a key that is bound to the whole request.
    pub const VERSION: u8 = 1;
    /// The scheme of a key that is bound to some fields only.
    const BOUND: u8 = 2;

    /// Hashes a request of an operation type.
    ///
    /// ```
    /// use counterfoil::{Payload, ledger::RequestHash};
    /// use serde_json::json;
    /// let a = RequestHash::of("pay", &Payload::of(&json!({"to": "ann", "cents": 100}))?);
    /// let b = RequestHash::of("pay", &Payload::of(&json!({"cents": 100.0, "to": "ann"}))?);
    /// assert_eq!(a, b);
    /// assert_ne!(a, RequestHash::of("refund", &Payload::of(&json!({"to": "ann", "cents": 100}))?));
    /// # Ok::<(), counterfoil::PayloadError>(())
    /// ```
    pub fn of(operation: &str, request: &Payload) -> Self {
        Self { version: Self::VERSION, digest: digest(b"counterfoil/request/1\0", operation, request) }
    }

    /// Hashes the bound part of a request.
    ///
    /// # Errors
    /// [`UnboundField`] if the request lacks a bound field.
    pub fn bound(operation: &str, request: &Payload, fields: &BoundFields) -> Result<Self, UnboundField> {
        Ok(match fields.of(request)? {
            None => Self::of(operation, request),
            Some(bound) => {
                let digest = digest(b"counterfoil/request/2\0", operation, &bound);
                Self { version: Self::BOUND, digest }
            }
        })
    }

    /// The bytes of the column: version, then digest.
    pub(crate) fn column(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(33);
        bytes.push(self.version);
        bytes.extend_from_slice(&self.digest);
        bytes
    }

    /// Reads the column back.
    pub(crate) fn from_column(bytes: &[u8]) -> Option<Self> {
        let (version, digest) = bytes.split_first()?;
        Some(Self { version: *version, digest: digest.try_into().ok()? })
    }
}

fn digest(domain: &[u8], operation: &str, hashed: &Payload) -> [u8; 32] {
    Sha256::new_with_prefix(domain)
        .chain_update(operation)
        .chain_update([0])
        .chain_update(hashed.as_str())
        .finalize()
        .into()
}

impl std::fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}:{}", self.version, hex(&self.digest))
    }
}
