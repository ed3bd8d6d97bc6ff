//! The PostgreSQL that `./test` brings: one server for all tests, in it a schema of its own for each.

use std::net::{TcpStream, ToSocketAddrs};

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
