//! Memory: the facts that agents learn about a subject, each fact once.
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
//! Two contents are compared in three steps: [the same normal form](normal_form) is one memory; different numbers,
//! identifiers, dates or negations make two memories; only otherwise [`Similarity`] is computed, which suggests
//! memories, and merges if the caller [has opted in](Remember::merge_similar). The guide is `docs/memory.md`.

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

/// The maximum size of a content, in bytes: a memory is a statement, not a document.
pub const MAX_BYTES: usize = 8192;
/// The maximum length of a subject, source and key, in bytes.
const NAME: usize = 256;
/// The maximum length of the reason for forgetting, in bytes.
const REASON: usize = 1024;
/// The millionths of full confidence: confidences are stored in millionths.
const CERTAIN: u32 = 1_000_000;
/// A digest by the tenant's own key.
type KeyedDigest = [u8; 32];
/// The prefix of the engine's own keys.
const OWN: char = '~';

/// The memories about a subject: for a run by [`Ctx::memory`], outside of runs by [`TenantClient::memory`].
#[derive(Clone, Debug)]
pub struct Memories<By> {
    by: By,
    subject: String,
    similarity: Arc<dyn Similarity>,
}

impl Ctx {
    /// The memories about a subject: a customer, a case, a project. A memory that a run writes and the run's own
    /// record of it are one transaction.
    pub fn memory(&self, subject: impl Into<String>) -> Memories<Self> {
        Memories { by: self.clone(), subject: subject.into(), similarity: Arc::new(Lexical) }
    }
}

impl TenantClient {
    /// The memories about a subject: a customer, a case, a project.
    pub fn memory(&self, subject: impl Into<String>) -> Memories<Self> {
        Memories { by: self.clone(), subject: subject.into(), similarity: Arc::new(Lexical) }
    }
}

impl<By: Clone> Memories<By> {
    /// Sets another similarity measure than [`Lexical`].
    #[must_use]
    pub fn similarity(mut self, similarity: impl Similarity + 'static) -> Self {
        self.similarity = Arc::new(similarity);
        self
    }

    /// Adds a statement to the memories. Nothing happens before the result is awaited.
    pub fn remember(&self, kind: impl Into<String>, content: impl Into<String>) -> Remember<By> {
        Remember::new(self.clone(), kind.into(), content.into())
    }

    /// Reads the memories of one kind, the newest first. Nothing happens before the result is awaited.
    pub fn recall(&self, kind: impl Into<String>) -> Recall<By> {
        Recall::new(self.clone(), kind.into())
    }

    /// Forgets a memory: its text and its sources are removed. Nothing happens before the result is awaited.
    pub fn forget(&self, memory: MemoryId, by: impl Into<String>, reason: impl Into<String>) -> Forget<By> {
        Forget::new(self.clone(), memory, by.into(), reason.into())
    }
}

/// The result of remembering a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The memory that holds the statement.
    pub memory: MemoryId,
    /// The outcome for the statement.
    pub outcome: Outcome,
    /// The confidence of the memory after the statement, from 0 to 1.
    pub confidence: f64,
    /// The memories that say nearly the same, the most similar first. They are unchanged.
    pub similar: Vec<Suggestion>,
    /// The memories that differ from the statement in one fact. Both memories have that mark from now on.
    pub contradicts: Vec<Contradicts>,
}

/// The outcome for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The statement is a new memory.
    New,
    /// The statement was known: its memory has a higher confidence, and one more source.
    Merged {
        /// The similarity, if the normal forms differ: only if merging [is wanted](Remember::merge_similar).
        similarity: Option<f64>,
    },
    /// The statement was made under this key before and has been forgotten since. To make the statement again, use a
    /// new key.
    Forgotten,
}

/// A memory that says nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The id of the memory.
    pub memory: MemoryId,
    /// The similarity, from 0 to 1.
    pub score: f64,
}

/// A memory that says the same except for one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contradicts {
    /// The id of the memory.
    pub memory: MemoryId,
    /// The kind of fact in which the memories differ.
    pub differs: Difference,
}

/// The kind of fact in which two texts differ that otherwise say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// One text denies what the other says.
    Negation,
    /// The texts have different numbers.
    Number,
    /// The texts have different identifiers: of an order, a version, an address.
    Identifier,
    /// The texts have different dates, months or days.
    Date,
}

/// The tombstone of a forgotten memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The name of the person who had the memory forgotten.
    pub by: String,
    /// The reason that the person gave.
    pub reason: String,
    /// The time at which the memory was forgotten (UTC).
    pub at: Timestamp,
}

/// The reason why a memory was not remembered, recalled or forgotten. Nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Another statement was made under this key.
    #[error(
        "something else was said under the key {key:?}, and is kept in {memory}: nothing was changed; give this another key [conflict]"
    )]
    Conflict {
        /// The key of the statement.
        key: String,
        /// The memory that was written under the key.
        memory: MemoryId,
    },
    /// A subject, kind, source or key is empty, too long, or reserved for the engine.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The content is empty.
    #[error("there is nothing to remember: the content is empty [payload]")]
    Empty,
    /// The content is too long for a memory.
    #[error(
        "the content has {bytes} bytes, {MAX_BYTES} at most: a memory is a statement; keep the document elsewhere [payload]"
    )]
    TooLong {
        /// The length of the content, in bytes.
        bytes: usize,
    },
    /// The subject has no memory of this id.
    #[error("there is no {memory} about this subject [not_found]")]
    Unknown {
        /// The id of the memory.
        memory: MemoryId,
    },
    /// The answer has no JSON form, or a stored answer cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed, or refused the write.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// The failure of a run for an error.
fn in_run(error: MemoryError) -> Result<Failure, ExecError> {
    match error {
        MemoryError::Exec(error) => exec_in_run(error),
        conflict @ MemoryError::Conflict { .. } => {
            Ok(Failure::coded(FailureCode::Conflict, conflict.to_string()))
        }
        invalid => Ok(Failure::coded(FailureCode::Invalid, invalid.to_string())),
    }
}

/// The error of a store that failed while this name was read.
fn unasked(name: &str) -> impl Fn(StoreError) -> MemoryError + '_ {
    move |source| match source {
        StoreError::Closed => ExecError::Closed { key: name.to_owned() }.into(),
        source => ExecError::Store { key: name.to_owned(), source }.into(),
    }
}

/// Checks subject and kind, and returns the kind as a name.
fn shelf(subject: &str, kind: &str) -> Result<Name, MemoryError> {
    checked("subject", subject, NAME)?;
    Ok(Name::new(kind)?)
}

/// A digest of texts by the tenant's own key. Each length is part of the digest, so that two different lists differ.
fn keyed(key: &DigestKey, domain: &str, texts: &[&str]) -> KeyedDigest {
    #[allow(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104)")]
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.bytes()).expect("any length is a key");
    for text in [domain].iter().chain(texts) {
        mac.update(&(text.len() as u64).to_be_bytes());
        mac.update(text.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

/// A confidence from 0 to 1, in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; what is no number is 0")]
fn millionths(confidence: f64) -> u32 {
    (confidence.clamp(0.0, 1.0) * f64::from(CERTAIN)).round() as u32
}

fn of_one(millionths: u32) -> f64 {
    f64::from(millionths) / f64::from(CERTAIN)
}
