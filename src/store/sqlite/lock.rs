//! The lock that tells whether the former process is alive (DESIGN 4.7).
//!
//! It is taken on a sibling file and not on the database: SQLite drops POSIX locks of a process when any
//! descriptor of the file is closed (sqlite.org/howtocorrupt.html, 2.2). The kernel releases it when the
//! process dies, however it dies, so a restart need not wait for a lease.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::store::OpenError;

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that was forked a moment ago holds it too, until it executes.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock beside `database`, or says who has it.
    pub(super) fn take(database: &Path) -> Result<Self, OpenError> {
        let mut path = database.as_os_str().to_owned();
        path.push(".lock");
        let refused = |e: std::io::Error| {
            let (path, detail) = (database.display().to_string(), e.to_string());
            match e.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    OpenError::ReadOnly { path, detail }
                }
                _ => OpenError::Unusable { path, detail },
            }
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                return Err(OpenError::Owned { path: database.display().to_string(), owner });
            }
            Err(TryLockError::Error(e)) => return Err(refused(e)),
        }
        // Only for the message above: nothing depends on it.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = write!(file, "process {}", std::process::id());
        Ok(Self { file })
    }
}
