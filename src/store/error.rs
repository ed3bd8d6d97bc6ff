//! The errors of a store, and the reasons for which a database is refused. The texts say what is durable, and what to
//! do.

/// An error of the store itself. The text says what is durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk has no room left.
    #[error(
        "the disk is full: nothing of this write is durable; free some space, then it goes on ({detail}) [disk_full]"
    )]
    Full {
        /// The message of the database.
        detail: String,
    },
    /// Another process holds the database for too long.
    #[error(
        "the database is locked by another process: nothing of this write is durable; it may be retried ({detail}) [database_away]"
    )]
    Busy {
        /// The message of the database.
        detail: String,
    },
    /// Reading or writing the file failed.
    #[error(
        "the database cannot be read or written: nothing of this write is durable ({detail}) [database_away]"
    )]
    Io {
        /// The message of the database.
        detail: String,
    },
    /// A row holds a value that no version of this engine writes.
    #[error(
        "the row {row} is damaged: {detail}; it was left as it is, restore it from a backup or resolve its run by hand [damaged]"
    )]
    Corrupt {
        /// The name of the row.
        row: String,
        /// Description of the damage.
        detail: String,
    },
    /// The connection was lost and was not restored in time.
    #[error(
        "the database cannot be reached: whether this write is durable is not known; nothing is sent that needs it, \
         and when the database is back its rows tell ({detail}) [database_away]"
    )]
    Unreachable {
        /// The message of the system.
        detail: String,
    },
    /// A value is encrypted under a key that this process does not have.
    #[error(
        "a value of tenant {tenant} needs a key for encryption ({key}) that this process does not have: nothing was written, \
         and the row is as it was; give the key, then it goes on [encryption]"
    )]
    NoKey {
        /// The name of the tenant.
        tenant: String,
        /// The id of the key, or `any` if the tenant has none.
        key: String,
    },
    /// The first key of a tenant is another one than before.
    #[error(
        "the first key of tenant {tenant} is another one than that under which its rows were written, so their digests cannot be \
         compared: nothing was written; give the keys of the tenant, the first one first [encryption]"
    )]
    WrongKey {
        /// The name of the tenant.
        tenant: String,
    },
    /// The store's own code, or code that it called, panicked.
    #[error(
        "the store panicked: whether this write is durable is not known; nothing is sent that needs it, and its rows tell \
         ({detail}) [store_panicked]"
    )]
    Panicked {
        /// The message of the panic.
        detail: String,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine is shutting down; the write was not made.
    #[error("the engine is shutting down: this write was not made [closed]")]
    Closed,
}

impl StoreError {
    /// True if the same write may succeed a moment later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Io { .. } | Self::Full { .. } | Self::Unreachable { .. })
    }

    /// The log has a report of its own about the cause: the database is away, or the engine shuts down.
    pub(crate) const fn is_reported(&self) -> bool {
        self.is_transient() || matches!(self, Self::Closed)
    }

    /// True if the tenant of the row has no key at all in this process, and not only another one.
    pub(crate) fn is_without_keys(&self) -> bool {
        matches!(self, Self::NoKey { key, .. } if key == ANY_KEY)
    }
}

/// What stands for the id of a missing key, if the tenant has none.
pub(in crate::store) const ANY_KEY: &str = "any";

/// The reason why a database was refused when it was opened. The database is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another live process works on the database.
    #[error(
        "{path} belongs to another process that is alive ({owner}): one engine at a time; use PostgreSQL to share work [database_owned]"
    )]
    Owned {
        /// The path of the file.
        path: String,
        /// The other process, as far as it can be seen.
        owner: String,
    },
    /// This process has the database open already.
    #[error(
        "{path} is open in this process already: one engine at a time; shut the other engine down first, or use that one [database_owned]"
    )]
    OwnedHere {
        /// The path of the file.
        path: String,
    },
    /// The file was removed or replaced while it was open.
    #[error(
        "{path} was removed or replaced while this engine worked on it ({detail}): nothing more is sent or recorded here; \
         what was in flight is not known to the new file. Put the former file back, if it still exists, and start again [database_replaced]"
    )]
    Replaced {
        /// The path of the file.
        path: String,
        /// Description of the present content of the path.
        detail: String,
    },
    /// The file has several names, and the log of SQLite belongs to one of them only.
    #[error(
        "{path} has several names (hard links): what is written under one of them is not seen under the others; remove the \
         other names, or make a copy and open that [database_unsafe]"
    )]
    HardLinked {
        /// The path of the file.
        path: String,
    },
    /// The path does not name a file.
    #[error("{path:?} names no database file: {detail} [database_refused]")]
    NoFile {
        /// The path, as it was given.
        path: String,
        /// The advice what to write instead.
        detail: &'static str,
    },
    /// The database was written by a newer version of this crate.
    #[error(
        "{path} has schema version {found}, this engine knows {known}: update counterfoil; never run an old engine on a new database [database_too_new]"
    )]
    FromTheFuture {
        /// The path of the file.
        path: String,
        /// The schema version of the database.
        found: i64,
        /// The newest version that this engine knows.
        known: i64,
    },
    /// The rows of the database were moved to another database.
    #[error(
        "{path} was moved to PostgreSQL and given up: start the engine there; on this file it would do again what is \
         done there [database_moved]"
    )]
    GivenUp {
        /// The path of the file.
        path: String,
    },
    /// Rows are being moved into the database.
    #[error(
        "{path} is being filled by `counterfoil move` (from the file of {source_name}), and nothing can work on it \
         before that is done: make the same move again, and it goes on from there [database_moved]"
    )]
    Filling {
        /// The hosts and the database.
        path: String,
        /// The source file, by its first worker and its last fence.
        source_name: String,
    },
    /// The file belongs to another application.
    #[error(
        "{path} is the database of another application (id {found:#x}): choose another file [database_refused]"
    )]
    Foreign {
        /// The path of the file.
        path: String,
        /// The application id of the file.
        found: i64,
    },
    /// The file cannot be written.
    #[error(
        "{path} is read-only: no effect could be recorded, so none will be started; make file and folder writable ({detail}) [database_refused]"
    )]
    ReadOnly {
        /// The path of the file.
        path: String,
        /// The message of the system.
        detail: String,
    },
    /// The file is on a network filesystem, which lacks the shared memory that WAL needs.
    #[error(
        "{path} is on a network filesystem ({kind}): SQLite's WAL does not work there; use a local disk or PostgreSQL [database_unsafe]"
    )]
    NetworkFilesystem {
        /// The path of the file.
        path: String,
        /// The kind of the filesystem.
        kind: &'static str,
    },
    /// No host of the database accepts connections that can write.
    #[error("{path} cannot be reached: {detail}; check the URL, and that the server is up [database_away]")]
    Unreachable {
        /// The hosts and the database.
        path: String,
        /// The message of the system.
        detail: String,
    },
    /// The server reports a commit as done before it is on disk.
    #[error(
        "{path} has synchronous_commit = {found}: what is answered as committed may be lost when the server crashes, \
         and a call whose start is lost is made again; set it to `on`, or allow it in the options of the store [database_unsafe]"
    )]
    WeakDurability {
        /// The hosts and the database.
        path: String,
        /// The value of the setting.
        found: String,
    },
    /// A standby that lacks the last commits may be promoted.
    #[error(
        "{path} names several hosts, and synchronous_standby_names is empty: when a standby is promoted, the last \
         commits of the primary may be lost, and a call whose start is lost is made again; configure a synchronous \
         standby, or allow it in the options of the store [database_unsafe]"
    )]
    AsynchronousStandby {
        /// The hosts and the database.
        path: String,
    },
    /// A pooler gives each transaction another connection.
    #[error(
        "{path} is reached through a pooler that gives each transaction another connection (PgBouncer: pool_mode = \
         transaction): the search path and the time limits of a session would be lost, or left to another client; nothing \
         was written; connect past the pooler, or through one with pool_mode = session [database_unsafe]"
    )]
    TransactionPooling {
        /// The hosts and the database.
        path: String,
    },
    /// The ledger is encrypted, and this process has no keys.
    #[error(
        "the ledger is encrypted, and this process has no keys: nothing was written; give them, for instance by \
         `EngineBuilder::encrypted`, or `--keys` [encryption]"
    )]
    Encrypted,
    /// The ledger holds rows in the clear, and this process has keys.
    #[error(
        "the ledger holds rows in the clear, and encryption begins with an empty ledger: nothing was written; open it \
         without keys, or give the keys to a new one [encryption]"
    )]
    InTheClear,
    /// The first key is another one than that of the ledger.
    #[error(
        "the first key is another one than that under which the ledger was encrypted: nothing was written; give the keys \
         of this ledger, the first one first [encryption]"
    )]
    WrongKey,
    /// The ledger has a chain of evidence, and this process was given no secret for it.
    #[error(
        "the ledger has a chain of evidence, and this process writes none: nothing was written; give the secret of the \
         chain, for instance by `EngineBuilder::evidence_chain`, or `--chain` [chain]"
    )]
    Chained,
    /// The chain of evidence of the ledger was begun with another secret, or without one.
    #[error(
        "the chain of evidence was begun with another secret, or without one: nothing was written; give the secret of this \
         ledger [chain]"
    )]
    WrongChainSecret,
    /// The database has a table of migrations that is not of this engine.
    #[error("{path} holds something else: {detail}; choose another schema [database_refused]")]
    Strange {
        /// The hosts and the database.
        path: String,
        /// Description of the difference.
        detail: String,
    },
    /// The SQLite library has the WAL-reset bug.
    #[error(
        "the SQLite library is {found}, below 3.51.3: it can corrupt a WAL database (sqlite.org/wal.html#walresetbug); link a newer one [database_unsafe]"
    )]
    UnsafeLibrary {
        /// The version of the library.
        found: String,
    },
    /// The file is not a database, or cannot be opened.
    #[error("{path} cannot be opened: {detail} [database_refused]")]
    Unusable {
        /// The path of the file.
        path: String,
        /// The message of the system.
        detail: String,
    },
}
