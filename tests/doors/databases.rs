//! A PostgreSQL schema of a test's own.
#![allow(dead_code, reason = "doors use a part each")]

use counterfoil::store::postgres::Options;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

pub(crate) struct Schema {
    name: String,
}

impl Schema {
    /// The store that opens it first makes it.
    pub(crate) fn new() -> Self {
        Self { name: crate::server::schema() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn options(&self) -> Options {
        Options { schema: Some(self.name.clone()), ..Options::default() }
    }

    /// Connections that find their tables here.
    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        let options: PgConnectOptions = crate::server::url().parse().unwrap();
        options.options([("search_path", self.name.as_str())])
    }

    pub(crate) async fn plain(&self) -> PgConnection {
        self.connect_options().connect().await.unwrap()
    }
}

impl Drop for Schema {
    /// Its tables would stay in a server that outlives the tests. On a thread of its own, for this one is inside a runtime.
    fn drop(&mut self) {
        let (url, name) = (crate::server::url(), self.name.clone());
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
