//! What a store keeps of messages that consumers were given. On the concrete stores, as is what they are processed with.

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::payload::Payload;
use crate::store::Change;

/// A message as a consumer is given it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) tenant: Tenant,
    pub(crate) consumer: String,
    pub(crate) message: String,
    /// Of an aggregate the version that it brings.
    pub(crate) version: Option<(String, i64)>,
    /// Tried so often in vain, it is set aside.
    pub(crate) tries: u32,
    /// What the ledger itself writes in the transaction that processes the message.
    pub(crate) along: Option<Box<Change>>,
    pub(crate) counting: Counting,
    /// Now.
    pub(crate) at: Timestamp,
    /// By whom: in a simulation the events that are written with it are a worker's.
    #[cfg(feature = "sim")]
    pub(crate) by: crate::id::Fence,
}

/// When a try of a message is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "_queue"),
    allow(dead_code, reason = "only a broker says that a message comes again")
)]
pub(crate) enum Counting {
    /// Before anybody looks into the message, for its process may have died of that.
    First,
    /// Before the message is processed.
    Before,
    /// When it has failed, or in the transaction that processes it: who has delivered it says so when it comes again.
    With,
    /// It is counted already.
    Done,
}

/// What is known of a message that is not to be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was processed, with this result.
    Processed(Payload),
    /// It was processed, and its result is no longer kept.
    Expired,
    /// There was a newer version, or this one.
    Outdated,
    /// The message is not tried again before a person has answered.
    SetAside {
        /// The number of tries since the last answer.
        tries: i64,
        /// Why it is not tried again.
        why: SetAside,
    },
}

impl Known {
    /// No answer changes it.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Processed(_) | Self::Expired | Self::Outdated)
    }
}

/// Why a message is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAside {
    /// Each try failed. Holds the reason why the last one did, if that try came to its end.
    TriedTooOften(Option<String>),
    /// The closure ended the transaction by itself: its changes may be durable, and another try would make them again.
    EndedInside,
}

impl SetAside {
    /// The state of a row that is set aside for this reason.
    pub(super) const fn state(&self) -> i64 {
        match self {
            Self::TriedTooOften(_) => TRIED_TOO_OFTEN,
            Self::EndedInside => ENDED_INSIDE,
        }
    }

    /// Why the last try failed.
    pub(super) fn detail(&self) -> Option<&str> {
        match self {
            Self::TriedTooOften(detail) => detail.as_deref(),
            Self::EndedInside => None,
        }
    }
}

/// The state of a message that has a row of its tries alone.
const TRIED: i64 = 1;
// The states of a row of what became of one.
pub(super) const PROCESSED: i64 = 2;
/// The result of one that is no longer kept. No JSON.
pub(super) const EXPIRED: &str = "#";
pub(super) const OUTDATED: i64 = 3;
const TRIED_TOO_OFTEN: i64 = 4;
/// Written in the transaction before its closure runs, and overwritten in it by [`PROCESSED`]: so the COMMIT of a closure
/// makes this state durable together with the closure's changes, and no crash comes in between.
pub(super) const ENDED_INSIDE: i64 = 5;

/// What became of a message; of one that nothing became of, its tries with the one that is about to be made.
pub(super) struct Counted {
    pub(super) state: i64,
    pub(super) tries: i64,
    pub(super) result: Option<String>,
    pub(super) detail: Option<String>,
}

impl Counted {
    /// What there is to say about it, unless it may be tried.
    pub(super) fn known(self, limit: u32) -> Option<Known> {
        match self.state {
            PROCESSED if self.result.as_deref() == Some(EXPIRED) => Some(Known::Expired),
            PROCESSED => {
                Some(Known::Processed(Payload::stored(self.result.unwrap_or_else(|| "null".into()))))
            }
            OUTDATED => Some(Known::Outdated),
            ENDED_INSIDE => Some(Known::SetAside { tries: self.tries, why: SetAside::EndedInside }),
            TRIED if self.tries <= i64::from(limit) => None,
            // The try that is one too many was counted, and is not made.
            state => Some(Known::SetAside {
                tries: self.tries - i64::from(state == TRIED),
                why: SetAside::TriedTooOften(self.detail),
            }),
        }
    }
}
