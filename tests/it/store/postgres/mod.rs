//! What only the PostgreSQL store can get wrong: the driver, the server, the network.

mod again;
mod catalogue;
pub(crate) mod distributed;
mod facts;
mod lost;
mod open;
mod plan;
mod pooler;
mod proxy;
mod shared;
#[cfg(feature = "postgres-tls")]
mod tls;
mod transaction;

use std::ops::Deref;

use counterfoil::store::StoreError;
use counterfoil::store::postgres::{Options, Postgres};
use sqlx::PgConnection;

pub(crate) use crate::server::{Schema, url};

impl Schema {
    pub(crate) async fn open(&self) -> Postgres {
        self.open_with(self.options()).await.unwrap()
    }

    pub(crate) async fn open_with(&self, options: Options) -> Result<Postgres, StoreError> {
        Postgres::open_with(&url(), options).await
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
    crate::store::source::files("src/store/postgres")
}
