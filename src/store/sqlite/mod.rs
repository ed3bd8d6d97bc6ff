//! The embedded store: one SQLite file in WAL mode with `synchronous=FULL`, one writer, several readers.
//!
//! FULL, because with NORMAL a power failure may lose a `started` record, which is a silent duplicate
//! (<https://sqlite.org/pragma.html#pragma_synchronous>). One writer, because SQLite has only one and its busy handler
//! polls. A file per table; `commit` puts their rows into one transaction.

mod commit;
mod continuity;
mod erase;
mod escalation;
pub(crate) mod inbox;
mod log;
mod named;
mod open;
mod outbox;
mod payload;
mod place;
mod queue;
mod record;
mod retention;
mod row;
mod run;
mod shared;
mod signal;
mod statement;
mod step;
mod transaction;
#[cfg(feature = "postgres")]
mod transfer;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Connection as _, SqlitePool};
use tokio::sync::Mutex;

use super::run::reads;
use super::{
    Aggregate, Asked, Change, Document, Due, Escalation, Evidence, History, OutboxEvent, Published, Pulse,
    QueueLoad, Run, Schedule, Signal, Store, StoreError, Turns, Use, Verdict, Worker,
};
use crate::clock::Timestamp;
use crate::id::{EscalationId, Fence, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

pub use super::transaction::TransactionError;
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
    open::MIGRATIONS.iter().copied()
}

/// The statements that are put together from parts. For tests that prepare and explain them.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    let whole = retention::statements().chain(super::erase::statements()).map(ToOwned::to_owned);
    whole.chain(row::statements()).collect()
}

/// The embedded store.
#[derive(Debug)]
pub struct Sqlite {
    /// The file and its lock, held until this store is closed or dropped: it is how a restarted process knows that the
    /// former one is dead.
    place: Arc<place::Place>,
    /// None once it is closed.
    writer: Mutex<Option<Writer>>,
    /// Messages that wait for the writer.
    in_line: AtomicUsize,
    /// Writes what a crash may take back: the tries of messages, and retired records. Opened when it is first needed.
    aside: Mutex<Option<SqliteConnection>>,
    readers: SqlitePool,
    continuity: Continuity,
}

/// The one connection that writes.
#[derive(Debug)]
struct Writer {
    connection: SqliteConnection,
    statements: statement::Statements,
    /// A write was begun and its end not seen: its future was dropped, or it failed. The next one rolls back first.
    unfinished: bool,
    /// What is open, ended well, and is not committed.
    shared: shared::Shared,
    place: Arc<place::Place>,
    log: log::Log,
}

impl Sqlite {
    /// Opens or creates the database at `path` and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Open`] if another living process works on it, if it was written by a newer version or by
    /// another application, if it cannot be written, if it is on a network filesystem, or if the SQLite library
    /// has the WAL-reset bug. The file is left as it was.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, Options::default()).await
    }

    /// Opens the database with other than the default options.
    pub async fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        open::open(path.as_ref(), options).await
    }

    /// Opens a database that is there to be read only, beside the process that works on it or without one. Every write is
    /// answered with [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`StoreError::Open`] if it is not there, or is of another application or of another version than this one.
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        open::open_read_only(path.as_ref()).await
    }

    /// The file: its absolute path, without symlinks.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Moves the WAL into the database file and cuts it to nothing, as backups like it. Not for daily use: the
    /// file has to grow again afterwards, which makes writes slower.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        let writer = writer.as_mut().ok_or(StoreError::Closed)?;
        writer.settle().await?;
        empty_log(&mut writer.connection).await.map(drop)
    }

    /// Waits for what is under way, closes all connections, and gives the file free: when this returns, another
    /// process can open it. From then on everything is answered with [`StoreError::Closed`].
    ///
    /// The lock says that whoever had it sends nothing more. So close a store only when no call of its process is
    /// under way; engine and executor see to that themselves.
    pub async fn close(&self) {
        self.readers.close().await; // first, for the last connection moves the log into the database, and may write
        self.retire().await;
    }

    /// Ends writing and gives the file free. What is there can still be read through this store: an executor that
    /// was closed answers what is recorded.
    pub(crate) async fn retire(&self) {
        drop(self.aside.lock().await.take());
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.close().await
        {
            tracing::warn!(%error, path = %self.path().display(), "the database was not closed in order");
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
    /// Moves the log into the database file, which is then whole without it, and closes.
    async fn close(mut self) -> Result<(), StoreError> {
        self.settle().await?;
        if !empty_log(&mut self.connection).await? {
            let path = self.place.path().display();
            tracing::warn!(%path, "somebody reads the database: what is new is still in its -wal file; copy both");
        }
        self.connection.close().await.map_err(|e| failure(&e))
    }
}

/// Moves the log into the database file and cuts it to nothing. `false` if a reader holds on to what is in it.
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
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
        Box::pin(async move {
            match changes {
                [change] if change.beside => Ok(vec![retention::commit(self, change).await?]),
                _ => commit::commit(&self.writer, changes).await,
            }
        })
    }

    fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Asked<'a, Option<Record>> {
        Box::pin(record::find(&self.readers, tenant, key))
    }

    fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Option<Record>> {
        Box::pin(record::at(&self.readers, tenant, id))
    }

    fn record_orphans(&self, after: RecordId, limit: u32) -> Asked<'_, Vec<Record>> {
        Box::pin(record::orphans(&self.readers, after, limit))
    }

    fn record_committed<'a>(
        &'a self,
        tenant: &'a Tenant,
        since: Timestamp,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Record>> {
        Box::pin(record::committed(&self.readers, tenant, since, after, limit))
    }

    fn record_removed<'a>(&'a self, tenant: &'a Tenant, key: &'a str, since: Timestamp) -> Asked<'a, bool> {
        Box::pin(record::is_removed(&self.readers, tenant, key, since))
    }

    fn look_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Look>> {
        Box::pin(crate::store::look::due(&self.readers, until, limit))
    }

    fn look_find<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Option<Look>> {
        Box::pin(crate::store::look::find(&self.readers, tenant, record))
    }

    fn record_expired(&self, after: Timestamp, until: Timestamp, limit: u32) -> Asked<'_, Vec<Record>> {
        Box::pin(retention::expired(&self.readers, after, until, limit))
    }

    fn record_expiring(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(retention::expiring(&self.readers, after))
    }

    fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Use>> {
        Box::pin(record::uses(&self.readers, tenant, id))
    }

    fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Evidence>> {
        Box::pin(record::evidence(&self.readers, tenant, id))
    }

    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Asked<'a, Option<Run>> {
        Box::pin(reads::find(&self.readers, tenant, id))
    }

    fn run_keyed<'a>(
        &'a self,
        tenant: &'a Tenant,
        workflow: &'a str,
        key: &'a str,
    ) -> Asked<'a, Option<Run>> {
        Box::pin(reads::keyed(&self.readers, tenant, workflow, key))
    }

    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> Asked<'a, History> {
        Box::pin(run::history(&self.readers, tenant, id, turns))
    }

    fn run_orphans(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::orphans(&self.readers, after, limit))
    }

    fn run_answered(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::answered(&self.readers, after, limit))
    }

    fn run_signalled(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::signalled(&self.readers, after, limit))
    }

    fn run_children<'a>(
        &'a self,
        tenant: &'a Tenant,
        parent: RunId,
        after: RunId,
        limit: u32,
    ) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::children(&self.readers, tenant, parent, after, limit))
    }

    fn run_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Run>> {
        Box::pin(reads::due(&self.readers, until, limit))
    }

    fn next_due(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(reads::next_due(&self.readers, after))
    }

    fn run_list<'a>(&'a self, tenant: &'a Tenant, after: RunId, limit: u32) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::list(&self.readers, tenant, after, limit))
    }

    fn queue_waiting(&self) -> Asked<'_, Vec<String>> {
        Box::pin(queue::waiting(&self.readers))
    }

    fn queue_admitted<'a>(&'a self, queue: &'a str, fence: Fence, since: Timestamp) -> Asked<'a, Vec<Run>> {
        Box::pin(reads::admitted(&self.readers, queue, fence, since))
    }

    fn queue_load(&self) -> Asked<'_, Vec<QueueLoad>> {
        Box::pin(queue::load(&self.readers))
    }

    fn schedule_find<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Schedule>> {
        Box::pin(Schedule::find(&self.readers, tenant, name))
    }

    fn schedule_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Schedule>> {
        Box::pin(Schedule::list(&self.readers, tenant, after, limit))
    }

    fn schedule_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Schedule>> {
        Box::pin(Schedule::due(&self.readers, until, limit))
    }

    fn document_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Document>> {
        Box::pin(Document::find(&self.readers, tenant, kind, id))
    }

    fn document_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        Box::pin(Document::list(&self.readers, tenant, kind, after, limit))
    }

    fn document_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        Box::pin(Document::list_open(&self.readers, tenant, kind, after, limit))
    }

    fn outbox_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Due>> {
        Box::pin(outbox::due(&self.readers, until, limit))
    }

    fn outbox_next(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        Box::pin(outbox::next(&self.readers, after))
    }

    fn outbox_published(&self, after: Timestamp, limit: u32) -> Asked<'_, Vec<Published>> {
        Box::pin(outbox::published(&self.readers, after, limit))
    }

    fn outbox_find<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> Asked<'a, Option<OutboxEvent>> {
        Box::pin(outbox::find(&self.readers, tenant, id))
    }

    fn outbox_aggregate<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Aggregate>> {
        Box::pin(outbox::aggregate(&self.readers, tenant, name))
    }

    fn outbox_set_aside<'a>(
        &'a self,
        tenant: &'a Tenant,
        question: EscalationId,
    ) -> Asked<'a, Option<Aggregate>> {
        Box::pin(outbox::set_aside(&self.readers, tenant, question))
    }

    fn signal_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        Box::pin(Signal::find(&self.readers, tenant, run, name, id))
    }

    fn signal_unreceived<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        Box::pin(Signal::unreceived(&self.readers, tenant, run, name, id))
    }

    fn signal_last<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Option<i64>> {
        Box::pin(Signal::last(&self.readers, tenant, run))
    }

    fn signal_pending<'a>(&'a self, runs: &'a [(Tenant, RunId)]) -> Asked<'a, Vec<Signal>> {
        Box::pin(async move {
            let mut connection = self.readers.acquire().await.map_err(|e| failure(&e))?;
            let mut pending = Vec::new();
            for (tenant, run) in runs {
                pending.extend(signal::pending(&mut connection, tenant, *run).await?);
            }
            Ok(pending)
        })
    }

    fn escalation_find<'a>(&'a self, tenant: &'a Tenant, id: EscalationId) -> Asked<'a, Option<Escalation>> {
        Box::pin(Escalation::find(&self.readers, tenant, id))
    }

    fn escalation_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: EscalationId,
        limit: u32,
    ) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::open(&self.readers, tenant, after, limit))
    }

    fn escalation_about<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::about(&self.readers, tenant, run))
    }

    fn escalation_of<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Vec<Escalation>> {
        Box::pin(Escalation::of(&self.readers, tenant, record))
    }

    fn escalation_unknown_workflow(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        Box::pin(Escalation::unknown_workflow(&self.readers, after, limit))
    }

    fn escalation_duplicated(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        Box::pin(Escalation::duplicated(&self.readers, after, limit))
    }

    fn worker_find<'a>(&'a self, name: &'a str) -> Asked<'a, Option<Worker>> {
        Box::pin(worker::find(&self.readers, name))
    }

    fn worker_at(&self, fence: Fence) -> Asked<'_, Option<Worker>> {
        Box::pin(worker::at(&self.readers, fence))
    }

    fn pulse(&self) -> Asked<'_, Pulse> {
        Box::pin(worker::pulse(&self.readers))
    }

    fn in_place(&self) -> Result<(), StoreError> {
        Ok(self.place.check_to_send()?)
    }

    /// One process at a time: its lock tells whether the former one is alive.
    fn is_shared(&self) -> bool {
        false
    }

    fn wake_others(&self) -> Asked<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn woken(&self) -> Asked<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> Asked<'a, Option<DigestKey>> {
        Box::pin(payload::tenant_key(&self.readers, tenant))
    }

    fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> Asked<'a, Option<Payload>> {
        Box::pin(payload::find(&self.readers, tenant, digest))
    }
}

/// A damaged row is named and passed over: it must not take the others of its list with it.
fn sound<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T, StoreError>) -> Vec<T> {
    let sound = |row| read(row).inspect_err(|error| tracing::error!(%error, "left out of a list")).ok();
    rows.iter().filter_map(sound).collect()
}

/// The next page of a list in the order of its first column. One of which all rows are damaged is passed over: an
/// empty one would say that the list ends here.
async fn next_sound<T>(
    pool: &SqlitePool,
    mut after: i64,
    page: impl Fn(i64) -> Query<'static, sqlx::Sqlite, SqliteArguments>,
    read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    use sqlx::Row as _;
    loop {
        let rows = page(after).fetch_all(pool).await.map_err(|e| failure(&e))?;
        let Some(last) = rows.last() else { return Ok(Vec::new()) };
        after = last.try_get_unchecked(0).map_err(|e| failure(&e))?;
        let sound = sound(&rows, &read);
        if !sound.is_empty() {
            return Ok(sound);
        }
    }
}

/// Sorts the driver's errors by what a caller does about them (sqlite.org/rescode.html, primary codes).
pub(crate) fn failure(error: &sqlx::Error) -> StoreError {
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

/// SQLite's primary result code: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Reads a row's columns in their order, telling damage from trouble.
struct Columns<'r> {
    row: &'r SqliteRow,
    next: usize,
    what: &'static str,
}

impl<'r> Columns<'r> {
    const fn of(what: &'static str, row: &'r SqliteRow) -> Self {
        Self { row, next: 0, what }
    }

    fn take<T>(&mut self) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        use sqlx::Row as _;
        let index = self.next;
        self.next += 1;
        // STRICT tables have checked the types when the row was written.
        self.row.try_get_unchecked(index).map_err(|e| self.damaged(e))
    }

    fn parse<T, U>(&mut self, read: impl FnOnce(T) -> Option<U>) -> Result<U, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        let value = self.take()?;
        read(value).ok_or_else(|| self.damaged("a value that no version of this engine writes"))
    }

    fn parse_some<T, U>(&mut self, read: impl FnOnce(T) -> Option<U>) -> Result<Option<U>, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        let value: Option<T> = self.take()?;
        value
            .map(|value| {
                read(value).ok_or_else(|| self.damaged("a value that no version of this engine writes"))
            })
            .transpose()
    }

    fn damaged(&self, detail: impl std::fmt::Display) -> StoreError {
        use sqlx::Row as _;
        let first: i64 = self.row.try_get_unchecked(0).unwrap_or_default();
        StoreError::Corrupt { row: format!("{} {first:x}", self.what), detail: detail.to_string() }
    }
}
