//! The shared store: PostgreSQL, with up to two writing connections per process and several others beside them.
//!
//! The store writes one batch at a time, and the changes of one lane in it on one connection, so that changes of one
//! run never overtake one another. There is a file per table; `commit` puts their rows into one statement, which is
//! one transaction and one round trip.
//!
//! Several processes work on one database at once. The revision of a row orders their writes of that row, and a
//! worker that has ended writes nothing: each batch holds its worker's row until it is durable.

mod admission;
mod commit;
mod connect;
mod continuity;
mod cut;
mod erase;
mod examine;
mod inbox;
mod judge;
mod listen;
mod named_keys;
mod open;
mod outbox;
mod own;
mod pool;
mod pulse;
mod retention;
mod row;
mod run;
mod special;
mod statement;
mod transaction;
#[cfg(feature = "sqlite")]
mod transfer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnection, PgRow};
use tokio::sync::Mutex;

use super::migration::MIGRATIONS;
use super::sql::ask::{Queries, damaged};
use super::sql::columns::FetchedRow;
use super::{Change, ClusterStatus, Defect, Store, StoreError, StoreFuture, StoreLoad, Verdict};
use connect::Connector;
use pool::Pool;

pub use super::transaction::TransactionError;
pub use open::Options;
pub(crate) use outbox::add_event;
#[cfg(feature = "sqlite")]
pub(super) use transfer::Target;

/// The migrations in their order, for hosts that run them with a tool of their own.
pub fn migrations() -> impl Iterator<Item = (i64, &'static str, &'static str)> {
    MIGRATIONS.iter().map(|migration| (migration.number, migration.name, migration.postgres))
}

/// The writing statements, as they are sent, for tests that prepare and explain them.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    commit::statements()
}

/// The shared store: a PostgreSQL database.
#[derive(Debug)]
pub struct Postgres {
    connector: Arc<Connector>,
    /// The writers; `None` once the store is closed.
    writers: Mutex<Option<[Writer; 2]>>,
    readers: Queries<Pool>,
    /// The connections for the user's own transactions, which may take long.
    guests: Arc<Pool>,
    hints: listen::Hints,
}

/// A connection that writes.
#[derive(Debug, Default)]
struct Writer {
    /// The connection; `None` before the first write, and after a loss until the next write.
    connection: Option<PgConnection>,
    statements: statement::Statements,
    /// True if a write was begun and its end was not seen: its future was dropped, or it failed. The next write waits
    /// for that end, and rolls back first.
    unfinished: bool,
}

impl Postgres {
    /// Opens the database at `url` and brings its schema up to date. The URL may name several hosts:
    /// `postgres://user@one,two:5433/database` writes to the one that is the primary.
    ///
    /// # Errors
    /// [`StoreError::Open`] if the database cannot be reached, if it was written by a newer version, if its tables
    /// are not those of this engine, or if a commit that it answers may be lost.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, Options::default()).await
    }

    /// Opens the database with options.
    pub async fn open_with(url: &str, options: Options) -> Result<Self, StoreError> {
        open::open(url, options, open::Opening::Work).await
    }

    /// Opens a database as it is: it is refused if its schema is not the one of this engine, and nothing is written.
    ///
    /// # Errors
    /// [`StoreError::Open`], as for [`open`](Self::open), and if the database has no ledger or an older schema.
    pub async fn open_to_examine(url: &str, options: Options) -> Result<Self, StoreError> {
        open::open(url, options, open::Opening::Examination).await
    }

    /// The hosts, database and schema, without the password.
    pub fn place(&self) -> String {
        self.connector.place()
    }

    /// Waits for the write that is under way, and closes all connections. From then on every call fails with
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        self.retire().await;
        self.readers.close().await;
        self.hints.close();
    }

    /// Ends writing. The rows can still be read through this store.
    pub(crate) async fn retire(&self) {
        let writers = self.writers.lock().await.take();
        for connection in writers.into_iter().flatten().filter_map(|writer| writer.connection) {
            if let Err(error) = connection.close().await {
                tracing::warn!(%error, database = self.place(), "database connection not closed in order");
            }
        }
        self.guests.close().await;
    }
}

impl Store for Postgres {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(commit::commit(self, changes))
    }

    fn examine(&self) -> StoreFuture<'_, Vec<Defect>> {
        Box::pin(examine::examine(&self.readers))
    }

    fn named_keys(&self) -> StoreFuture<'_, BTreeMap<(String, String), u64>> {
        Box::pin(named_keys::named_keys(&self.readers))
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.readers)
    }

    fn pulse(&self) -> StoreFuture<'_, ClusterStatus> {
        // Each worker calls this with its heartbeat, idle or not.
        self.readers.close_unused();
        self.guests.close_unused();
        Box::pin(pulse::pulse(&self.readers))
    }

    fn load(&self) -> StoreLoad {
        StoreLoad { log_bytes: None, connections: Some(self.readers.connections()) }
    }

    /// Always succeeds: a replaced database lacks this worker's row, so that every write fails.
    fn in_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn wake_others(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.hints.give(&self.readers))
    }

    fn woken(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.hints.wait())
    }
}

/// The consequence of a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The database refused the values, not the write.
    Verdict,
    /// The statement was rolled back for a passing reason: the same again may succeed, on the same connection.
    Again,
    /// The connection can no longer be used. The outcome of the statement is unknown.
    Lost,
    /// The same statement would fail again.
    Final,
}

/// Sorts errors by SQLSTATE (postgresql.org/docs/current/errcodes-appendix.html).
fn fate(error: &sqlx::Error) -> Fate {
    let Some(error) = error.as_database_error() else {
        let lost = matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_));
        return if lost { Fate::Lost } else { Fate::Final };
    };
    match error.code().as_deref().unwrap_or_default() {
        // Division by zero: see `statement`. Unique keys, other constraints; values; rows that are too long.
        code if ["21", "22", "23", "54"].iter().any(|class| code.starts_with(class)) => Fate::Verdict,
        // Serialization, deadlock; lock timeout; a statement that was cancelled or took too long; memory.
        "40001" | "40P01" | "55P03" | "57014" | "53200" => Fate::Again,
        // The connection, the server's end or its beginning, too many clients, a transaction that was idle, a host that
        // has become a standby, statements that a pooler in between has forgotten.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25P03" | "25006" | "26000" | "08P01" => Fate::Lost,
        code if code.starts_with("08") => Fate::Lost,
        _ => Fate::Final,
    }
}

/// The code of an error for which the server rolled a transaction back, if the reason may pass, such as a deadlock: the
/// same transaction may succeed.
pub(crate) fn passing(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<sqlx::Error>().filter(|error| fate(error) == Fate::Again)?;
    error.as_database_error()?.code().map(Cow::into_owned)
}

/// Converts an error of the driver by the reaction that it needs from the caller. The text holds no values:
/// PostgreSQL keeps these apart from the message.
fn failure(error: &sqlx::Error) -> StoreError {
    if let Some(damaged) = damaged(error) {
        return damaged;
    }
    let detail = error.to_string();
    let code = error.as_database_error().and_then(|error| error.code().map(Cow::into_owned));
    match (fate(error), code.as_deref()) {
        (_, Some("53100")) => StoreError::Full { detail },
        (Fate::Again, _) => StoreError::Busy { detail },
        (Fate::Lost, _) => StoreError::Unreachable { detail },
        _ => StoreError::Io { detail },
    }
}

/// Escapes NUL, which PostgreSQL cannot store in text: NUL becomes U+0001 '0', and U+0001 becomes U+0001 '1'. Two
/// different texts stay different.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte <= 1) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => escaped.push_str("\u{1}0"),
            '\u{1}' => escaped.push_str("\u{1}1"),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Reverses the escape; `None` if the text is not an escaped one.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\u{1}') {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1}' => match chars.next() {
                Some('0') => plain.push('\0'),
                Some('1') => plain.push('\u{1}'),
                _ => return None,
            },
            c => plain.push(c),
        }
    }
    Some(Cow::Owned(plain))
}

/// The columns of a row in their order.
type Columns<'r> = super::sql::columns::Columns<'r, PgRow>;

impl FetchedRow for PgRow {
    fn plain(stored: &str) -> Option<Cow<'_, str>> {
        unescaped(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::{escaped, unescaped};

    #[test]
    fn every_text_can_be_stored_and_comes_back() {
        for text in ["", "a", "\0", "\u{1}", "a\0b\u{1}0\u{1}", "\u{1}1\0\0", "ä\u{2}"] {
            let stored = escaped(text).into_owned();
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(unescaped(&stored).as_deref(), Some(text));
        }
        assert_eq!(unescaped("a\u{1}"), None);
        assert_eq!(unescaped("a\u{1}x"), None);
    }
}
