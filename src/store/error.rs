//! What went wrong with a store, and why a database is refused. The texts say what is durable, and what to do.

/// What went wrong with the store itself. The text says what is durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room left.
    #[error(
        "the disk is full: nothing of this write is durable; free some space, then it goes on ({detail})"
    )]
    Full {
        /// The database's words.
        detail: String,
    },
    /// Another process holds the database for too long.
    #[error(
        "the database is locked by another process: nothing of this write is durable; it may be retried ({detail})"
    )]
    Busy {
        /// The database's words.
        detail: String,
    },
    /// Reading or writing the file failed.
    #[error("the database cannot be read or written: nothing of this write is durable ({detail})")]
    Io {
        /// The database's words.
        detail: String,
    },
    /// A row holds what no version of this engine writes.
    #[error(
        "the row {row} is damaged: {detail}; it was left as it is, restore it from a backup or resolve its run by hand"
    )]
    Corrupt {
        /// Which row.
        row: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The connection was lost, and did not come back in time.
    #[error(
        "the database cannot be reached: whether this write is durable is not known; nothing is sent that needs it, \
         and when the database is back its rows tell ({detail})"
    )]
    Unreachable {
        /// The system's words.
        detail: String,
    },
    /// The store's own code, or code that it called, panicked.
    #[error(
        "the store panicked: whether this write is durable is not known; nothing is sent that needs it, and its rows tell \
         ({detail})"
    )]
    Panicked {
        /// The panic's words.
        detail: String,
    },
    /// The database cannot be used at all.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine is shutting down; the write was not made.
    #[error("the engine is shutting down: this write was not made")]
    Closed,
}

impl StoreError {
    /// The same write may succeed a moment later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Io { .. } | Self::Full { .. } | Self::Unreachable { .. })
    }
}

/// Why a database was refused when it was opened. It was left as it is.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process that is alive works on it.
    #[error(
        "{path} belongs to another process that is alive ({owner}): one engine at a time; use PostgreSQL to share work"
    )]
    Owned {
        /// The file.
        path: String,
        /// The process, as far as it can be seen.
        owner: String,
    },
    /// This very process works on it.
    #[error(
        "{path} is open in this process already: one engine at a time; shut the other engine down first, or use that one"
    )]
    OwnedHere {
        /// The file.
        path: String,
    },
    /// It was removed, or another file was put in its place, while it was open.
    #[error(
        "{path} was removed or replaced while this engine worked on it ({detail}): nothing more is sent or recorded here; \
         what was in flight is not known to the new file. Put the former file back, if it still exists, and start again"
    )]
    Replaced {
        /// The file.
        path: String,
        /// What is there instead.
        detail: String,
    },
    /// It has several names, and SQLite's log belongs to one of them only.
    #[error(
        "{path} has several names (hard links): what is written under one of them is not seen under the others; remove the \
         other names, or make a copy and open that"
    )]
    HardLinked {
        /// The file.
        path: String,
    },
    /// It does not say which file is meant.
    #[error("{path:?} names no database file: {detail}")]
    NoFile {
        /// As it was given.
        path: String,
        /// What to write instead.
        detail: &'static str,
    },
    /// Written by a newer version of this crate.
    #[error(
        "{path} has schema version {found}, this engine knows {known}: update counterfoil; never run an old engine on a new database"
    )]
    FromTheFuture {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest version that this engine knows.
        known: i64,
    },
    /// Its rows were moved to another database.
    #[error(
        "{path} was moved to PostgreSQL and given up: start the engine there; on this file it would do again what is \
         done there"
    )]
    GivenUp {
        /// The file.
        path: String,
    },
    /// Its rows are being moved into it.
    #[error(
        "{path} is being filled by `counterfoil move` (from the file of {source_name}), and nothing can work on it \
         before that is done: make the same move again, and it goes on from there"
    )]
    Filling {
        /// Hosts and database.
        path: String,
        /// The file, by its first worker and its last fence.
        source_name: String,
    },
    /// The file is somebody else's.
    #[error("{path} is the database of another application (id {found:#x}): choose another file")]
    Foreign {
        /// The file.
        path: String,
        /// Its application id.
        found: i64,
    },
    /// It cannot be written.
    #[error(
        "{path} is read-only: no effect could be recorded, so none will be started; make file and folder writable ({detail})"
    )]
    ReadOnly {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// WAL needs shared memory, which a network filesystem does not have.
    #[error(
        "{path} is on a network filesystem ({kind}): SQLite's WAL does not work there; use a local disk or PostgreSQL"
    )]
    NetworkFilesystem {
        /// The file.
        path: String,
        /// The filesystem.
        kind: &'static str,
    },
    /// No host of it accepts connections that can write.
    #[error("{path} cannot be reached: {detail}; check the URL, and that the server is up")]
    Unreachable {
        /// Hosts and database.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// The server says that a commit is done before it is on disk.
    #[error(
        "{path} has synchronous_commit = {found}: what is answered as committed may be lost when the server crashes, \
         and a call whose start is lost is made again; set it to `on`, or allow it in the options of the store"
    )]
    WeakDurability {
        /// Hosts and database.
        path: String,
        /// The setting.
        found: String,
    },
    /// Another host may be promoted that lacks the last commits.
    #[error(
        "{path} names several hosts, and synchronous_standby_names is empty: when a standby is promoted, the last \
         commits of the primary may be lost, and a call whose start is lost is made again; configure a synchronous \
         standby, or allow it in the options of the store"
    )]
    AsynchronousStandby {
        /// Hosts and database.
        path: String,
    },
    /// A pooler in between gives each transaction another connection.
    #[error(
        "{path} is reached through a pooler that gives each transaction another connection (PgBouncer: pool_mode = \
         transaction): the search path and the time limits of a session would be lost, or left to another client; nothing \
         was written; connect past the pooler, or through one with pool_mode = session"
    )]
    TransactionPooling {
        /// Hosts and database.
        path: String,
    },
    /// It has a table of migrations that is not of this engine.
    #[error("{path} holds something else: {detail}; choose another schema")]
    Strange {
        /// Hosts and database.
        path: String,
        /// What differs.
        detail: String,
    },
    /// The SQLite library has the WAL-reset bug.
    #[error(
        "the SQLite library is {found}, below 3.51.3: it can corrupt a WAL database (sqlite.org/wal.html#walresetbug); link a newer one"
    )]
    UnsafeLibrary {
        /// Its version.
        found: String,
    },
    /// The file is not a database, or cannot be opened.
    #[error("{path} cannot be opened: {detail}")]
    Unusable {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
    },
}
