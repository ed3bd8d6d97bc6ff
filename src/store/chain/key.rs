//! The secret by which links are signed.

use std::fmt;
use std::path::Path;

use hmac::Mac as _;

use super::digest::{SHORT, short};
use super::link::Link;
use crate::payload::{DigestKey, hex, unhex};

/// The secret by which the links of a [chain of evidence](crate::store::chain) are signed. All processes of a ledger have the
/// same one. Keep it where whoever can write into the database cannot read it.
///
/// ```
/// use counterfoil::Executor;
/// use counterfoil::store::chain::ChainKey;
///
/// # fn secret() -> [u8; 32] { [7; 32] }
/// let signed = Executor::sqlite("agents.db").evidence_chain(ChainKey::new(secret()));
/// // Without a secret: the chain shows damage, not intent.
/// let unsigned = Executor::sqlite("agents.db").evidence_chain(ChainKey::none());
/// ```
#[derive(Clone)]
pub struct ChainKey(Option<DigestKey>);

impl ChainKey {
    /// A secret of 32 random bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(Some(DigestKey::new(secret)))
    }

    /// No secret. The chain then shows damage, such as a lost row or a changed bit, but not intent: whoever can write into
    /// the database can write a whole chain.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Reads a secret from a file with 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`ChainKeyError`] if the file cannot be read, or holds something else.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ChainKeyError> {
        let path = path.as_ref();
        let shown = || path.display().to_string();
        let unreadable =
            |error: std::io::Error| ChainKeyError::File { path: shown(), detail: error.to_string() };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let secret = unhex::<32>(text.trim()).ok_or_else(|| ChainKeyError::Digits { path: shown() })?;
        Ok(Self::new(secret))
    }

    /// The secret at a path, or none if `none` is said.
    #[cfg(any(feature = "cli", all(feature = "mcp", feature = "sqlite")))]
    pub(crate) fn named(said: &str) -> Result<Self, ChainKeyError> {
        if said == "none" { Ok(Self::none()) } else { Self::read(said) }
    }

    /// True if the secret is not in the database.
    pub(super) const fn is_secret(&self) -> bool {
        self.0.is_some()
    }

    /// A digest by which the secret of the ledger is told from another one.
    pub(super) fn check(&self) -> Option<String> {
        self.0.as_ref().map(|secret| hex(&secret.digest(b"the secret of a chain of evidence")))
    }

    /// The signature of the mark of a chain; empty without a secret.
    pub(super) fn sign_mark(&self, said: &str) -> String {
        let signed = |secret: &DigestKey| {
            hex(&secret.digest(format!("the mark of a chain of evidence: {said}").as_bytes()))
        };
        self.0.as_ref().map(signed).unwrap_or_default()
    }

    /// The signature of a link. Without a secret, zeros take its place.
    pub(super) fn sign(&self, link: &Link) -> [u8; SHORT] {
        let Link { chain, number, tenant, at, body, signature: _ } = link;
        let mut mac = self.0.clone().unwrap_or_else(|| DigestKey::new([0; 32])).mac();
        for number in [*chain, *number, at.0] {
            mac.update(&number.to_be_bytes());
        }
        mac.update(&(tenant.as_str().len() as u64).to_be_bytes());
        mac.update(tenant.as_str().as_bytes());
        mac.update(body);
        short(mac)
    }
}

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_secret() { "ChainKey(secret)" } else { "ChainKey(none)" })
    }
}

/// The reason why the secret of a chain was refused. No message quotes a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainKeyError {
    /// The file cannot be read.
    #[error("the secret of the chain at {path} cannot be read: {detail} [configuration]")]
    File {
        /// The path of the file.
        path: String,
        /// The message of the operating system.
        detail: String,
    },
    /// The file holds something else.
    #[error(
        "{path} holds no secret of a chain: write 64 hexadecimal digits into it, such as `openssl rand -hex 32` prints \
         [configuration]"
    )]
    Digits {
        /// The path of the file.
        path: String,
    },
}
