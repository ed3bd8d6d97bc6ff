//! The sizes that a store knows without asking its database.

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
