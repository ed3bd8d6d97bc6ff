//! The database file as it was opened: its real path, the descriptor that holds the lock, and the check that it is
//! still in place.
//!
//! The lock is on the database file itself, so that symlinks, hard links and a removed lock file let no second engine
//! in. It is a `flock` lock: SQLite locks with `fcntl`, and on Linux the two are independent. The kernel releases the
//! lock when the process dies, however it dies, so a restart need not wait for a lease.
//!
//! A process that closes any descriptor of a file loses all `fcntl` locks that it has on the file, including SQLite's
//! (sqlite.org/howtocorrupt.html, 2.2). Hence a process has one descriptor for a file, kept in [`FILES`]. That
//! descriptor is closed after the last SQLite connection: see [`Place::connect`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;

use crate::clock::{Clock as _, SystemClock};
use crate::store::OpenError;

/// The files that this process has open. The list is process-wide, because the locks that it protects are.
static FILES: Mutex<Vec<(FileId, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The pause between attempts to take a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(20);

/// The time for which a check of the file stays valid.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn at(path: &Path) -> std::io::Result<Self> {
        path.metadata().map(|found| Self { device: found.dev(), inode: found.ino() })
    }
}

/// The one descriptor of a file in this process.
#[derive(Debug)]
struct Shared {
    id: FileId,
    /// The descriptor; `None` once it is closed.
    file: Option<File>,
    /// The file that is locked instead of the database, where `flock` and `fcntl` interfere.
    #[cfg(not(target_os = "linux"))]
    lock: File,
    /// True if an engine of this process works on the file.
    owned: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut files = files();
        drop(self.file.take()); // while no other thread can open it again
        files.retain(|(id, _)| *id != self.id);
    }
}

fn files() -> MutexGuard<'static, Vec<(FileId, Weak<Shared>)>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database file in use.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: Arc<Shared>,
    /// True if this place holds the lock.
    owner: AtomicBool,
    /// The instant at which the last check for a send that found the file in place began, in microseconds since boot.
    seen: AtomicU64,
    /// The instant of the last commit, in microseconds since boot.
    written: AtomicU64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.release();
    }
}

impl Place {
    /// Opens an existing file beside its owner, to read or to write: no lock is taken.
    pub(super) fn beside(path: &Path) -> Result<Self, OpenError> {
        Self::open(path, false)
    }

    /// Opens or creates the file and takes its lock, or names the owner of the lock. A lock that another process
    /// holds is waited for: a process that was killed a moment ago may still be dying.
    pub(super) async fn own(path: &Path, wait: Duration) -> Result<Self, OpenError> {
        let place = Self::locked(path, wait).await?;
        if place.names() > 1 {
            return Err(OpenError::HardLinked { path: place.path.display().to_string() });
        }
        Ok(place)
    }

    /// The same of a file that no engine works on, because another file is to take its place: it may have several names.
    pub(super) async fn locked(path: &Path, wait: Duration) -> Result<Self, OpenError> {
        let place = Self::open(path, true)?;
        let mut waited = Duration::ZERO;
        while !place.lock()? {
            if waited >= wait {
                let owner = owner_of(place.file.id).map(|pid| format!("process {pid}"));
                let owner = owner.unwrap_or_else(|| "its process cannot be seen from here".to_owned());
                return Err(OpenError::Owned { path: place.path.display().to_string(), owner });
            }
            SystemClock.sleep(PAUSE).await;
            waited += PAUSE;
        }
        Ok(place)
    }

    fn open(path: &Path, to_write: bool) -> Result<Self, OpenError> {
        let file = shared(path, to_write).map_err(|e| refused(path, &e))?;
        let real = path.canonicalize().map_err(|e| refused(path, &e))?;
        let (owner, seen, written) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let place = Self { path: real, file, owner, seen, written };
        place.check()?; // the file may have been replaced between the two
        Ok(place)
    }

    /// The path of the file, absolute and without symlinks.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the write-ahead log.
    pub(super) fn log(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-wal");
        path.into()
    }

    /// True if this place holds the lock, so that no other process has an engine on the file.
    pub(super) fn is_owner(&self) -> bool {
        self.owner.load(Ordering::SeqCst)
    }

    /// True if an engine works on the file, here or in another process. An engine that starts at this very moment tries
    /// again a moment later.
    pub(super) fn has_owner(&self) -> bool {
        let is_free = || match self.file.lock_file().try_lock_shared() {
            Ok(()) => self.file.lock_file().unlock().is_ok(),
            Err(_) => false,
        };
        self.file.owned.load(Ordering::SeqCst) || !is_free()
    }

    /// The descriptor and the inode of the file.
    #[allow(clippy::expect_used, reason = "`drop` takes it, and nobody else")]
    pub(super) fn file(&self) -> (&File, u64) {
        (self.file.file.as_ref().expect("it is taken in `drop` only"), self.file.id.inode)
    }

    /// Takes the lock. `false`: another process has it.
    fn lock(&self) -> Result<bool, OpenError> {
        if self.file.owned.swap(true, Ordering::SeqCst) {
            return Err(OpenError::OwnedHere { path: self.path.display().to_string() });
        }
        let locked = match self.file.lock_file().try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(refused(&self.path, &e)),
        };
        self.owner.store(matches!(locked, Ok(true)), Ordering::SeqCst);
        self.file.owned.store(matches!(locked, Ok(true)), Ordering::SeqCst);
        locked
    }

    /// Releases the lock for the next engine. The descriptor stays open for as long as any connection.
    pub(super) fn release(&self) {
        if self.owner.swap(false, Ordering::SeqCst) {
            let _ = self.file.lock_file().unlock();
            self.file.owned.store(false, Ordering::SeqCst);
        }
    }

    /// Fails if the file is no longer there, or another file has taken its place: a write into it would be lost, and
    /// an engine on the new file knows nothing of this one. The check costs one `stat`.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let detail = match FileId::at(&self.path) {
            Ok(found) if found == self.file.id => return Ok(()),
            Ok(_) => "another file has its name now".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(OpenError::Replaced { path: self.path.display().to_string(), detail })
    }

    /// The check directly before a send. Sends whose intents were committed together share one check, which began
    /// after that commit: none of them misses a file that was removed between an intent and its send.
    pub(super) fn check_to_send(&self) -> Result<(), OpenError> {
        let now = since_boot();
        let seen = self.seen.load(Ordering::SeqCst);
        if self.written.load(Ordering::SeqCst) < seen && is_recent(seen, now) {
            return Ok(());
        }
        self.check()?;
        self.seen.store(now, Ordering::SeqCst);
        Ok(())
    }

    /// The check before a write. A file that a send has found in place a moment ago is not checked again: its removal
    /// in that moment would lose the writes just before as well.
    pub(super) fn check_to_write(&self) -> Result<(), OpenError> {
        if is_recent(self.seen.load(Ordering::SeqCst), since_boot()) { Ok(()) } else { self.check() }
    }

    /// Notes a commit. Later sends check the file again.
    pub(super) fn was_written(&self) {
        self.written.store(since_boot(), Ordering::SeqCst);
    }

    /// The options for connections to this file. Each connection holds the descriptor, until SQLite has closed its
    /// own.
    pub(super) fn connect(&self) -> SqliteConnectOptions {
        let shared = self.file.clone();
        // SQLite drops a collation after it has closed the file: a collation is the place where a connection can hold
        // something.
        let hold = move |a: &str, b: &str| {
            let _ = &shared;
            a.cmp(b)
        };
        SqliteConnectOptions::new().filename(&self.path).collation("counterfoil_holds_its_file", hold)
    }

    fn names(&self) -> u64 {
        self.path.metadata().map_or(1, |found| found.nlink())
    }
}

impl Shared {
    #[cfg(target_os = "linux")]
    #[allow(clippy::expect_used, reason = "`drop` takes it, and nobody else")]
    fn lock_file(&self) -> &File {
        self.file.as_ref().expect("it is taken in `drop` only")
    }

    #[cfg(not(target_os = "linux"))]
    fn lock_file(&self) -> &File {
        &self.lock
    }
}

fn is_recent(instant: u64, now: u64) -> bool {
    Duration::from_micros(now.saturating_sub(instant)) < MOMENT
}

fn since_boot() -> u64 {
    u64::try_from(SystemClock.boot().0.as_micros()).unwrap_or(u64::MAX)
}

/// The descriptor of this process for the file, opened or created if it has none.
fn shared(path: &Path, to_write: bool) -> std::io::Result<Arc<Shared>> {
    loop {
        let mut files = files();
        let known = FileId::at(path).ok().and_then(|id| files.iter().find(|(known, _)| *known == id));
        match known.map(|(_, file)| file.upgrade()) {
            Some(Some(file)) => return Ok(file),
            Some(None) => {} // another thread is closing the descriptor and waits for the list
            None => {
                let mut options = OpenOptions::new();
                let file = options.read(true).write(to_write).create(to_write).mode(0o644).open(path)?;
                let found = file.metadata()?;
                let id = FileId { device: found.dev(), inode: found.ino() };
                let shared = Arc::new(Shared {
                    id,
                    file: Some(file),
                    #[cfg(not(target_os = "linux"))]
                    lock: lock_beside(id)?,
                    owned: AtomicBool::new(false),
                });
                files.push((id, Arc::downgrade(&shared)));
                return Ok(shared);
            }
        }
        drop(files);
        std::thread::yield_now();
    }
}

/// The file that is locked in place of the database. It is named after the database's inode, in whatever folder and
/// by whatever link that is opened.
#[cfg(not(target_os = "linux"))]
fn lock_beside(FileId { device, inode }: FileId) -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("counterfoil-{device:x}-{inode:x}.lock"));
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// The process that has the lock, as far as this one can see it. It is only used in the message.
fn owner_of(id: FileId) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let inode = format!(":{}", id.inode);
    // `1: FLOCK  ADVISORY  WRITE 4711 08:01:131077 0 EOF`
    let mut owners = locks.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, mut rest) = (words.next()?, words.skip(2));
        let (pid, file) = (rest.next()?, rest.next()?);
        (kind == "FLOCK" && file.ends_with(&inode)).then(|| pid.parse().ok())?
    });
    owners.next()
}

fn refused(path: &Path, error: &std::io::Error) -> OpenError {
    let (path, detail) = (path.display().to_string(), error.to_string());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path, detail },
        ErrorKind::NotFound => {
            let remedy =
                "check the path; a client opens only a file that an engine has made: start the engine first";
            OpenError::Unusable { path, detail: format!("{detail}; {remedy}") }
        }
        _ => OpenError::Unusable { path, detail },
    }
}
