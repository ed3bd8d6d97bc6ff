//! Moves all rows from a SQLite file to a PostgreSQL database: all tenants, with everything they have under way.
//!
//! No engine works on either side meanwhile. The file is locked, as an engine locks it; the database is marked as
//! being filled, and no engine opens it. At the end both sides are read again and compared by digest. Only then the
//! database is released. Just before that, the file is given up: no engine opens it any more, because the same run
//! would go on in two places.
//!
//! An interrupted move is started again: rows are written in the order of their keys, so the rows that are there show
//! where to go on. Tables of the user's own are not moved: the user must move rows that `ctx.transaction` wrote.

pub(super) mod table;

use std::path::Path;

use futures_util::TryStreamExt as _;

use super::postgres::{Options, Target};
use super::sqlite::Source;
use super::{OpenError, StoreError};
use crate::clock::{Clock as _, SystemClock};
use table::{Rows, TableDigest, Value};

use super::table::{TABLES, Table};

/// The maximum number of rows, and of bytes (`BYTES`), that are written in one statement.
const ROWS: usize = 1000;
const BYTES: usize = 4 << 20;
/// The number of rows between two reports of progress while a table is compared.
const TOLD: u64 = 1000;

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The stage of the move.
    pub stage: Stage,
    /// The name of the present table.
    pub table: &'static str,
    /// The number of rows that are done.
    pub rows: u64,
    /// The number of rows in all.
    pub of: u64,
}

/// The stage of a move for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The rows of the table are written.
    Copy,
    /// The rows of the table are read on both sides and compared.
    Verify,
}

impl Stage {
    /// The name of the stage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Verify => "verify",
        }
    }
}

/// The result of a move: each table with its rows and the digest that both sides have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The tables in the order in which they were moved.
    pub tables: Vec<MovedTable>,
}

/// A table that is the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTable {
    /// The name of the table.
    pub table: &'static str,
    /// The number of its rows.
    pub rows: u64,
    /// The SHA-256 of all its values, in the order of its key.
    pub digest: String,
}

/// The reason why a move ended. Nothing is lost: the file is unchanged and works as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The file does not exist.
    #[error("{path} does not exist: name the file that the engine worked on [database_refused]")]
    NoSource {
        /// The path of the file.
        path: String,
    },
    /// The file may be older than the world, and no engine has noted that yet.
    #[error(
        "{path} may be older than the world: {why}. The database would not know, and send again what was sent since: \
         nothing was changed; start an engine on this file once, which notes it, or put it into place with `counterfoil \
         restore`, and move it then; if nothing was lost, run `counterfoil lift-restored` on it first [database_moved]"
    )]
    Doubtful {
        /// The path of the file.
        path: String,
        /// The sign by which the file was recognised.
        why: &'static str,
    },
    /// The file was moved to a database before.
    #[error(
        "{path} has been moved already, and {place} is not where this move left off: nothing was changed [database_moved]"
    )]
    AlreadyMoved {
        /// The path of the file.
        path: String,
        /// The place of the database.
        place: String,
    },
    /// The database is not empty: an engine has worked with it.
    #[error(
        "{place} is not empty (table {table} has rows): nothing was changed; move into a new database or schema [database_moved]"
    )]
    NotEmpty {
        /// The place of the database.
        place: String,
        /// The name of a table with rows.
        table: &'static str,
    },
    /// The database holds a part of another move.
    #[error(
        "{place} holds part of a move of another file, or of this one before an engine worked on it again ({found}, \
         and not {expected}): nothing was changed; drop the schema and move again [database_moved]"
    )]
    AnotherMove {
        /// The place of the database.
        place: String,
        /// The identity of the file whose move is in the database.
        found: String,
        /// The identity of the file that was to be moved.
        expected: String,
    },
    /// The two sides differ.
    #[error(
        "table {table} differs: {rows_from} rows with digest {from} in the file, {rows_to} with {to} in the \
         database; the file is as it was, and the database stays closed to engines: drop the schema and move again [database_moved]"
    )]
    Differs {
        /// The name of the table.
        table: &'static str,
        /// The number of rows in the file.
        rows_from: u64,
        /// The digest of the rows in the file.
        from: String,
        /// The number of rows in the database.
        rows_to: u64,
        /// The digest of the rows in the database.
        to: String,
    },
    /// One of the databases failed during the move.
    #[error("the move stopped: {0}; make the same move again, and it goes on from there")]
    Store(#[source] StoreError),
    /// One of the databases cannot be opened.
    #[error("nothing was moved: {0}")]
    Open(#[source] OpenError),
}

impl From<StoreError> for MoveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Open(error) => Self::Open(error),
            error => Self::Store(error),
        }
    }
}

/// Moves all rows from the SQLite file at `from` to the PostgreSQL database at `to`, and reports its progress. Start
/// the engine on the database after that; the file is given up.
///
/// # Crash
/// A move that is cut off at any point goes on from there when the same move is made again. Until it has returned, no
/// engine opens the database. Until all rows are there and compared, the file can still be worked on, but then the
/// move must start again from the beginning.
///
/// # Errors
/// [`MoveError::Open`] if a live engine has the file, or if one of the two is refused as an engine would refuse it.
/// [`MoveError::Doubtful`] if the file is a copy or an older state of itself, and no engine has worked on it since.
/// The other errors say what to do.
pub async fn move_all(
    from: impl AsRef<Path>,
    to: &str,
    options: Options,
    mut progress: impl FnMut(Progress),
) -> Result<Moved, MoveError> {
    let from = from.as_ref();
    let path = || from.display().to_string();
    if !from.try_exists().unwrap_or(true) {
        return Err(MoveError::NoSource { path: path() });
    }
    let source = Source::open(from).await?;
    // The mark by which a copy is recognised is on the file, and not in its rows: only the note of an engine moves
    // along. Without it the database would send again what was sent since the copy was made.
    if let Some(why) = source.doubt() {
        return Err(MoveError::Doubtful { path: path(), why });
    }
    let mut target = Target::open(to, options).await?;
    // The lock of the file was acquired, so its workers are dead. The database has no such lock: there, the end must
    // be recorded.
    source.end_workers(SystemClock.now()).await?;
    begin(&source, &mut target, &path).await?;
    let mut moved = Moved { tables: Vec::new() };
    for table in TABLES {
        copy(&source, &mut target, table, &mut progress).await?;
    }
    for table in TABLES {
        moved.tables.push(verify(&source, &mut target, table, &mut progress).await?);
    }
    // The order matters: between the two calls, no engine can work on either side, and the same move finishes it.
    source.give_up().await?;
    target.release().await?;
    source.close().await;
    Ok(moved)
}

/// The tables and columns that are moved, for a test that compares them with those of both databases.
#[doc(hidden)]
pub fn columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLES.iter().flat_map(|table| table.columns.iter().map(|column| (table.name, column.name)))
}

/// Makes the database this move's own, or finds that it already is.
async fn begin(source: &Source, target: &mut Target, path: &impl Fn() -> String) -> Result<(), MoveError> {
    let expected = source.identity().await?;
    let place = target.place();
    match target.filled_from().await? {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(MoveError::AnotherMove { place, found, expected }),
        None if source.is_given_up() => Err(MoveError::AlreadyMoved { path: path(), place }),
        None => match target.fill_from(&expected, source.last_fence().await?).await? {
            Some(table) => Err(MoveError::NotEmpty { place, table }),
            None => Ok(()),
        },
    }
}

async fn copy(
    source: &Source,
    target: &mut Target,
    table: &'static Table,
    progress: &mut impl FnMut(Progress),
) -> Result<(), MoveError> {
    let of = source.count(table).await?;
    let last = target.last(table).await?;
    let mut rows = if last.is_some() { target.count(table).await? } else { 0 };
    progress(Progress { stage: Stage::Copy, table: table.name, rows, of });
    let mut batch = Vec::new();
    let mut size = 0;
    let mut stream = source.rows(table, last);
    loop {
        let row = stream.try_next().await?;
        let ended = row.is_none();
        if let Some(row) = row {
            size += row.iter().map(Value::len).sum::<usize>();
            batch.push(row);
        }
        if !batch.is_empty() && (ended || batch.len() >= ROWS || size >= BYTES) {
            rows += batch.len() as u64;
            target.insert(table, std::mem::take(&mut batch)).await?;
            size = 0;
            progress(Progress { stage: Stage::Copy, table: table.name, rows, of });
        }
        if ended {
            return Ok(());
        }
    }
}

async fn verify(
    source: &Source,
    target: &mut Target,
    table: &'static Table,
    progress: &mut impl FnMut(Progress),
) -> Result<MovedTable, MoveError> {
    let of = source.count(table).await?;
    let mut told = |rows| {
        if rows == of || rows % TOLD == 0 {
            progress(Progress { stage: Stage::Verify, table: table.name, rows, of });
        }
    };
    let (rows_from, from) = digest(source.rows(table, None), |_| ()).await?;
    let (rows_to, to) = digest(target.rows(table), &mut told).await?;
    if from != to {
        return Err(MoveError::Differs { table: table.name, rows_from, from, rows_to, to });
    }
    Ok(MovedTable { table: table.name, rows: rows_to, digest: to })
}

async fn digest(mut rows: Rows<'_>, mut told: impl FnMut(u64)) -> Result<(u64, String), StoreError> {
    let mut digest = TableDigest::default();
    told(0);
    while let Some(row) = rows.try_next().await? {
        digest.add(&row);
        told(digest.rows());
    }
    Ok((digest.rows(), digest.finish()))
}
