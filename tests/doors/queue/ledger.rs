//! The two ledgers that the tests run on, each with a table for effects.

use std::time::Duration;

use counterfoil::clock::{Clock as _, SystemClock};
use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::Backoff;
use counterfoil::store::postgres::Options;
use counterfoil::{Executor, Tenant};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use uuid::Uuid;

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
    let asked = executor.escalations(&acme()).await.unwrap();
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

/// A schema that is dropped with its test.
pub(crate) struct Schema(String);

/// The same on a schema of its own in the PostgreSQL that `./test` brings.
pub(crate) async fn postgres() -> (Schema, Executor, PgConnection) {
    let schema = Schema(format!("test_{}", Uuid::now_v7().simple()));
    let options = Options { schema: Some(schema.0.clone()), ..Options::default() };
    let executor = ExecutorBuilder::postgres_with(url(), options).open().await.unwrap();
    let own: PgConnectOptions = url().parse().unwrap();
    let mut own = own.options([("search_path", schema.0.as_str())]).connect().await.unwrap();
    own.execute("CREATE TABLE entry (what BIGINT NOT NULL)").await.unwrap();
    (schema, executor, own)
}

fn url() -> String {
    std::env::var("TEST_DATABASE_URL")
        .expect("this test needs a PostgreSQL server: run `./test`, which brings one")
}

impl Drop for Schema {
    /// On a thread of its own, for this one is inside a runtime.
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.0);
        let drops = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(mut own) = PgConnection::connect(&url()).await else { return };
                let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP SCHEMA IF EXISTS {name} CASCADE")))
                    .execute(&mut own)
                    .await;
            });
        });
        let _ = drops.join();
    }
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
