//! The names of things: who owns a row, which run, which record, which worker.
//!
//! All layers may use this file. It reads no clock; chance comes in through [`Entropy`], so that a
//! simulation owns it.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The owner of everything: part of every key and of every unique constraint.
///
/// ```
/// use counterfoil::Tenant;
/// assert_eq!(Tenant::new("acme")?.as_str(), "acme");
/// assert!(Tenant::new("").is_err());
/// assert!(Tenant::new("a\u{0}b").is_err());
/// # Ok::<(), counterfoil::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// The longest tenant name, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Checks and wraps a tenant's name: 1 to 64 bytes without control characters.
    pub fn new(name: impl AsRef<str>) -> Result<Self, IdError> {
        Ok(Self(checked("tenant", name.as_ref(), Self::MAX_BYTES)?))
    }

    /// The tenant that questions about the ledger as a whole belong to.
    pub fn ledger() -> Self {
        Self(Arc::from("~counterfoil"))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl TryFrom<String> for Tenant {
    type Error = IdError;
    fn try_from(name: String) -> Result<Self, IdError> {
        Self::new(name)
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.0.as_ref().to_owned()
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a tool, a workflow or a step: 1 to 128 bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks and wraps a name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, IdError> {
        Ok(Self(checked("name", name.as_ref(), Self::MAX_BYTES)?))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text, if it is one to `max` bytes without control characters.
pub(crate) fn checked(what: &'static str, text: &str, max: usize) -> Result<Arc<str>, IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > max {
        return Err(IdError::TooLong { what, bytes: text.len(), max });
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control { what });
    }
    Ok(Arc::from(text))
}

/// Why a name was refused. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// It has no characters.
    #[error("the {what} is empty: give it at least one character")]
    Empty {
        /// What was to be named.
        what: &'static str,
    },
    /// It is longer than what fits a key.
    #[error("the {what} has {bytes} bytes, {max} at most: shorten it, or hash the long part")]
    TooLong {
        /// What was to be named.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It holds a control character (a line break, a NUL), which logs and headers cannot carry.
    #[error("the {what} holds a control character: remove it")]
    Control {
        /// What was to be named.
        what: &'static str,
    },
    /// It is of a form that the engine keeps for itself.
    #[error(
        "the {what} has the form of the engine's own names, which begin with '~' or hold ':~': choose another"
    )]
    Reserved {
        /// What was to be named.
        what: &'static str,
    },
    /// The text is not an id as this crate prints them.
    #[error("{text:?} is not a {what}: expected the form {form}")]
    Malformed {
        /// What was expected.
        what: &'static str,
        /// The text that was given.
        text: String,
        /// How such an id is written.
        form: &'static str,
    },
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:x}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .and_then(|hex| i64::from_str_radix(hex, 16).ok())
                    .map(Self)
                    .ok_or_else(|| IdError::Malformed {
                        what: $what,
                        text: text.chars().take(40).collect(),
                        form: concat!($prefix, "1a2b"),
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

number_id!(
    /// One execution of a workflow.
    RunId, "run-", "run id"
);
number_id!(
    /// The number of a tool's declaration in this ledger, from 1. Of what no tool declared, such as a person's decision, it is 0.
    DeclarationId, "dec-", "declaration id"
);
number_id!(
    /// Where a record stands in its table. Not a key: keys are semantic.
    RecordId, "rec-", "record id"
);
number_id!(
    /// An open question that a person or a policy must answer.
    QuestionId, "question-", "question id"
);

number_id!(
    /// One thing that is remembered.
    MemoryId, "mem-", "memory id"
);

/// The number that a run draws when it begins: 64 random bits. Run ids begin anew with each database, or after a restore;
/// with the number, what is made of a run is its own wherever it goes. Resume, retry, fork and `move` keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunNumber(pub i64);

impl RunNumber {
    pub(crate) fn draw(entropy: &dyn Entropy) -> Self {
        Self(entropy.bits().cast_signed())
    }
}

/// The name of a run in keys, events and other things that leave the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunName {
    pub(crate) id: RunId,
    pub(crate) number: RunNumber,
}

impl RunName {
    /// Its text, in one allocation: each call without a key of its own makes one.
    pub(crate) fn text(self) -> String {
        let mut text = String::with_capacity(40); // 24 for the id, 17 for the number
        let _ = write!(text, "{self}");
        text
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.id, self.number.0)
    }
}

/// The number of a worker (one engine process). Its writes are void once another has taken its runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence(pub i64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where chance comes from. Production uses [`SystemEntropy`]; a simulation passes its seed.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Sixty-four random bits.
    fn bits(&self) -> u64;

    /// Twice as many: enough for an id that nobody draws again.
    fn wide_bits(&self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }
}

/// The operating system's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        #[allow(clippy::disallowed_methods, reason = "the one place that may draw chance")]
        #[allow(clippy::expect_used, reason = "every supported system has a generator once it has booted")]
        getrandom::u64().expect("the operating system gives random bits")
    }
}

/// A fresh UUID v7 for a client that wants to name an operation itself (KEY-2). Draw it *once*, keep it
/// with the request, and send the same one on every retry: a key drawn inside a retry loop protects nothing.
///
/// ```
/// let first = counterfoil::client_key();
/// assert_ne!(first, counterfoil::client_key());
/// ```
pub fn client_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Gives out row ids that rise with time inside one worker and never collide with another worker's:
/// the fence in the high bits, a counter in the low ones. Rows then arrive in the order of their table,
/// which is what makes group commit cheap.
#[derive(Debug)]
pub struct Ids {
    next: std::sync::atomic::AtomicI64,
}

impl Ids {
    /// Ids for the worker with this fence.
    pub fn new(fence: Fence) -> Self {
        Self { next: std::sync::atomic::AtomicI64::new(fence.0 << 32) }
    }

    /// The worker that gave an id out.
    pub(crate) const fn giver(id: i64) -> Fence {
        Fence(id >> 32)
    }

    /// The next id.
    pub fn next(&self) -> i64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}
