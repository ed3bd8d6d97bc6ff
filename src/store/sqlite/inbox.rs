//! Tables `inbox`, `inbox_try` and `inbox_version`: messages are processed once, together with their changes.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Executor as _, Row as _};
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::open::open_aside;
use super::transaction::{ended_inside, inside};
use super::{Columns, Sqlite, StoreError, Writer, commit, failure};
use crate::clock::{Boot, Clock, Timestamp};
use crate::id::QuestionId;
use crate::payload::Payload;
use crate::store::inbox::{Counted, Counting, Delivery, Known, OUTDATED, PROCESSED, SetAside};
use crate::store::sql;
use crate::store::transaction::TransactionError;

/// Selects the end of a message; for a message without an end, its number of attempts.
macro_rules! known {
    () => {
        "SELECT state, tries, result, detail FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 \
         UNION ALL SELECT 1, tries, NULL, detail FROM inbox_try \
         WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 ORDER BY 1 DESC LIMIT 1"
    };
}

const KNOWN: &str = known!();
/// Counts an attempt before it is made, durably before it is read. No attempt is counted of a message with a recorded
/// end.
const COUNT: &str = concat!(
    "INSERT INTO inbox_try (tenant, consumer, message, tries) SELECT ?1, ?2, ?3, 1 \
     WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3) \
     ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = tries + 1; ",
    known!()
);

/// Takes the message, if it has no row yet. The state of the row is
/// [`ENDED_INSIDE`](crate::store::inbox::ENDED_INSIDE) until the closure has ended. A query behind the savepoint
/// reads if the message was taken.
macro_rules! take {
    () => {
        "INSERT INTO inbox (tenant, consumer, message, state, tries, at) VALUES (?1, ?2, ?3, 5, 1, ?4) \
         ON CONFLICT (tenant, consumer, message) DO NOTHING"
    };
}

/// Records the end of the message. The statement fails if the closure has deleted the row: there is no state then.
macro_rules! finish {
    () => {
        "INSERT INTO inbox (tenant, consumer, message, state, tries, at, result) VALUES (?1, ?2, ?3, \
         (SELECT ?5 FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3), 1, ?4, ?6) \
         ON CONFLICT (tenant, consumer, message) DO UPDATE SET state = excluded.state, result = excluded.result; \
         DELETE FROM inbox_try WHERE tenant = ?1 AND consumer = ?2 AND message = ?3"
    };
}

// The statements around a closure and its savepoint go to the database together: a call costs more than a statement.
/// Takes the message in a transaction that the caller begins and commits.
#[cfg(feature = "sim")]
pub(crate) const TAKE: &str = concat!(take!(), "; SAVEPOINT counterfoil; SELECT changes()");
pub(crate) const END: &str = concat!("RELEASE counterfoil; ", finish!());
/// Takes the message in a transaction of its own.
const BEGIN_AND_TAKE: &str =
    concat!("BEGIN IMMEDIATE; ", take!(), "; SAVEPOINT counterfoil; SELECT changes()");
const END_AND_COMMIT: &str = concat!("RELEASE counterfoil; ", finish!(), "; COMMIT");
/// Takes the message in a transaction that messages share.
const BEGIN_SHARED: &str =
    concat!("BEGIN IMMEDIATE; SAVEPOINT message; ", take!(), "; SAVEPOINT counterfoil; SELECT changes()");
const TAKE_SHARED: &str =
    concat!("SAVEPOINT message; ", take!(), "; SAVEPOINT counterfoil; SELECT changes()");
const END_SHARED: &str = concat!("RELEASE counterfoil; ", finish!(), "; RELEASE message");

impl Sqlite {
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
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
    {
        // The writer is held from the count to the end: a second delivery finds the end of the first.
        let mut held = self.next_writer().await;
        let writer = held.as_mut().ok_or(StoreError::Closed)?;
        let may_share = delivery.counting == Counting::With && delivery.along.is_none();
        let is_shared = may_share && writer.take_shared(delivery, clock.boot()).await?;
        if !is_shared && let Some(known) = self.take_counted(writer, delivery).await? {
            return Ok(Err(known));
        }
        let stays_open = is_shared && (writer.has_shared() || self.is_anybody_in_line());
        let end = match &delivery.along {
            _ if stays_open => END_SHARED,
            None => END_AND_COMMIT,
            Some(_) => END,
        };
        let connection = &mut writer.connection;
        let processed = process_in(connection, end, delivery, limit, clock, work).await?;
        if let Some(along) = &delivery.along {
            if processed.is_ok()
                && let Some(refusal) = commit::admit(connection, along).await.map_err(|e| failure(&e))?
            {
                return Err(TransactionError::Refused(refusal));
            }
            connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        }
        writer.unfinished = false;
        if !stays_open {
            return Ok(processed);
        }
        let place = writer.join(clock.boot());
        drop(held);
        if self.is_committed(place).await? { Ok(processed) } else { self.found(delivery, processed).await }
    }

    /// Counts the attempt, and takes the message in a transaction of its own. Returns the recorded end of a message
    /// that is not to be tried.
    async fn take_counted(
        &self,
        writer: &mut Writer,
        delivery: &Delivery,
    ) -> Result<Option<Known>, StoreError> {
        writer.settle().await?;
        let known = match delivery.counting {
            Counting::Before => self.count(delivery).await?,
            _ => became(&mut writer.connection, delivery).await?,
        };
        if known.is_none() {
            writer.unfinished = true; // until its end is seen: whatever happens, the next write rolls back
            if !take(&mut writer.connection, BEGIN_AND_TAKE, delivery).await? {
                return Err(StoreError::Io {
                    detail: "another process has this message in hand: have it delivered again".to_owned(),
                });
            }
        }
        Ok(known)
    }

    /// Finds the end of a message whose shared transaction was ended by another message: its row shows the end.
    async fn found<T, E>(
        &self,
        delivery: &Delivery,
        processed: Result<T, Known>,
    ) -> Result<Result<T, Known>, TransactionError<E>> {
        let became = became(&mut *self.settled().await?, delivery).await?;
        if became.is_some_and(|known| known.is_final()) {
            return Ok(processed);
        }
        let detail = "another message that was processed with this one has rolled both back".to_owned();
        Err(StoreError::Io { detail }.into())
    }

    /// The recorded end of a message that is not to be processed any more. No attempt is counted.
    pub(crate) async fn inbox_known(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        let mut reader = self.readers.acquire().await.map_err(|e| failure(&e))?;
        known(&mut reader, delivery).await
    }

    /// Counts an attempt, on a connection that does not wait for the disk: a killed process still leaves the count
    /// behind, and only a power failure may lose it.
    async fn count(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        count(&mut *self.aside().await?, delivery).await
    }

    /// Counts an attempt, before the message is parsed. Returns the recorded end of a message that is not to be
    /// tried.
    pub(crate) async fn inbox_count(&self, delivery: &Delivery) -> Result<Option<Known>, StoreError> {
        // Two connections that write at once would wait for one another by sleeping.
        let _writer = self.settled().await?;
        self.count(delivery).await
    }

    /// Records the reason why the attempt failed. Returns the number of attempts.
    pub(crate) async fn inbox_failed(&self, delivery: &Delivery, detail: &str) -> Result<i64, StoreError> {
        failed(&mut *self.settled().await?, delivery, detail).await
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
        set_aside(&mut *self.settled().await?, delivery, tries, why, question).await
    }

    /// Lets the message be tried again, counted from the first attempt on, because this question was answered.
    pub(crate) async fn inbox_again(
        &self,
        delivery: &Delivery,
        question: QuestionId,
    ) -> Result<(), StoreError> {
        again(&mut *self.settled().await?, delivery, question).await
    }

    /// Retires messages, on the connection that does not wait for the disk: messages that a crash brings back are
    /// retired again.
    pub(crate) async fn inbox_retire(
        &self,
        consumer: &str,
        until: Timestamp,
        is_left: bool,
    ) -> Result<bool, StoreError> {
        // Two connections that write at once would wait for one another by sleeping.
        let _writer = self.settled().await?;
        let mut aside = self.aside().await?;
        sql::inbox::retire(&mut *aside, consumer, until, is_left).await.map_err(|e| failure(&e))
    }

    pub(crate) async fn inbox_next_over(
        &self,
        consumer: &str,
        after: Timestamp,
        is_left: bool,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut reader = self.readers.acquire().await.map_err(|e| failure(&e))?;
        sql::inbox::next_over(&mut *reader, consumer, after, is_left).await.map_err(|e| failure(&e))
    }

    /// The connection that does not wait for the disk.
    async fn aside(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, StoreError> {
        let mut aside = self.aside.lock().await;
        if aside.is_none() {
            *aside = Some(open_aside(self).await?);
        }
        MutexGuard::try_map(aside, Option::as_mut).map_err(|_| StoreError::Closed)
    }

    /// The writer's connection, with no transaction open.
    async fn settled(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, StoreError> {
        let writer = self.writer.lock().await;
        let mut writer = MutexGuard::try_map(writer, Option::as_mut).map_err(|_| StoreError::Closed)?;
        writer.settle().await?;
        Ok(MappedMutexGuard::map(writer, |writer| &mut writer.connection))
    }
}

impl Writer {
    /// Takes a message in a transaction that others may share. Until its end is seen, the next write takes it back,
    /// whatever happens.
    async fn take_shared(&mut self, delivery: &Delivery, now: Boot) -> Result<bool, StoreError> {
        let sql = if self.can_join(now)? {
            TAKE_SHARED
        } else {
            self.settle().await?;
            BEGIN_SHARED
        };
        self.unfinished = true;
        take(&mut self.connection, sql, delivery).await
    }
}

/// Takes a message in a transaction. False if the message has a row already.
pub(crate) async fn take(
    connection: &mut SqliteConnection,
    sql: &'static str,
    delivery: &Delivery,
) -> Result<bool, StoreError> {
    let rows =
        bound(sql, delivery).bind(delivery.at.0).fetch_all(connection).await.map_err(|e| failure(&e))?;
    let taken = rows.first().map(|row| row.try_get::<i64, _>(0)).transpose().map_err(|e| failure(&e))?;
    Ok(taken == Some(1))
}

/// Counts an attempt. Returns the recorded end of a message that is not to be tried.
pub(crate) async fn count(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
) -> Result<Option<Known>, StoreError> {
    let counted = bound(COUNT, delivery).fetch_all(connection).await.map_err(|e| failure(&e))?;
    first(&counted, delivery.tries)
}

/// The recorded end of a message that is not to be tried. An attempt that is not counted may be made.
pub(crate) async fn became(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
) -> Result<Option<Known>, StoreError> {
    let known = bound(KNOWN, delivery).fetch_all(connection).await.map_err(|e| failure(&e))?;
    first(&known, if delivery.counting == Counting::Done { delivery.tries } else { u32::MAX })
}

/// The recorded end in the row, if there is a row and the message is not to be tried.
fn first(rows: &[SqliteRow], limit: u32) -> Result<Option<Known>, StoreError> {
    let Some(row) = rows.first() else { return Ok(None) };
    let mut c = Columns::of("inbox", row);
    let counted = Counted { state: c.take()?, tries: c.take()?, result: c.take()?, detail: c.take()? };
    Ok(counted.known(limit))
}

/// The recorded end of a message that is not to be processed any more.
pub(crate) async fn known(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
) -> Result<Option<Known>, StoreError> {
    let became = became(connection, delivery).await?;
    if became.is_some() {
        return Ok(became.filter(Known::is_final));
    }
    let Some((aggregate, version)) = &delivery.version else { return Ok(None) };
    let sql =
        "SELECT 1 FROM inbox_version WHERE tenant = ? AND consumer = ? AND aggregate = ? AND version >= ?";
    let newer = sqlx::query(sql)
        .bind(delivery.tenant.text())
        .bind(delivery.consumer.clone())
        .bind(aggregate.clone())
        .bind(*version);
    let newer = newer.fetch_optional(connection).await.map_err(|e| failure(&e))?;
    Ok(newer.map(|_| Known::Outdated))
}

/// Runs `work` in the transaction that has taken the message, unless the version is outdated, and records the end of
/// the message.
pub(crate) async fn process_in<T, E, F>(
    connection: &mut SqliteConnection,
    end: &'static str,
    delivery: &Delivery,
    limit: Duration,
    clock: &dyn Clock,
    work: F,
) -> Result<Result<T, Known>, TransactionError<E>>
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(T, Payload), E>>,
{
    let finish = |state: i64, result: Option<&Payload>| {
        bound(end, delivery).bind(delivery.at.0).bind(state).bind(result.map(Payload::text))
    };
    if is_outdated(connection, delivery).await.map_err(|e| failure(&e))? {
        finish(OUTDATED, None).execute(connection).await.map_err(|e| unfinished(&e))?;
        return Ok(Err(Known::Outdated));
    }
    let (value, result) = inside(connection, limit, clock, work).await?;
    finish(PROCESSED, Some(&result)).execute(connection).await.map_err(|e| unfinished(&e))?;
    Ok(Ok(value))
}

/// The reason why the end of a message was not recorded.
fn unfinished<E>(error: &sqlx::Error) -> TransactionError<E> {
    match error.as_database_error() {
        // Without the row the next delivery would be processed again.
        Some(said) if said.message().contains("inbox.state") => {
            StoreError::Io { detail: "the closure took the message's row away".to_owned() }.into()
        }
        _ => ended_inside(error),
    }
}

/// Records the reason why the attempt failed. Returns the number of attempts.
pub(crate) async fn failed(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
    detail: &str,
) -> Result<i64, StoreError> {
    let counts = "INSERT INTO inbox_try (tenant, consumer, message, tries, detail) VALUES (?1, ?2, ?3, 1, ?4) \
                  ON CONFLICT (tenant, consumer, message) DO UPDATE SET tries = tries + 1, detail = excluded.detail; \
                  SELECT tries FROM inbox_try WHERE tenant = ?1 AND consumer = ?2 AND message = ?3";
    let notes = "UPDATE inbox_try SET detail = ?4 WHERE tenant = ?1 AND consumer = ?2 AND message = ?3; \
                 SELECT tries FROM inbox_try WHERE tenant = ?1 AND consumer = ?2 AND message = ?3";
    let sql = if delivery.counting == Counting::With { counts } else { notes };
    let tries = changed(connection, bound(sql, delivery).bind(detail.to_owned())).await?;
    Ok(tries.unwrap_or_default())
}

pub(crate) async fn set_aside(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
    tries: i64,
    why: &SetAside,
    question: QuestionId,
) -> Result<Option<QuestionId>, StoreError> {
    let sql = "INSERT INTO inbox (tenant, consumer, message, state, tries, detail, escalation, at) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, consumer, message) DO UPDATE SET \
               state = max(state, excluded.state), escalation = coalesce(escalation, excluded.escalation) \
               WHERE state IN (4, 5); \
               SELECT escalation FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 \
               AND escalation IS NOT NULL";
    let query = bound(sql, delivery).bind(why.state()).bind(tries).bind(why.detail().map(ToOwned::to_owned));
    let asked = changed(connection, query.bind(question.0).bind(delivery.at.0)).await?;
    Ok(asked.map(QuestionId))
}

pub(crate) async fn again(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
    question: QuestionId,
) -> Result<(), StoreError> {
    // The attempts are deleted first: if nothing more is written, the question is still there, and its answer is
    // found.
    let sql = "DELETE FROM inbox_try WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 \
               AND EXISTS (SELECT 1 FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 AND escalation = ?4); \
               DELETE FROM inbox WHERE tenant = ?1 AND consumer = ?2 AND message = ?3 AND escalation = ?4";
    bound(sql, delivery).bind(question.0).execute(connection).await.map_err(|e| failure(&e))?;
    Ok(())
}

/// Runs a change, and returns the number that its last query reads.
async fn changed(
    connection: &mut SqliteConnection,
    change: Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<Option<i64>, StoreError> {
    let rows = change.fetch_all(connection).await.map_err(|e| failure(&e))?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(|e| failure(&e))
}

fn bound(sql: &'static str, delivery: &Delivery) -> Query<'static, sqlx::Sqlite, SqliteArguments> {
    let query = sqlx::query(sql).bind(delivery.tenant.text());
    query.bind(delivery.consumer.clone()).bind(delivery.message.clone())
}

/// True if the consumer has this version of the aggregate or a newer one. Otherwise this version is recorded.
async fn is_outdated(connection: &mut SqliteConnection, delivery: &Delivery) -> Result<bool, sqlx::Error> {
    let Some((aggregate, version)) = &delivery.version else { return Ok(false) };
    let written = sqlx::query(
        "INSERT INTO inbox_version (tenant, consumer, aggregate, version) VALUES (?, ?, ?, ?) \
         ON CONFLICT (tenant, consumer, aggregate) DO UPDATE SET version = excluded.version \
         WHERE inbox_version.version < excluded.version",
    )
    .bind(delivery.tenant.text())
    .bind(delivery.consumer.clone())
    .bind(aggregate.clone())
    .bind(*version)
    .execute(connection)
    .await?;
    Ok(written.rows_affected() == 0)
}
