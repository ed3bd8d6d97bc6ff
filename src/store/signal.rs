//! Signals: messages to runs.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::{DigestKey, Payload, Stored, hex};

/// A message to a run: from outside, from another run, or from a child that has ended. The row is kept until the run
/// receives it, and afterwards so that a repeated signal is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The tenant that owns the signal.
    pub tenant: Tenant,
    /// The run that the signal is for.
    pub run: RunId,
    /// The name of the signal. The run waits for this name.
    pub name: String,
    /// The id of the signal: the same id again is not a second signal.
    pub id: String,
    /// The position among the signals that the run has not received: the signals of each sender are received in the
    /// order in which they were sent.
    pub place: i64,
    /// The content of the signal.
    pub body: Stored,
    /// The instant at which the signal was sent.
    pub at: Timestamp,
}

/// The prefix of command names: a command wakes its run, whatever the run waits for.
pub const COMMAND: &str = "~!";

/// The name of the command that cancels its run.
pub const CANCEL: &str = "~!cancel";

/// The id of the command that cancels a run because its deadline has passed.
pub const DEADLINE: &str = "~deadline";

table! { Signal in "signal", Once by (tenant, run, name, id) {
    tenant, run, name, id, place, body, at; received
} }

impl Row for Signal {}

/// The beginning of the content of a signal that has expired: an object with the digest of what it was. The index of
/// signals that have not expired has the same text.
pub(super) const EXPIRED: &str = "{\"$expired\":";

impl Signal {
    /// True if only a digest of the content is left. A user's own content may look like that: it never expires, and
    /// is compared like any other.
    pub(crate) fn is_expired(&self) -> bool {
        self.body.column().starts_with(EXPIRED)
    }

    /// The rest of the content when its retention is over.
    pub(crate) fn left(&self, key: &DigestKey) -> Stored {
        let digest = hex(&key.digest(self.body.column().as_bytes()));
        Stored::Inline(Payload::stored(format!("{{\"$expired\":\"{digest}\"}}")))
    }
}
