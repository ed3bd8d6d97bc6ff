//! The two ledgers that the tests run on, each with a table for effects.

use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::Backoff;
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};

use crate::server::{Schema, url};

/// Short enough for a test; the jitter is the real one.
pub(crate) const SOON: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(200) };

/// Longer than any test takes.
pub(crate) const EVER: Duration = Duration::from_secs(90);

/// Asks until it is so.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = SystemClock.boot();
    while !is_so().await {
        assert!(begun.until(SystemClock.boot()) < EVER, "never so");
        tokio::task::yield_now().await;
    }
}

pub(crate) fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

/// Questions about messages that are set aside: their texts.
pub(crate) async fn questions(executor: &Executor) -> Vec<String> {
    let asked = executor.questions(&acme()).await.unwrap();
    asked.into_iter().map(|asked| asked.question).collect()
}

/// An executor on the embedded store, and a connection of its own with a table for effects.
pub(crate) async fn sqlite() -> (tempfile::TempDir, Executor, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let executor = Executor::sqlite(&path).open().await.unwrap();
    let options = SqliteConnectOptions::new().filename(&path).busy_timeout(Duration::from_secs(30));
    let mut own = options.connect().await.unwrap();
    own.execute("CREATE TABLE entry (what BIGINT NOT NULL)").await.unwrap();
    (folder, executor, own)
}

/// The same on a schema of its own in the PostgreSQL that `./test` brings.
pub(crate) async fn postgres() -> (Schema, Executor, PgConnection) {
    let schema = Schema::new();
    let executor = ExecutorBuilder::postgres_with(url(), schema.options()).open().await.unwrap();
    let mut own = schema.plain().await;
    own.execute("CREATE TABLE entry (what BIGINT NOT NULL)").await.unwrap();
    (schema, executor, own)
}

/// What tests need of a connection of the ledger's own database, whichever it is.
macro_rules! on {
    ($connection:ty) => {
        pub(crate) type Own = $connection;

        /// Enters a number, in the transaction of the message.
        pub(crate) fn enters(what: i64) -> Reaction<Own> {
            Reaction::transaction(move |db: &mut Own| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO entry (what) VALUES ($1)").bind(what).execute(db).await.map(drop)
                })
            })
        }

        pub(crate) async fn entered(own: &mut Own) -> Vec<i64> {
            sqlx::query_scalar("SELECT what FROM entry ORDER BY what").fetch_all(own).await.unwrap()
        }
    };
}

pub(crate) use on;
