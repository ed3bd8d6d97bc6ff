//! The digest of a content.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::Digest as _;

use crate::payload::{hex, unhex};

/// The SHA-256 digest of a content. Shown in hexadecimal.
///
/// ```
/// use counterfoil::tool::lookup::Sha256;
/// let digest = Sha256::of(b"abc");
/// assert!(digest.to_string().starts_with("ba7816bf"));
/// assert_eq!(Sha256::from_hex(&digest.to_string()), Some(digest));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// The digest of this content.
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        Self(sha2::Sha256::digest(content).into())
    }

    /// Parses 64 hexadecimal digits, in lower or upper case.
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(&text.to_ascii_lowercase()).map(Self)
    }

    /// Parses standard base64, as object stores write it.
    pub fn from_base64(text: &str) -> Option<Self> {
        BASE64_STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// The digest in standard base64.
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(self.0)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}
