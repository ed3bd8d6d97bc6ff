//! The write primitive: a batch of changes in one transaction.
//!
//! First the whole batch is written at once, which succeeds unless one of its changes must be refused. Only then the
//! batch is judged change by change, each in a savepoint, still in one transaction and with one sync.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::Mutex;

use super::statement::{Batch, Part};
use super::{StoreError, Writer, failure, primary_code, row};
use crate::store::change::Written;
use crate::store::sql::judge::{is_written, open_late, write_judged};
use crate::store::sql::worker;
use crate::store::sql::write::write;
use crate::store::{Change, Refusal, Verdict};

pub(super) async fn commit(
    writer: &Mutex<Option<Writer>>,
    changes: &[Change],
) -> Result<Vec<Verdict>, StoreError> {
    let mut writer = writer.lock().await;
    let writer = writer.as_mut().ok_or(StoreError::Closed)?;
    writer.settle().await?;
    writer.unfinished = true; // until its end is seen, because this future may be dropped at any await
    let admitted = if must_be_judged(changes) { false } else { writer.write_all(changes).await? };
    let verdicts =
        // The future is boxed because it is rare: otherwise each batch would have to carry the room for it.
        if admitted { vec![Verdict::Admitted; changes.len()] } else { Box::pin(writer.judge(changes)).await? };
    writer.unfinished = false;
    writer.place.was_written();
    writer.log.look();
    Ok(verdicts)
}

/// True if only a judge can decide about a change. This includes a change that has no row which would refuse a fenced
/// worker, if no other change of its worker has one either. That is rare: the barriers that runs wait at come with
/// the rows before them.
fn must_be_judged(changes: &[Change]) -> bool {
    let guarded = |fence| changes.iter().any(|other| other.fence == Some(fence) && other.needs_fence());
    changes.iter().any(|change| {
        let unguarded = change.fence.filter(|_| !change.needs_fence());
        change.must_be_judged() || unguarded.is_some_and(|fence| !guarded(fence))
    })
}

/// The rows of the changes, table by table.
fn batch(changes: &[&Change]) -> Batch {
    let steps: usize = changes.iter().map(|change| change.steps.len()).sum();
    let mut batch = Batch::of(changes.len().max(steps)); // the steps of a fork are many
    write(changes, &mut batch);
    batch
}

impl Writer {
    /// Ends the transaction that an earlier write left open: messages share one, or a future was dropped between two
    /// statements, or it failed. Without this, the next batch would run inside that transaction and vanish with it.
    ///
    /// Nothing is written into a file that was removed or replaced: the write would be promised, and lost.
    pub(super) async fn settle(&mut self) -> Result<(), StoreError> {
        self.place.check_to_write()?;
        self.end_shared().await?;
        if self.unfinished {
            rollback(&mut self.connection).await?;
            self.unfinished = false;
        }
        Ok(())
    }

    /// Writes the whole batch, or writes nothing and returns `false` because some change must be refused.
    async fn write_all(&mut self, changes: &[Change]) -> Result<bool, StoreError> {
        let parts = batch(&changes.iter().collect::<Vec<_>>()).into_parts();
        match self.write_parts(parts).await {
            Ok(()) => Ok(true),
            Err(error) => {
                rollback(&mut self.connection).await?;
                if is_verdict(&error) { Ok(false) } else { Err(failure(&error)) }
            }
        }
    }

    async fn write_parts(&mut self, parts: Vec<Part>) -> Result<(), sqlx::Error> {
        let last = parts.len().saturating_sub(1);
        for (number, mut part) in parts.into_iter().enumerate() {
            let sql = self.statements.text(&mut part, number == 0, number == last);
            execute(&mut self.connection, sql, part).await?;
        }
        Ok(())
    }

    /// Judges each change by itself, in the order of the batch.
    async fn judge(&mut self, changes: &[Change]) -> Result<Vec<Verdict>, StoreError> {
        let connection = &mut self.connection;
        let judged = judge(connection, changes).await;
        if judged.is_err() {
            rollback(connection).await?;
        }
        judged.map_err(|error| failure(&error))
    }
}

/// Executes a part. This uses `execute`, never `fetch_one`, which would hide a commit that failed after the first
/// row.
async fn execute(connection: &mut SqliteConnection, sql: Arc<str>, part: Part) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::query_with(AssertSqlSafe(sql), part.arguments)).await.map(drop)
}

async fn judge(connection: &mut SqliteConnection, changes: &[Change]) -> Result<Vec<Verdict>, sqlx::Error> {
    connection.execute("BEGIN IMMEDIATE").await?;
    let mut verdicts = Vec::with_capacity(changes.len());
    let mut stopped = HashSet::new();
    for change in changes {
        let verdict = match change.lane {
            Some(lane) if stopped.contains(&lane) => Verdict::Refused(Refusal::Predecessor),
            _ => admit(connection, change).await?.map_or(Verdict::Admitted, Verdict::Refused),
        };
        stopped.extend(change.lane.filter(|_| change.stops_lane(&verdict)));
        verdicts.push(verdict);
    }
    connection.execute("COMMIT").await?;
    Ok(verdicts)
}

/// Writes one change inside an open transaction, or writes nothing of it and returns the refusal.
pub(super) async fn admit(
    connection: &mut SqliteConnection,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    let unwritten = worker::refusal(connection, change).await?;
    if unwritten.is_some() {
        return Ok(unwritten);
    }
    connection.execute("SAVEPOINT one").await?;
    let written = write_one(connection, change).await;
    match &written {
        Ok(None) => {
            connection.execute("RELEASE one").await?;
            return Ok(None);
        }
        Err(error) if !is_verdict(error) => return written,
        _ => {}
    }
    connection.execute("ROLLBACK TO one; RELEASE one").await?;
    if is_written(connection, change).await? {
        return Ok(None);
    }
    match written {
        Err(error) => refusal(connection, change, &error).await.map(Some),
        refused => refused,
    }
}

/// Writes one change. Returns a refusal if the worker or the tenant of the change is not in the expected state.
async fn write_one(
    connection: &mut SqliteConnection,
    change: &Change,
) -> Result<Option<Refusal>, sqlx::Error> {
    let refusal = write_judged(connection, change).await?;
    if refusal.is_some() {
        return Ok(refusal);
    }
    for part in batch(&[change]).into_parts() {
        execute(connection, part.sql().into(), part).await?;
    }
    open_late(connection, change).await?;
    Ok(None)
}

/// True if the database refused the values, not the write: constraint, mismatch, too big, or a text with a NUL
/// inside.
fn is_verdict(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(18..=20))
}

/// The refusal of a change, now that nothing of it is written.
async fn refusal(
    connection: &mut SqliteConnection,
    change: &Change,
    error: &sqlx::Error,
) -> Result<Refusal, sqlx::Error> {
    for row in change.written() {
        let objection = match row {
            Written::Schedule(row) => row::objection(connection, row).await?,
            Written::Published(row) => row::objection(connection, row).await?,
            Written::Document(row) => row::objection(connection, row).await?.map(|_| Refusal::Exists),
            _ => None,
        };
        if let Some(refusal) = objection {
            return Ok(refusal);
        }
    }
    Ok(refused_by(change, error))
}

/// True if the row may have moved on since the change was computed.
const fn moves_on(row: Written<'_>) -> bool {
    use Written::{Look, Mark, Question, Received, Record, Run};
    matches!(row, Record(_) | Look(_) | Run(_) | Received(_) | Mark(_) | Question(_))
}

fn refused_by(change: &Change, error: &sqlx::Error) -> Refusal {
    const NOT_NULL: &str = "1299";
    const PRIMARY_KEY: &str = "1555";
    const UNIQUE: &str = "2067";
    const FOREIGN_KEY: &str = "787";
    const TRIGGER: &str = "1811";
    let Some(error) = error.as_database_error() else { return Refusal::Invalid(error.to_string()) };
    match error.code().as_deref() {
        Some(UNIQUE | PRIMARY_KEY) => Refusal::Exists,
        // Both codes mean that an expected row is not there.
        Some(FOREIGN_KEY | TRIGGER) => Refusal::Stale,
        // The worker is alive, so a NULL revision or question means that the row has moved on.
        Some(NOT_NULL) if change.writes(moves_on) => Refusal::Stale,
        _ => Refusal::Invalid(error.message().to_owned()),
    }
}

/// Rolls back. After a failure the connection may be inside a transaction or not; afterwards it is outside in any
/// case.
pub(crate) async fn rollback(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    match connection.execute("ROLLBACK").await {
        Ok(_) => Ok(()),
        Err(error) if error.to_string().contains("no transaction is active") => Ok(()),
        Err(error) => Err(failure(&error)),
    }
}
