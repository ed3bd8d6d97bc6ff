//! What only the PostgreSQL store can get wrong: the driver, the server, the network.

mod catalogue;
mod facts;
mod lost;
mod open;
mod plan;
mod pooler;
mod proxy;
mod shared;
mod transaction;

use std::ops::Deref;

use counterfoil::store::StoreError;
use counterfoil::store::postgres::{Options, Postgres};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

pub(crate) use crate::server::url;

/// A schema for one test, dropped with it.
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    pub(crate) fn new() -> Self {
        Self { name: crate::server::schema() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn options(&self) -> Options {
        Options { schema: Some(self.name.clone()), ..Options::default() }
    }

    pub(crate) async fn open(&self) -> Postgres {
        self.open_with(self.options()).await.unwrap()
    }

    pub(crate) async fn open_with(&self, options: Options) -> Result<Postgres, StoreError> {
        Postgres::open_with(&url(), options).await
    }

    /// A connection that knows nothing of the store, in this schema.
    pub(crate) async fn plain(&self) -> PgConnection {
        let options: PgConnectOptions = url().parse().unwrap();
        options.options([("search_path", self.name.as_str())]).connect().await.unwrap()
    }
}

impl Drop for Schema {
    /// Its tables would stay in a server that outlives the tests. On a thread of its own, for this one is inside a
    /// runtime.
    fn drop(&mut self) {
        let (url, name) = (url(), self.name.clone());
        let drop = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                // Sessions that the test has dropped may not have ended yet.
                let sql = format!(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                     WHERE c.relnamespace = to_regnamespace('{name}') AND l.pid <> pg_backend_pid(); \
                     SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {name} CASCADE"
                );
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await?;
                connection.close().await
            })
        };
        // A server that is gone, or still busy with the test's connections, keeps it: no reason to fail.
        let _ = std::thread::spawn(drop).join();
    }
}

/// A store and the schema that it lives in.
pub(crate) struct Kept<S> {
    store: S,
    #[allow(dead_code, reason = "dropped after the store")]
    schema: Schema,
}

impl<S> Kept<S> {
    pub(crate) fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Kept<T> {
        Kept { store: wrap(self.store), schema: self.schema }
    }
}

impl<S> Deref for Kept<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.store
    }
}

/// An empty store.
pub(crate) async fn fresh() -> Kept<Postgres> {
    let schema = Schema::new();
    Kept { store: schema.open().await, schema }
}

/// Runs statements as they stand.
async fn run(connection: &mut PgConnection, sql: impl Into<String>) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.into())).execute(connection).await.unwrap();
}

/// The one number that a query gives.
async fn number(connection: &mut PgConnection, sql: impl Into<String>) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.into())).fetch_one(connection).await.unwrap()
}

/// The texts of the files that hold the store's SQL, with their names.
fn sources() -> Vec<(String, String)> {
    crate::source::files("src/store/postgres")
}
