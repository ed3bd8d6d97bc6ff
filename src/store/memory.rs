//! What is remembered, as rows. What two memories have to do with one another is decided by the guard that writes them
//! (`guard::memory`); a store sees to it that nobody has written in between.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{MemoryId, Name, Tenant};

/// The digest of a normal form, or of what a key is bound to, keyed by the tenant's own key.
pub type KeyedDigest = [u8; 32];

/// The whole of a confidence: they are kept in millionths.
pub const CERTAIN: u32 = 1_000_000;

/// One thing that is known about a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its name.
    pub id: MemoryId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it is about.
    pub subject: String,
    /// What kind of knowledge it is: memories of one kind about one subject stand on one shelf.
    pub kind: Name,
    /// The place on its shelf that it took when it was new: a later memory has a higher one.
    pub place: i64,
    /// What is known, in the words in which it was said first. Empty once it is forgotten.
    pub content: String,
    /// The digest of its normal form. It stays when it is forgotten.
    pub digest: KeyedDigest,
    /// How sure it is, in millionths: it rises with every further source.
    pub confidence: u32,
    /// How often it was said.
    pub sources: u32,
    /// When it was first said.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// That it is forgotten.
    pub forgotten: Option<Forgotten>,
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

/// That somebody said it once: one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySource {
    /// Whose it is.
    pub tenant: Tenant,
    /// The operation: the same again gets the first answer.
    pub key: String,
    /// The memory that it is kept in.
    pub memory: MemoryId,
    /// The place on the shelf that it took.
    pub place: i64,
    /// What the key is bound to.
    pub request: KeyedDigest,
    /// Who or what said it. Empty once the memory is forgotten.
    pub source: String,
    /// In which words. Empty once the memory is forgotten.
    pub content: String,
    /// How sure this source was, in millionths.
    pub confidence: u32,
    /// What was answered, as JSON. It holds no words: those of other memories may be forgotten.
    pub answer: String,
    /// When.
    pub at: Timestamp,
}

/// Two memories say the same but for one thing: they are kept beside each other, and marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contradiction {
    /// The one.
    pub memory: MemoryId,
    /// The other.
    pub other: MemoryId,
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

impl Difference {
    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Negation => 1,
            Self::Number => 2,
            Self::Identifier => 3,
            Self::Date => 4,
        }
    }

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        let all = [Self::Negation, Self::Number, Self::Identifier, Self::Date];
        all.into_iter().find(|difference| difference.code() == code)
    }
}

/// One write to a shelf: something is said, or forgotten. It takes the shelf's next place, so that it is admitted only if
/// the shelf is as it was when the write was decided upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryWrite {
    /// The place that it takes: 1 on a new shelf, otherwise the next one.
    pub place: i64,
    /// The memory as it is from now on: a new one if this is its own place. When it is forgotten, its forms, its marks and
    /// the words of its sources go.
    pub memory: Memory,
    /// A normal form under which it is known from now on.
    pub form: Option<KeyedDigest>,
    /// Who said it.
    pub source: Option<MemorySource>,
    /// What it cannot be true beside, as `memory`; the other direction is written with it.
    pub contradicts: Vec<Contradiction>,
}

impl MemoryWrite {
    /// It writes a memory that is not there yet.
    pub(in crate::store) const fn is_new(&self) -> bool {
        self.memory.place == self.place
    }

    /// Both directions of what it marks.
    pub(in crate::store) fn marks(&self) -> impl Iterator<Item = Contradiction> {
        let turned = |mark: &Contradiction| Contradiction {
            memory: mark.other,
            other: mark.memory,
            differs: mark.differs,
        };
        self.contradicts.iter().flat_map(move |mark| [*mark, turned(mark)])
    }
}

/// A shelf, as far as somebody needs it who is about to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf {
    /// The place that was taken last; 0 on a new shelf. Read before the rest.
    pub place: i64,
    /// The memory that is known under the normal form in question.
    pub same: Option<Memory>,
    /// What stands there, the newest first.
    pub newest: Vec<Memory>,
}
