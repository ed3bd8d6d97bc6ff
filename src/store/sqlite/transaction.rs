//! Transactions in the ledger's own database: the user's changes and the checkpoint in one transaction, exactly once.

use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use super::{Sqlite, StoreError, Writer, commit, failure};
use crate::payload::Payload;
use crate::store::own::{Transacted, Transacting, TransactionsOn, Unseen, Within, Work, in_time};
use crate::store::sql::own::fill;
use crate::store::transaction::TransactionError;
use crate::store::{Change, Delivery, Known, Step};

impl TransactionsOn<SqliteConnection> for Sqlite {
    fn transaction<'a>(
        &'a self,
        mut change: Change,
        step: Step,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(async move {
            change.steps = vec![step.clone()];
            let mut writer = self.writer.lock().await;
            let writer = begin(&mut writer, &change).await?;
            let connection = &mut writer.connection;
            let (value, payload) = carry_out(connection, within, work).await?;
            fill(connection, &step, &payload).await.map_err(|e| failure(&e))?;
            connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
            writer.unfinished = false;
            Ok(value)
        })
    }

    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(async move {
            let mut writer = self.writer.lock().await;
            let writer = begin(&mut writer, mark).await?;
            let connection = &mut writer.connection;
            let (value, seal) = carry_out(connection, within, work).await?;
            if let Some(refusal) = commit::admit(connection, &seal).await.map_err(|e| failure(&e))? {
                return Err(TransactionError::Refused(refusal));
            }
            connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
            writer.unfinished = false;
            Ok((value, seal))
        })
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(self.process(delivery, within, work))
    }
}

/// Begins a transaction with its mark.
async fn begin<'w>(writer: &'w mut Option<Writer>, mark: &Change) -> Transacted<&'w mut Writer> {
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
pub(crate) async fn carry_out<V>(
    connection: &mut SqliteConnection,
    within: Within<'_>,
    work: Work<'_, SqliteConnection, V>,
) -> Transacted<(Unseen, V)> {
    connection.execute("SAVEPOINT counterfoil").await.map_err(|e| failure(&e))?;
    let value = inside(connection, within, work).await?;
    connection.execute("RELEASE counterfoil").await.map_err(|e| ended_inside(&e))?;
    Ok(value)
}

/// Runs the closure behind the savepoint, which is still there if the closure has ended well.
pub(super) async fn inside<V>(
    connection: &mut SqliteConnection,
    within: Within<'_>,
    work: Work<'_, SqliteConnection, V>,
) -> Transacted<(Unseen, V)> {
    let worked = in_time(connection, within, work).await?;
    if worked.is_err() {
        connection.execute("RELEASE counterfoil").await.map_err(|e| ended_inside(&e))?;
    }
    worked.map_err(TransactionError::Closure)
}

/// Converts the error of a missing savepoint: it is gone if the closure ended the transaction, even if the closure
/// began another one.
pub(super) fn ended_inside(error: &sqlx::Error) -> TransactionError<Unseen> {
    match error.as_database_error() {
        Some(said) if said.message().starts_with("no such savepoint") => TransactionError::EndedInside,
        _ => failure(error).into(),
    }
}
