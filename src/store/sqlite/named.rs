//! The file that a path names, and the check that SQLite can work on its filesystem.

use std::path::{Path, PathBuf};

use crate::store::OpenError;

/// The file that a path names: `agents.db`, `sqlite:agents.db` and `sqlite://agents.db` are the same.
pub(crate) fn file_named(path: &Path) -> Result<PathBuf, OpenError> {
    let Some(text) = path.to_str() else { return Ok(path.to_owned()) };
    let refused = |detail| Err(OpenError::NoFile { path: text.to_owned(), detail });
    let rest = text.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    match (rest, rest.unwrap_or(text)) {
        (_, ":memory:") => refused(
            "a ledger in memory forgets what was sent when the process ends; in a test take a file in a temporary \
             folder, or the store `counterfoil::store::Model`",
        ),
        (_, "") => refused("it is empty; write the path of a file, as in `agents.db`"),
        (_, name) if name.starts_with("file:") => {
            refused("SQLite's `file:` URIs are not read; write the path of the file, as in `agents.db`")
        }
        (Some(name), _) if name.contains('?') => {
            refused("parameters behind `?` are not read; write the path alone, as in `sqlite:agents.db`")
        }
        (_, name) => Ok(name.into()),
    }
}

/// Refuses a filesystem over a network: its locks may not hold between machines, and the WAL needs shared memory.
#[cfg(target_os = "linux")]
pub(super) fn refuse_network_filesystem(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = [path, folder].into_iter().find_map(|place| Some((rustix::fs::statfs(place).ok()?, place)));
    let Some((found, place)) = found else { return Ok(()) }; // opening it will report more
    #[allow(clippy::cast_sign_loss, reason = "the magic numbers are 32 bits wide")]
    let magic = (found.f_type as u64) & 0xffff_ffff;
    match network(magic, || mounted_as(place)) {
        Some(kind) => Err(OpenError::NetworkFilesystem { path: path.display().to_string(), kind }),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn refuse_network_filesystem(_: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// The network filesystem behind an `f_type` of statfs(2), if it is one. For FUSE, the table of mounts names the
/// filesystem; an unknown one counts as local.
fn network(magic: u64, mounted_as: impl FnOnce() -> Option<String>) -> Option<&'static str> {
    const KERNEL: [(u64, &str); 10] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x5346_414f, "AFS"),
        (0x4750_4653, "GPFS"),
        (0x7461_636f, "OCFS2"),
    ];
    const FUSE: u64 = 0x6573_5546;
    const BY_FUSE: [&str; 14] = [
        "sshfs",
        "s3fs",
        "rclone",
        "gcsfuse",
        "goofys",
        "mount-s3",
        "blobfuse",
        "blobfuse2",
        "glusterfs",
        "ceph",
        "davfs",
        "curlftpfs",
        "juicefs",
        "smbnetfs",
    ];
    if magic == FUSE {
        let kind = mounted_as()?;
        let name = kind.strip_prefix("fuse.").unwrap_or(&kind);
        return BY_FUSE.into_iter().find(|known| *known == name);
    }
    KERNEL.iter().find(|(known, _)| *known == magic).map(|(_, kind)| *kind)
}

/// The type of the filesystem of a path, by the table of mounts: that of the last mount over the longest folder.
#[cfg(target_os = "linux")]
fn mounted_as(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // `36 35 98:0 / /mnt rw,noatime master:1 - fuse.sshfs host:/ rw`
    let over = mounts.lines().filter_map(|line| {
        let folder = line.split(' ').nth(4)?.replace("\\040", " ");
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        path.starts_with(&folder).then_some((folder.len(), kind))
    });
    over.max_by_key(|(length, _)| *length).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_filesystem_is_known_by_its_number_or_by_what_fuse_carries() {
        let of = |magic, kind: &str| network(magic, || Some(kind.to_owned()));
        assert_eq!(of(0x6969, "nfs4"), Some("NFS"));
        assert_eq!(of(0xff53_4d42, "cifs"), Some("CIFS"));
        assert_eq!(of(0x6573_5546, "fuse.sshfs"), Some("sshfs"));
        assert_eq!(of(0x6573_5546, "fuse.gocryptfs"), None);
        assert_eq!(of(0x6573_5546, "virtiofs"), None);
        for (local, kind) in [
            (0xef53, "ext4"),
            (0x5846_5342, "xfs"),
            (0x9123_683e, "btrfs"),
            (0x0102_1994, "tmpfs"),
            (0x794c_7630, "overlay"),
            (0x2fc1_2fc1, "zfs"),
        ] {
            assert_eq!(of(local, kind), None, "{kind}");
        }
        assert_eq!(network(0x6573_5546, || None), None, "what cannot be told is let in");
    }

    #[test]
    fn a_url_of_sqlite_is_its_file_and_what_is_no_file_is_refused() {
        for (text, file) in [
            ("agents.db", "agents.db"),
            ("sqlite:agents.db", "agents.db"),
            ("sqlite://agents.db", "agents.db"),
            ("sqlite:///var/lib/agents.db", "/var/lib/agents.db"),
            ("/tmp/:memory:", "/tmp/:memory:"),
            ("a?b.db", "a?b.db"),
        ] {
            assert_eq!(file_named(Path::new(text)).ok(), Some(file.into()), "{text}");
        }
        for text in [
            ":memory:",
            "sqlite::memory:",
            "sqlite://:memory:",
            "",
            "sqlite:",
            "file:a.db",
            "sqlite:a.db?mode=rwc",
        ] {
            assert!(matches!(file_named(Path::new(text)), Err(OpenError::NoFile { .. })), "{text}");
        }
    }
}
