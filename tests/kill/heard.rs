//! What a consumer has heard of events, in a table of its own.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

/// The table, beside whoever writes to it.
pub(crate) struct Heard(SqliteConnection);

impl Heard {
    /// Before the consumer opens its database: the table of its effects.
    pub(crate) async fn new(db: &Path) -> Self {
        drop(counterfoil::store::sqlite::Sqlite::open(db).await.unwrap());
        let own = SqliteConnectOptions::new().filename(db).busy_timeout(Duration::from_secs(20));
        let mut own = own.connect().await.unwrap();
        own.execute("CREATE TABLE heard (aggregate TEXT NOT NULL, seq INTEGER NOT NULL)").await.unwrap();
        Self(own)
    }

    /// One event, in a transaction of the consumer's.
    pub(crate) async fn enter(db: &mut SqliteConnection, aggregate: String, seq: i64) -> sqlx::Result<()> {
        let enter = sqlx::query("INSERT INTO heard (aggregate, seq) VALUES (?, ?)").bind(aggregate).bind(seq);
        enter.execute(db).await.map(drop)
    }

    /// In the order in which it was heard.
    pub(crate) async fn all(&mut self) -> Vec<(String, i64)> {
        let all = sqlx::query_as("SELECT aggregate, seq FROM heard ORDER BY rowid");
        all.fetch_all(&mut self.0).await.unwrap()
    }

    /// Of each order, these events in their order, each once; and nothing else.
    pub(crate) async fn is_in_order(&mut self, orders: u32, events: &[i64], seed: u64) {
        let heard = self.all().await;
        for number in 0..orders {
            let aggregate = format!("order/{number}");
            let seqs: Vec<_> = heard.iter().filter(|(of, _)| *of == aggregate).map(|(_, seq)| *seq).collect();
            assert_eq!(seqs, events, "COUNTERFOIL_SEED={seed}: {aggregate}");
        }
        assert_eq!(heard.len(), orders as usize * events.len(), "COUNTERFOIL_SEED={seed}");
    }
}
