//! What a store keeps of messages that consumers were given. On the concrete stores, as is what they are processed with.

use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
use crate::payload::Payload;

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
    /// Now.
    pub(crate) at: Timestamp,
    /// By whom: in a simulation the events that are written with it are a worker's.
    #[cfg(feature = "sim")]
    pub(crate) by: crate::id::Fence,
}

/// What is known of a message that is not to be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was processed, with this result.
    Processed(Payload),
    /// There was a newer version, or this one.
    Outdated,
    /// It was tried too often.
    SetAside {
        /// What is asked about it, if that is said already.
        question: Option<EscalationId>,
        /// So often.
        tries: i64,
        /// Why the last try failed, if it came to its end.
        detail: Option<String>,
    },
}

/// The states of a row. Number 4 is set aside.
pub(super) const TRIED: i64 = 1;
pub(super) const PROCESSED: i64 = 2;
pub(super) const OUTDATED: i64 = 3;

/// A row that the try which is about to be made has been counted in.
pub(crate) struct Counted {
    pub(super) state: i64,
    pub(super) tries: i64,
    pub(super) result: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) escalation: Option<i64>,
}

impl Counted {
    /// What there is to say about it, unless it may be tried.
    pub(crate) fn known(self, limit: u32) -> Option<Known> {
        match self.state {
            PROCESSED => {
                Some(Known::Processed(Payload::stored(self.result.unwrap_or_else(|| "null".into()))))
            }
            OUTDATED => Some(Known::Outdated),
            TRIED if self.tries <= i64::from(limit) => None,
            // The try that is one too many was counted, and is not made.
            state => Some(Known::SetAside {
                question: self.escalation.map(EscalationId),
                tries: self.tries - i64::from(state == TRIED),
                detail: self.detail,
            }),
        }
    }
}
