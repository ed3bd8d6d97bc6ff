//! The encryption of texts, and the permutation of digests, under one key. No I/O and no chance: the same text at the
//! same place is encrypted to the same bytes, because a store recognises a repeated write by its bytes.

use std::sync::{Mutex, PoisonError};

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt as _, BlockCipherEncrypt as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use blake2::Blake2bMac;
use blake2::digest::consts::{U24, U32};
use blake2::digest::{KeyInit as _, Mac as _, Update as _};
use chacha20::{R20, hchacha};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

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
    key: Zeroizing<[u8; 32]>,
    /// The digest of nonces, behind the key and one byte: `BLAKE2b` has taken in the block of the key by then, once and
    /// not for each text.
    nonces: Blake2bMac<U24>,
}

impl TextCipher {
    pub(super) fn of(key: &EncryptionKey) -> Self {
        Self {
            id: key.id.clone(),
            key: Zeroizing::new(key.derived("text")),
            nonces: Blake2bMac::<U24>::new(&padded(key.derived("nonce")).into()).chain([1]),
        }
    }

    /// Encrypts a text that belongs to `place`, and to no other place.
    pub(super) fn encrypt(&self, place: &[u8], text: &str) -> String {
        let nonce = self.nonces.clone().chain(place.len().to_be_bytes()).chain(place).chain(text);
        BASE64.encode(sealed(&self.key, nonce.finalize().into_bytes().into(), place, text.as_bytes()))
    }

    /// Decrypts a text; `None` if it was not encrypted under this key for this place.
    pub(super) fn decrypt(&self, place: &[u8], encrypted: &str) -> Option<String> {
        let mut bytes = BASE64.decode(encrypted).ok()?;
        let (nonce, text) = bytes.split_first_chunk_mut::<NONCE>()?;
        let (key, nonce) = aead(&self.key, *nonce);
        let text = key.open_in_place(nonce, Aad::from(place), text).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// The nonce, the encrypted text and the tag, which proves both the text and its place.
#[allow(
    clippy::expect_used,
    reason = "RFC 8439 limits a message to 256 GiB, and payloads are limited to less"
)]
fn sealed(key: &[u8; 32], nonce: [u8; NONCE], place: &[u8], text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NONCE + text.len() + CHACHA20_POLY1305.tag_len());
    bytes.extend(nonce);
    bytes.extend(text);
    let (key, nonce) = aead(key, nonce);
    let text = &mut bytes[NONCE..];
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(place), text).expect("no text is that long");
    bytes.extend(tag.as_ref());
    bytes
}

/// XChaCha20-Poly1305 as ChaCha20-Poly1305 under a key and a nonce of its own for each text
/// (draft-irtf-cfrg-xchacha-03, section 2.3). `ring` takes a fifth of the time that the crate `chacha20poly1305` takes
/// for a short text.
#[allow(clippy::expect_used, reason = "ChaCha20 has keys of 32 bytes (RFC 8439)")]
fn aead(key: &[u8; 32], nonce: [u8; NONCE]) -> (LessSafeKey, Nonce) {
    let head: [u8; 16] = std::array::from_fn(|at| nonce[at]);
    let tail = std::array::from_fn(|at| if at < 4 { 0 } else { nonce[12 + at] });
    let own = Zeroizing::new(<[u8; 32]>::from(hchacha::<R20>(key.into(), &head.into())));
    let key = UnboundKey::new(&CHACHA20_POLY1305, own.as_slice()).expect("a key of 32 bytes");
    (LessSafeKey::new(key), Nonce::assume_unique_for_key(tail))
}

/// The permutation of digests under one key: AES-256 of both halves, masked by the tenant (XEX). A digest of a guessed
/// text cannot be compared with a permuted one without the key, and the engine gets back the digest that it gave.
/// Digests are random bytes, so equal halves do not occur.
pub(super) struct DigestCipher {
    cipher: Aes256,
    masks: Blake2bMac<U32>,
    /// The last tenant, and its mask: most digests in a row are those of one tenant.
    last: Mutex<(String, [u8; 32])>,
}

impl DigestCipher {
    pub(super) fn of(key: &EncryptionKey) -> Self {
        Self {
            cipher: Aes256::new(&key.derived("digest").into()),
            masks: Blake2bMac::new(&padded(key.derived("mask")).into()),
            last: Mutex::default(),
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
        let mask = self.mask(tenant);
        let mut turned = xor(digest, mask);
        for half in turned.as_chunks_mut::<16>().0 {
            let mut block = Array::from(*half);
            permute(&mut block);
            *half = block.into();
        }
        xor(turned, mask)
    }

    fn mask(&self, tenant: &Tenant) -> [u8; 32] {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != tenant.as_str() {
            let mask = self.masks.clone().chain(tenant.as_str()).finalize().into_bytes();
            *last = (tenant.to_string(), mask.into());
        }
        last.1
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

    // The example of draft-irtf-cfrg-xchacha-03, appendix A.3.1.
    #[test]
    fn the_cipher_is_xchacha20_poly1305() {
        let text =
            b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                     sunscreen would be it.";
        let place = hex("50515253c0c1c2c3c4c5c6c7");
        let key = std::array::from_fn(|at| 0x80 + u8::try_from(at).unwrap());
        let nonce = std::array::from_fn(|at| 0x40 + u8::try_from(at).unwrap());
        let expected = "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39\
                        ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9\
                        21f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49";
        assert_eq!(crate::payload::hex(&sealed(&key, nonce, &place, text)[NONCE..]), expected);
    }

    fn hex(digits: &str) -> Vec<u8> {
        let bytes = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    #[test]
    fn texts_that_are_not_encrypted_are_refused() {
        for text in ["", "AAAA", "not base64!", &"A".repeat(200)] {
            assert_eq!(TextCipher::of(&key(1)).decrypt(b"place", text), None);
        }
    }
}
