//! The service's own table, in the ledger's database: a row for everything that happens, so that it can be counted.

use std::time::Duration;

use counterfoil::exec::OwnConnection;
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection};

/// No column is unique: a duplicate would be there.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS entered (what TEXT NOT NULL, number TEXT NOT NULL)";

/// A connection of the ledger's own database.
pub(crate) trait Books: OwnConnection + Sized + 'static {
    /// Connects to the database of an open ledger, a SQLite file or a PostgreSQL server, and makes the table.
    fn open(ledger: &str) -> BoxFuture<'_, Result<Self, sqlx::Error>>;

    /// Enters that something happened, and gives its place among those of its kind.
    fn enter(&mut self, what: &'static str, number: String) -> BoxFuture<'_, Result<i64, sqlx::Error>>;

    /// How many of this kind there are.
    fn entered(&mut self, what: &'static str) -> BoxFuture<'_, Result<i64, sqlx::Error>>;
}

/// The statements are the same, and only their connections are not.
macro_rules! books {
    ($connection:ty, $connect:expr) => {
        impl Books for $connection {
            fn open(ledger: &str) -> BoxFuture<'_, Result<Self, sqlx::Error>> {
                Box::pin(async move {
                    let mut own = $connect(ledger).await?;
                    own.execute(TABLE).await?;
                    Ok(own)
                })
            }

            fn enter(
                &mut self,
                what: &'static str,
                number: String,
            ) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
                Box::pin(async move {
                    let insert = sqlx::query("INSERT INTO entered (what, number) VALUES ($1, $2)");
                    insert.bind(what).bind(number).execute(&mut *self).await?;
                    self.entered(what).await
                })
            }

            fn entered(&mut self, what: &'static str) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
                let count = sqlx::query_scalar("SELECT count(*) FROM entered WHERE what = $1");
                Box::pin(count.bind(what).fetch_one(self))
            }
        }
    };
}

books!(SqliteConnection, sqlite);
books!(PgConnection, PgConnection::connect);

async fn sqlite(file: &str) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(30));
    options.connect().await
}
