//! Transactions in the ledger's own database: the user's changes and the checkpoint in one transaction, exactly once.
//!
//! The functions are part of the concrete store and not of the trait, because only here the type of the caller's
//! connection is known.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use super::{Sqlite, StoreError, Writer, commit, failure};
use crate::clock::Clock;
use crate::payload::Payload;
use crate::store::transaction::TransactionError;
use crate::store::{Change, Step};

impl Sqlite {
    /// Runs `work` in the ledger's own database and records its result as `step`, in one transaction.
    ///
    /// The step is written first, without a value, so that a closure that commits by itself leaves a mark that resume
    /// can see, instead of changes that would be made twice.
    ///
    /// # Crash
    /// Before it returns: changes and checkpoint are both there, or neither. After: both.
    pub(crate) async fn transaction<T, E, F>(
        &self,
        mut change: Change,
        step: Step,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<T, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
    {
        change.steps = vec![step.clone()];
        let mut writer = self.writer.lock().await;
        let writer = begin(&mut writer, &change).await?;
        let connection = &mut writer.connection;
        let (value, payload) = carry_out(connection, limit, clock, work).await?;
        sqlx::query(
            "UPDATE step SET value = ? WHERE tenant = ? AND run = ? AND turn = ? AND kind = ? AND name = ? AND id = ?",
        )
        .bind(payload.text())
        .bind(step.tenant.text())
        .bind(step.run.0)
        .bind(i64::from(step.turn))
        .bind(step.kind.code())
        .bind(step.name)
        .bind(step.id)
        .execute(&mut *connection)
        .await
        .map_err(|e| failure(&e))?;
        connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        writer.unfinished = false;
        Ok(value)
    }

    /// Runs `work` in the ledger's own database and writes the change that it returns, in one transaction after
    /// `mark`. The mark is the first write, so that a closure that commits by itself leaves it behind.
    ///
    /// # Crash
    /// Before it returns: the writes of the closure and of both changes are all there, or none of them. After: all of
    /// them.
    pub(crate) async fn sealed<T, E, F>(
        &self,
        mark: &Change,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<(T, Change), TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Change), E>>,
    {
        let mut writer = self.writer.lock().await;
        let writer = begin(&mut writer, mark).await?;
        let connection = &mut writer.connection;
        let (value, seal) = carry_out(connection, limit, clock, work).await?;
        if let Some(refusal) = commit::admit(connection, &seal).await.map_err(|e| failure(&e))? {
            return Err(TransactionError::Refused(refusal));
        }
        connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        writer.unfinished = false;
        Ok((value, seal))
    }
}

/// Begins a transaction with its mark.
async fn begin<'w, E>(
    writer: &'w mut Option<Writer>,
    mark: &Change,
) -> Result<&'w mut Writer, TransactionError<E>> {
    let writer = writer.as_mut().ok_or(StoreError::Closed)?;
    writer.settle().await?;
    writer.unfinished = true; // until its end is seen: whatever happens, the next write rolls back
    writer.connection.execute("BEGIN IMMEDIATE").await.map_err(|e| failure(&e))?;
    match commit::admit(&mut writer.connection, mark).await.map_err(|e| failure(&e))? {
        None => Ok(writer),
        Some(refusal) => Err(TransactionError::Refused(refusal)),
    }
}

/// Runs the closure in the open transaction, and makes sure that the transaction is still open afterwards.
pub(crate) async fn carry_out<V, E, F>(
    connection: &mut SqliteConnection,
    limit: Duration,
    clock: &dyn Clock,
    work: F,
) -> Result<V, TransactionError<E>>
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<V, E>>,
{
    connection.execute("SAVEPOINT counterfoil").await.map_err(|e| failure(&e))?;
    let value = inside(connection, limit, clock, work).await?;
    connection.execute("RELEASE counterfoil").await.map_err(|e| ended_inside(&e))?;
    Ok(value)
}

/// Runs the closure behind the savepoint, which is still there if the closure has ended well.
pub(super) async fn inside<V, E, F>(
    connection: &mut SqliteConnection,
    limit: Duration,
    clock: &dyn Clock,
    work: F,
) -> Result<V, TransactionError<E>>
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<V, E>>,
{
    let worked = {
        let mut work = work(connection).fuse();
        let mut late = clock.sleep(limit).fuse();
        futures_util::select_biased! {
            worked = work => worked,
            () = late => return Err(TransactionError::TooSlow { limit }),
        }
    };
    if worked.is_err() {
        connection.execute("RELEASE counterfoil").await.map_err(|e| ended_inside(&e))?;
    }
    worked.map_err(TransactionError::Closure)
}

/// Converts the error of a missing savepoint: it is gone if the closure ended the transaction, even if the closure
/// began another one.
pub(super) fn ended_inside<E>(error: &sqlx::Error) -> TransactionError<E> {
    match error.as_database_error() {
        Some(said) if said.message().starts_with("no such savepoint") => TransactionError::EndedInside,
        _ => failure(error).into(),
    }
}
