//! The fence: a claim by key with a time to live, on Redis or on the ledger's own database. Feature `fence`; `redis` adds
//! [`RedisFence`].
//!
//! The fence has two uses. **Alone**, [`KeyFence::once`] prevents duplicates of effects that may be lost: a fence
//! loses keys when its cache does, and then the effect is made once more. **In front of the ledger**, [`Fenced`]
//! answers duplicates of decided requests without asking the database; losing the fence there loses nothing, because
//! the ledger decides about every key that the fence does not know.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use std::convert::Infallible;
//! use counterfoil::fence::{FenceTtl, KeyFence, OnceAtFence, SqlFence};
//! use counterfoil::{Executor, Tenant};
//!
//! let executor = Executor::sqlite(dir.path().join("shop.db")).open().await?;
//! let fence = SqlFence::new(&executor, Tenant::new("acme")?); // or `RedisFence::new("redis://127.0.0.1/")?`
//! let warm = || async { Ok::<_, Infallible>("cache is warm".to_owned()) };
//!
//! let first = fence.once("warm/2026-11-23", FenceTtl::default(), warm).await?;
//! assert_eq!(first, OnceAtFence::Now { value: "cache is warm".to_owned(), remembered: true });
//! let again = fence.once("warm/2026-11-23", FenceTtl::default(), warm).await?;
//! assert_eq!(again, OnceAtFence::Before("cache is warm".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod fenced;
mod once;
mod outage;
#[cfg(feature = "redis")]
mod redis;
mod slot;
mod sql;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

#[cfg(feature = "redis")]
pub use self::redis::RedisFence;
pub use error::{FenceError, FenceOnceError};
pub use fenced::{Fenced, FencedAnswer, LedgerDecision};
pub use once::OnceAtFence;
pub use sql::SqlFence;

use crate::id::{Entropy, SystemEntropy};
use crate::payload::hex;

/// The largest value that a fence keeps under a key, in bytes.
pub const MAX_FENCE_VALUE: usize = 16 * 1024;

/// The proof of a claim: only its owner can seal or release the key that was claimed with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FenceToken(String);

impl FenceToken {
    /// Draws a new, unique token.
    ///
    /// ```
    /// use counterfoil::fence::FenceToken;
    ///
    /// assert_ne!(FenceToken::draw(), FenceToken::draw());
    /// ```
    pub fn draw() -> Self {
        Self::drawn_from(&SystemEntropy)
    }

    pub(crate) fn drawn_from(entropy: &dyn Entropy) -> Self {
        Self(format!("{:032x}", entropy.wide_bits()))
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FenceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Claimed {
    /// The key was free, and is the token's now.
    New,
    /// Another token holds the key, and has not sealed it.
    Pending,
    /// The key is sealed; this is the value.
    Sealed(Vec<u8>),
}

/// Times to live of a fence's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceTtl {
    /// Life of a claim that is not sealed. A holder that takes longer loses its claim; a holder that dies blocks its key for as long.
    pub pending: Duration,
    /// Life of a sealed value, counted from the seal.
    pub sealed: Duration,
}

impl Default for FenceTtl {
    /// The default times to live: 30 seconds pending, 24 hours sealed.
    fn default() -> Self {
        Self { pending: Duration::from_secs(30), sealed: Duration::from_hours(24) }
    }
}

/// A store of claims that may forget.
///
/// # Contract
///
/// 1. Of several claims of a free key, with different tokens, one gets [`Claimed::New`].
/// 2. The same token may claim again: while its claim lives, it gets [`Claimed::New`] once more. So a claim whose answer was lost
///    can be repeated.
/// 3. A seal or a release by a token that does not hold the key changes nothing and gives `false`. A seal that is repeated with
///    the same value gives `true`.
/// 4. A sealed key stays sealed until its time to live is over. Nothing else is promised: a fence may lose any entry at any time.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// use std::time::Duration;
/// use counterfoil::fence::{Claimed, FenceToken, KeyFence, SqlFence};
/// use counterfoil::{Executor, Tenant};
///
/// # let executor = Executor::sqlite(dir.path().join("shop.db")).open().await?;
/// let fence = SqlFence::new(&executor, Tenant::new("acme")?);
/// let (ann, bob) = (FenceToken::draw(), FenceToken::draw());
/// let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
///
/// assert_eq!(fence.claim("k", &ann, second).await?, Claimed::New);
/// assert_eq!(fence.claim("k", &bob, second).await?, Claimed::Pending);
/// assert!(!fence.seal("k", &bob, b"bob's", hour).await?);
/// assert!(fence.seal("k", &ann, b"ann's", hour).await?);
/// assert_eq!(fence.claim("k", &bob, second).await?, Claimed::Sealed(b"ann's".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyFence: Send + Sync + 'static {
    /// The kind of fence, as it is logged, such as `redis`.
    fn kind(&self) -> &'static str;

    /// Claims a key for a token, for this long.
    ///
    /// # Errors
    /// If the fence gave no answer: the claim may have been made or not. Claim again with the same token, or continue
    /// without.
    fn claim(
        &self,
        key: &str,
        token: &FenceToken,
        pending_for: Duration,
    ) -> impl Future<Output = Result<Claimed, FenceError>> + Send;

    /// Seals a key that the token holds with a value of at most [`MAX_FENCE_VALUE`] bytes. `false`: the token does not hold it.
    ///
    /// # Errors
    /// If the value is too large, or the fence gave no answer: the key may be sealed or not.
    fn seal(
        &self,
        key: &str,
        token: &FenceToken,
        value: &[u8],
        sealed_for: Duration,
    ) -> impl Future<Output = Result<bool, FenceError>> + Send;

    /// Frees a key that the token holds. `false`: the token does not hold it.
    ///
    /// # Errors
    /// If the fence gave no answer: the key may be free or not.
    fn release(&self, key: &str, token: &FenceToken)
    -> impl Future<Output = Result<bool, FenceError>> + Send;

    /// Runs a closure unless it has run under this key: for effects that may be lost or, rarely, made twice. The
    /// effects of a lost cache are listed in `docs/fence.md`; use
    /// [`Executor::execute_once`](crate::Executor::execute_once) for an effect that must never happen twice.
    ///
    /// A closure that fails frees the key. One that panics or is dropped leaves the key claimed until its time to live is over.
    ///
    /// # Errors
    /// If the closure failed, or the fence did not answer: then the closure was not run.
    fn once<T, E, F, Fut>(
        &self,
        key: &str,
        ttl: FenceTtl,
        make: F,
    ) -> impl Future<Output = Result<OnceAtFence<T>, FenceOnceError<E>>> + Send
    where
        Self: Sized,
        T: Serialize + DeserializeOwned + Send,
        E: Send,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
    {
        once::once(self, key, ttl, make)
    }
}

/// A fence behind a trait object.
pub(crate) trait AnyFence: Send + Sync {
    fn kind(&self) -> &'static str;
    fn claim<'a>(
        &'a self,
        key: &'a str,
        token: &'a FenceToken,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Claimed, FenceError>>;
    fn seal<'a>(
        &'a self,
        key: &'a str,
        token: &'a FenceToken,
        value: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<bool, FenceError>>;
    fn release<'a>(&'a self, key: &'a str, token: &'a FenceToken) -> BoxFuture<'a, Result<bool, FenceError>>;
}

impl<K: KeyFence> AnyFence for K {
    fn kind(&self) -> &'static str {
        KeyFence::kind(self)
    }

    fn claim<'a>(
        &'a self,
        key: &'a str,
        token: &'a FenceToken,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Claimed, FenceError>> {
        Box::pin(KeyFence::claim(self, key, token, ttl))
    }

    fn seal<'a>(
        &'a self,
        key: &'a str,
        token: &'a FenceToken,
        value: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<bool, FenceError>> {
        Box::pin(KeyFence::seal(self, key, token, value, ttl))
    }

    fn release<'a>(&'a self, key: &'a str, token: &'a FenceToken) -> BoxFuture<'a, Result<bool, FenceError>> {
        Box::pin(KeyFence::release(self, key, token))
    }
}

/// The name of a key's entry: short for any key, and without the key's own text, which may be private.
fn entry_name(key: &str) -> String {
    hex(&Sha256::digest(key))
}

fn checked_size(value: &[u8]) -> Result<(), FenceError> {
    let bytes = value.len();
    if bytes > MAX_FENCE_VALUE { Err(FenceError::TooLarge { bytes }) } else { Ok(()) }
}
