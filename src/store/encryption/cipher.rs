//! The encryption of texts, and the permutation of digests, under one key. No I/O and no chance: the same text at the
//! same place is encrypted to the same bytes, because a store recognises a repeated write by its bytes.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt as _, BlockCipherEncrypt as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use blake2::Blake2bMac;
use blake2::digest::consts::{U24, U32};
use blake2::digest::{Mac as _, Update as _};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload as Message};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::key::EncryptionKey;
use crate::id::Tenant;

/// The length of a nonce, in bytes.
const NONCE: usize = 24;

/// The cipher of texts under one key: XChaCha20-Poly1305, with a nonce that is derived from the text.
///
/// A nonce of chance would make a repeated write look like another one. As in RFC 5297 (SIV), the nonce is a keyed
/// digest of the text and of its place, so one nonce never serves two texts. It shows that two texts at one place are
/// equal, and nothing else. The digest is `BLAKE2b` (RFC 7693), which is several times faster than SHA-256 on processors
/// without instructions for that.
pub(super) struct TextCipher {
    pub(super) id: Box<str>,
    cipher: XChaCha20Poly1305,
    nonces: Blake2bMac<U24>,
}

impl TextCipher {
    pub(super) fn of(key: &EncryptionKey) -> Self {
        Self {
            id: key.id.clone(),
            cipher: XChaCha20Poly1305::new(&key.derived("text").into()),
            nonces: Blake2bMac::new(&padded(key.derived("nonce")).into()),
        }
    }

    /// Encrypts a text that belongs to `place`, and to no other place.
    pub(super) fn encrypt(&self, place: &[u8], text: &str) -> String {
        let nonce = self.nonces.clone().chain(place.len().to_be_bytes()).chain(place).chain(text);
        let nonce: XNonce = nonce.finalize().into_bytes();
        let message = Message { msg: text.as_bytes(), aad: place };
        #[allow(
            clippy::expect_used,
            reason = "RFC 8439 limits a message to 256 GiB, and payloads are limited to less"
        )]
        let encrypted = self.cipher.encrypt(&nonce, message).expect("no text is that long");
        BASE64.encode([&nonce[..], &encrypted].concat())
    }

    /// Decrypts a text; `None` if it was not encrypted under this key for this place.
    pub(super) fn decrypt(&self, place: &[u8], encrypted: &str) -> Option<String> {
        let bytes = BASE64.decode(encrypted).ok()?;
        let (nonce, msg) = bytes.split_first_chunk::<NONCE>()?;
        let text = self.cipher.decrypt(&(*nonce).into(), Message { msg, aad: place }).ok()?;
        String::from_utf8(text).ok()
    }
}

/// The permutation of digests under one key: AES-256 of both halves, masked by the tenant (XEX). A digest of a guessed
/// text cannot be compared with a permuted one without the key, and the engine gets back the digest that it gave.
/// Digests are random bytes, so equal halves do not occur.
pub(super) struct DigestCipher {
    cipher: Aes256,
    masks: Blake2bMac<U32>,
}

impl DigestCipher {
    pub(super) fn of(key: &EncryptionKey) -> Self {
        Self {
            cipher: Aes256::new(&key.derived("digest").into()),
            masks: Blake2bMac::new(&padded(key.derived("mask")).into()),
        }
    }

    pub(super) fn encrypt(&self, tenant: &Tenant, digest: [u8; 32]) -> [u8; 32] {
        self.masked(tenant, digest, |block| self.cipher.encrypt_block(block))
    }

    pub(super) fn decrypt(&self, tenant: &Tenant, digest: [u8; 32]) -> [u8; 32] {
        self.masked(tenant, digest, |block| self.cipher.decrypt_block(block))
    }

    fn masked(
        &self,
        tenant: &Tenant,
        digest: [u8; 32],
        permute: impl Fn(&mut Array<u8, aes::cipher::consts::U16>),
    ) -> [u8; 32] {
        let mask = self.masks.clone().chain(tenant.as_str()).finalize().into_bytes().into();
        let mut turned = xor(digest, mask);
        for half in turned.as_chunks_mut::<16>().0 {
            let mut block = Array::from(*half);
            permute(&mut block);
            *half = block.into();
        }
        xor(turned, mask)
    }
}

/// A key in the length that `BLAKE2b` takes.
fn padded(key: [u8; 32]) -> [u8; 64] {
    std::array::from_fn(|at| key.get(at).copied().unwrap_or_default())
}

fn xor(one: [u8; 32], other: [u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| one[at] ^ other[at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> EncryptionKey {
        EncryptionKey::new("k", [byte; 32]).unwrap()
    }

    proptest! {
        #[test]
        fn a_text_comes_back_at_its_own_place_only(text in ".*", place: Vec<u8>, other: Vec<u8>) {
            let cipher = TextCipher::of(&key(1));
            let encrypted = cipher.encrypt(&place, &text);
            prop_assert_eq!(cipher.decrypt(&place, &encrypted), Some(text.clone()));
            prop_assert_eq!(cipher.encrypt(&place, &text), encrypted.clone());
            if other != place {
                prop_assert_eq!(cipher.decrypt(&other, &encrypted), None);
                prop_assert_ne!(cipher.encrypt(&other, &text), encrypted.clone());
            }
            prop_assert_eq!(TextCipher::of(&key(2)).decrypt(&place, &encrypted), None);
        }

        #[test]
        fn a_changed_text_is_refused(text in ".+", at: prop::sample::Index, bit in 0_u8..8) {
            let cipher = TextCipher::of(&key(1));
            let mut bytes = BASE64.decode(cipher.encrypt(b"place", &text)).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(cipher.decrypt(b"place", &BASE64.encode(bytes)), None);
        }

        #[test]
        fn a_digest_comes_back_for_its_tenant_only(digest: [u8; 32]) {
            let cipher = DigestCipher::of(&key(1));
            let (ann, bob) = (Tenant::new("ann").unwrap(), Tenant::new("bob").unwrap());
            let turned = cipher.encrypt(&ann, digest);
            prop_assert_eq!(cipher.decrypt(&ann, turned), digest);
            prop_assert_ne!(turned, digest);
            prop_assert_ne!(cipher.encrypt(&bob, digest), turned);
            prop_assert_ne!(DigestCipher::of(&key(2)).encrypt(&ann, digest), turned);
        }
    }

    #[test]
    fn texts_that_are_not_encrypted_are_refused() {
        for text in ["", "AAAA", "not base64!", &"A".repeat(200)] {
            assert_eq!(TextCipher::of(&key(1)).decrypt(b"place", text), None);
        }
    }
}
