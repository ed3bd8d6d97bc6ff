//! The embedded store: one SQLite file in WAL mode with `synchronous=FULL`, one writer, several readers.
//!
//! The mode is FULL, because with NORMAL a power failure may lose a `started` record, which means a silent duplicate
//! (<https://sqlite.org/pragma.html#pragma_synchronous>). There is one writer, because SQLite has only one and its
//! busy handler polls. There is a file per table; `commit` puts their rows into one transaction.

#[cfg(feature = "cli")]
pub(crate) mod backup;
mod beside;
mod commit;
mod continuity;
mod examine;
mod find;
pub(crate) mod inbox;
mod log;
mod named;
mod named_keys;
mod open;
mod outbox;
mod own;
mod place;
mod pulse;
mod retention;
mod row;
mod run;
mod shared;
mod special;
mod statement;
mod transaction;
#[cfg(feature = "postgres")]
mod transfer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, SqlitePool};
use tokio::sync::Mutex;

use super::cell::Declared as _;
use super::migration::MIGRATIONS;
use super::sql::ask::{Queries, damaged};
use super::{
    Change, ClusterStatus, Connections, Defect, Document, History, Store, StoreError, StoreFuture, StoreLoad,
    Turns, Verdict,
};
use crate::id::{RunId, Tenant};

use continuity::Continuity;
#[cfg(feature = "cli")]
pub(crate) use named::file_named;
pub use open::Options;
pub(crate) use outbox::add_event;
#[cfg(feature = "sim")]
pub(crate) use outbox::{simulate, take_events};
#[cfg(feature = "postgres")]
pub(super) use transfer::Source;
#[cfg(feature = "sim")]
pub(crate) use {commit::rollback, transaction::carry_out};

/// The migrations in their order, for hosts that run them with a tool of their own.
pub fn migrations() -> impl Iterator<Item = (i64, &'static str, &'static str)> {
    MIGRATIONS.iter().map(|migration| (migration.number, migration.name, migration.sqlite))
}

/// The statements that are built from parts, for tests that prepare and explain them.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    let whole = super::sql::retention::writes::<SqliteConnection>().into_iter();
    let whole = whole.chain(super::sql::erase::statements());
    let whole = whole.chain(super::sql::inbox::statements::<SqliteConnection>());
    let found = Document::TABLE.select(find::WANTED);
    whole
        .chain([found])
        .chain(row::statements())
        .chain(super::sql::retention::statements::<SqlitePool>())
        .chain(super::sql::run_page::statements::<SqlitePool>())
        .collect()
}

/// The embedded store: an SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    /// The file and its lock, held until this store is closed or dropped: the lock shows a restarted process that the
    /// former one is dead.
    place: Arc<place::Place>,
    /// The writer; `None` once the store is closed.
    writer: Mutex<Option<Writer>>,
    /// The number of messages that wait for the writer.
    in_line: AtomicUsize,
    /// The connection for writes that a crash may take back: the attempts of messages, and retired records. It is
    /// opened on demand.
    aside: Mutex<Option<SqliteConnection>>,
    readers: Queries<SqlitePool>,
    finder: find::Finder,
    continuity: Continuity,
}

/// The one connection that writes.
#[derive(Debug)]
struct Writer {
    connection: SqliteConnection,
    statements: statement::Statements,
    /// True if a write was begun and its end was not seen: its future was dropped, or it failed. The next write rolls
    /// back first.
    unfinished: bool,
    /// The messages of an open transaction that have ended well and are not committed.
    shared: shared::Shared,
    place: Arc<place::Place>,
    log: log::Log,
    beside: beside::Beside,
}

impl Sqlite {
    /// Opens or creates the database at `path` and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Open`] if another live process works on the file, if it was written by a newer version or by
    /// another application, if it cannot be written, if it is on a network filesystem, or if the SQLite library has
    /// the WAL-reset bug. The file is unchanged then.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default()).await
    }

    /// Opens the database with options.
    pub async fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        open::open(path.as_ref(), options).await
    }

    /// Opens an existing database to write into it beside the engine that works on it, or without one. The engine finds
    /// what is written here.
    ///
    /// # Errors
    /// [`StoreError::Open`] if the database does not exist, or belongs to another application or to another version.
    pub async fn open_beside(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        open::open_beside(path.as_ref(), options).await
    }

    /// Opens an existing database for reading only, beside the process that works on it or without one. Every write
    /// fails with [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`StoreError::Open`] if the database does not exist, or belongs to another application or to another version.
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        open::open_read_only(path.as_ref()).await
    }

    /// The path of the file, absolute and without symlinks.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Moves the WAL into the database file and truncates it, as backups need it. Not for daily use: the log has to
    /// grow again afterwards, which makes writes slower.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        let writer = writer.as_mut().ok_or(StoreError::Closed)?;
        writer.settle().await?;
        empty_log(&mut writer.connection).await.map(drop)
    }

    /// Waits for the work that is under way, closes all connections, and releases the file: when this returns,
    /// another process can open it. From then on every call fails with [`StoreError::Closed`].
    ///
    /// A released lock means that its former holder sends nothing more. So close a store only when no call of its
    /// process is under way; engine and executor make sure of that themselves.
    pub async fn close(&self) {
        self.readers.close().await; // first, because the last connection moves the log into the database, and may write
        self.retire().await;
    }

    /// Ends writing and releases the file. The rows can still be read through this store: an executor that was closed
    /// answers from recorded results.
    pub(crate) async fn retire(&self) {
        drop(self.aside.lock().await.take());
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.close().await
        {
            tracing::warn!(%error, path = %self.path().display(), "database connection not closed in order");
        }
        self.place.release();
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.place.release(); // its connections close in the background, and hold the file until then
    }
}

impl Writer {
    /// True in an open transaction.
    fn is_busy(&self) -> bool {
        self.unfinished || self.has_shared()
    }

    /// Moves the log into the database file, which is then complete without it, and closes.
    async fn close(mut self) -> Result<(), StoreError> {
        self.settle().await?;
        if self.place.is_owner() && !empty_log(&mut self.connection).await? {
            let path = self.place.path().display();
            tracing::warn!(%path, "database log not emptied, copy the -wal file as well");
        }
        self.connection.close().await.map_err(|e| failure(&e))
    }
}

/// Moves the log into the database file and truncates it. `false` if a reader still needs the log.
async fn empty_log(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    use sqlx::Row as _;
    let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_one(connection)
        .await
        .map_err(|e| failure(&e))?;
    let busy: i64 = row.try_get_unchecked(0).map_err(|e| failure(&e))?;
    Ok(busy == 0)
}

impl Store for Sqlite {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            match changes {
                [change] if change.beside => Ok(vec![retention::commit(self, change).await?]),
                _ => commit::commit(&self.writer, changes).await,
            }
        })
    }

    fn examine(&self) -> StoreFuture<'_, Vec<Defect>> {
        Box::pin(examine::examine(&self.readers))
    }

    fn named_keys(&self) -> StoreFuture<'_, BTreeMap<(String, String), u64>> {
        Box::pin(named_keys::named_keys(&self.readers))
    }

    fn has_engine(&self) -> Option<bool> {
        Some(self.place.has_owner())
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.readers)
    }

    fn document_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        id: &'a str,
    ) -> StoreFuture<'a, Option<Document>> {
        Box::pin(self.finder.find(&self.readers, tenant, kind, id))
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> StoreFuture<'a, History> {
        Box::pin(run::history(&self.readers, tenant, id, turns))
    }

    fn pulse(&self) -> StoreFuture<'_, ClusterStatus> {
        Box::pin(pulse::pulse(&self.readers))
    }

    fn in_place(&self) -> Result<(), StoreError> {
        Ok(self.place.check_to_send()?)
    }

    fn load(&self) -> StoreLoad {
        let (all, idle) = (self.readers.size(), u32::try_from(self.readers.num_idle()).unwrap_or(u32::MAX));
        StoreLoad {
            log_bytes: self.place.log().metadata().ok().map(|log| log.len()),
            connections: Some(Connections { in_use: all.saturating_sub(idle), idle }),
        }
    }

    /// False: one process at a time, whose lock shows if it is alive.
    fn is_shared(&self) -> bool {
        false
    }

    fn wake_others(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Resolves when another process has written: a client beside the engine, or the engine beside a client.
    fn woken(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.written_beside())
    }
}

/// Converts an error of the driver by the reaction that it needs from the caller (sqlite.org/rescode.html, primary
/// codes).
pub(crate) fn failure(error: &sqlx::Error) -> StoreError {
    if let Some(damaged) = damaged(error) {
        return damaged;
    }
    let detail = error.to_string();
    if matches!(error, sqlx::Error::PoolClosed) {
        return StoreError::Closed;
    }
    match primary_code(error) {
        Some(5 | 6) => StoreError::Busy { detail },
        Some(13) => StoreError::Full { detail },
        Some(11 | 26) => StoreError::Corrupt { row: "of the database file".into(), detail },
        _ => StoreError::Io { detail },
    }
}

/// The primary result code of SQLite: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// The columns of a row in their order.
type Columns<'r> = super::sql::columns::Columns<'r, SqliteRow>;

impl super::sql::columns::FetchedRow for SqliteRow {}
