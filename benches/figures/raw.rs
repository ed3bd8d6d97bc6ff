//! The raw lines: what sqlx alone reaches on the same disk, with the same durability.
//!
//! A row has a key of 60 bytes in a unique index, a hash of 32 bytes, and a response of 200 bytes. One connection,
//! WAL, `synchronous=FULL`, prepared statements.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{mpsc, oneshot};

/// A raw database.
pub(crate) struct Raw {
    connection: SqliteConnection,
    last: i64,
}

pub(crate) async fn open(db: &Path) -> Raw {
    let mut connection = connect(db).await;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, hash BLOB NOT NULL, \
         response TEXT)",
    )
    .execute(&mut connection)
    .await
    .expect("a table");
    let last = sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM raw").fetch_one(&mut connection).await;
    Raw { connection, last: last.expect("the last id") }
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

fn key(number: i64) -> String {
    format!("touch:case-{number:012}:the operation that is done to it {:03}", number % 1000)
}

fn response() -> String {
    "y".repeat(200)
}

const INSERT: &str = "INSERT INTO raw (key, hash, response) VALUES (?, ?, ?)";

impl Raw {
    fn number(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// One durable row after the other.
    pub(crate) async fn inserts(&mut self, n: u32) {
        for _ in 0..n {
            let key = key(self.number());
            let insert = sqlx::query(INSERT).bind(key).bind(vec![7; 32]).bind(response());
            insert.execute(&mut self.connection).await.expect("an insert");
        }
    }

    /// A row inserted without its response, durable, then updated with it, durable.
    pub(crate) async fn two_transactions(&mut self, n: u32) {
        for _ in 0..n {
            let key = key(self.number());
            let insert = sqlx::query(INSERT).bind(key.clone()).bind(vec![7; 32]).bind(None::<String>);
            insert.execute(&mut self.connection).await.expect("an insert");
            let update = sqlx::query("UPDATE raw SET response = ? WHERE key = ?").bind(response()).bind(key);
            update.execute(&mut self.connection).await.expect("an update");
        }
    }

    /// Group commit with `tasks` waiting tasks: one writer drains a channel into inserts of many rows.
    pub(crate) async fn group(mut self, tasks: u32, n: u32) -> Self {
        let (queue, waiting) = mpsc::channel(tasks as usize);
        let first = self.last + 1;
        self.last += i64::from(n);
        let writer = tokio::spawn(write(self.connection, waiting));
        let each = i64::from(n / tasks);
        let senders: Vec<_> = (0..i64::from(tasks))
            .map(|task| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    for i in 0..each {
                        let (done, durable) = oneshot::channel();
                        queue.send((key(first + task * each + i), done)).await.expect("the writer lives");
                        durable.await.expect("the writer answers");
                    }
                })
            })
            .collect();
        drop(queue);
        for sender in senders {
            sender.await.expect("a sender");
        }
        self.connection = writer.await.expect("the writer");
        self
    }

    /// Reads every row.
    pub(crate) async fn read(&mut self) -> Vec<(String, Vec<u8>, String)> {
        let rows = sqlx::query("SELECT key, hash, response FROM raw").fetch_all(&mut self.connection).await;
        rows.expect("rows").iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }

    pub(crate) async fn close(self) {
        self.connection.close().await.expect("closed");
    }
}

/// More rows than the largest group of this benchmark has.
const MAX_ROWS: usize = 64;

async fn write(
    mut connection: SqliteConnection,
    mut waiting: mpsc::Receiver<(String, oneshot::Sender<()>)>,
) -> SqliteConnection {
    let statements: Vec<String> = (0..=MAX_ROWS)
        .map(|rows| {
            format!("INSERT INTO raw (key, hash, response) VALUES {}", vec!["(?,?,?)"; rows].join(","))
        })
        .collect();
    let mut batch = Vec::with_capacity(MAX_ROWS);
    while waiting.recv_many(&mut batch, MAX_ROWS).await > 0 {
        let (keys, done): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let mut insert = sqlx::query(AssertSqlSafe(statements[keys.len()].as_str()));
        for key in keys {
            insert = insert.bind(key).bind(vec![7; 32]).bind(response());
        }
        insert.execute(&mut connection).await.expect("an insert of many rows");
        for done in done {
            let _ = done.send(());
        }
    }
    connection
}
