//! Tables `inbox`, `inbox_try` and `inbox_version`: messages are processed once, together with their changes.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::commit::BEGIN;
use super::connect::{Patience, within};
use super::pool::Trouble;
use super::row::{Beside, asking};
use super::statement::Statements;
use super::transaction::{carry_on, is_aborted, is_begun, server_limit};
use super::{Postgres, StoreError, TransactionError, failure, judge};
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::payload::Payload;
use crate::store::StoreFuture;
use crate::store::inbox::{Aside, Counting, Delivery, Inbox, Known, OUTDATED, PROCESSED};
use crate::store::own::{Transacted, Unseen, Within, Work};
use crate::store::row::Given;
use crate::store::sql::inbox::{
    Messages as _, again, count, ended, failed, is_outdated, known, next_over, retire, set_aside, uncount,
    with,
};
use crate::store::table::Kind;

/// The number of attempts of a message, including the one that is counted already.
const TRIED: &str = "SELECT 1::bigint, tries, NULL::text, detail FROM inbox_try \
                     WHERE tenant = $1 AND consumer = $2 AND message = $3";

/// The row of a message, held until the transaction ends. To hold it is a write: where commits wait for a standby, a
/// visible commit need not have reached the standby.
const HOLD: &str = "SELECT state, tries, result, detail FROM inbox \
                    WHERE tenant = $1 AND consumer = $2 AND message = $3 FOR UPDATE";

/// Takes the message as the first statement of its transaction, if the message has no row yet. The statement waits
/// for an earlier transaction that has taken the message: of several simultaneous deliveries one is tried, and the
/// others find its end. The state of the row is [`ENDED_INSIDE`](crate::store::inbox::ENDED_INSIDE) until the closure
/// has ended. The statement also sets up the transaction: the time limits by which the server gives up when this
/// process does, and a mark that belongs to the transaction, by which a later statement recognises it.
const TAKE: &str = "INSERT INTO inbox (tenant, consumer, message, state, tries, at) VALUES ($1, $2, $3, 5, 1, $5) \
                    ON CONFLICT (tenant, consumer, message) DO NOTHING \
                    RETURNING set_config('statement_timeout', $4, true), \
                    set_config('idle_in_transaction_session_timeout', $4, true), \
                    set_config('counterfoil.begun', 'yes', true)";

/// Records the end of the message in the transaction that was begun, and in no other: the closure may have ended that
/// transaction, even if it began another one.
const FINISH: &str = "WITH counted AS \
                      (DELETE FROM inbox_try WHERE tenant = $1 AND consumer = $2 AND message = $3) \
                      UPDATE inbox SET state = $4, result = $5 WHERE tenant = $1 AND consumer = $2 AND message = $3 \
                      AND state = 5 AND current_setting('counterfoil.begun', true) = 'yes'";

impl Inbox for Postgres {
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move { known(&mut self.beside(), delivery).await })
    }

    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move { count(&mut self.beside(), delivery).await })
    }

    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()> {
        Box::pin(async move { uncount(&mut self.beside(), delivery).await })
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64> {
        Box::pin(async move { failed(&mut self.beside(), delivery, detail).await })
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>> {
        Box::pin(async move { set_aside(&mut self.beside(), delivery, aside, question).await })
    }

    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: QuestionId) -> StoreFuture<'a, ()> {
        Box::pin(async move { again(&mut self.beside(), delivery, question).await })
    }

    /// Nobody waits for the disk, and messages that a crash brings back are retired again.
    fn inbox_retire<'a>(
        &'a self,
        consumer: &'a str,
        until: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut lent = self.readers.lend().await.map_err(|trouble| trouble.error)?;
            let retired = retire(&mut lent.connection, consumer, until, is_left).await;
            let may_be_more = retired.map_err(|e| failure(&e))?;
            lent.give_back();
            Ok(may_be_more)
        })
    }

    fn inbox_next_over<'a>(
        &'a self,
        consumer: &'a str,
        after: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, Option<Timestamp>> {
        Box::pin(async move {
            let mut lent = self.readers.lend().await.map_err(|trouble| trouble.error)?;
            let next = next_over(&mut lent.connection, consumer, after, is_left).await;
            let next = next.map_err(|e| failure(&e))?;
            lent.give_back();
            Ok(next)
        })
    }
}

impl Postgres {
    /// See [`TransactionsOn::process`](crate::store::own::TransactionsOn::process).
    pub(super) async fn process(
        &self,
        delivery: &Delivery,
        within: Within<'_>,
        work: Work<'_, PgConnection, Payload>,
    ) -> Transacted<Result<Unseen, Known>> {
        // The connection is given back only after a success: otherwise its open transaction ends with it.
        let mut lent = self.guests.lend().await.map_err(|trouble| trouble.error)?;
        let connection = &mut lent.connection;
        let known = if take(connection, within.limit, delivery).await? {
            match delivery.counting {
                // The count uses another connection: if this transaction is rolled back, the attempt has still been
                // made.
                Counting::Before => count(&mut self.beside(), delivery).await?,
                Counting::Done => self.beside().ended(TRIED, delivery, delivery.tries).await?,
                _ => None,
            }
        } else {
            let detail = "an answer about this message, or the end of its retention, came in between: have it delivered again";
            let lost = || StoreError::Io { detail: detail.to_owned() };
            Some(ended(connection, delivery, u32::MAX).await?.ok_or_else(lost)?)
        };
        if let Some(known) = known {
            connection.execute("ROLLBACK").await.map_err(|e| failure(&e))?;
            lent.give_back();
            return Ok(Err(known));
        }
        let processed = if is_outdated(connection, delivery).await? {
            finish(connection, delivery, OUTDATED, None).await?;
            Err(Known::Outdated)
        } else {
            let (value, result) = carry_on(connection, within, work).await?;
            finish(connection, delivery, PROCESSED, Some(&result)).await?;
            if let Some(along) = &delivery.along {
                let refused = judge::admit(connection, &mut Statements::default(), along).await;
                if let Some(refusal) = refused.map_err(|e| failure(&e))? {
                    return Err(TransactionError::Refused(refusal));
                }
            }
            Ok(value)
        };
        if self.committed(lent).await? {
            Ok(processed)
        } else {
            self.find_processed(delivery, processed).await
        }
    }

    /// Finds out the end of a message after the answer to COMMIT was lost. A new delivery waits for the transaction that
    /// may still be under way, and then finds its row, or none.
    async fn find_processed<T>(
        &self,
        delivery: &Delivery,
        processed: Result<T, Known>,
    ) -> Transacted<Result<T, Known>> {
        let mut patience = Patience::of(self.connector.options.retry_for);
        loop {
            let trouble = match self.try_find_processed(delivery).await {
                Ok(true) => return Ok(processed),
                Ok(false) => {
                    let detail = "the connection was lost, and the server rolled the transaction back".into();
                    return Err(StoreError::Io { detail }.into());
                }
                Err(trouble) => trouble,
            };
            if !trouble.may_pass || !patience.again().await {
                return Err(trouble.error.into());
            }
        }
    }

    async fn try_find_processed(&self, delivery: &Delivery) -> Result<bool, Trouble> {
        let mut lent = self.guests.lend().await?;
        let limit = self.connector.options.answer_timeout * 2;
        let found = within(limit, is_processed(&mut lent.connection, limit, delivery)).await;
        let found = found.ok_or_else(|| Trouble::late(limit))?.map_err(Trouble::of)?;
        lent.give_back();
        Ok(found)
    }

    fn beside(&self) -> Beside<'_> {
        Beside(&self.readers)
    }
}

/// Begins the transaction of a message and takes it. False if the message has a row already.
async fn take(
    connection: &mut PgConnection,
    limit: Duration,
    delivery: &Delivery,
) -> Result<bool, StoreError> {
    let taken = async {
        connection.execute(BEGIN).await?;
        let limit = server_limit(limit).to_string();
        asking(TAKE, &with(delivery, &[limit.as_str().into(), delivery.at.0.into()]))
            .fetch_all(connection)
            .await
    };
    taken.await.map(|rows| !rows.is_empty()).map_err(|e| failure(&e))
}

/// True if the message has an end. A query for its row would not do: it neither sees nor waits for the row that a
/// transaction has inserted and not committed.
async fn is_processed(
    connection: &mut PgConnection,
    limit: Duration,
    delivery: &Delivery,
) -> Result<bool, StoreError> {
    let known = if take(connection, limit, delivery).await? {
        None
    } else {
        connection.ended(HOLD, delivery, u32::MAX).await?
    };
    let is_final = known.is_some_and(|known| known.is_final());
    let end = connection.execute(if is_final { "COMMIT" } else { "ROLLBACK" });
    end.await.map_err(|e| failure(&e))?;
    Ok(is_final)
}

async fn finish(
    connection: &mut PgConnection,
    delivery: &Delivery,
    state: i64,
    result: Option<&Payload>,
) -> Transacted<()> {
    let result = result.map_or(Given::Null(Kind::Text), |result| result.text().into());
    match asking(FINISH, &with(delivery, &[state.into(), result])).execute(&mut *connection).await {
        Ok(done) if done.rows_affected() == 1 => Ok(()),
        Ok(_) if is_begun(connection).await.map_err(|e| failure(&e))? => {
            Err(StoreError::Io { detail: "the closure took the message's row away".to_owned() }.into())
        }
        Ok(_) => Err(TransactionError::EndedInside),
        // A statement of the closure failed, and PostgreSQL rolls everything back, whatever COMMIT answers.
        Err(error) if is_aborted(&error) => Err(TransactionError::Spoilt { detail: error.to_string() }),
        Err(error) => Err(failure(&error).into()),
    }
}
