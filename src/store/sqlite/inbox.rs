//! Tables `inbox`, `inbox_try` and `inbox_version`: messages are processed once, together with their changes.

use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::open::open_aside;
use super::row::asking;
use super::transaction::{ended_inside, inside};
use super::{Sqlite, StoreError, Writer, commit, failure};
use crate::clock::{Boot, Timestamp};
use crate::id::QuestionId;
use crate::payload::Payload;
use crate::store::StoreFuture;
use crate::store::inbox::{Aside, Counting, Delivery, Inbox, Known, OUTDATED, PROCESSED};
use crate::store::own::{Transacted, Unseen, Within, Work};
use crate::store::row::Given;
use crate::store::sql::inbox::{Messages as _, ended, is_outdated, next_over, retire, with};
pub(crate) use crate::store::sql::inbox::{again, count, failed, known, set_aside, uncount};
use crate::store::table::Kind;
use crate::store::transaction::TransactionError;

/// Takes the message, if it has no row yet. The state of the row is
/// [`ENDED_INSIDE`](crate::store::inbox::ENDED_INSIDE) until the closure has ended. A query behind the savepoint
/// reads if the message was taken.
macro_rules! take {
    () => {
        "INSERT INTO inbox (tenant, consumer, message, state, tries, at) VALUES ($1, $2, $3, 5, 1, $4) \
         ON CONFLICT (tenant, consumer, message) DO NOTHING"
    };
}

/// Records the end of the message. The statement fails if the closure has deleted the row: there is no state then.
macro_rules! finish {
    () => {
        "INSERT INTO inbox (tenant, consumer, message, state, tries, at, result) VALUES ($1, $2, $3, \
         (SELECT $5 FROM inbox WHERE tenant = $1 AND consumer = $2 AND message = $3), 1, $4, $6) \
         ON CONFLICT (tenant, consumer, message) DO UPDATE SET state = excluded.state, result = excluded.result; \
         DELETE FROM inbox_try WHERE tenant = $1 AND consumer = $2 AND message = $3"
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

impl Inbox for Sqlite {
    fn inbox_known<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move {
            let mut reader = self.readers.acquire().await.map_err(|e| failure(&e))?;
            known(&mut *reader, delivery).await
        })
    }

    /// The count is written on a connection that does not wait for the disk: a killed process still leaves the count
    /// behind, and only a power failure may lose it.
    fn inbox_count<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, Option<Known>> {
        Box::pin(async move {
            // Two connections that write at once would wait for one another by sleeping.
            let _writer = self.settled().await?;
            count(&mut *self.aside().await?, delivery).await
        })
    }

    fn inbox_uncount<'a>(&'a self, delivery: &'a Delivery) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            // Two connections that write at once would wait for one another by sleeping.
            let _writer = self.settled().await?;
            uncount(&mut *self.aside().await?, delivery).await
        })
    }

    fn inbox_failed<'a>(&'a self, delivery: &'a Delivery, detail: &'a str) -> StoreFuture<'a, i64> {
        Box::pin(async move { failed(&mut *self.settled().await?, delivery, detail).await })
    }

    fn inbox_set_aside<'a>(
        &'a self,
        delivery: &'a Delivery,
        aside: &'a Aside,
        question: QuestionId,
    ) -> StoreFuture<'a, Option<QuestionId>> {
        Box::pin(async move { set_aside(&mut *self.settled().await?, delivery, aside, question).await })
    }

    fn inbox_again<'a>(&'a self, delivery: &'a Delivery, question: QuestionId) -> StoreFuture<'a, ()> {
        Box::pin(async move { again(&mut *self.settled().await?, delivery, question).await })
    }

    /// Messages are retired on the connection that does not wait for the disk: messages that a crash brings back are
    /// retired again.
    fn inbox_retire<'a>(
        &'a self,
        consumer: &'a str,
        until: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            // Two connections that write at once would wait for one another by sleeping.
            let _writer = self.settled().await?;
            let mut aside = self.aside().await?;
            retire(&mut *aside, consumer, until, is_left).await.map_err(|e| failure(&e))
        })
    }

    fn inbox_next_over<'a>(
        &'a self,
        consumer: &'a str,
        after: Timestamp,
        is_left: bool,
    ) -> StoreFuture<'a, Option<Timestamp>> {
        Box::pin(async move {
            let mut reader = self.readers.acquire().await.map_err(|e| failure(&e))?;
            next_over(&mut *reader, consumer, after, is_left).await.map_err(|e| failure(&e))
        })
    }
}

impl Sqlite {
    /// See [`TransactionsOn::process`](crate::store::own::TransactionsOn::process).
    pub(super) async fn process(
        &self,
        delivery: &Delivery,
        within: Within<'_>,
        work: Work<'_, SqliteConnection, Payload>,
    ) -> Transacted<Result<Unseen, Known>> {
        // The writer is held from the count to the end: a second delivery finds the end of the first.
        let mut held = self.next_writer().await;
        let writer = held.as_mut().ok_or(StoreError::Closed)?;
        let may_share = delivery.counting == Counting::With && delivery.along.is_none();
        let is_shared = may_share && writer.take_shared(delivery, within.clock.boot()).await?;
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
        let processed = process_in(connection, Taken { delivery, end }, within, work).await?;
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
        let place = writer.join(within.clock.boot());
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
            Counting::Before => count(&mut *self.aside().await?, delivery).await?,
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
    async fn found<T>(
        &self,
        delivery: &Delivery,
        processed: Result<T, Known>,
    ) -> Transacted<Result<T, Known>> {
        let became = became(&mut *self.settled().await?, delivery).await?;
        if became.is_some_and(|known| known.is_final()) {
            return Ok(processed);
        }
        let detail = "another message that was processed with this one has rolled both back".to_owned();
        Err(StoreError::Io { detail }.into())
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
    Ok(connection.number(sql, &with(delivery, &[delivery.at.0.into()])).await? == Some(1))
}

/// The recorded end of a message that is not to be tried. An attempt that is not counted may be made.
pub(crate) async fn became(
    connection: &mut SqliteConnection,
    delivery: &Delivery,
) -> Result<Option<Known>, StoreError> {
    ended(connection, delivery, if delivery.counting == Counting::Done { delivery.tries } else { u32::MAX })
        .await
}

/// A message that was taken in the open transaction.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) delivery: &'a Delivery,
    /// The statement that records the end of the message.
    pub(crate) end: &'static str,
}

/// Runs `work` in the transaction that has taken the message, unless the version is outdated, and records the end of
/// the message.
pub(crate) async fn process_in(
    connection: &mut SqliteConnection,
    Taken { delivery, end }: Taken<'_>,
    within: Within<'_>,
    work: Work<'_, SqliteConnection, Payload>,
) -> Transacted<Result<Unseen, Known>> {
    let finish = |state: i64, result: Option<&Payload>| {
        let result = result.map_or(Given::Null(Kind::Text), |result| result.text().into());
        asking(end, &with(delivery, &[delivery.at.0.into(), state.into(), result]))
    };
    if is_outdated(connection, delivery).await? {
        finish(OUTDATED, None).execute(connection).await.map_err(|e| unfinished(&e))?;
        return Ok(Err(Known::Outdated));
    }
    let (value, result) = inside(connection, within, work).await?;
    finish(PROCESSED, Some(&result)).execute(connection).await.map_err(|e| unfinished(&e))?;
    Ok(Ok(value))
}

/// The reason why the end of a message was not recorded.
fn unfinished(error: &sqlx::Error) -> TransactionError<Unseen> {
    match error.as_database_error() {
        // Without the row the next delivery would be processed again.
        Some(said) if said.message().contains("inbox.state") => {
            StoreError::Io { detail: "the closure took the message's row away".to_owned() }.into()
        }
        _ => ended_inside(error),
    }
}
