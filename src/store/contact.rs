//! Contacts: the attempts and lookups of an operation, as far as its record does not tell of them.

use serde::Serialize;

use super::cell::{coded, table};
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::ErrorKind;

/// One contact with the provider of an operation: an attempt, or a lookup. The record tells of its last attempt itself,
/// so an operation that was sent once and never looked up has no such rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The record of the operation.
    pub record: RecordId,
    /// The id among the contacts of the record: of an attempt its number, of a lookup an id that its worker gave.
    pub id: i64,
    /// True for a lookup, false for an attempt.
    pub is_lookup: bool,
    /// The number among the attempts, or among the lookups, of the record; from 1.
    pub number: u32,
    /// The attempt that was made, or the last attempt before the lookup; 0 if nothing was sent.
    pub attempt: u32,
    /// The fence of the worker that made it.
    pub worker: Fence,
    /// The instant at which it began. `None`: it is only known that it began before `ended`.
    pub began: Option<Timestamp>,
    /// The instant at which its result was known, or its worker was found to be gone.
    pub ended: Timestamp,
    /// The result.
    pub result: ContactResult,
    /// The kind of the error, if there was one.
    pub error: Option<ErrorKind>,
    /// Description of the error, or of what a lookup shows: at most [`Contact::MESSAGE`] bytes.
    pub message: Option<String>,
    /// The provider's id.
    pub external_ref: Option<String>,
}

coded! {
    /// The result of an attempt or of a lookup.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ContactResult {
        /// The effect: the attempt was answered, or the lookup shows the effect.
        Effect = 1,
        /// More than one effect.
        Effects = 2,
        /// No effect: the lookup shows nothing.
        Nothing = 3,
        /// The call did not happen, for certain.
        Failed = 4,
        /// The provider has accepted the call and has not finished it.
        Pending = 5,
        /// The lookup shows an effect that another request has made.
        Foreign = 6,
        /// The outcome is unknown: the error does not tell, or the provider cannot tell.
        Unknown = 7,
        /// The outcome is unknown: the worker of the attempt ended, or was taken over, before it told of an answer.
        Lost = 8,
    }
}

impl ContactResult {
    /// The result in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Effects => "several effects",
            Self::Nothing => "nothing",
            Self::Failed => "failed",
            Self::Pending => "not finished",
            Self::Foreign => "effect of another request",
            Self::Unknown => "unknown",
            Self::Lost => "worker lost",
        }
    }
}

/// The place of a contact that is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedContact {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The record.
    pub record: RecordId,
    /// The id among the contacts of the record.
    pub id: i64,
}

impl Contact {
    /// The maximum length of a message, in bytes.
    pub const MESSAGE: usize = 500;
    /// The number of attempts, and of lookups, that are kept from the beginning.
    pub const FIRST: u32 = 10;
    /// The number of attempts, and of lookups, that are kept up to the last one. Those between are dropped.
    pub const LAST: u32 = 15;

    /// The place of this contact, to drop it.
    pub(crate) fn dropped(&self) -> DroppedContact {
        DroppedContact { tenant: self.tenant.clone(), record: self.record, id: self.id }
    }

    /// True if a contact of this number is dropped once one of the number `last` is written.
    pub(crate) const fn is_dropped(number: u32, last: u32) -> bool {
        number > Self::FIRST && number.saturating_add(Self::LAST) <= last
    }

    /// The message, cut at its maximum length.
    pub(crate) fn cut(message: &str) -> String {
        match message.len() {
            0..=Self::MESSAGE => message.to_owned(),
            _ => format!("{}…", &message[..message.floor_char_boundary(Self::MESSAGE - '…'.len_utf8())]),
        }
    }
}

table! { Contact in "contact", Keep by (tenant, record, id) {
    tenant, record, id, is_lookup, number, attempt, worker, began, ended, result, error, message, external_ref
} }

impl Row for Contact {}

#[cfg(test)]
mod tests {
    use super::Contact;

    #[test]
    fn the_first_and_the_last_are_kept() {
        let kept =
            |last: u32| (1..=last).filter(|number| !Contact::is_dropped(*number, last)).collect::<Vec<_>>();
        assert_eq!(kept(25), (1..=25).collect::<Vec<_>>());
        assert_eq!(kept(100), (1..=10).chain(86..=100).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        assert_eq!(Contact::cut("short"), "short");
        let cut = Contact::cut(&"é".repeat(400));
        assert!(cut.len() <= Contact::MESSAGE && cut.ends_with("é…"), "{cut}");
    }
}
