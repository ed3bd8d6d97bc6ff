//! Memory: what agents learn about a subject, each thing once (GUARD-3).
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::guard::memory::Outcome;
//! use counterfoil::{Ctx, Engine, Failure};
//!
//! async fn call(ctx: Ctx, caller: String) -> Result<usize, Failure> {
//!     let customer = ctx.memory(format!("customer {caller}"));
//!     customer.remember("preference", "Likes green tea.").source("this call").confidence(0.6).await?;
//!     customer.remember("preference", "likes  GREEN tea").source("the shop").await?; // said again: no second one
//!     customer.remember("preference", "does not like green tea").await?; // kept beside it, and both are marked
//!     Ok(customer.recall("preference").await?.memories.len())
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("call", 1, call).start().await?;
//! let acme = engine.tenant("acme")?;
//! assert_eq!(acme.run(call, "7".to_owned()).await?, 2);
//!
//! // Outside of a workflow: by the key of the operation, so that a retry gets the first answer.
//! let customer = acme.memory("customer 7");
//! let said = customer.remember("preference", "Likes green tea").source("mail 17").key("mail 17/1").await?;
//! assert_eq!(said.outcome, Outcome::Merged { similarity: None });
//! assert!(said.confidence > 0.9 && !customer.recall("preference").await?.memories[1].contradicts.is_empty());
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where two contents say the same is decided in three steps: [the same normal form](normal_form) is one memory; other
//! numbers, identifiers, dates or denials make two; and only then [`Similarity`] may speak, which suggests, and merges
//! where somebody [has opted in](Remember::merge_similar). The guide is `docs/memory.md`.

mod decide;
mod facts;
mod forget;
mod normal;
mod recall;
mod remember;
mod rows;
mod shelves;
mod similar;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::clock::Timestamp;
use crate::exec::ExecError;
use crate::flow::{Ctx, Failure, FailureCode, TenantClient, exec_in_run};
use crate::id::{IdError, MemoryId, Name, checked};
use crate::payload::{DigestKey, PayloadError};
use crate::store::StoreError;

pub use forget::Forget;
pub use normal::normal_form;
pub use recall::{Known, Page, Recall, Said};
pub use remember::Remember;
pub use similar::{Lexical, Similarity};

/// What can be said at once, in bytes: a memory is a statement, and not a document.
pub const MAX_BYTES: usize = 8192;
/// The longest subject, source and key, in bytes.
const NAME: usize = 256;
/// The longest reason for forgetting, in bytes.
const REASON: usize = 1024;
/// The whole of a confidence: they are kept in millionths.
const CERTAIN: u32 = 1_000_000;
/// A digest by the tenant's own key.
type KeyedDigest = [u8; 32];
/// Keys that begin so are the engine's own.
const OWN: char = '~';

/// The memories about a subject: of a run by [`Ctx::memory`], outside of any by [`TenantClient::memory`].
#[derive(Clone, Debug)]
pub struct Memories<By> {
    by: By,
    subject: String,
    similarity: Arc<dyn Similarity>,
}

impl Ctx {
    /// What is remembered about a subject: a customer, a case, a project. What a run remembers is one transaction with its
    /// own record of that.
    pub fn memory(&self, subject: impl Into<String>) -> Memories<Self> {
        Memories { by: self.clone(), subject: subject.into(), similarity: Arc::new(Lexical) }
    }
}

impl TenantClient {
    /// What is remembered about a subject: a customer, a case, a project.
    pub fn memory(&self, subject: impl Into<String>) -> Memories<Self> {
        Memories { by: self.clone(), subject: subject.into(), similarity: Arc::new(Lexical) }
    }
}

impl<By: Clone> Memories<By> {
    /// Another measure than [`Lexical`].
    #[must_use]
    pub fn similarity(mut self, similarity: impl Similarity + 'static) -> Self {
        self.similarity = Arc::new(similarity);
        self
    }

    /// Says something to be remembered. Nothing happens before it is awaited.
    pub fn remember(&self, kind: impl Into<String>, content: impl Into<String>) -> Remember<By> {
        Remember::new(self.clone(), kind.into(), content.into())
    }

    /// What is known of one kind, the newest first. Nothing happens before it is awaited.
    pub fn recall(&self, kind: impl Into<String>) -> Recall<By> {
        Recall::new(self.clone(), kind.into())
    }

    /// Has a memory forgotten: its words and those of its sources go. Nothing happens before it is awaited.
    pub fn forget(&self, memory: MemoryId, by: impl Into<String>, reason: impl Into<String>) -> Forget<By> {
        Forget::new(self.clone(), memory, by.into(), reason.into())
    }
}

/// What became of something that was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The memory that it is kept in.
    pub memory: MemoryId,
    /// What became of it.
    pub outcome: Outcome,
    /// How sure the memory is with it, from 0 to 1.
    pub confidence: f64,
    /// What says nearly the same, the most similar first. It was left as it is.
    pub similar: Vec<Suggestion>,
    /// What says the same but for one fact. Both memories bear that mark from now on.
    pub contradicts: Vec<Contradicts>,
}

/// What became of something that was said.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It is a memory of its own.
    New,
    /// It was known: that memory is surer now, and knows one more source.
    Merged {
        /// How similar it was, if it had not the same normal form: only where that [is wanted](Remember::merge_similar).
        similarity: Option<f64>,
    },
    /// It was said under this key before, and has been forgotten since. It stays so: to say it anew takes a new key.
    Forgotten,
}

/// A memory that says nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    /// Which.
    pub memory: MemoryId,
    /// How similar it is, from 0 to 1.
    pub score: f64,
}

/// A memory that says the same but for one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contradicts {
    /// Which.
    pub memory: MemoryId,
    /// In what they differ.
    pub differs: Difference,
}

/// In what two texts differ that otherwise say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// One of them denies what the other says.
    Negation,
    /// A number.
    Number,
    /// An identifier: of an order, a version, an address.
    Identifier,
    /// A date, a month or a day.
    Date,
}

/// Who had a memory forgotten, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// Why something was not remembered, recalled or forgotten. Nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Something else was said under this key.
    #[error(
        "something else was said under the key {key:?}, and is kept in {memory}: nothing was changed; give this another key"
    )]
    Conflict {
        /// The key.
        key: String,
        /// The memory that has it.
        memory: MemoryId,
    },
    /// A subject, kind, source or key is empty, too long, or not for users.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The content says nothing.
    #[error("there is nothing to remember: the content is empty")]
    Empty,
    /// The content is a document.
    #[error(
        "the content has {bytes} bytes, {MAX_BYTES} at most: a memory is a statement; keep the document elsewhere"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// There is no such memory about this subject.
    #[error("there is no {memory} about this subject")]
    Unknown {
        /// Which.
        memory: MemoryId,
    },
    /// What was answered has no JSON form, or a stored answer cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed, or refused the write.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// What an error means in a run.
fn in_run(error: MemoryError) -> Result<Failure, ExecError> {
    match error {
        MemoryError::Exec(error) => exec_in_run(error),
        conflict @ MemoryError::Conflict { .. } => {
            Ok(Failure::coded(FailureCode::Conflict, conflict.to_string()))
        }
        invalid => Ok(Failure::coded(FailureCode::Invalid, invalid.to_string())),
    }
}

/// The store could not be asked about what has this name.
fn unasked(name: &str) -> impl Fn(StoreError) -> MemoryError + '_ {
    move |source| match source {
        StoreError::Closed => ExecError::Closed { key: name.to_owned() }.into(),
        source => ExecError::Store { key: name.to_owned(), source }.into(),
    }
}

/// Subject and kind, if they are names.
fn shelf(subject: &str, kind: &str) -> Result<Name, MemoryError> {
    checked("subject", subject, NAME)?;
    Ok(Name::new(kind)?)
}

/// A digest by the tenant's own key of texts, each with its length before it, so that no two lists look alike.
fn keyed(key: &DigestKey, domain: &str, texts: &[&str]) -> KeyedDigest {
    #[allow(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104)")]
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.bytes()).expect("any length is a key");
    for text in [domain].iter().chain(texts) {
        mac.update(&(text.len() as u64).to_be_bytes());
        mac.update(text.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

/// From 0 to 1, in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; what is no number is 0")]
fn millionths(confidence: f64) -> u32 {
    (confidence.clamp(0.0, 1.0) * f64::from(CERTAIN)).round() as u32
}

fn of_one(millionths: u32) -> f64 {
    f64::from(millionths) / f64::from(CERTAIN)
}
