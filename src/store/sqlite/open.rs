//! Opening a database: refusing a database that could lose a record, then bringing the schema up to date.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqlSafeStr as _, SqlitePool};
use tokio::sync::Mutex;

use super::beside::Beside;
use super::continuity::{self, Continuity};
use super::find::Finder;
use super::log::Log;
use super::named::{file_named, refuse_network_filesystem};
use super::place::Place;
use super::shared::Shared;
use super::statement::Statements;
use super::{Columns, Sqlite, Writer, failure, primary_code};
use crate::store::migration::{MIGRATIONS, Migration as Step, latest};
use crate::store::sql::ask::Queries;
use crate::store::{OpenError, StoreError};

/// The application id, "CFOI", which marks the file as the engine's.
const APPLICATION_ID: i64 = 0x4346_4f49;

/// The schema version of a file whose rows were moved to another database: no engine, old or new, opens it.
pub(super) const GIVEN_UP: i64 = 1_000_000;

/// The size to which an emptied log is truncated, in bytes.
const LOG_LIMIT: u64 = 64 << 20;

/// The options for opening the database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of connections for reading, opened on demand. Default: 4.
    pub readers: u32,
    /// The time for which a write waits for another program that has the file locked (a backup, a shell). Default:
    /// 5 s.
    pub busy_timeout: Duration,
    /// The time for which opening waits for another process that has the file: a killed process may still be dying.
    /// Default: 5 s.
    pub wait_for_owner: Duration,
    /// The size of the log, in bytes, from which on a warning says that the log grows. SQLite empties the log
    /// regularly, but not while another program reads the file: then the log grows until that program is done, or the
    /// disk is full. Default: 128 MiB.
    pub large_log: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 4,
            busy_timeout: Duration::from_secs(5),
            wait_for_owner: Duration::from_secs(5),
            large_log: 2 * LOG_LIMIT,
        }
    }
}

/// A connection whose commits do not wait for the disk.
pub(super) async fn open_aside(store: &Sqlite) -> Result<SqliteConnection, StoreError> {
    let options = store.place.connect().synchronous(SqliteSynchronous::Normal).disable_statement_logging();
    let connection = options.connect().await.map_err(|e| failure(&e))?;
    store.place.check()?; // it was opened by its name
    Ok(connection)
}

pub(super) async fn open(path: &Path, options: Options) -> Result<Sqlite, StoreError> {
    open_unless(|version| version == GIVEN_UP, path, options).await.map(|(store, _)| store)
}

/// Opens a file to move its rows elsewhere, even if its rows have been moved. Returns its schema version, too.
#[cfg(feature = "postgres")]
pub(super) async fn open_to_move(path: &Path, options: Options) -> Result<(Sqlite, i64), StoreError> {
    open_unless(|_| false, path, options).await
}

async fn open_unless(
    refused: fn(i64) -> bool,
    path: &Path,
    options: Options,
) -> Result<(Sqlite, i64), StoreError> {
    let path = file_named(path)?;
    refuse_network_filesystem(&path)?;
    let place = Arc::new(Place::own(&path, options.wait_for_owner).await?);
    let path = place.path();
    let connect = connect(&place, &options);
    let mut writer = connect.clone().connect().await.map_err(|e| unusable(path, &e))?;
    refuse_unsafe_library(path, &mut writer).await?;
    let version = refuse_foreign(path, &mut writer).await?;
    if refused(version) {
        return Err(OpenError::GivenUp { path: path.display().to_string() }.into());
    }
    prepare_file(path, &mut writer).await?;
    if version < latest() {
        migrate(&mut writer).await.map_err(|e| unusable(path, &e))?;
    }
    place.check()?; // SQLite opened it by its name
    let (file, inode) = place.file();
    let continuity = continuity::judge(file, inode, &mut writer).await?;
    Ok((Sound { place, connect, writer, continuity }.store(&options).await?, version))
}

/// Opens an existing file without its lock, to write beside the engine that has the lock. The engine has made the
/// schema, and changes it.
pub(super) async fn open_beside(path: &Path, options: Options) -> Result<Sqlite, StoreError> {
    let path = file_named(path)?;
    refuse_network_filesystem(&path)?;
    let place = Arc::new(Place::beside(&path)?);
    let path = place.path();
    let connect = connect(&place, &options);
    let mut writer = connect.clone().connect().await.map_err(|e| unusable(path, &e))?;
    refuse_unsafe_library(path, &mut writer).await?;
    if refuse_older(path, &mut writer).await? == GIVEN_UP {
        return Err(OpenError::GivenUp { path: path.display().to_string() }.into());
    }
    prepare_file(path, &mut writer).await?;
    place.check()?; // SQLite opened it by its name
    Sound { place, connect, writer, continuity: Continuity::Unknown }.store(&options).await
}

/// The options for connections to the file.
fn connect(place: &Place, options: &Options) -> SqliteConnectOptions {
    place
        .connect()
        .busy_timeout(options.busy_timeout)
        .statement_cache_capacity(super::statement::KEPT)
        .disable_statement_logging()
}

/// A file that was found sound.
struct Sound {
    place: Arc<Place>,
    connect: SqliteConnectOptions,
    /// The connection that writes.
    writer: SqliteConnection,
    continuity: Continuity,
}

impl Sound {
    /// The store on the file.
    async fn store(self, options: &Options) -> Result<Sqlite, StoreError> {
        let Self { place, connect, writer: mut connection, continuity } = self;
        let readers = Queries(readers(&place, connect, options.readers));
        let beside = Beside::of(&place, &mut connection).await?;
        let log = Log::of(&place, options.large_log);
        let (statements, unfinished, shared) = (Statements::default(), false, Shared::default());
        let writer = Writer { connection, statements, unfinished, shared, place: place.clone(), log, beside };
        Ok(store(place, Some(writer), readers, continuity))
    }
}

fn store(
    place: Arc<Place>,
    writer: Option<Writer>,
    readers: Queries<SqlitePool>,
    continuity: Continuity,
) -> Sqlite {
    Sqlite {
        place,
        writer: Mutex::new(writer),
        in_line: AtomicUsize::default(),
        aside: Mutex::default(),
        readers,
        finder: Finder::default(),
        continuity,
    }
}

/// Refuses a file whose schema is older than this build's, which only its engine may change. Returns the version.
async fn refuse_older(path: &Path, connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let version = refuse_foreign(path, connection).await?;
    if version < latest() {
        let detail = format!(
            "its schema version is {version}, and this program needs {}: start an engine of this version on it first",
            latest()
        );
        return Err(OpenError::Unusable { path: path.display().to_string(), detail }.into());
    }
    Ok(version)
}

/// Opens without a lock and without a writer: a process that works on the file goes on.
pub(super) async fn open_read_only(path: &Path) -> Result<Sqlite, StoreError> {
    let path = file_named(path)?;
    refuse_network_filesystem(&path)?;
    let options = Options::default();
    let place = Arc::new(Place::beside(&path)?);
    let path = place.path();
    let connect = connect(&place, &options).read_only(true);
    let mut connection = connect.clone().connect().await.map_err(|e| unusable(path, &e))?;
    refuse_older(path, &mut connection).await?;
    connection.close().await.map_err(|e| unusable(path, &e))?;
    let readers = Queries(readers(&place, connect, options.readers));
    Ok(store(place, None, readers, Continuity::Unknown)) // it stays unknown
}

fn readers(place: &Arc<Place>, connect: SqliteConnectOptions, count: u32) -> SqlitePool {
    let place = place.clone();
    SqlitePoolOptions::new()
        .max_connections(count.max(1))
        .min_connections(0)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false) // a local file does not hang up
        // The connection is opened late and by its name: without this check it might read another file that has the
        // name by now. An error from here would be retried for half a minute; in an empty database each read fails at
        // once.
        .after_connect(move |connection, _| {
            let checked = place.check();
            Box::pin(async move {
                if let Err(error) = checked {
                    tracing::error!(%error, "database file gone from its place, reads fail");
                    *connection = SqliteConnectOptions::new().in_memory(true).connect().await?;
                }
                Ok(())
            })
        })
        .connect_lazy_with(connect.read_only(true).pragma("query_only", "ON").row_buffer_size(512))
}

/// Sets the pragmas that make a commit durable, on the connection that writes.
async fn prepare_file(path: &Path, writer: &mut SqliteConnection) -> Result<(), StoreError> {
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4000; PRAGMA wal_autocheckpoint = 1000; \
         PRAGMA journal_size_limit = {LOG_LIMIT}"
    );
    let set = sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas)).execute(&mut *writer).await;
    set.map_err(|e| unusable(path, &e))?;
    let mode = pragma_text(path, writer, "PRAGMA journal_mode").await?;
    if mode != "wal" {
        let detail = format!("its journal mode is {mode} and cannot be changed to wal");
        return Err(OpenError::ReadOnly { path: path.display().to_string(), detail }.into());
    }
    // A write that changes nothing: a read-only file, folder or filesystem shows here and not at the first effect.
    // BEGIN IMMEDIATE alone does not show it: on a read-only file SQLite quietly begins to read instead.
    let write = format!("BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; ROLLBACK");
    sqlx::raw_sql(sqlx::AssertSqlSafe(write)).execute(writer).await.map(drop).map_err(|e| unusable(path, &e))
}

/// Refuses a library below 3.51.3, where two connections that write and checkpoint at once can corrupt the file.
async fn refuse_unsafe_library(path: &Path, writer: &mut SqliteConnection) -> Result<(), StoreError> {
    let found = pragma_text(path, writer, "SELECT sqlite_version()").await?;
    let mut parts = found.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    if version < [3, 51, 3] {
        return Err(OpenError::UnsafeLibrary { found }.into());
    }
    Ok(())
}

/// Refuses a file that is of another application or from the future. Returns the schema version of a file that is new
/// or the engine's.
pub(super) async fn refuse_foreign(path: &Path, writer: &mut SqliteConnection) -> Result<i64, StoreError> {
    let id = pragma_number(path, writer, "PRAGMA application_id").await?;
    let version = pragma_number(path, writer, "PRAGMA user_version").await?;
    let tables = pragma_number(path, writer, "SELECT count(*) FROM sqlite_schema").await?;
    let path = path.display().to_string();
    if id != APPLICATION_ID && (id != 0 || tables > 0) {
        return Err(OpenError::Foreign { path, found: id }.into());
    }
    if version > latest() && version != GIVEN_UP {
        return Err(OpenError::FromTheFuture { path, found: version, known: latest() }.into());
    }
    Ok(version)
}

/// Applies the missing migrations. The driver's migrator takes no lock on SQLite, and three of them at once fail half
/// of the time; here they run under the lock of the file. Each migration is one transaction; a crash in between is
/// resumed.
async fn migrate(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // The application id comes first, so that a crash before the first migration does not leave a file that looks
    // foreign.
    let id = format!("PRAGMA application_id = {APPLICATION_ID}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(id)).execute(&mut *writer).await?;
    let migrations = MIGRATIONS.map(|Step { number, name, sqlite, .. }| {
        Migration::new(number, Cow::Borrowed(name), MigrationType::Simple, sqlite.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.into());
    migrator.dangerous_set_table_name("_counterfoil_migrations");
    migrator.run_direct(None, writer, false).await.map_err(|e| sqlx::Error::Migrate(Box::new(e)))?;
    let version = format!("PRAGMA user_version = {}", latest());
    sqlx::raw_sql(sqlx::AssertSqlSafe(version)).execute(writer).await.map(drop)
}

async fn pragma_text(
    path: &Path,
    writer: &mut SqliteConnection,
    sql: &'static str,
) -> Result<String, StoreError> {
    let row = sqlx::query(sql).fetch_one(writer).await.map_err(|e| unusable(path, &e))?;
    Columns::of("pragma", &row).take()
}

async fn pragma_number(
    path: &Path,
    writer: &mut SqliteConnection,
    sql: &'static str,
) -> Result<i64, StoreError> {
    let row = sqlx::query(sql).fetch_one(writer).await.map_err(|e| unusable(path, &e))?;
    Columns::of("pragma", &row).take()
}

pub(super) fn unusable(path: &Path, error: &sqlx::Error) -> StoreError {
    let (path, detail) = (path.display().to_string(), error.to_string());
    match primary_code(error) {
        Some(8) => OpenError::ReadOnly { path, detail }.into(),
        Some(5 | 6 | 13) => failure(error),
        _ => OpenError::Unusable { path, detail }.into(),
    }
}
