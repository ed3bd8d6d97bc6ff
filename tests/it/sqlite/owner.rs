//! One engine at a time, and a dead one is known to be dead at once (DESIGN 4.7).

use std::path::Path;
use std::process::Stdio;

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{OpenError, Store, StoreError, Turns};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::Folder;

const DATABASE: &str = "COUNTERFOIL_TEST_DATABASE";

/// Fact 6: the driver's migrator takes no lock, and three at once on a fresh file fail half of the time. Ours run
/// under the lock beside the file, which one opener gets and the others do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fact_6_of_many_openers_of_a_fresh_file_one_wins() {
    for _ in 0..10 {
        let folder = Folder::new();
        let path = folder.database();
        let openers: Vec<_> = (0..8).map(|_| tokio::spawn(Sqlite::open(path.clone()))).collect();
        let mut stores = Vec::new();
        for opener in openers {
            match opener.await.unwrap() {
                Ok(store) => stores.push(store),
                Err(error) => assert!(matches!(error, StoreError::Open(OpenError::Owned { .. })), "{error}"),
            }
        }
        assert_eq!(stores.len(), 1);
        drop(stores);
        let store = folder.open().await;
        Sample::enrol(&store, "after").await;
    }
}

#[tokio::test]
async fn who_has_the_file_is_named() {
    let folder = Folder::new();
    let _store = folder.open().await;
    let error = Sqlite::open(folder.database()).await.unwrap_err();
    let StoreError::Open(OpenError::Owned { path, owner }) = &error else { panic!("{error}") };
    assert_eq!(path, &folder.database().display().to_string());
    assert_eq!(owner, &format!("process {}", std::process::id()));
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_closed_store_is_free_and_answers_that_it_is_closed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let record = sample.record("a");
    store.commit(&[sample.change().record(record.clone())]).await.unwrap();
    store.record_at(&sample.tenant, record.id).await.unwrap(); // on a connection of its own
    store.close().await;
    assert!(!folder.database().with_extension("db-wal").exists(), "the log is in the database");

    let is_closed = |error: StoreError| assert!(matches!(error, StoreError::Closed), "{error}");
    is_closed(store.commit(&[sample.change().record(sample.record("b"))]).await.unwrap_err());
    is_closed(store.record_at(&sample.tenant, record.id).await.unwrap_err());
    is_closed(store.run_history(&sample.tenant, counterfoil::RunId(1), Turns::ALL).await.unwrap_err());
    is_closed(store.checkpoint().await.unwrap_err());
    store.close().await; // again is no harm

    let next = folder.open().await;
    assert_eq!(next.record_at(&sample.tenant, record.id).await.unwrap(), Some(record));
    drop(store); // and takes nothing from the one that has the file now
    let error = Sqlite::open(folder.database()).await.unwrap_err();
    assert!(matches!(error, StoreError::Open(OpenError::Owned { .. })), "{error}");
}

#[tokio::test]
async fn another_process_is_refused_until_the_owner_is_dead() {
    let folder = Folder::new();
    let mut owner = process_with(&folder.database()).await;
    let error = Sqlite::open(folder.database()).await.unwrap_err();
    assert!(matches!(error, StoreError::Open(OpenError::Owned { .. })), "{error}");
    owner.start_kill().unwrap(); // SIGKILL: it can release nothing
    owner.wait().await.unwrap();
    let store = folder.open().await;
    let worker = store.worker_find("the other process").await.unwrap().expect("what it wrote is there");
    assert_eq!(worker.ended_at, None, "nobody has said that it is dead");
    Sample::enrol(&store, "this process").await;
}

/// Starts this test binary again, in the part below, and waits until it has the database.
async fn process_with(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::owner::the_other_process", "--ignored", "--nocapture"])
        .env(DATABASE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it ended before it had the database");
        if line.contains("it has the database") {
            return child;
        }
    }
}

#[tokio::test]
#[ignore = "a part of `another_process_is_refused_until_the_owner_is_dead`, which runs it in a process of its own"]
async fn the_other_process() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let store = Sqlite::open(path).await.unwrap();
    Sample::enrol(&store, "the other process").await;
    println!("\nit has the database");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap(); // until it is killed
}
