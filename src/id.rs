//! The names and ids of tenants, runs, records, workers and questions.
//!
//! All layers may use this file. This file reads no clock. Random bits come in through [`Entropy`], so that a
//! simulation controls them.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// The owner of all data: part of every key and of every unique constraint.
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

    /// The name, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, as a shared string.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }
}

/// The tenant `default`, for programs that have one tenant only.
impl Default for Tenant {
    fn default() -> Self {
        Self(Arc::from("default"))
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

    /// The name, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, as a shared string.
    pub(crate) fn text(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the text as a shared string if the text has 1 to `max` bytes and no control characters.
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

/// The reason why a name was refused. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The name has no characters.
    #[error("the {what} is empty: give it at least one character [name]")]
    Empty {
        /// The kind of name that was refused.
        what: &'static str,
    },
    /// The name is longer than a key can hold.
    #[error("the {what} has {bytes} bytes, {max} at most: shorten it, or hash the long part [name]")]
    TooLong {
        /// The kind of name that was refused.
        what: &'static str,
        /// The length of the name, in bytes.
        bytes: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// The name holds a control character (a line break, a NUL), which logs and headers cannot carry.
    #[error("the {what} holds a control character: remove it [name]")]
    Control {
        /// The kind of name that was refused.
        what: &'static str,
    },
    /// The name has a form that is reserved for the engine.
    #[error(
        "the {what} has the form of the engine's own names, which begin with '~' or hold ':~': choose another [name]"
    )]
    Reserved {
        /// The kind of name that was refused.
        what: &'static str,
    },
    /// The text is not an id in the form that this crate prints.
    #[error("{text:?} is not a {what}: expected the form {form} [name]")]
    Malformed {
        /// The kind of id that was expected.
        what: &'static str,
        /// The text that was given.
        text: String,
        /// The form in which such an id is written.
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
    /// The id of a run: one execution of a workflow.
    RunId, "run-", "run id"
);
number_id!(
    /// The number of a tool's declaration in this ledger, from 1. The number is 0 for records that no tool declared,
    /// such as a person's decision.
    DeclarationId, "dec-", "declaration id"
);
number_id!(
    /// The position of a record in its table. This is not a key: keys are semantic.
    RecordId, "rec-", "record id"
);
number_id!(
    /// The id of a question that a person or a policy must answer.
    QuestionId, "question-", "question id"
);

number_id!(
    /// The id of a remembered entry.
    MemoryId, "mem-", "memory id"
);

/// The number that a run draws when it begins: 64 random bits. Run ids start again with each new database and after a
/// restore. The number keeps a run's keys and events distinct outside its database. Resume, retry, fork and `move`
/// keep the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunNumber(pub i64);

impl RunNumber {
    pub(crate) fn draw(entropy: &dyn Entropy) -> Self {
        Self(entropy.bits().cast_signed())
    }
}

/// The name of a run in keys, in events and in other data that leaves the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunName {
    pub(crate) id: RunId,
    pub(crate) number: RunNumber,
}

impl RunName {
    /// The text of the name, in one allocation, because each call without a key of its own makes one.
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

/// The number of a worker (one engine process). A worker's writes are void once another worker has taken its runs
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence(pub i64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The source of random bits. Production uses [`SystemEntropy`]; a simulation passes its seed.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Sixty-four random bits.
    fn bits(&self) -> u64;

    /// 128 random bits: enough for an id that is never drawn twice.
    fn wide_bits(&self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }
}

/// The random generator of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        #[allow(clippy::disallowed_methods, reason = "the one place that may draw chance")]
        #[allow(clippy::expect_used, reason = "every supported system has a generator once it has booted")]
        getrandom::u64().expect("the operating system gives random bits")
    }
}

/// A fresh UUID v7 for a client that names an operation itself. Draw the key *once*, keep it with the request, and
/// send the same key on every retry: a key drawn inside a retry loop protects nothing.
///
/// ```
/// let first = counterfoil::client_key();
/// assert_ne!(first, counterfoil::client_key());
/// ```
pub fn client_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Gives out row ids that rise with time inside one worker and never collide with the ids of another worker: the
/// fence is in the high bits, a counter in the low bits. Rows then arrive in the order of their table, which makes
/// group commit cheap.
#[derive(Debug)]
pub struct Ids {
    next: std::sync::atomic::AtomicI64,
}

impl Ids {
    /// A generator of ids for the worker with this fence.
    pub fn new(fence: Fence) -> Self {
        Self { next: std::sync::atomic::AtomicI64::new(fence.0 << 32) }
    }

    /// The fence of the worker that gave an id out.
    pub(crate) const fn giver(id: i64) -> Fence {
        Fence(id >> 32)
    }

    /// The next id.
    pub fn next(&self) -> i64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// Writes a value as the text that it is shown as: ids, and times in RFC 3339.
pub(crate) fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// [`text`], of a value that may be absent.
#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn some_text<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
