//! The sizes of a store: those that it knows without asking its database, and those of the rows that it keeps.

use crate::clock::Timestamp;

/// The sizes of a store, for metrics. A store without connections, or without a log of its own, says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLoad {
    /// The size of the write-ahead log, in bytes, if the log is a file beside the database.
    pub log_bytes: Option<u64>,
    /// The connections for reading, if the store has some.
    pub connections: Option<Connections>,
}

/// The open connections of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The number of connections in use.
    pub in_use: u32,
    /// The number of idle connections.
    pub idle: u32,
}

/// The rows of one tool, workflow or consumer that are kept, in whole or as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionLoad {
    /// The kind of the rows.
    pub kind: RetainedKind,
    /// The name of the tool, the workflow or the consumer.
    pub name: String,
    /// The number of whole records or messages, or of ended runs with their details.
    pub whole: u64,
    /// The number of rows of which only digests are left.
    pub digests: u64,
    /// The number of whole records whose time is over. `None` of runs and messages: their rows do not say how long they
    /// are kept.
    pub over: Option<u64>,
    /// The earliest instant at which the time of a record is over; of runs and messages, the earliest instant at which
    /// one ended that is still whole.
    pub earliest: Option<Timestamp>,
}

/// The kind of rows that are kept for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetainedKind {
    /// The records of a tool.
    Record,
    /// The ended runs of a workflow.
    Run,
    /// The processed messages of a consumer.
    Message,
}

impl RetainedKind {
    /// The name of the kind in tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Run => "run",
            Self::Message => "message",
        }
    }
}
