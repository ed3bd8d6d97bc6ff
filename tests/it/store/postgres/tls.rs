//! The store over TLS, with a real server whose certificate is signed by itself.

use std::time::Duration;

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::postgres::{Options, Postgres};
use counterfoil::store::{Store as _, StoreError, Verdict};

use crate::own_server::Server;

/// Opens the store of a server as its URL's parameters say, and does not wait for a server that refuses.
async fn open(server: &Server, parameters: &str) -> Result<Postgres, StoreError> {
    let options = Options { retry_for: Duration::ZERO, ..Options::default() };
    Postgres::open_with(&format!("{}?{parameters}", server.url()), options).await
}

// Every connection of the store is encrypted, and the server is who it says it is.
#[tokio::test]
async fn every_connection_of_the_store_is_encrypted() {
    let server = Server::start(&[]).await;
    let certificate = server.demand_tls().await;
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificate.display());

    let store = open(&server, &verified).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let record = sample.record("over TLS");
    let verdicts = store.commit(&[sample.change().record(record.clone())]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted]);
    assert_eq!(store.record_at(&sample.tenant, record.id).await.unwrap(), Some(record));
    let connections = "SELECT count(*) > 1, bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert_eq!(server.sql(connections).await, "t|t");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused() {
    let server = Server::start(&[]).await;
    let _certificate = server.demand_tls().await;
    let stranger = open(&server, "sslmode=verify-full").await.unwrap_err().to_string();
    assert!(stranger.contains("certificate"), "{stranger}");
    let plain = open(&server, "sslmode=disable").await.unwrap_err().to_string();
    assert!(plain.contains("no encryption"), "{plain}");
}
