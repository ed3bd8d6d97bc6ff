//! Lookup of a file, by path and digest.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as Io, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use sha2::Digest as _;

use super::digest::Sha256;
use super::seen::unclear;
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::tool::{Done, ToolError};

/// A file at a path that is known before it is written. The lookup tells if the file is there, whole, and with the
/// expected content.
///
/// A file with the expected digest is committed; a file that is clearly missing is not found. Another content is
/// foreign. All other cases (a folder, a dangling link, no permission, a file that changes while it is read) are
/// errors. [`FileAt::create`] writes the file under a temporary name first and links it then, so that there is never
/// half a file.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use counterfoil::ledger::LookupResult;
/// use counterfoil::tool::lookup::{FileAt, Sha256};
///
/// # let folder = tempfile::tempdir()?;
/// let file = FileAt::new(folder.path().join("report.csv"));
/// let content = "id,amount\n1,4900\n";
/// assert_eq!(file.find(Sha256::of(content), |_| ()).await?, LookupResult::NotFound);
/// file.create(content).await?;
/// let found = file.find(Sha256::of(content), |written| written.len).await?;
/// assert!(matches!(found, LookupResult::Committed { output: 17, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAt {
    path: PathBuf,
    beside: Option<PathBuf>,
}

/// A file that is there, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The path of the file.
    pub path: PathBuf,
    /// The length of the file, in bytes.
    pub len: u64,
    /// The digest of the file's content.
    pub digest: Sha256,
}

impl FileAt {
    /// The sight of this lookup. [`ContractClass::NaturalKey`](crate::ledger::ContractClass::NaturalKey) fits it: the
    /// path is known before, and [`FileAt::create`] collides.
    pub const SIGHT: Sight = Sight {
        by: "a file by path and digest",
        offer: LookupOffer::Strong,
        settle: Duration::from_secs(10),
        outlives_sender: false,
        knows: &["whether a file with exactly this content stands at this path now"],
        blind_spots: &[
            "who wrote it: another writer's equal content counts as ours",
            "that it was there and has been moved or deleted since",
            "a file system that is not mounted looks empty (name a file that must be there: FileAt::beside)",
            "another machine's writes that a network file system still keeps in its caches",
            "what a power failure takes back, unless the writer has synced file and folder",
        ],
    };

    /// A file at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), beside: None }
    }

    /// Names a file that is always there, on the same file system. If that file is missing, a miss is not believed.
    #[must_use]
    pub fn beside(mut self, always: impl Into<PathBuf>) -> Self {
        self.beside = Some(always.into());
        self
    }

    /// Looks for the file with this content.
    ///
    /// # Errors
    /// [`ToolError`] if the file is neither clearly there nor clearly missing.
    pub async fn find<T>(
        &self,
        digest: Sha256,
        output: impl FnOnce(Written) -> T,
    ) -> Result<LookupResult<T>, ToolError> {
        let file = self.clone();
        let read = blocking(move || file.read()).await?;
        match read.map_err(|error| unclear(format!("{}: {error}", self.path.display())))? {
            None => Ok(LookupResult::NotFound),
            Some(written) if written.digest == digest => {
                let external_ref = Some(format!("sha256:{}", written.digest));
                Ok(LookupResult::Committed { output: output(written), external_ref })
            }
            Some(Written { len, digest: found, .. }) => {
                let path = self.path.display();
                Ok(LookupResult::Foreign {
                    what: format!("{path} has {len} bytes of SHA-256 {found}, and {digest} was sent"),
                })
            }
        }
    }

    /// Writes the file if its path is free: under a temporary name and synced, then linked to its path. Two writers
    /// collide, and no reader sees half a file.
    ///
    /// # Crash
    /// Before this returns: the file is there, whole, or it is not; a temporary file `.counterfoil-….tmp` may be left
    /// beside it. The next process removes that when it first looks for a file in this folder, or creates one. After:
    /// the file is durable.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] if the path is taken: look it up. After any other error the file may be there.
    pub async fn create(&self, content: impl Into<Vec<u8>>) -> Result<Done<Written>, ToolError> {
        let (path, content) = (self.path.clone(), content.into());
        let digest = Sha256::of(&content);
        let len = content.len() as u64;
        let written = blocking(move || write(&path, &content)).await?;
        written.map_err(|error| {
            let kind =
                if error.kind() == Io::AlreadyExists { ErrorKind::Duplicate } else { ErrorKind::Unknown };
            ToolError::new(kind, format!("{}: {error}", self.path.display()))
        })?;
        let written = Written { path: self.path.clone(), len, digest };
        Ok(Done::new(written).external_ref(format!("sha256:{digest}")))
    }

    /// Reads the file. `None` if it is clearly missing.
    fn read(&self) -> io::Result<Option<Written>> {
        tidy_once(folder_of(&self.path));
        let there = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == Io::NotFound => None,
            there => Some(there?),
        };
        if let Some(always) = self.beside.as_deref().filter(|_| there.is_none()) {
            fs::metadata(always)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", always.display())))?;
        }
        let Some(there) = there else { return Ok(None) };
        // A link that leads nowhere is no miss, because a person or program has put it there.
        let before = if there.is_symlink() { fs::metadata(&self.path)? } else { there };
        if !before.is_file() {
            return Err(io::Error::new(Io::InvalidInput, "there is something, and it is no file"));
        }
        let (len, digest) = digest(&mut File::open(&self.path)?)?;
        let after = fs::metadata(&self.path)?;
        if len != before.len() || len != after.len() || before.modified()? != after.modified()? {
            return Err(io::Error::new(Io::InvalidData, "it changed while it was read"));
        }
        Ok(Some(Written { path: self.path.clone(), len, digest }))
    }
}

fn digest(file: &mut File) -> io::Result<(u64, Sha256)> {
    let (mut hasher, mut len) = (sha2::Sha256::new(), 0);
    let mut part = vec![0; 64 * 1024];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok((len, Sha256(hasher.finalize().into()))),
            Ok(read) => {
                hasher.update(&part[..read]);
                len += read as u64;
            }
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let invalid = || io::Error::new(Io::InvalidInput, "the path names no file");
    path.file_name().ok_or_else(invalid)?;
    let folder = folder_of(path);
    tidy_once(folder);
    let (temporary, mut file) = temporary(folder)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    // Not a rename, which would silently replace an existing file.
    let linked = written.and_then(|()| fs::hard_link(&temporary, path));
    fs::remove_file(&temporary)?;
    linked?;
    File::open(folder)?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file of this attempt alone. If it were shared, one attempt would truncate a file that the other has
/// linked. Its lock tells other processes that its writer lives.
fn temporary(folder: &Path) -> io::Result<(PathBuf, File)> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{OWN}{}-{number}{TEMPORARY}", std::process::id()));
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == Io::AlreadyExists => continue, // left by a process of the same number
            Err(error) => return Err(error),
        };
        // Another process that tidied up before the lock was taken holds the lock, or has removed the file: take
        // another file then. On a file system without locks nobody tidies up.
        let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if !is_taken && path.try_exists()? {
            return Ok((path, file));
        }
    }
}

/// The names of temporary files, before and after the numbers of the process and of the file.
const OWN: &str = ".counterfoil-";
const TEMPORARY: &str = ".tmp";
/// The maximum number of folders that are remembered as tidied.
const FOLDERS: usize = 1024;

/// Removes the temporary files that killed writers have left in a folder. Each process lists a folder only once,
/// because that takes long if there are many files. A file that cannot be removed stays.
fn tidy_once(folder: &Path) {
    static TIDIED: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
    {
        let mut tidied = TIDIED.lock().unwrap_or_else(PoisonError::into_inner);
        if tidied.contains(folder) {
            return;
        }
        if tidied.len() >= FOLDERS {
            tidied.clear();
        }
        tidied.insert(folder.to_owned());
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_temporary(&entry.file_name())) {
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let Some(file) = OpenOptions::new().write(true).open(&path).ok().filter(|_| is_file) else {
            continue;
        };
        // The system releases a lock when its process dies in any way. A living writer holds it.
        if file.try_lock().is_ok() {
            let removed = fs::remove_file(&path);
            tracing::info!(path = %path.display(), ?removed, "temporary file of a dead writer removed");
        }
    }
}

/// True for a name of a temporary file of this module, which no user gives.
fn is_temporary(name: &OsStr) -> bool {
    let numbers =
        name.to_str().and_then(|name| name.strip_prefix(OWN)?.strip_suffix(TEMPORARY)?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Runs blocking work off the runtime's threads. Work that is given up goes on to its end, which is harmless for a read
/// and for a write.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| unclear(format!("the file was not dealt with: {error}")))
}
