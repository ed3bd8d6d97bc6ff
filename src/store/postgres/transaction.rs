//! Transactions in the ledger's own database: the user's changes and the checkpoint in one transaction, exactly once.
//!
//! They use a connection of their own: the closure may take its time, and the writer goes on meanwhile.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};

use super::commit::BEGIN;
use super::connect::{Patience, within};
use super::pool::{Lent, Trouble};
use super::statement::Statements;
use super::{Fate, Postgres, StoreError, TransactionError, failure, fate, judge};
use crate::payload::{Payload, Stored};
use crate::store::own::{Transacted, Transacting, TransactionsOn, Unseen, Within, Work, in_time};
use crate::store::sql::ask::Session as _;
use crate::store::sql::own::fill;
use crate::store::sql::worker;
use crate::store::{Change, Delivery, Known, Refusal, Step};

impl TransactionsOn<PgConnection> for Postgres {
    fn transaction<'a>(
        &'a self,
        mut change: Change,
        step: Step,
        within: Within<'a>,
        work: Work<'a, PgConnection, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(async move {
            change.steps = vec![step.clone()];
            let mut lent = self.start(&change, within.limit).await?;
            let connection = &mut lent.connection;
            let (value, payload) = carry_out(connection, within, work).await?;
            // The check comes only now: otherwise a worker that takes this worker's place would have to wait for the
            // closure.
            if let Some(fence) = change.fence
                && !worker::is_alive(connection, fence).await.map_err(|e| failure(&e))?
            {
                return Err(TransactionError::Refused(Refusal::Fenced));
            }
            fill(connection, &step, &payload).await.map_err(|e| failure(&e))?;
            if !self.committed(lent).await? {
                let step = Step { value: Some(Stored::Inline(payload)), ..step };
                self.find_out(&change, &step).await?;
            }
            Ok(value)
        })
    }

    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, PgConnection, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(async move {
            let mut lent = self.start(mark, within.limit).await?;
            let connection = &mut lent.connection;
            let (value, seal) = carry_out(connection, within, work).await?;
            // The check that the worker is alive comes only now: otherwise a worker that takes its place would have to
            // wait for the closure.
            let refused = judge::admit(connection, &mut Statements::default(), &seal).await;
            if let Some(refusal) = refused.map_err(|e| failure(&e))? {
                return Err(TransactionError::Refused(refusal));
            }
            // The record shows the outcome: the next writer of the record waits for the transaction that may still be
            // under way.
            let lost = || StoreError::Io { detail: "the answer to COMMIT was lost".to_owned() };
            self.committed(lent).await?.then_some((value, seal)).ok_or_else(|| lost().into())
        })
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, PgConnection, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(self.process(delivery, within, work))
    }
}

impl Postgres {
    /// Commits the transaction of a guest. `false`: the answer was lost, and the outcome is unknown. If the commit
    /// failed, nothing of the transaction is durable: the connection is not given back, and the server rolls back.
    pub(super) async fn committed(&self, mut lent: Lent<'_>) -> Result<bool, StoreError> {
        let commit = lent.connection.execute("COMMIT");
        match within(self.connector.options.answer_timeout * 2, commit).await {
            Some(Ok(_)) => {}
            Some(Err(error)) if fate(&error) != Fate::Lost => return Err(failure(&error)),
            _ => return Ok(false),
        }
        self.guests.clean(lent);
        Ok(true)
    }

    /// Begins a transaction with its mark, on a connection of its own.
    async fn start(&self, change: &Change, limit: Duration) -> Transacted<Lent<'_>> {
        let mut patience = Patience::of(self.connector.options.retry_for);
        loop {
            let trouble = match self.try_start(change, limit).await {
                Ok(Ok(lent)) => return Ok(lent),
                Ok(Err(refusal)) => return Err(TransactionError::Refused(refusal)),
                Err(trouble) => trouble,
            };
            if !trouble.may_pass || !patience.again().await {
                return Err(trouble.error.into());
            }
        }
    }

    async fn try_start(
        &self,
        change: &Change,
        limit: Duration,
    ) -> Result<Result<Lent<'_>, Refusal>, Trouble> {
        let mut lent = self.guests.lend().await?;
        let begun = {
            let connection = &mut lent.connection;
            let answer_limit = self.connector.options.answer_timeout * 2;
            within(answer_limit, begin(connection, change, limit))
                .await
                .ok_or_else(|| Trouble::late(answer_limit))?
        };
        match begun {
            Ok(None) => Ok(Ok(lent)),
            Ok(Some(refusal)) => Ok(Err(refusal)),
            Err(error) => {
                // The connection is not given back: its transaction is open.
                Err(Trouble { may_pass: fate(&error) != Fate::Final, error: failure(&error) })
            }
        }
    }

    /// Finds out the outcome after the answer to COMMIT was lost. A new write of the mark waits for the transaction
    /// that may still be under way, and then finds the mark, or not.
    async fn find_out(&self, change: &Change, step: &Step) -> Result<(), StoreError> {
        let mut patience = Patience::of(self.connector.options.retry_for);
        loop {
            let trouble = match self.try_find_out(change, step).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let detail = "the connection was lost, and the server rolled the transaction back".into();
                    return Err(StoreError::Io { detail });
                }
                Err(trouble) => trouble,
            };
            if !trouble.may_pass || !patience.again().await {
                return Err(trouble.error);
            }
        }
    }

    async fn try_find_out(&self, change: &Change, step: &Step) -> Result<bool, Trouble> {
        let mut lent = self.guests.lend().await?;
        let limit = self.connector.options.answer_timeout * 2;
        let found = within(limit, find_out(&mut lent.connection, change, step)).await;
        match found {
            Some(Ok(found)) => {
                lent.give_back();
                Ok(found)
            }
            Some(Err(error)) => {
                Err(Trouble { may_pass: fate(&error) != Fate::Final, error: failure(&error) })
            }
            None => Err(Trouble::late(limit)),
        }
    }
}

/// Begins a transaction whose limits the server enforces, too: if this process is stopped or cut off, its locks do
/// not stay.
async fn begin_plain(connection: &mut PgConnection, limit: Duration) -> Result<(), sqlx::Error> {
    let limit = server_limit(limit);
    let begin = format!(
        "{BEGIN}; SET LOCAL statement_timeout = {limit}; SET LOCAL idle_in_transaction_session_timeout = {limit}"
    );
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(connection).await.map(drop)
}

/// The limit for the server in milliseconds, a little later than that of this process.
pub(super) fn server_limit(limit: Duration) -> u128 {
    (limit + Duration::from_secs(1)).as_millis()
}

async fn begin(
    connection: &mut PgConnection,
    change: &Change,
    limit: Duration,
) -> Result<Option<Refusal>, sqlx::Error> {
    begin_plain(connection, limit).await?;
    let refusal = match change.fence {
        Some(fence) if !worker::may_write(connection, fence).await? => Some(Refusal::Fenced),
        _ => change.unwritten(),
    };
    if refusal.is_some() {
        return Ok(refusal);
    }
    judge::write_or_refuse(connection, &mut Statements::default(), change).await
}

/// True if the mark and its value are stored. If so, the check ends with a write of its own: where commits wait for a
/// standby, a visible commit need not have reached the standby.
async fn find_out(connection: &mut PgConnection, change: &Change, step: &Step) -> Result<bool, sqlx::Error> {
    connection.execute(BEGIN).await?;
    let free = judge::write_or_refuse(connection, &mut Statements::default(), change).await?.is_none();
    let written = !free && connection.is_written(step).await?;
    if written && let Some(fence) = change.fence {
        worker::is_alive(connection, fence).await?;
    }
    connection.execute(if written { "COMMIT" } else { "ROLLBACK" }).await?;
    Ok(written)
}

/// The code of an aborted transaction: a statement failed in it, and it can only be rolled back.
const ABORTED: &str = "25P02";

pub(super) fn is_aborted(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(ABORTED))
}

/// Runs the closure in the open transaction, and makes sure that the transaction is still open afterwards.
async fn carry_out<V>(
    connection: &mut PgConnection,
    within: Within<'_>,
    work: Work<'_, PgConnection, V>,
) -> Transacted<(Unseen, V)> {
    connection.execute("SAVEPOINT counterfoil").await.map_err(|e| failure(&e))?;
    let worked = in_time(connection, within, work).await?;
    let Err(error) = connection.execute("RELEASE counterfoil").await else {
        return worked.map_err(TransactionError::Closure);
    };
    // Neither the closure's success nor its failure may be recorded: both depend on the lost connection.
    if fate(&error) == Fate::Lost {
        return Err(failure(&error).into());
    }
    match worked {
        // A statement of the closure failed, and PostgreSQL rolls everything back, whatever COMMIT answers.
        Err(failed) if is_aborted(&error) => Err(TransactionError::Closure(failed)),
        Ok(_) if is_aborted(&error) => Err(TransactionError::Spoilt { detail: error.to_string() }),
        // The savepoint is gone if the closure ended the transaction, even if the closure began another one.
        _ => Err(TransactionError::EndedInside),
    }
}

/// Runs the closure in a transaction that was begun with its mark. After a success, the next statement must check
/// that the mark is there.
pub(super) async fn carry_on(
    connection: &mut PgConnection,
    within: Within<'_>,
    work: Work<'_, PgConnection, Payload>,
) -> Transacted<(Unseen, Payload)> {
    let failed = match in_time(connection, within, work).await? {
        Ok(worked) => return Ok(worked),
        Err(failed) => failed,
    };
    match is_begun(connection).await {
        Ok(true) => Err(TransactionError::Closure(failed)),
        Ok(false) => Err(TransactionError::EndedInside),
        Err(error) if is_aborted(&error) => Err(TransactionError::Closure(failed)),
        Err(error) => Err(failure(&error).into()),
    }
}

/// True if the transaction that was begun with its mark is still open.
pub(super) async fn is_begun(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let marked = sqlx::query_scalar("SELECT current_setting('counterfoil.begun', true) = 'yes'");
    let marked: Option<bool> = marked.fetch_one(connection).await?;
    Ok(marked == Some(true))
}
