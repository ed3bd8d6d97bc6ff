//! Signals: what was said to runs.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Stored;

/// Something that was said to a run: from outside, by another run, or by a child that has ended. It is kept until the run
/// receives it, and after that so that the same one again is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Whose it is.
    pub tenant: Tenant,
    /// The run it is for.
    pub run: RunId,
    /// What it is about. The run waits for it under this name.
    pub name: String,
    /// Which one: the same again is not a second one.
    pub id: String,
    /// Where it stands among those that the run has not received: each sender's are received in the order in which they
    /// were sent.
    pub place: i64,
    /// What is said.
    pub body: Stored,
    /// When.
    pub at: Timestamp,
}

/// Signals whose names begin so are commands: they wake their run whatever it waits for.
pub const COMMAND: &str = "~!";

/// The name of the command that cancels its run.
pub const CANCEL: &str = "~!cancel";

/// The id of the command that cancels a run because its deadline has passed.
pub const DEADLINE: &str = "~deadline";

table! { Signal in "signal", Once by (tenant, run, name, id) {
    tenant, run, name, id, place, body, at; received
} }

impl Row for Signal {}
