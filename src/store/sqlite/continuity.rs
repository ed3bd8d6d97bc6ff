//! The check that a file is the one that was last closed here, and not a copy or an older state of it.
//!
//! The engine keeps a mark beside the rows, not in them: an extended attribute of the file. The mark holds the file's
//! inode and its time of birth, the name of the ledger's first worker (which has a random part) and a count that the
//! ledger only raises. A copy lacks the mark, or has another inode or another birth, even if it was copied with its
//! attributes and got the inode of the file that it replaces. An older state has a lower count than the mark.
//!
//! The check cannot recognise that a whole filesystem was put back, because the mark goes back with the file, nor an
//! older state of this very inode to which less than a minute of effects was added, nor anything on a filesystem
//! without extended attributes.

use std::fs::File;
use std::time::UNIX_EPOCH;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use sqlx::sqlite::SqliteConnection;

use super::{Columns, Sqlite, StoreError, failure};

const NAME: &str = "user.counterfoil";

/// The result of comparing the rows with the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    /// The ledger goes on where it ended.
    Same,
    /// The filesystem keeps no marks: the check is impossible.
    Unknown,
    /// The rows are not those that this file had last, for this reason.
    Doubtful(&'static str),
}

/// The state of a ledger at some instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    inode: u64,
    /// The instant at which the file was made, in nanoseconds; 0 if the filesystem does not tell.
    born: u128,
    /// The name of the first worker; empty before there is one.
    first: String,
    /// The count: the highest fence that was given to a worker, or a later increase.
    count: i64,
}

impl Mark {
    fn write(&self) -> String {
        format!("{} {} {} {}", self.inode, self.born, self.count, self.first)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let (inode, born) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { inode, born, count: parts.next()?.parse().ok()?, first: parts.next()?.to_owned() })
    }

    /// Compares the ledger with the mark that was left on its file.
    fn judge(&self, left: Option<&Self>) -> Continuity {
        match left {
            None if self.first.is_empty() => Continuity::Same, // a new ledger
            None => Continuity::Doubtful("it is a copy: the file lacks the mark that the engine left on it"),
            Some(left) if (left.inode, left.born) != (self.inode, self.born) => {
                Continuity::Doubtful("it is a copy: the mark on the file is of another file")
            }
            Some(left) if left.first != self.first && !left.first.is_empty() => {
                Continuity::Doubtful("another ledger was written over this one")
            }
            Some(left) if left.count > self.count => {
                Continuity::Doubtful("an older state was written over this one")
            }
            Some(_) => Continuity::Same,
        }
    }
}

/// Reads the rows and the mark, and compares them. A new ledger is marked at once.
pub(super) async fn judge(
    file: &File,
    inode: u64,
    writer: &mut SqliteConnection,
) -> Result<Continuity, StoreError> {
    let mut buffer = [0_u8; 512];
    let left = match fgetxattr(file, NAME, &mut buffer) {
        Ok(length) => std::str::from_utf8(&buffer[..length]).ok().and_then(Mark::read),
        Err(rustix::io::Errno::NODATA) => None,
        Err(_) => return Ok(Continuity::Unknown),
    };
    let now = present(file, inode, writer).await?;
    let continuity = now.judge(left.as_ref());
    if now.first.is_empty() && continuity == Continuity::Same && !leave(file, &now) {
        return Ok(Continuity::Unknown);
    }
    Ok(continuity)
}

async fn present(file: &File, inode: u64, writer: &mut SqliteConnection) -> Result<Mark, StoreError> {
    let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'worker'), 0), \
               coalesce((SELECT name FROM worker ORDER BY fence LIMIT 1), '')";
    let row = sqlx::query(sql).fetch_one(writer).await.map_err(|e| failure(&e))?;
    let mut columns = Columns::of("worker", &row);
    let born = file.metadata().and_then(|found| found.created()).ok();
    let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_nanos());
    Ok(Mark { inode, born, count: columns.take()?, first: columns.take()? })
}

/// Writes the mark; `false` if the filesystem keeps no marks.
fn leave(file: &File, mark: &Mark) -> bool {
    fsetxattr(file, NAME, mark.write().as_bytes(), XattrFlags::empty()).is_ok()
}

impl Sqlite {
    /// The reason why the rows may be older than the world, if the file showed one when it was opened.
    pub(crate) const fn doubt(&self) -> Option<&'static str> {
        match self.continuity {
            Continuity::Doubtful(why) => Some(why),
            Continuity::Same | Continuity::Unknown => None,
        }
    }

    /// Marks the file with the ledger's count: from now on, an older state of the file can be told from this one.
    /// `raise`: the count is raised first. The enrolment of a worker has raised it already.
    ///
    /// # Crash
    /// Between the raise and the mark, the ledger is ahead of its mark, which is no reason for doubt.
    pub(crate) async fn mark(&self, raise: bool) -> Result<(), StoreError> {
        if self.continuity == Continuity::Unknown {
            return Ok(());
        }
        let mut writer = self.writer.lock().await;
        let writer = writer.as_mut().ok_or(StoreError::Closed)?;
        writer.settle().await?;
        if raise {
            let raise = sqlx::query("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'worker'");
            raise.execute(&mut writer.connection).await.map_err(|e| failure(&e))?;
        }
        let (file, inode) = self.place.file();
        let now = present(file, inode, &mut writer.connection).await?;
        if !leave(file, &now) {
            tracing::debug!(path = %self.path().display(), "filesystem keeps no mark, a restore is not recognised");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_and_an_older_state_are_told_from_the_file_itself() {
        let of = |inode, born, count, first: &str| Mark { inode, born, count, first: first.to_owned() };
        let mark = |inode, count, first: &str| of(inode, 3, count, first);
        let left = mark(7, 5, "ann 1");
        assert_eq!(Mark::read(&left.write()), Some(left.clone()));
        assert_eq!(mark(7, 5, "ann 1").judge(Some(&left)), Continuity::Same);
        assert_eq!(
            mark(7, 6, "ann 1").judge(Some(&left)),
            Continuity::Same,
            "it died before it left its mark"
        );
        assert_eq!(mark(7, 0, "").judge(None), Continuity::Same, "new");
        for (other, left) in [
            (mark(7, 4, "ann 1"), Some(&left)),
            (mark(8, 5, "ann 1"), Some(&left)),
            (of(7, 4, 5, "ann 1"), Some(&left)),
            (mark(7, 5, "bob"), Some(&left)),
            (mark(7, 0, ""), Some(&left)),
            (mark(7, 5, "ann 1"), None),
        ] {
            assert!(matches!(other.judge(left), Continuity::Doubtful(_)), "{other:?}");
        }
    }
}
