//! The raw line on SQLite: WAL, `synchronous=FULL`.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use super::{MAX_ROWS, Row, response};

pub(crate) struct Sqlite {
    connection: SqliteConnection,
    /// The insert statements, by their number of rows.
    inserts: Vec<String>,
}

pub(crate) async fn connect(db: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(db)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .disable_statement_logging()
        .connect()
        .await
        .expect("a raw connection")
}

const INSERT: &str = "INSERT INTO raw (key, hash, response) VALUES (?, ?, ?)";

impl Sqlite {
    pub(super) async fn open(db: &Path) -> Self {
        let mut connection = connect(db).await;
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, \
             hash BLOB NOT NULL, response TEXT)",
        )
        .execute(&mut connection)
        .await
        .expect("a table");
        let inserts = (0..=MAX_ROWS)
            .map(|rows| {
                format!("INSERT INTO raw (key, hash, response) VALUES {}", vec!["(?,?,?)"; rows].join(","))
            })
            .collect();
        Self { connection, inserts }
    }

    pub(super) async fn last(&mut self) -> i64 {
        let last = sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM raw").fetch_one(&mut self.connection);
        last.await.expect("the last id")
    }

    pub(super) async fn insert(&mut self, key: String, response: Option<String>) {
        let insert = sqlx::query(INSERT).bind(key).bind(vec![7_u8; 32]).bind(response);
        insert.execute(&mut self.connection).await.expect("an insert");
    }

    pub(super) async fn update(&mut self, key: String, response: String) {
        let update = sqlx::query("UPDATE raw SET response = ? WHERE key = ?").bind(response).bind(key);
        update.execute(&mut self.connection).await.expect("an update");
    }

    pub(super) async fn insert_many(&mut self, keys: Vec<String>) {
        let mut insert = sqlx::query(AssertSqlSafe(self.inserts[keys.len()].as_str()));
        for key in keys {
            insert = insert.bind(key).bind(vec![7_u8; 32]).bind(response());
        }
        insert.execute(&mut self.connection).await.expect("an insert of many rows");
    }

    pub(super) async fn read(&mut self) -> Vec<Row> {
        let rows = sqlx::query("SELECT key, hash, response FROM raw").fetch_all(&mut self.connection).await;
        rows.expect("rows").iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }

    pub(super) async fn close(self) {
        self.connection.close().await.expect("closed");
    }
}
