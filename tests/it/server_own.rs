//! The servers that tests start themselves do what the tests of the store rely on.

use crate::own_server::Server;

#[tokio::test]
async fn a_server_stopped_as_by_a_crash_comes_back_with_what_was_committed() {
    let server = Server::start(&["work_mem=5MB"]).await;
    let url = server.url();
    server.sql("CREATE TABLE t AS SELECT 1").await;
    for stop in 0..3 {
        match stop {
            0 => server.stop_immediate().await,
            1 => server.stop_fast().await,
            _ => server.kill(),
        }
        server.start_again().await;
        assert_eq!(server.sql("SELECT count(*) FROM t").await, "1");
    }
    assert_eq!(server.url(), url);
    assert_eq!(server.sql("SHOW work_mem").await, "5MB");
    assert!(server.log().contains("automatic recovery in progress"));
}

#[tokio::test]
async fn a_standby_that_is_waited_for_has_every_commit_when_it_is_promoted() {
    let primary = Server::start(&[]).await;
    let standby = primary.standby("second").await;
    primary.wait_for("second").await;
    primary.sql("CREATE TABLE t AS SELECT 1").await;
    primary.kill();
    standby.promote().await;
    assert_eq!(standby.sql("INSERT INTO t VALUES (2) RETURNING (SELECT count(*) FROM t)").await, "1");
}
