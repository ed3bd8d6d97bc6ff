//! Tables `inbox`, `inbox_try` and `inbox_version`: messages are processed once, together with their changes.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;

use super::commit::BEGIN;
use super::statement::Statements;
use super::transaction::{carry_on, is_aborted, is_begun, server_limit};
use super::{Columns, Postgres, StoreError, TransactionError, escaped, failure, judge};
use crate::clock::{Clock, Timestamp};
use crate::id::QuestionId;
use crate::payload::Payload;
use crate::store::inbox::{Counted, Counting, Delivery, Known, OUTDATED, PROCESSED, SetAside};
use crate::store::sql;

/// Counts an attempt before it is made. The commit does not wait for the disk: a killed process still leaves the
/// count behind, and only a failing server may lose it. No attempt is counted of a message with a recorded end.
const COUNT: &str = "WITH fast AS (SELECT set_config('synchronous_commit', 'off', true)) \
                     INSERT INTO inbox_try (tenant, consumer, message, tries) SELECT $1, $2, $3, 1 \
                     FROM fast WHERE NOT EXISTS \
                     (SELECT 1 FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3) \
                     ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = inbox_try.tries + 1 \
                     RETURNING 1::bigint, tries, NULL::text, detail";

/// The number of attempts of a message, including the one that is counted already.
const TRIED: &str = "SELECT 1::bigint, tries, NULL::text, detail FROM inbox_try \
                     WHERE tenant = $1 AND consumer = $2 AND message = $3";

/// The recorded end of a message, without regard to locks on its row.
const KNOWN: &str = "SELECT state, tries, result, detail FROM inbox \
                     WHERE tenant = $1 AND consumer = $2 AND message = $3";

/// Finds a row if the consumer has this version of the aggregate, or a newer one.
const NEWER: &str = "SELECT 1 FROM inbox_version \
                     WHERE tenant = $1 AND consumer = $2 AND aggregate = $3 AND version >= $4";

/// The row of a message once no other transaction holds it.
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

impl Postgres {
    /// Runs `work` in the ledger's own database and records that the message is processed, in one transaction, unless
    /// the end of the message is known already.
    ///
    /// # Crash
    /// Before the transaction ends: nothing of it is there, except the attempt if it is counted before. After: all of
    /// it.
    pub(crate) async fn process<T, E, F>(
        &self,
        delivery: &Delivery,
        limit: Duration,
        clock: &dyn Clock,
        work: F,
    ) -> Result<Result<T, Known>, TransactionError<E>>
    where
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
    {
        // The connection is given back only after a success: otherwise its open transaction ends with it.
        let mut lent = self.guests.lend().await.map_err(|trouble| trouble.error)?;
        let connection = &mut lent.connection;
        let known = if take(connection, limit, delivery).await? {
            match delivery.counting {
                // The count uses another connection: if this transaction is rolled back, the attempt has still been
                // made.
                Counting::Before => self.inbox_count(delivery).await?,
                Counting::Done => first(&self.readers.once(bound(TRIED, delivery)).await?, delivery.tries)?,
                _ => None,
            }
        } else {
            let found = bound(KNOWN, delivery).fetch_all(&mut *connection).await;
            let detail = "an answer about this message, or the end of its retention, came in between: have it delivered again";
            let lost = || StoreError::Io { detail: detail.to_owned() };
            Some(first(&found.map_err(|e| failure(&e))?, u32::MAX)?.ok_or_else(lost)?)
        };
        if let Some(known) = known {
            connection.execute("ROLLBACK").await.map_err(|e| failure(&e))?;
            lent.give_back();
            return Ok(Err(known));
        }
        let processed = if is_outdated(connection, delivery).await.map_err(|e| failure(&e))? {
            finish(connection, delivery, OUTDATED, None).await?;
            Err(Known::Outdated)
        } else {
            let (value, result) = carry_on(connection, limit, clock, work).await?;
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

    /// Retires messages. Nobody waits for the disk, and messages that a crash brings back are retired again.
    pub(crate) async fn inbox_retire(
        &self,
        consumer: &str,
        until: Timestamp,
        is_left: bool,
    ) -> Result<bool, StoreError> {
        let mut lent = self.readers.lend().await.map_err(|trouble| trouble.error)?;
        let retired = sql::inbox::retire(&mut lent.connection, consumer, until, is_left).await;
        let may_be_more = retired.map_err(|e| failure(&e))?;
        lent.give_back();
        Ok(may_be_more)
    }

    pub(crate) async fn inbox_next_over(
        &self,
        consumer: &str,
        after: Timestamp,
        is_left: bool,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut lent = self.readers.lend().await.map_err(|trouble| trouble.error)?;
        let next = sql::inbox::next_over(&mut lent.connection, consumer, after, is_left).await;
        let next = next.map_err(|e| failure(&e))?;
        lent.give_back();
        Ok(next)
    }

    /// The recorded end of a message that is not to be processed any more. No attempt is counted.
    pub(crate) async fn inbox_known(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        let known = first(&self.readers.once(bound(KNOWN, delivery)).await?, u32::MAX)?;
        if known.is_some() {
            return Ok(known.filter(Known::is_final));
        }
        let Some((aggregate, version)) = &delivery.version else { return Ok(None) };
        let query = sqlx::query(NEWER).bind(delivery.tenant.as_str().to_owned());
        let query = query.bind(escaped(&delivery.consumer).into_owned());
        let newer = self.readers.once(query.bind(escaped(aggregate).into_owned()).bind(*version)).await?;
        Ok(newer.first().map(|_| Known::Outdated))
    }

    /// Finds out the end of a message after the answer to COMMIT was lost. A query for its row waits for the
    /// transaction that may still be under way, and then finds its write, or not.
    async fn find_processed<T, E>(
        &self,
        delivery: &Delivery,
        processed: Result<T, Known>,
    ) -> Result<Result<T, Known>, TransactionError<E>> {
        let mut lent = self.guests.lend().await.map_err(|trouble| trouble.error)?;
        let rows = bound(HOLD, delivery).fetch_all(&mut lent.connection).await;
        let row = rows.and_then(|rows| rows.first().map(read).transpose()).map_err(|e| failure(&e))?;
        lent.give_back();
        if row.is_some_and(|row| row.state == PROCESSED || row.state == OUTDATED) {
            return Ok(processed);
        }
        let detail = "the connection was lost, and the server rolled the transaction back".into();
        Err(StoreError::Io { detail }.into())
    }

    /// Counts an attempt. Returns the recorded end of a message that is not to be tried.
    pub(crate) async fn inbox_count(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        let mut rows = self.readers.once(bound(COUNT, delivery)).await?;
        if rows.is_empty() {
            rows = self.readers.once(bound(KNOWN, delivery)).await?;
        }
        first(&rows, delivery.tries)
    }

    /// Records the reason why the attempt failed. Returns the number of attempts.
    pub(crate) async fn inbox_failed(&self, delivery: &Delivery, detail: &str) -> Result<i64, StoreError> {
        let counts = "INSERT INTO inbox_try (tenant, consumer, message, tries, detail) VALUES ($1, $2, $3, 1, $4) \
                      ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = inbox_try.tries + 1, \
                      detail = excluded.detail RETURNING tries";
        let notes = "UPDATE inbox_try SET detail = $4 WHERE tenant = $1 AND consumer = $2 AND message = $3 RETURNING tries";
        let sql = if delivery.counting == Counting::With { counts } else { notes };
        let rows = self.readers.once(bound(sql, delivery).bind(escaped(detail).into_owned())).await?;
        let tries = rows.first().map(|row| Columns::of("inbox_try", row).take()).transpose()?;
        Ok(tries.unwrap_or_default())
    }

    /// Sets the message aside after this number of attempts, and names the question about it, unless it has one.
    /// Returns the question; `None` if another delivery of the message has been processed meanwhile.
    pub(crate) async fn inbox_set_aside(
        &self,
        delivery: &Delivery,
        tries: i64,
        why: &SetAside,
        question: QuestionId,
    ) -> Result<Option<QuestionId>, StoreError> {
        let sql = "INSERT INTO inbox (tenant, consumer, message, state, tries, detail, escalation, at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, consumer, message) DO UPDATE SET \
                   state = greatest(inbox.state, excluded.state), \
                   escalation = coalesce(inbox.escalation, excluded.escalation) \
                   WHERE inbox.state IN (4, 5) RETURNING escalation";
        let detail = why.detail().map(|detail| escaped(detail).into_owned());
        let query = bound(sql, delivery).bind(why.state()).bind(tries).bind(detail);
        let rows = self.readers.once(query.bind(question.0).bind(delivery.at.0)).await?;
        let asked = rows.first().map(|row| Columns::of("inbox", row).take()).transpose()?;
        Ok(asked.map(QuestionId))
    }

    /// Lets the message be tried again, counted from the first attempt on, because this question was answered.
    pub(crate) async fn inbox_again(
        &self,
        delivery: &Delivery,
        question: QuestionId,
    ) -> Result<(), StoreError> {
        let sql = "WITH answered AS (DELETE FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3 \
                   AND escalation = $4 RETURNING message) \
                   DELETE FROM inbox_try USING answered \
                   WHERE tenant = $1 AND consumer = $2 AND inbox_try.message = $3";
        self.readers.once(bound(sql, delivery).bind(question.0)).await.map(drop)
    }
}

fn bound(sql: &'static str, delivery: &Delivery) -> Query<'static, sqlx::Postgres, PgArguments> {
    let query = sqlx::query(sql).bind(delivery.tenant.as_str().to_owned());
    query.bind(escaped(&delivery.consumer).into_owned()).bind(escaped(&delivery.message).into_owned())
}

/// Begins the transaction of a message and takes it. False if the message has a row already.
async fn take(
    connection: &mut PgConnection,
    limit: Duration,
    delivery: &Delivery,
) -> Result<bool, StoreError> {
    let taken = async {
        connection.execute(BEGIN).await?;
        let query = bound(TAKE, delivery).bind(server_limit(limit).to_string()).bind(delivery.at.0);
        query.fetch_all(connection).await
    };
    taken.await.map(|rows| !rows.is_empty()).map_err(|e| failure(&e))
}

/// The recorded end in the row, if there is a row and the message is not to be tried.
fn first(rows: &[PgRow], limit: u32) -> Result<Option<Known>, StoreError> {
    let row = rows.first().map(read).transpose().map_err(|e| failure(&e))?;
    Ok(row.and_then(|row| row.known(limit)))
}

fn read(row: &PgRow) -> Result<Counted, sqlx::Error> {
    use sqlx::Row as _;
    let text = |column: usize| row.try_get::<Option<String>, _>(column);
    Ok(Counted {
        state: row.try_get(0)?,
        tries: row.try_get(1)?,
        result: text(2)?.and_then(|text| super::unescaped(&text).map(Into::into)),
        detail: text(3)?.and_then(|text| super::unescaped(&text).map(Into::into)),
    })
}

/// True if the consumer has this version of the aggregate or a newer one. Otherwise this version is recorded; two
/// messages that bring a version at once wait for one another here.
async fn is_outdated(connection: &mut PgConnection, delivery: &Delivery) -> Result<bool, sqlx::Error> {
    let Some((aggregate, version)) = &delivery.version else { return Ok(false) };
    let written = sqlx::query(
        "INSERT INTO inbox_version (tenant, consumer, aggregate, version) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (tenant, consumer, aggregate) DO UPDATE SET version = excluded.version \
         WHERE inbox_version.version < excluded.version",
    )
    .bind(delivery.tenant.as_str())
    .bind(escaped(&delivery.consumer).into_owned())
    .bind(escaped(aggregate).into_owned())
    .bind(*version)
    .execute(connection)
    .await?;
    Ok(written.rows_affected() == 0)
}

async fn finish<E>(
    connection: &mut PgConnection,
    delivery: &Delivery,
    state: i64,
    result: Option<&Payload>,
) -> Result<(), TransactionError<E>> {
    let query = bound(FINISH, delivery).bind(state);
    let finished = query.bind(result.map(|result| escaped(result.as_str()).into_owned()));
    match finished.execute(&mut *connection).await {
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
