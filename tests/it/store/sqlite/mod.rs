//! What only the SQLite store can get wrong: the driver, the file, the disk.

mod beside;
mod cancelled;
mod damage;
mod disk;
mod facts;
mod locked;
mod open;
mod owner;
mod place;
mod plan;

use std::path::{Path, PathBuf};

use counterfoil::store::sqlite::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

/// A folder for one database.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn database(&self) -> PathBuf {
        self.0.path().join("test.db")
    }

    async fn open(&self) -> Sqlite {
        Sqlite::open(self.database()).await.unwrap()
    }
}

/// A connection that knows nothing of the store.
async fn plain(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

/// Waits until every connection is closed, which happens in the background: one that is alone takes the
/// write-ahead log away when it goes.
async fn closed(path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    while Path::new(&log).exists() {
        let mut last = plain(path).await;
        number(&mut last, "SELECT count(*) FROM sqlite_schema").await;
        last.close().await.unwrap();
    }
}

/// Runs statements as they stand.
async fn run(connection: &mut SqliteConnection, sql: impl Into<String>) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.into())).execute(connection).await.unwrap();
}

/// The one number that a query gives.
async fn number(connection: &mut SqliteConnection, sql: impl Into<String>) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.into())).fetch_one(connection).await.unwrap()
}

/// The texts of the files that hold the store's SQL, with their names.
fn sources() -> Vec<(String, String)> {
    crate::store::source::files("src/store/sqlite")
}
