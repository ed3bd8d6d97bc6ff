//! The PostgreSQL that `./test` brings: one server for all tests, in it a schema of its own for each.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use counterfoil::store::postgres::Options;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use uuid::Uuid;

/// The database's address. No server is a failure, never a test that is skipped in silence.
pub(crate) fn url() -> String {
    std::env::var("TEST_DATABASE_URL").unwrap_or_else(|_| {
        panic!(
            "this test needs a PostgreSQL server, and TEST_DATABASE_URL names none: run `./test`, which brings one \
             (`./test --test it NAME` for a single test), or `.ci/with-postgres cargo nextest run …`"
        )
    })
}

/// The name of a schema that no other test uses, in this run or an earlier one. It is not there yet.
pub(crate) fn schema() -> String {
    format!("test_{}", Uuid::now_v7().simple())
}

/// The lease of a worker whose process a test kills: its work is taken over so long after it, and the test waits for that.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A schema for one test, dropped with it.
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    /// The store that opens it first makes it.
    pub(crate) fn new() -> Self {
        Self { name: schema() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn options(&self) -> Options {
        Options { schema: Some(self.name.clone()), ..Options::default() }
    }

    /// Connections that find their tables here.
    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        let options: PgConnectOptions = url().parse().unwrap();
        options.options([("search_path", self.name.as_str())])
    }

    pub(crate) async fn plain(&self) -> PgConnection {
        self.connect_options().connect().await.unwrap()
    }
}

impl Drop for Schema {
    /// Its tables would stay in a server that outlives the tests. On a thread of its own, for this one is inside a runtime.
    fn drop(&mut self) {
        let (url, name) = (url(), self.name.clone());
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

#[test]
fn the_test_command_brings_a_server() {
    let url = url();
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
    let address = host.to_socket_addrs().unwrap().next().unwrap();
    TcpStream::connect(address).unwrap_or_else(|error| panic!("no server at {address}: {error}"));
    assert_ne!(schema(), schema());
}
