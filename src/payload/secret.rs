//! Secrets in requests: the tool receives them, and they are never written to disk.

use std::cell::{Cell, RefCell};
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;

use super::{Payload, hex};
use crate::id::Entropy;

pub(super) const MARK: &str = "$secret";

/// The key of a tenant for digests of secrets. Without the key, the digests reveal nothing.
#[derive(Clone)]
pub struct DigestKey([u8; 32]);

impl DigestKey {
    /// Wraps 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key of random bytes.
    pub(crate) fn drawn(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&entropy.bits().to_le_bytes());
        }
        Self(bytes)
    }

    /// The bytes of the key, for the store alone.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Runs `serialize` with this key, so that every [`Secret`] inside is replaced by its keyed digest.
    ///
    /// The key reaches the field through a thread-local, because serde passes no context. The closure must not await,
    /// and a synchronous closure cannot.
    pub(crate) fn scoped<R>(&self, serialize: impl FnOnce() -> R) -> R {
        struct Restore(Option<DigestKey>);
        impl Drop for Restore {
            fn drop(&mut self) {
                KEY.set(self.0.take());
            }
        }
        let _restore = Restore(KEY.replace(Some(self.clone())));
        serialize()
    }

    /// The HMAC-SHA-256 (RFC 2104) of the bytes.
    pub(crate) fn digest(&self, bytes: &[u8]) -> [u8; 32] {
        let mut mac = self.mac();
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    /// An HMAC-SHA-256 with this key, for what is not in one piece.
    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        #[allow(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104)")]
        <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0).expect("any length is a key")
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(…)")
    }
}

thread_local! {
    static KEY: RefCell<Option<DigestKey>> = const { RefCell::new(None) };
    /// True if a secret was serialized while no key was set.
    static MISSED: Cell<bool> = const { Cell::new(false) };
}

/// Serializes, and returns true beside the result if a secret inside needed a key that was not set.
pub(crate) fn noticing<R>(serialize: impl FnOnce() -> R) -> (R, bool) {
    MISSED.set(false);
    (serialize(), MISSED.take())
}

/// A value that must not be stored, logged or shown. In a request, a digest keyed by the tenant takes its place in
/// hash and record: an equal secret is recognised, and no secret can be read back.
///
/// A request that is read back from the store holds only the digest: [`Secret::expose`] then returns `None`.
///
/// ```
/// use counterfoil::Secret;
/// let token = Secret::new(String::from("hunter2"));
/// assert_eq!(token.expose().map(String::as_str), Some("hunter2"));
/// assert!(!format!("{token:?}").contains("hunter2"));
/// assert!(!serde_json::to_string(&token)?.contains("hunter2"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(Held<T>);

#[derive(Clone, PartialEq, Eq)]
enum Held<T> {
    Open(T),
    Digest(String),
}

impl<T> Secret<T> {
    /// Wraps a secret value.
    pub const fn new(value: T) -> Self {
        Self(Held::Open(value))
    }

    /// The secret value, or `None` if it was read back from the store.
    pub const fn expose(&self) -> Option<&T> {
        match &self.0 {
            Held::Open(value) => Some(value),
            Held::Digest(_) => None,
        }
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<T: Serialize> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error as _, SerializeMap as _};
        let digest = match &self.0 {
            Held::Digest(digest) => digest.clone(),
            Held::Open(value) => KEY.with_borrow(|key| match key {
                None => {
                    MISSED.set(true);
                    Ok("redacted".to_owned())
                }
                // The value is checked like any payload: two secrets that one spelling would round together are
                // refused.
                Some(key) => Payload::of(value)
                    .map(|payload| hex(&key.digest(payload.as_str().as_bytes())))
                    .map_err(|_| S::Error::custom("a secret has no JSON form")),
            })?,
        };
        let mut map = s.serialize_map(Some(1))?;
        map.serialize_entry(MARK, &digest)?;
        map.end()
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(d)?;
        if let Some(digest) = digest_of(&value) {
            return Ok(Self(Held::Digest(digest.to_owned())));
        }
        serde_json::from_value(value)
            .map(Self::new)
            // The message of the parser would quote the secret.
            .map_err(|_| serde::de::Error::custom("a secret field does not have the expected type"))
    }
}

/// True if the JSON value is the digest of a secret.
pub(crate) fn is_secret(value: &serde_json::Value) -> bool {
    digest_of(value).is_some()
}

fn digest_of(value: &serde_json::Value) -> Option<&str> {
    let object = value.as_object()?;
    (object.len() == 1).then(|| object.get(MARK)?.as_str()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest<T: Serialize>(key: &DigestKey, secret: T) -> Result<Payload, crate::payload::PayloadError> {
        key.scoped(|| Payload::of(&[Secret::new(secret)]))
    }

    // R-KEY-5, E09
    #[test]
    fn equal_secrets_have_equal_digests_under_one_key_only() {
        let (a, b) = (DigestKey::new([1; 32]), DigestKey::new([2; 32]));
        assert_eq!(digest(&a, "hunter2"), digest(&a, "hunter2"));
        assert_ne!(digest(&a, "hunter2"), digest(&a, "hunter3"));
        assert_ne!(digest(&a, "hunter2"), digest(&b, "hunter2"));
        assert!(!digest(&a, "hunter2").unwrap().as_str().contains("hunter2"));
        assert_eq!(format!("{a:?}"), "DigestKey(…)");
        // Outside a scope there is no digest, and the former scope is restored.
        a.scoped(|| {
            b.scoped(|| ());
            assert_eq!(Payload::of(&[Secret::new("hunter2")]), digest(&a, "hunter2"));
        });
        assert_eq!(Payload::of(&Secret::new(1)).unwrap().as_str(), r#"{"$secret":"redacted"}"#);
    }

    // R-KEY-5: a secret that would be rounded is refused, and the refusal does not quote it.
    #[test]
    fn inexact_secrets_are_refused() {
        let key = DigestKey::new([1; 32]);
        let refused = digest(&key, 9_007_199_254_740_993_u64).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("900719925474099"), "{refused}");
        assert!(digest(&key, [Some(f64::NAN)]).is_err());
    }
}
