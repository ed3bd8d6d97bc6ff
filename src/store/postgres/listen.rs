//! Hints between workers that there is work. `NOTIFY` is sent outside of any transaction of the ledger, because it
//! takes a lock that all notifying transactions of the server share, and at most one `NOTIFY` is on its way at a
//! time.
//!
//! Nothing depends on a hint: a worker that waits for one also polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::connect::{Connector, Patience};
use super::failure;
use super::pool::Pool;
use crate::id::{Entropy as _, SystemEntropy};
use crate::store::StoreError;

/// The retry time of a listener whose server is away.
const LONG: Duration = Duration::from_secs(u64::MAX);

/// The hints that this process sends and receives.
#[derive(Debug)]
pub(super) struct Hints {
    connector: Arc<Connector>,
    /// The name of the channel, one for each schema, because the names of channels belong to the whole database.
    channel: String,
    /// The id that tells this process's own hints from those of others.
    me: String,
    heard: Arc<Notify>,
    listening: AtomicBool,
    closed: CancellationToken,
    giving: AtomicBool,
    /// True if another hint was requested while one was on its way.
    again: AtomicBool,
}

impl Hints {
    pub(super) async fn new(
        connector: Arc<Connector>,
        connection: &mut PgConnection,
    ) -> Result<Self, StoreError> {
        let row =
            sqlx::query("SELECT current_schema()").fetch_one(connection).await.map_err(|e| failure(&e))?;
        let schema: Option<String> = row.try_get(0).map_err(|e| failure(&e))?;
        let mut channel = format!("counterfoil {}", schema.unwrap_or_default());
        while channel.len() > 63 {
            channel.pop(); // a channel name has at most 63 bytes
        }
        Ok(Self {
            connector,
            channel,
            me: format!("{:016x}", SystemEntropy.bits()),
            heard: Arc::default(),
            listening: AtomicBool::new(false),
            closed: CancellationToken::new(),
            giving: AtomicBool::new(false),
            again: AtomicBool::new(false),
        })
    }

    /// Sends a hint to the other workers. If one hint is on its way already, its sender sends another.
    pub(super) async fn give(&self, pool: &Pool) -> Result<(), StoreError> {
        if !self.connector.options.notify || self.connector.options.distributed {
            return Ok(());
        }
        self.again.store(true, Ordering::Release);
        while self.again.load(Ordering::Acquire) && !self.giving.swap(true, Ordering::AcqRel) {
            let giving = Giving(&self.giving);
            self.again.store(false, Ordering::Release);
            let (channel, me) = (self.channel.clone(), self.me.clone());
            let query = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(me);
            pool.once(query).await?;
            drop(giving);
        }
        Ok(())
    }

    /// A future that resolves when another worker has given a hint, or when a hint may have been lost.
    pub(super) async fn wait(&self) -> Result<(), StoreError> {
        if !self.connector.options.notify || self.connector.options.distributed {
            return std::future::pending().await;
        }
        if !self.listening.swap(true, Ordering::AcqRel) {
            let ear = Ear {
                connector: self.connector.clone(),
                channel: self.channel.clone(),
                me: self.me.clone(),
                heard: self.heard.clone(),
            };
            let closed = self.closed.clone();
            tokio::spawn(async move { closed.run_until_cancelled(ear.listen()).await });
        }
        self.heard.notified().await;
        Ok(())
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// A guard that ends with the sender, even if its future is dropped: otherwise no hint would ever be given again.
struct Giving<'a>(&'a AtomicBool);

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The task that listens for hints.
struct Ear {
    connector: Arc<Connector>,
    channel: String,
    me: String,
    heard: Arc<Notify>,
}

impl Ear {
    async fn listen(self) {
        let mut patience = Patience::of(LONG);
        loop {
            if let Err(error) = self.listen_once(&mut patience).await {
                tracing::debug!(%error, "hints of other workers interrupted");
            }
            self.heard.notify_one(); // hints that were given meanwhile are lost
            patience.again().await;
        }
    }

    async fn listen_once(&self, patience: &mut Patience) -> Result<(), sqlx::Error> {
        let options: PgConnectOptions = match (&self.connector.options.listener, self.connector.primary()) {
            (Some(url), _) => url.parse()?,
            (None, Some(primary)) => primary.clone(),
            (None, None) => return Ok(()), // this cannot be: a URL has a host
        };
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(&self.channel).await?;
        self.heard.notify_one(); // earlier hints are lost
        *patience = Patience::of(LONG);
        while let Some(hint) = listener.try_recv().await? {
            if hint.payload() != self.me {
                self.heard.notify_one();
            }
        }
        Ok(())
    }
}
