//! The socket beside a ledger's file, at which the gateway on it is found. Only its owner may connect.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::net::{UnixListener, UnixStream};

use super::error::McpError;
use crate::payload::hex;

/// The longest path of a socket, in bytes: the shortest limit of the systems that have them.
const LONGEST: usize = 103;
/// The end of the name that a socket has until it is ready.
const NEW: &str = ".new";

/// The place of a socket. The gateway that listens there removes it at its end.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    is_listened_at: bool,
}

impl Socket {
    /// The socket of the ledger in this file, which must be there. Where its own path is too long for a socket, a short
    /// one in the user's runtime directory stands for it.
    pub(super) fn beside(ledger: &Path) -> Result<Self, McpError> {
        let file = ledger.canonicalize().map_err(|error| refused(ledger, &error))?;
        let mut name = file.clone().into_os_string();
        name.push(".gateway");
        let beside = PathBuf::from(name);
        let path = if fits(&beside) {
            beside
        } else {
            let digest = hex(&Sha256::digest(file.as_os_str().as_bytes()));
            let path = runtime_folder()?.join(format!("{}.gateway", &digest[..16]));
            if !fits(&path) {
                return Err(refused(&path, &io::Error::other("the path is too long for a socket")));
            }
            path
        };
        Ok(Self { path, is_listened_at: false })
    }

    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path).await
    }

    /// Listens here, in place of a gateway that has died. Only the owner of the ledger's lock does so.
    pub(super) fn listen(&mut self) -> Result<UnixListener, McpError> {
        let mut new = self.path.clone().into_os_string();
        new.push(NEW);
        let new = PathBuf::from(new);
        let listen = || {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&new)?;
            // It is found only when nobody else may connect any more.
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
            fs::rename(&new, &self.path)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error| refused(&self.path, &error))?;
        self.is_listened_at = true;
        Ok(listener)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_listened_at {
            drop(fs::remove_file(&self.path)); // what is left of it is replaced by the next gateway
        }
    }
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() + NEW.len() <= LONGEST
}

fn refused(path: &Path, error: &io::Error) -> McpError {
    McpError::Socket { path: path.display().to_string(), reason: error.to_string() }
}

/// The folder for sockets of this user, in which nobody else can put one.
fn runtime_folder() -> Result<PathBuf, McpError> {
    if let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    let own = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("counterfoil-{own}"));
    let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder);
    made.map_err(|error| refused(&folder, &error))?;
    let found = fs::symlink_metadata(&folder).map_err(|error| refused(&folder, &error))?;
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        return Err(refused(&folder, &io::Error::other("it is not this user's alone")));
    }
    Ok(folder)
}
