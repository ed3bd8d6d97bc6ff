//! The form of an encrypted text. Canonical JSON begins with no `~`, so a payload shows by itself that it is encrypted.

use super::{PayloadDigest, hex, unhex};

/// An encrypted text: `~`, the id of its key, `:`, base64. A large payload begins with `~@` and its address, because the
/// digest of its text is not its address. A text that was read and could not be decrypted ends with `#` and a seal, which
/// tells it from a text of a caller that looks like an encrypted one.
pub(crate) struct Encrypted<'t> {
    /// The address of a large payload.
    pub(crate) address: Option<PayloadDigest>,
    /// The id of the key.
    pub(crate) key: &'t str,
    /// The nonce, the ciphertext and its tag, as base64.
    pub(crate) bytes: &'t str,
    /// The seal of the process that could not decrypt the text.
    pub(crate) seal: Option<&'t str>,
}

/// The same as [`Encrypted::keys_in`], as a regular expression of PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const NAMES_KEY: &str = "~([A-Za-z0-9_.-]{1,32}):(?![0-9a-f]{54})[A-Za-z0-9+/]{54}";

/// The minimum length of the base64 of an encrypted text: of its nonce and its tag.
#[cfg(feature = "sqlite")]
const LEAST: usize = 54;

impl<'t> Encrypted<'t> {
    /// The maximum length of the id of a key, in bytes.
    #[cfg(any(feature = "encryption", feature = "sqlite"))]
    pub(crate) const MAX_KEY_ID_BYTES: usize = 32;

    /// True if an encrypted text can name a key by this id.
    #[cfg(any(feature = "encryption", feature = "sqlite"))]
    pub(crate) fn is_key_id(id: &str) -> bool {
        (1..=Self::MAX_KEY_ID_BYTES).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    }

    /// The ids of the keys that encrypted texts name anywhere in a text, such as the values in an answer's JSON. Long keys
    /// of operations look alike (`~long:` and a digest in hexadecimal) and are left out.
    #[cfg(feature = "sqlite")]
    pub(crate) fn keys_in(text: &'t str) -> impl Iterator<Item = &'t str> {
        // The address of a large payload lies before the `~` of its key.
        text.split('~').skip(1).filter_map(|rest| {
            let (key, bytes) = rest.split_once(':')?;
            let begin = bytes.as_bytes().get(..LEAST)?;
            let is_base64 = begin.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte));
            let is_digest = begin.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
            (Self::is_key_id(key) && is_base64 && !is_digest).then_some(key)
        })
    }

    /// Reads the form; `None` if the text is not encrypted.
    pub(crate) fn of(text: &'t str) -> Option<Self> {
        let text = text.strip_prefix('~')?;
        let (address, text) = match text.strip_prefix('@') {
            None => (None, text),
            Some(text) => {
                let (address, text) = text.split_once('~')?;
                (Some(PayloadDigest(unhex(address)?)), text)
            }
        };
        let (key, bytes) = text.split_once(':')?;
        let (bytes, seal) = bytes.split_once('#').map_or((bytes, None), |(bytes, seal)| (bytes, Some(seal)));
        Some(Self { address, key, bytes, seal })
    }

    pub(crate) fn text(&self) -> String {
        let address = self.address.map(|PayloadDigest(digest)| format!("@{}~", hex(&digest)));
        let (mark, seal) = self.seal.map_or(("", ""), |seal| ("#", seal));
        ["~", address.as_deref().unwrap_or_default(), self.key, ":", self.bytes, mark, seal].concat()
    }
}
