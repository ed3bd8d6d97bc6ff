//! The request hash: what a key is bound to (KEY-5).

use sha2::{Digest, Sha256};

use crate::payload::{Payload, hex};

/// SHA-256 over the canonical request, with the version of the scheme and a domain, so that a hash of one
/// operation type never equals a hash of another and an old record is always checked by its own scheme.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHash {
    /// The scheme: 1 is `SHA-256("counterfoil/request/1\0" operation "\0" canonical JSON)`.
    pub version: u8,
    /// The digest.
    pub digest: [u8; 32],
}

impl RequestHash {
    /// The scheme that new records use.
    pub const VERSION: u8 = 1;

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
        let digest = Sha256::new_with_prefix(b"counterfoil/request/1\0")
            .chain_update(operation)
            .chain_update([0])
            .chain_update(request.as_str())
            .finalize();
        Self { version: Self::VERSION, digest: digest.into() }
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

impl std::fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}:{}", self.version, hex(&self.digest))
    }
}
