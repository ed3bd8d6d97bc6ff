//! High availability for real (HAZARDS G09; R-SCALE-2): a primary whose commits wait for a standby is killed under load,
//! the standby is promoted, and the workers find it by a URL that names both.

use std::time::Duration;

use counterfoil::store::postgres::Postgres;
use counterfoil::store::{OpenError, StoreError};
use counterfoil::{Clock as _, SystemClock};

use crate::harness::cluster::{Plan, at_work};
use crate::harness::process::Program;
use crate::harness::worker::Ledger;
use crate::own_server::Server;
use crate::run;

const SCHEMA: &str = "failover";

fn url_of(hosts: [&Server; 2]) -> String {
    let hosts = hosts.map(|server| format!("127.0.0.1:{}", server.port()));
    format!("postgres://postgres@{}/postgres", hosts.join(","))
}

fn plan() -> Plan {
    Plan {
        workers: 2,
        runs: 200,
        storm: Duration::from_secs(8),
        calm: Duration::from_mins(1),
        lease: Duration::from_secs(10), // the database is away for seconds, on a busy machine for more
        settle: Duration::from_secs(5),
        faults: false,
        older: None,
        seed: 0,
    }
}

/// Workers carry runs out while this happens to their database. Nobody is killed, and nobody is to be taken for dead.
async fn at_work_while(ledger: &Ledger, happens: impl AsyncFnOnce()) {
    let (folder, plan) = (tempfile::tempdir().unwrap(), plan());
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    let tally = at_work(&program, folder.path(), ledger, &plan, async |_, _, _, _| {
        SystemClock.sleep(plan.storm / 3).await; // in the middle of it
        happens().await;
        Ok(())
    });
    let tally = tally.await.unwrap();
    assert!(tally.is_clean() && tally.succeeded == plan.runs, "{tally:#?}");
    assert_eq!((tally.duplicated, tally.takeovers), (0, 0), "nobody was dead: {tally:#?}");
}

#[test]
fn nothing_is_lost_with_the_primary() {
    run(async {
        let primary = Server::start(&[]).await;
        Ledger::Postgres { url: primary.url(), schema: SCHEMA.into() }.prepare().await.unwrap();
        let standby = primary.standby("second").await;
        primary.wait_for("second").await;
        let ledger = Ledger::Postgres { url: url_of([&primary, &standby]), schema: SCHEMA.into() };
        at_work_while(&ledger, async || {
            primary.kill();
            standby.promote().await;
        })
        .await;
    });
}

// G01, G02: the server crashes under load, and recovers.
#[test]
fn nothing_is_lost_with_a_server_that_crashes() {
    run(async {
        let server = Server::start(&["fsync=on", "full_page_writes=on"]).await;
        let ledger = Ledger::Postgres { url: server.url(), schema: SCHEMA.into() };
        ledger.prepare().await.unwrap();
        at_work_while(&ledger, async || {
            for _ in 0..2 {
                server.stop_immediate().await;
                server.start_again().await;
                SystemClock.sleep(Duration::from_millis(500)).await; // some load in between
            }
        })
        .await;
    });
}

// G09: with a standby that does not confirm, a promotion may forget a `started` record: refused, and said why.
#[test]
fn a_standby_that_confirms_nothing_is_refused() {
    run(async {
        let primary = Server::start(&[]).await;
        let standby = primary.standby("second").await;
        let refused = Postgres::open(&url_of([&primary, &standby])).await.unwrap_err();
        let StoreError::Open(error @ OpenError::AsynchronousStandby { .. }) = refused else {
            panic!("{refused}")
        };
        assert!(error.to_string().contains("synchronous_standby_names"), "{error}");
    });
}
