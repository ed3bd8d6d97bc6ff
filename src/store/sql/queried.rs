//! A database of the user's own that is queried by one key. The statement is the user's; it is run here because all
//! SQL runs here.

use std::future::Future;

use futures_util::TryStreamExt as _;
use sqlx::{Database, FromRow, Pool};

/// A kind of database that a row can be looked up in: `sqlx::Sqlite` or `sqlx::Postgres`. No other type implements
/// this trait.
pub trait Queried: Database {
    /// The rows of `statement` with `key` bound as its only parameter, at most `at_most` of them.
    #[doc(hidden)]
    fn ask<R>(
        pool: &Pool<Self>,
        statement: &'static str,
        key: &str,
        at_most: usize,
    ) -> impl Future<Output = Result<Vec<R>, sqlx::Error>> + Send
    where
        R: for<'r> FromRow<'r, Self::Row> + Send + Unpin;

    /// True if the database follows another server and may lag behind it.
    #[doc(hidden)]
    fn lags(pool: &Pool<Self>) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
}

macro_rules! queried {
    ($database:ty, $lags:expr) => {
        impl Queried for $database {
            async fn ask<R>(
                pool: &Pool<Self>,
                statement: &'static str,
                key: &str,
                at_most: usize,
            ) -> Result<Vec<R>, sqlx::Error>
            where
                R: for<'r> FromRow<'r, Self::Row> + Send + Unpin,
            {
                let mut rows = sqlx::query_as::<_, R>(statement).bind(key).fetch(pool);
                let mut found = Vec::new();
                while found.len() < at_most
                    && let Some(row) = rows.try_next().await?
                {
                    found.push(row);
                }
                Ok(found)
            }

            async fn lags(pool: &Pool<Self>) -> Result<bool, sqlx::Error> {
                sqlx::query_scalar($lags).fetch_one(pool).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
queried!(sqlx::Sqlite, "SELECT false");
#[cfg(feature = "postgres")]
queried!(sqlx::Postgres, "SELECT pg_is_in_recovery()");
