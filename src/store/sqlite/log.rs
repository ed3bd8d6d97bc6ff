//! The size of the write-ahead log. SQLite moves the log into the database and begins it anew, unless a reader still
//! needs it: behind a reader that does not end, the log grows until the disk is full, and reading becomes slower with
//! its size.

use std::path::PathBuf;

use super::place::Place;

/// The number of batches between two looks at the size.
const EVERY: u32 = 64;

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// The size of the first warning, in bytes.
    limit: u64,
    /// The size of the next warning, in bytes: twice that of the last.
    next: u64,
    /// The number of batches since the last look.
    batches: u32,
}

impl Log {
    pub(super) fn of(place: &Place, limit: u64) -> Self {
        Self { path: place.log(), limit: limit.max(1), next: limit.max(1), batches: 0 }
    }

    /// Warns of a log that has grown, once for each doubling. This is called after each batch.
    pub(super) fn look(&mut self) {
        self.batches += 1;
        if self.batches < EVERY {
            return;
        }
        self.batches = 0;
        let Ok(found) = self.path.metadata() else { return };
        if found.len() < self.limit {
            self.next = self.limit;
        } else if found.len() >= self.next {
            let (path, bytes, pages) = (self.path.display(), found.len(), found.len() / 4096);
            tracing::warn!(
                log = %path, bytes, pages,
                "database log grows behind a reader"
            );
            self.next = found.len().saturating_mul(2);
        }
    }
}
