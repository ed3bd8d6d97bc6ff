//! Copies of a database file: a backup beside the engine that works on it, and a copy that is put into place.
//!
//! `VACUUM INTO` reads in one transaction, so a copy holds what was committed at one moment, and the engine goes on
//! writing meanwhile. SQLite's online backup begins anew with each commit of another connection: beside a busy engine
//! it would never end. The price is that the log of the file is not emptied while the copy is being made.
//!
//! A copy is made under another name, synced, and only then given its name: under that name is a whole copy or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::named::{file_named, refuse_network_filesystem};
use super::open::{GIVEN_UP, refuse_foreign, unusable};
use super::place::Place;
use super::{Columns, failure};
use crate::clock::{Clock as _, SystemClock, Timestamp};
use crate::id::Tenant;
use crate::store::{Document, LEDGER_KIND, OpenError, StoreError};

/// The id of the document in which a copy says of which instant it is.
const BACKUP_ID: &str = "backup";

/// The schema version from which on a file has documents.
const DOCUMENTS_SINCE: i64 = 8;

/// The time for which a restore waits for the lock of an engine that is being shut down.
const WAIT: Duration = Duration::from_secs(1);

/// The reason why no copy was made or put into place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("{path} is there already: nothing was written; name another file")]
    Exists { path: String },
    #[error("{path} was not written: {detail}; no file has that name now")]
    NotWritten { path: String, detail: String },
    #[error(
        "{path} was given up: its rows were moved to another database, and a copy of it would be an older state of them"
    )]
    GivenUp { path: String },
    #[error(
        "the log {path} is there, and its database is not: nothing was changed; remove the log, or put its database back"
    )]
    StrayLog { path: String },
    #[error("{path} was not put into place: {detail}; the former file is where it was")]
    NotPlaced { path: String, detail: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<OpenError> for CopyError {
    fn from(error: OpenError) -> Self {
        Self::Store(error.into())
    }
}

/// A copy that was made.
#[derive(Debug)]
pub(crate) struct Copied {
    /// An instant before the one at which the rows were read.
    pub(crate) as_of: Timestamp,
    /// The size of the copy.
    pub(crate) bytes: u64,
}

/// What a copy says about itself.
#[derive(Serialize, Deserialize)]
struct Said {
    as_of: i64,
}

/// Copies the database file `from` to the new file `to`, also while an engine works on it.
///
/// # Crash
/// Nothing has the name `to` before the copy is whole and synced. What a killed process leaves has `.partial-` in its name.
pub(crate) async fn backup(from: &Path, to: &Path) -> Result<Copied, CopyError> {
    let partial = Partial::of(to)?;
    let as_of = SystemClock.now();
    if copy(from, &partial).await? >= DOCUMENTS_SINCE {
        say(&partial.path, as_of).await.map_err(|error| partial.failed(&failure(&error)))?;
    }
    let bytes = partial.become_new(to)?;
    Ok(Copied { as_of, bytes })
}

/// Copies the rows. Returns the schema version.
async fn copy(from: &Path, to: &Partial) -> Result<i64, CopyError> {
    let from = file_named(from)?;
    let place = Place::beside(&from)?;
    let mut source = reading(&place).await?;
    let version = refuse_foreign(place.path(), &mut source).await?;
    if version == GIVEN_UP {
        return Err(CopyError::GivenUp { path: from.display().to_string() });
    }
    place.check()?; // SQLite opened it by its name
    let path = to.path.to_string_lossy().into_owned();
    let copied = sqlx::query("VACUUM INTO $1").bind(path).execute(&mut source).await;
    copied.map_err(|error| to.failed(&failure(&error)))?;
    let _ = source.close().await; // it has only read
    Ok(version)
}

async fn reading(place: &Place) -> Result<SqliteConnection, StoreError> {
    let options = place.connect().read_only(true).disable_statement_logging();
    options.connect().await.map_err(|error| unusable(place.path(), &error))
}

/// Writes into a copy of which instant it is.
async fn say(copy: &Path, as_of: Timestamp) -> Result<(), sqlx::Error> {
    let mut connection = alone(copy).connect().await?;
    let row =
        Document::first(&Tenant::ledger(), LEDGER_KIND, BACKUP_ID.into(), &Said { as_of: as_of.0 }, as_of);
    let written = sqlx::query(
        "INSERT INTO document (tenant, kind, id, revision, open, body, created_at, updated_at) \
         VALUES ($1, $2, $3, 1, false, $4, $5, $5) \
         ON CONFLICT (tenant, kind, id) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at",
    );
    let written = written.bind(row.tenant.as_str().to_owned()).bind(LEDGER_KIND).bind(BACKUP_ID);
    written.bind(row.body).bind(as_of.0).execute(&mut connection).await?;
    connection.close().await
}

/// The instant that a copy says that it is of.
async fn said(copy: &Path) -> Result<Option<Timestamp>, sqlx::Error> {
    let mut connection = alone(copy).read_only(true).connect().await?;
    let found = sqlx::query("SELECT body FROM document WHERE tenant = $1 AND kind = $2 AND id = $3");
    let found = found.bind(Tenant::ledger().as_str().to_owned()).bind(LEDGER_KIND).bind(BACKUP_ID);
    // A copy of a version without documents says nothing.
    let row = found.fetch_optional(&mut connection).await.ok().flatten();
    let body: Option<String> = row.and_then(|row| Columns::of("document", &row).take().ok());
    connection.close().await?;
    Ok(body.and_then(|body| serde_json::from_str::<Said>(&body).ok()).map(|said| Timestamp(said.as_of)))
}

/// Takes out of a copy of which instant it is: an engine will work on it, and a later copy of it is of another instant.
async fn forget(copy: &Path) -> Result<(), sqlx::Error> {
    let mut connection = alone(copy).connect().await?;
    let removed = sqlx::query("DELETE FROM document WHERE tenant = $1 AND kind = $2 AND id = $3");
    let removed = removed.bind(Tenant::ledger().as_str().to_owned()).bind(LEDGER_KIND).bind(BACKUP_ID);
    removed.execute(&mut connection).await?;
    connection.close().await
}

/// A connection to a file that nobody else knows.
fn alone(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).disable_statement_logging()
}

/// A copy that has not its name yet. It is removed unless it gets it.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    name: String,
}

impl Partial {
    /// An empty file beside the one that it is to become, readable by its owner alone.
    fn of(to: &Path) -> Result<Self, CopyError> {
        let name = to.display().to_string();
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".partial-{}", std::process::id()));
        let partial = Self { path: path.into(), name };
        if to.symlink_metadata().is_ok() {
            return Err(CopyError::Exists { path: to.display().to_string() });
        }
        partial.create()?;
        Ok(partial)
    }

    fn create(&self) -> Result<(), CopyError> {
        let _ = fs::remove_file(&self.path); // of a killed process that had this number
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        made.map(drop).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &impl ToString) -> CopyError {
        CopyError::NotWritten { path: self.name.clone(), detail: error.to_string() }
    }

    /// Gives the synced copy a name that no file has.
    fn become_new(self, to: &Path) -> Result<u64, CopyError> {
        let bytes = self.sync().map_err(|error| self.failed(&error))?;
        match fs::hard_link(&self.path, to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(CopyError::Exists { path: self.name.clone() });
            }
            // A filesystem without hard links.
            Err(_) if to.symlink_metadata().is_err() => {
                fs::rename(&self.path, to).map_err(|error| self.failed(&error))?;
            }
            Err(error) => return Err(self.failed(&error)),
        }
        let _ = fs::remove_file(&self.path);
        sync_folder(to).map_err(|error| self.failed(&error))?;
        Ok(bytes)
    }

    fn sync(&self) -> io::Result<u64> {
        let file = File::open(&self.path)?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(beside(&self.path, suffix));
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes the names in the folder of a file durable.
fn sync_folder(of: &Path) -> io::Result<()> {
    let folder = of.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// A copy of a backup that is to take the place of a ledger on which no engine works.
#[derive(Debug)]
pub(crate) struct Restore {
    target: PathBuf,
    /// The former file, with its lock, if there is one.
    former: Option<Arc<Place>>,
    copy: Partial,
    as_of: Option<Timestamp>,
}

impl Restore {
    /// Takes the lock of the ledger at `target`, if it is there, and copies the backup beside it.
    pub(crate) async fn begin(backup: &Path, target: &Path) -> Result<Self, CopyError> {
        let target = file_named(target)?;
        refuse_network_filesystem(&target)?;
        let former = if target.exists() { Some(Arc::new(Place::locked(&target, WAIT).await?)) } else { None };
        let target = former.as_ref().map_or(target, |place| place.path().to_owned());
        let log = beside(&target, "-wal");
        if former.is_none() && log.exists() {
            return Err(CopyError::StrayLog { path: log.display().to_string() });
        }
        let copied = beside(&target, &format!(".partial-{}", std::process::id()));
        let partial = Partial { path: copied, name: target.display().to_string() };
        partial.create()?;
        let backup = file_named(backup)?;
        let as_of = said(&backup).await.map_err(|error| unusable(&backup, &error))?;
        if copy(&backup, &partial).await? >= DOCUMENTS_SINCE {
            forget(&partial.path).await.map_err(|error| partial.failed(&failure(&error)))?;
        }
        Ok(Self { target, former, copy: partial, as_of })
    }

    /// The copy, which is not in place yet.
    pub(crate) fn path(&self) -> &Path {
        &self.copy.path
    }

    /// The instant that the backup says that it is of.
    pub(crate) const fn as_of(&self) -> Option<Timestamp> {
        self.as_of
    }

    /// Puts the copy into place. The former file is kept under another name, which is returned.
    ///
    /// # Crash
    /// Once the former file has its second name, no engine opens it: it has two names until the copy is in place. The
    /// log of a file never lies beside another file.
    pub(crate) fn put_into_place(self) -> Result<Option<PathBuf>, CopyError> {
        let Self { target, former, copy, .. } = self;
        let failed = |error: io::Error| CopyError::NotPlaced {
            path: target.display().to_string(),
            detail: error.to_string(),
        };
        let log = beside(&copy.path, "-wal");
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            return Err(failed(io::Error::other("the log of the copy was not emptied")));
        }
        copy.sync().map_err(failed)?;
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(beside(&copy.path, suffix));
        }
        let Some(place) = former else {
            copy.become_new(&target)?;
            return Ok(None);
        };
        place.check()?;
        let kept = beside(&target, &format!(".replaced-{}", SystemClock.now().0));
        fs::hard_link(&target, &kept).map_err(failed)?;
        sync_folder(&target).map_err(failed)?;
        for suffix in ["-wal", "-shm"] {
            match fs::rename(beside(&target, suffix), beside(&kept, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        fs::rename(&copy.path, &target).map_err(failed)?;
        sync_folder(&target).map_err(failed)?;
        place.release();
        Ok(Some(kept))
    }
}
