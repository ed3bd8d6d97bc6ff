//! The raw lines: the speed of sqlx alone on the same disk, with the same durability.
//!
//! A row has a key of 60 bytes in a unique index, a hash of 32 bytes, and a response of 200 bytes. One connection,
//! prepared statements.

#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod sqlite;

use tokio::sync::{mpsc, oneshot};

use crate::place::Place;

/// A raw database.
pub(crate) struct Raw {
    connection: Connection,
    last: i64,
}

enum Connection {
    Sqlite(sqlite::Sqlite),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Postgres),
}

/// A row: key, hash and response.
pub(crate) type Row = (String, Vec<u8>, String);

/// Calls a method of the connection, of either kind.
macro_rules! ask {
    ($connection:expr, $method:ident($($argument:expr),*)) => {
        match $connection {
            Connection::Sqlite(connection) => connection.$method($($argument),*).await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => connection.$method($($argument),*).await,
        }
    };
}

pub(crate) async fn open(place: &Place) -> Raw {
    let mut connection = match place {
        Place::File(db) => Connection::Sqlite(sqlite::Sqlite::open(db).await),
        #[cfg(feature = "postgres")]
        Place::Schema { url, name } => Connection::Postgres(postgres::Postgres::open(url, name).await),
    };
    let last = ask!(&mut connection, last());
    Raw { connection, last }
}

fn key(number: i64) -> String {
    format!("touch:case-{number:012}:the operation that is done to it {:03}", number % 1000)
}

pub(crate) fn response() -> String {
    "y".repeat(200)
}

impl Raw {
    fn number(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// Inserts durable rows one after the other.
    pub(crate) async fn inserts(&mut self, n: u32) {
        for _ in 0..n {
            let key = key(self.number());
            ask!(&mut self.connection, insert(key, Some(response())));
        }
    }

    /// Inserts each row without its response, durable, then updates it with the response, durable.
    pub(crate) async fn two_transactions(&mut self, n: u32) {
        for _ in 0..n {
            let key = key(self.number());
            ask!(&mut self.connection, insert(key.clone(), None));
            ask!(&mut self.connection, update(key, response()));
        }
    }

    /// Writes by group commit with `tasks` waiting tasks: one writer drains a channel into inserts of many rows.
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
    pub(crate) async fn read(&mut self) -> Vec<Row> {
        ask!(&mut self.connection, read())
    }

    pub(crate) async fn close(self) {
        ask!(self.connection, close());
    }
}

/// The maximum number of rows in one insert: as many as the largest group of this benchmark has tasks.
const MAX_ROWS: usize = 64;

async fn write(
    mut connection: Connection,
    mut waiting: mpsc::Receiver<(String, oneshot::Sender<()>)>,
) -> Connection {
    let mut batch = Vec::with_capacity(MAX_ROWS);
    while waiting.recv_many(&mut batch, MAX_ROWS).await > 0 {
        let (keys, done): (Vec<_>, Vec<oneshot::Sender<()>>) = batch.drain(..).unzip();
        ask!(&mut connection, insert_many(keys));
        for done in done {
            let _ = done.send(());
        }
    }
    connection
}
