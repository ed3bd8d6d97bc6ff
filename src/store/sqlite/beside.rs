//! A file with more than one process: an engine, and clients beside it. SQLite lets several processes write, one after
//! the other. What an engine must learn is that another process has written.
//!
//! SQLite counts that for each connection (`PRAGMA data_version`), so nothing is lost if a client dies right after its
//! commit. The count is read only when the log has changed, so an idle engine makes no statement.
//!
//! A commit writes the log, syncs it, and can be read only then. On a slow disk that is long after the log was seen to change,
//! and nothing shows in the log when it happens. So the count is read under the lock of writers, which a commit holds to its end.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sqlx::sqlite::SqliteConnection;

use super::commit::rollback;
use super::{Columns, Sqlite, Writer, failure, primary_code};
use crate::clock::{Clock as _, SystemClock};
use crate::store::StoreError;

/// Reads the count.
const COUNT: &str = "PRAGMA data_version";
/// Reads the count while no other connection is in the middle of a commit.
const COUNT_UNDER_LOCK: &str = "BEGIN IMMEDIATE; PRAGMA data_version; ROLLBACK";
/// The primary result code of a lock that another connection holds.
const BUSY: i32 = 5;

/// The pause between two looks at the log.
const PAUSE: Duration = Duration::from_millis(50);

/// The last known state of a file that other processes write, too.
#[derive(Debug)]
pub(super) struct Beside {
    log: PathBuf,
    /// The count of the writer's connection: it changes with each commit of another connection.
    count: i64,
    /// The size of the log and the instant of its last change, as they were last seen.
    seen: Option<(u64, SystemTime)>,
    /// True if the next look reads the count in any case. The clock of a filesystem is coarse: where the log has changed, a
    /// later write may show the same instant. And a commit may have been under way.
    is_fresh: bool,
}

impl Beside {
    pub(super) async fn of(
        place: &super::place::Place,
        connection: &mut SqliteConnection,
    ) -> Result<Self, StoreError> {
        let count = count(connection, COUNT).await?.unwrap_or_default();
        Ok(Self { log: place.log(), count, seen: None, is_fresh: true })
    }

    /// True if the log may have changed since the last look.
    fn has_changed(&mut self) -> bool {
        let seen = self.log.metadata().ok().and_then(|found| Some((found.len(), found.modified().ok()?)));
        let changed = seen != self.seen;
        self.seen = seen;
        std::mem::replace(&mut self.is_fresh, changed) || changed
    }
}

/// The count of a connection. `None` if another connection is in the middle of a commit.
async fn count(connection: &mut SqliteConnection, sql: &'static str) -> Result<Option<i64>, StoreError> {
    // All rows, because the last statement has to be carried out, too.
    match sqlx::query(sql).fetch_all(connection).await {
        Ok(rows) => rows.iter().map(|row| Columns::of("pragma", row).take()).next().transpose(),
        Err(error) if primary_code(&error) == Some(BUSY) => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

impl Sqlite {
    /// Resolves when another connection has written since the last time: another process, nearly always.
    pub(super) async fn written_beside(&self) -> Result<(), StoreError> {
        loop {
            SystemClock.sleep(PAUSE).await;
            let mut writer = self.writer.lock().await;
            let Some(writer) = writer.as_mut() else { return Err(StoreError::Closed) };
            if writer.is_busy() || !writer.beside.has_changed() {
                continue;
            }
            match writer.count().await? {
                None => writer.beside.is_fresh = true,
                Some(count) if std::mem::replace(&mut writer.beside.count, count) != count => return Ok(()),
                Some(_) => {}
            }
        }
    }
}

impl Writer {
    /// The count of this connection. `None` if another connection is in the middle of a commit: then the next look reads it again.
    ///
    /// A client reads it without the lock. It looks again by itself, and its future is dropped so often that it might keep
    /// the lock from the engine.
    async fn count(&mut self) -> Result<Option<i64>, StoreError> {
        if !self.place.is_owner() {
            return count(&mut self.connection, COUNT).await;
        }
        self.unfinished = true; // until its end is seen, because this future may be dropped
        let counted = count(&mut self.connection, COUNT_UNDER_LOCK).await;
        if counted.is_err() {
            rollback(&mut self.connection).await?;
        }
        self.unfinished = false;
        counted
    }
}
