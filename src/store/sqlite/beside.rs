//! A file with more than one process: an engine, and clients beside it. SQLite lets several processes write, one after
//! the other. What an engine must learn is that another process has written.
//!
//! SQLite counts that for each connection (`PRAGMA data_version`), so nothing is lost if a client dies right after its
//! commit. The count is read only when the log has changed, so an idle engine makes no statement.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sqlx::sqlite::SqliteConnection;

use super::{Columns, Sqlite, failure};
use crate::clock::{Clock as _, SystemClock};
use crate::store::StoreError;

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
    /// True if the log had changed at the last look. The clock of a filesystem is coarse: a later write may show the
    /// same instant, so the next look reads the count as well.
    is_fresh: bool,
}

impl Beside {
    pub(super) async fn of(
        place: &super::place::Place,
        connection: &mut SqliteConnection,
    ) -> Result<Self, StoreError> {
        let count = count(connection).await?;
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

async fn count(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let row = sqlx::query("PRAGMA data_version").fetch_one(connection).await.map_err(|e| failure(&e))?;
    Columns::of("pragma", &row).take()
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
            let count = count(&mut writer.connection).await?;
            if std::mem::replace(&mut writer.beside.count, count) != count {
                return Ok(());
            }
        }
    }
}
