//! The proxy loses exactly what it was told to lose.

use crate::own_server::proxy::{Act, Counts, Proxy};
use crate::own_server::{Server, psql};

async fn set_up() -> (Server, Proxy) {
    let server = Server::start(&[]).await;
    server.sql("CREATE TABLE t (n INT)").await;
    let proxy = Proxy::start(server.port()).await;
    (server, proxy)
}

#[tokio::test]
async fn a_cut_before_a_message_and_a_cut_before_its_answer_look_alike_to_the_client() {
    let (server, proxy) = set_up().await;
    // The second message of its connection: the first says who is there and has no type.
    let before = proxy.on(1, "VALUES (1)", Act::CutBefore);
    let after = proxy.on(2, "VALUES (2)", Act::CutBeforeAnswer);
    for (mut trap, statement) in [(before, "INSERT INTO t VALUES (1)"), (after, "INSERT INTO t VALUES (2)")] {
        while let Ok(said) = psql(proxy.port(), statement).await {
            assert_eq!(said, "");
        }
        trap.sprung().await;
    }
    assert_eq!(
        server.sql("SELECT n FROM t").await,
        "2\n2",
        "the first one let by, the second one answered to nobody"
    );
    assert_eq!(psql(proxy.port(), "SELECT 3").await.unwrap(), "3", "a trap springs once");
}

#[tokio::test]
async fn a_held_message_waits_until_it_is_let_go() {
    let (server, proxy) = set_up().await;
    let mut trap = proxy.on(1, "INSERT", Act::Hold);
    let late = tokio::spawn(psql(proxy.port(), "INSERT INTO t VALUES (1)"));
    trap.sprung().await;
    assert_eq!(server.sql("SELECT count(*) FROM t").await, "0");
    trap.release();
    late.await.unwrap().unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM t").await, "1");
}

#[tokio::test]
async fn connections_are_cut_and_refused_until_the_proxy_is_open_again() {
    let (server, proxy) = set_up().await;
    let mut trap = proxy.on(1, "SELECT", Act::Hold);
    let cut = tokio::spawn(psql(proxy.port(), "SELECT 1"));
    trap.sprung().await;
    proxy.cut();
    cut.await.unwrap().unwrap_err();
    proxy.shut();
    psql(proxy.port(), "SELECT 1").await.unwrap_err();
    assert_eq!(server.sql("SELECT 1").await, "1");
    proxy.open();
    assert_eq!(psql(proxy.port(), "SELECT 1").await.unwrap(), "1");
    assert_eq!(proxy.counts(), Counts { connections: 2, messages: 2, statements: 2 });
}
