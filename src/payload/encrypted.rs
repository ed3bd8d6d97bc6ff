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

impl<'t> Encrypted<'t> {
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
