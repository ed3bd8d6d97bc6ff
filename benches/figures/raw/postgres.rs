//! The raw line on PostgreSQL: the server's own settings, a row by values, many by `unnest`.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use super::{Row, response};

pub(crate) struct Postgres {
    connection: PgConnection,
}

impl Postgres {
    pub(super) async fn open(url: &str, schema: &str) -> Self {
        let options: PgConnectOptions = url.parse().expect("the URL of a database");
        let options = options.options([("search_path", schema)]).disable_statement_logging();
        let mut connection = options.connect().await.expect("a raw connection");
        let there = sqlx::query("SELECT 1 FROM pg_namespace WHERE nspname = $1").bind(schema);
        if there.fetch_optional(&mut connection).await.expect("an answer").is_none() {
            sqlx::raw_sql(AssertSqlSafe(format!(
                "CREATE SCHEMA {schema}; CREATE TABLE raw (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
                 key TEXT NOT NULL UNIQUE, hash BYTEA NOT NULL, response TEXT)"
            )))
            .execute(&mut connection)
            .await
            .expect("a table");
        }
        Self { connection }
    }

    pub(super) async fn last(&mut self) -> i64 {
        let last = sqlx::query_scalar("SELECT coalesce(max(id), 0) FROM raw").fetch_one(&mut self.connection);
        last.await.expect("the last id")
    }

    pub(super) async fn insert(&mut self, key: String, response: Option<String>) {
        let insert = sqlx::query("INSERT INTO raw (key, hash, response) VALUES ($1, $2, $3)");
        let insert = insert.bind(key).bind(vec![7_u8; 32]).bind(response);
        insert.execute(&mut self.connection).await.expect("an insert");
    }

    pub(super) async fn update(&mut self, key: String, response: String) {
        let update = sqlx::query("UPDATE raw SET response = $1 WHERE key = $2").bind(response).bind(key);
        update.execute(&mut self.connection).await.expect("an update");
    }

    pub(super) async fn insert_many(&mut self, keys: Vec<String>) {
        let rows = keys.len();
        let insert = sqlx::query(
            "INSERT INTO raw (key, hash, response) SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])",
        );
        let insert = insert.bind(keys).bind(vec![vec![7_u8; 32]; rows]).bind(vec![response(); rows]);
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
