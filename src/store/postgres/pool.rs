//! The connections beside the writer's: for reading, for heartbeats, for the user's own transactions.
//!
//! A connection is lent and given back. A connection whose borrower was dropped halfway, or failed, is closed
//! instead: so no caller ever gets a connection in the middle of something.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::Connection as _;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::{Connector, Patience, Purpose, within};
use super::{Fate, failure, fate};
use crate::clock::{Boot, Clock as _, SystemClock};
use crate::store::{Connections, Side, StoreError};

/// A statement with its arguments.
pub(super) type Statement = Query<'static, sqlx::Postgres, PgArguments>;

#[derive(Debug)]
pub(super) struct Pool {
    connector: Arc<Connector>,
    purpose: Purpose,
    /// The free connections, each with the instant since which it is unused. The last one is lent first, so the front
    /// holds those unused for longest.
    free: Mutex<Vec<(Boot, PgConnection)>>,
    size: usize,
    room: Arc<Semaphore>,
    closed: AtomicBool,
}

/// A connection that is in use.
pub(super) struct Lent<'p> {
    pool: &'p Pool,
    pub(super) connection: PgConnection,
    room: OwnedSemaphorePermit,
}

impl Lent<'_> {
    /// Gives the connection back. Nothing is under way on it any more.
    pub(super) fn give_back(self) {
        self.pool.take_back(self.connection);
    }
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, purpose: Purpose, size: u32) -> Self {
        let size = size.max(1) as usize;
        let room = Arc::new(Semaphore::new(size));
        Self { connector, purpose, free: Mutex::default(), size, room, closed: AtomicBool::new(false) }
    }

    /// All rows of a query.
    pub(super) async fn all(&self, query: impl Fn() -> Statement) -> Result<Vec<PgRow>, StoreError> {
        let mut patience = Patience::of(self.connector.options.retry_for);
        loop {
            let error = match self.try_all(query()).await {
                Ok(rows) => {
                    self.connector.outage.answered(Side::Read);
                    return Ok(rows);
                }
                Err(error) => error,
            };
            self.connector.outage.failed(Side::Read, &error.error);
            if !error.may_pass || !patience.again().await {
                return Err(error.error);
            }
        }
    }

    /// All rows of a statement that is not retried.
    pub(super) async fn once(&self, query: Statement) -> Result<Vec<PgRow>, StoreError> {
        self.try_all(query).await.map_err(|trouble| trouble.error)
    }

    async fn try_all(&self, query: Statement) -> Result<Vec<PgRow>, Trouble> {
        let mut lent = self.lend().await?;
        let limit = self.connector.options.answer_timeout * 2; // the server's own limit comes first
        match within(limit, query.fetch_all(&mut lent.connection)).await {
            Some(Ok(rows)) => {
                lent.give_back();
                Ok(rows)
            }
            Some(Err(error)) => Err(self.trouble(lent, &error)),
            None => Err(Trouble::late(limit)),
        }
    }

    /// The one row of a query, if there is one.
    pub(super) async fn optional(&self, query: impl Fn() -> Statement) -> Result<Option<PgRow>, StoreError> {
        Ok(self.all(query).await?.pop())
    }

    /// Writes, and returns the number of rows. The statement is retried, so a repeat must do no harm.
    pub(super) async fn execute(&self, query: impl Fn() -> Statement) -> Result<u64, StoreError> {
        let mut patience = Patience::of(self.connector.options.retry_for);
        loop {
            let mut lent = match self.lend().await {
                Ok(lent) => lent,
                Err(error) if error.may_pass && patience.again().await => continue,
                Err(error) => return Err(error.error),
            };
            let limit = self.connector.options.answer_timeout * 2;
            let error = match within(limit, query().execute(&mut lent.connection)).await {
                Some(Ok(done)) => {
                    lent.give_back();
                    return Ok(done.rows_affected());
                }
                Some(Err(error)) => self.trouble(lent, &error),
                None => Trouble::late(limit),
            };
            if !error.may_pass || !patience.again().await {
                return Err(error.error);
            }
        }
    }

    /// Waits for its turn, with a limit, and then for a connection.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, Trouble> {
        let limit = self.connector.options.retry_for;
        let busy = || {
            let detail =
                format!("no connection was free for {limit:?}: raise `readers` or the server's limit");
            Trouble { error: StoreError::Busy { detail }, may_pass: false }
        };
        let room = within(limit, self.room.clone().acquire_owned()).await.ok_or_else(busy)?;
        let room = room.map_err(|_| Trouble { error: StoreError::Closed, may_pass: false })?;
        let free = self.free().pop();
        let connection = match free {
            Some((_, connection)) => connection,
            None => self.connector.connect(self.purpose).await.map_err(Trouble::of)?,
        };
        Ok(Lent { pool: self, connection, room })
    }

    /// Removes the state that a user's code may have left on the connection before it is lent again; nobody waits for
    /// this.
    pub(super) fn clean(self: &Arc<Self>, lent: Lent<'_>) {
        let Lent { mut connection, room, .. } = lent;
        let pool = self.clone();
        tokio::spawn(async move {
            let limit = pool.connector.options.answer_timeout * 2;
            if within(limit, pool.connector.clean(&mut connection, pool.purpose)).await == Some(true) {
                pool.take_back(connection);
            }
            drop(room);
        });
    }

    fn take_back(&self, connection: PgConnection) {
        if !self.closed.load(Ordering::Relaxed) {
            self.free().push((SystemClock.boot(), connection));
        }
    }

    /// Closes the connections that were unused for a while: a server has few for all its clients, and a connection
    /// that one worker keeps is missing for another.
    pub(super) fn close_unused(&self) {
        let now = SystemClock.boot();
        let unused: Vec<_> = {
            let mut free = self.free();
            let unused =
                free.partition_point(|(since, _)| since.until(now) >= self.connector.options.idle_for);
            free.drain(..unused).collect()
        };
        for (_, connection) in unused {
            tokio::spawn(connection.close()); // the server is told, and nobody waits for the end
        }
    }

    /// The decision after an error: the error to report, and the end of the connection that it came from.
    pub(super) fn trouble(&self, lent: Lent<'_>, error: &sqlx::Error) -> Trouble {
        let fate = fate(error);
        match fate {
            Fate::Lost => self.free().clear(), // the others have most likely died with it
            _ if error.as_database_error().is_some() => lent.give_back(),
            _ => {}
        }
        Trouble { error: failure(error), may_pass: fate != Fate::Final }
    }

    /// The connections of the pool.
    pub(super) fn connections(&self) -> Connections {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let in_use = self.size.saturating_sub(self.room.available_permits());
        Connections { in_use: small(in_use), idle: small(self.free().len()) }
    }

    /// Closes the free connections, and all others as they come back.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.room.close();
        let free = std::mem::take(&mut *self.free());
        for (_, connection) in free {
            let _ = connection.close().await; // nothing was under way on it
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<(Boot, PgConnection)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error, and a flag that is true if the same may succeed a moment later.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: StoreError,
    pub(super) may_pass: bool,
}

impl Trouble {
    pub(super) fn of(error: StoreError) -> Self {
        Self { may_pass: error.is_transient(), error }
    }

    pub(super) fn late(limit: std::time::Duration) -> Self {
        let detail = format!("no answer within {limit:?}");
        Self { error: StoreError::Unreachable { detail }, may_pass: true }
    }
}
