//! Links: the rows of a chain.

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::store::cell::table;
use crate::store::row::Row;

use super::digest::SHORT;

/// A link of the chain of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The chain: a random number for each opening of the ledger.
    pub chain: i64,
    /// The number in the chain, from 1 on.
    pub number: i64,
    /// The tenant whose rows the link is about.
    pub tenant: Tenant,
    /// The instant at which the link was made.
    pub at: Timestamp,
    /// The entries, in a form of their own.
    pub body: Box<[u8]>,
    /// The signature of all the rest.
    pub signature: Box<[u8]>,
}

// A fenced worker may change nothing but leave evidence, whose link must not be lost.
table! { Link in "link", Note by (chain, number) {
    chain, number, tenant, at, body, signature
} }

impl Row for Link {}

/// The content of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// Each link of the chain with a smaller number is durable, or is named by this link or a durable earlier one as one
    /// that may be missing.
    pub(super) settled: i64,
    /// The numbers of earlier links that may be missing, as ranges from a first number to a last one: their changes were
    /// refused, or their answers were lost.
    pub(super) absent: Vec<(i64, i64)>,
    pub(super) entries: Vec<Entry>,
}

/// The state of one row after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) fate: Fate,
    pub(super) revision: u32,
    pub(super) digest: [u8; SHORT],
}

/// The place of a covered row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) sort: Sort,
    /// The record that the row belongs to; 0 for a review, and for the erasure of a tenant.
    pub(super) record: i64,
    /// The row among those of its record.
    pub(super) row: i64,
}

impl Place {
    /// The place of a record.
    pub(super) const fn of_record(record: i64) -> Self {
        Self { sort: Sort::Record, record, row: 0 }
    }

    /// True if the rows of this sort count their changes, so that each revision is written once.
    pub(super) const fn counts_its_changes(self) -> bool {
        matches!(self.sort, Sort::Record | Sort::Review)
    }

    /// The place of the record that the row belongs to, or of the review itself.
    pub(super) const fn of(self) -> Self {
        match self.sort {
            Sort::Review | Sort::Tenant => self,
            _ => Self::of_record(self.record),
        }
    }
}

/// Declares an enumeration of one byte each.
macro_rules! bytes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $byte:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum $name {
            $($(#[$doc])* $variant = $byte),+
        }

        impl $name {
            fn of(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

bytes! {
    /// The sort of a covered row.
    Sort {
        Record = 1,
        /// An attempt or a lookup.
        Contact = 2,
        /// A late answer.
        Evidence = 3,
        /// A question about a call, once it has an answer.
        Answer = 4,
        Review = 5,
        /// All rows of the tenant of the link.
        Tenant = 6,
    }
}

bytes! {
    /// What a change makes of a row. Retention leaves a row as it is if something rests on the row after all: its
    /// entries say what may have become of the row.
    Fate {
        /// The row is written.
        Written = 1,
        /// The row may have been kept for longer.
        Kept = 2,
        /// The row may have become a tombstone, and what belongs to it may be deleted.
        Tombstone = 3,
        /// The row may be deleted, with what belongs to it.
        Gone = 4,
    }
}

impl Body {
    pub(super) fn to_bytes(&self) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(12 + 16 * self.absent.len() + Entry::BYTES * self.entries.len());
        bytes.extend(self.settled.to_be_bytes());
        bytes.extend(u32::try_from(self.absent.len()).unwrap_or(u32::MAX).to_be_bytes());
        for (first, last) in &self.absent {
            bytes.extend(first.to_be_bytes());
            bytes.extend(last.to_be_bytes());
        }
        for Entry { place, fate, revision, digest } in &self.entries {
            bytes.extend([place.sort as u8, *fate as u8]);
            bytes.extend(revision.to_be_bytes());
            bytes.extend(place.record.to_be_bytes());
            bytes.extend(place.row.to_be_bytes());
            bytes.extend(digest);
        }
        bytes.into()
    }

    /// Reads a content back; `None` if it is none.
    pub(super) fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let (settled, absent) = (number(&mut bytes)?, u32::from_be_bytes(taken(&mut bytes)?));
        let absent = (0..absent).map(|_| Some((number(&mut bytes)?, number(&mut bytes)?)));
        let absent = absent.collect::<Option<_>>()?;
        let mut entries = Vec::with_capacity(bytes.len() / Entry::BYTES);
        while !bytes.is_empty() {
            let [sort, fate] = taken(&mut bytes)?;
            let (sort, fate, revision) =
                (Sort::of(sort)?, Fate::of(fate)?, u32::from_be_bytes(taken(&mut bytes)?));
            let place = Place { sort, record: number(&mut bytes)?, row: number(&mut bytes)? };
            entries.push(Entry { place, fate, revision, digest: taken(&mut bytes)? });
        }
        Some(Self { settled, absent, entries })
    }
}

impl Entry {
    /// The length of an entry, in bytes.
    const BYTES: usize = 2 + 4 + 8 + 8 + SHORT;
}

fn taken<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn number(bytes: &mut &[u8]) -> Option<i64> {
    taken(bytes).map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let place = (1_u8..=6, any::<i64>(), any::<i64>());
        (place, 1_u8..=4, any::<u32>(), any::<[u8; SHORT]>()).prop_map(
            |((sort, record, row), fate, revision, digest)| {
                let place = Place { sort: Sort::of(sort).unwrap(), record, row };
                Entry { place, fate: Fate::of(fate).unwrap(), revision, digest }
            },
        )
    }

    proptest! {
        #[test]
        fn a_content_is_read_back_as_it_was_written(
            settled in any::<i64>(),
            absent in proptest::collection::vec(any::<(i64, i64)>(), 0..4),
            entries in proptest::collection::vec(entry(), 0..4),
        ) {
            let body = Body { settled, absent, entries };
            prop_assert_eq!(Body::from_bytes(&body.to_bytes()), Some(body));
        }

        #[test]
        fn bytes_that_are_no_content_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(body) = Body::from_bytes(&bytes) {
                prop_assert_eq!(&*body.to_bytes(), &*bytes);
            }
        }
    }
}
