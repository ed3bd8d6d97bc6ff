//! One engine at a time, and a dead one is known to be dead at once (DESIGN 4.7).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::sqlite::{Options, Sqlite};
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
                Err(error) => {
                    assert!(matches!(error, StoreError::Open(OpenError::OwnedHere { .. })), "{error}");
                }
            }
        }
        assert_eq!(stores.len(), 1);
        drop(stores);
        let store = folder.open().await;
        Sample::enrol(&store, "after").await;
    }
}

#[tokio::test]
async fn a_second_engine_in_the_same_process_is_told_so() {
    let folder = Folder::new();
    let _store = folder.open().await;
    let error = Sqlite::open(folder.database()).await.unwrap_err();
    let StoreError::Open(OpenError::OwnedHere { path }) = &error else { panic!("{error}") };
    assert_eq!(path, &folder.database().display().to_string());
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
    assert!(matches!(error, StoreError::Open(OpenError::OwnedHere { .. })), "{error}");
}

#[tokio::test]
async fn another_process_is_refused_until_the_owner_is_dead() {
    let folder = Folder::new();
    let mut other = process_with(&folder.database()).await;
    let error = Sqlite::open_with(folder.database(), at_once()).await.unwrap_err();
    let StoreError::Open(OpenError::Owned { path, owner }) = &error else { panic!("{error}") };
    assert_eq!(path, &folder.database().display().to_string());
    assert_eq!(owner, &format!("process {}", other.id().unwrap()));
    // A restart directly after the kill: it begins while the other one has the lock, and waits until it is dead.
    let kill = async { other.start_kill().unwrap() }; // SIGKILL: it can release nothing
    let (opened, ()) = tokio::join!(Sqlite::open(folder.database()), kill);
    let store = opened.unwrap();
    let worker = store.worker_find("the other process").await.unwrap().expect("what it wrote is there");
    assert_eq!(worker.ended_at, None, "nobody has said that it is dead");
    Sample::enrol(&store, "this process").await;
}

fn at_once() -> Options {
    Options { wait_for_owner: Duration::ZERO, ..Options::default() }
}

/// By whatever name, it is one file, and no file beside it could be removed to let a second engine in.
#[tokio::test]
async fn another_name_of_the_file_lets_no_second_engine_in() {
    let folder = Folder::new();
    let path = folder.database();
    let (link, to_folder) = (path.with_file_name("link.db"), path.with_file_name("folder"));
    std::os::unix::fs::symlink(&path, &link).unwrap(); // of a file that is not there yet
    std::os::unix::fs::symlink(path.parent().unwrap(), &to_folder).unwrap();
    let _other = process_with(&link).await;
    let hard = path.with_file_name("hard.db");
    std::fs::hard_link(&path, &hard).unwrap();
    for name in [path.clone(), link, to_folder.join("test.db"), hard] {
        let error = Sqlite::open_with(&name, at_once()).await.unwrap_err();
        assert!(matches!(error, StoreError::Open(OpenError::Owned { .. })), "{}: {error}", name.display());
    }
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            ["test.db", "test.db-wal", "test.db-shm", "link.db", "hard.db", "folder"].contains(&&*name),
            "{name}"
        );
    }
}

/// SQLite's log is named after one of them: under the other name, what is in the log would be missing.
#[tokio::test]
async fn a_file_with_two_names_is_refused() {
    let folder = Folder::new();
    folder.open().await.close().await;
    let second = folder.database().with_file_name("second.db");
    std::fs::hard_link(folder.database(), &second).unwrap();
    let error = Sqlite::open(folder.database()).await.unwrap_err();
    assert!(matches!(error, StoreError::Open(OpenError::HardLinked { .. })), "{error}");
    std::fs::remove_file(second).unwrap();
    folder.open().await;
}

/// A process that closes any descriptor of a file drops SQLite's own locks on it. Without them, a shell that is opened and
/// closed takes itself for the last one, and removes the log under the living engine.
#[tokio::test]
async fn a_refused_engine_leaves_the_first_one_its_locks() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    Sqlite::open(folder.database()).await.unwrap_err();
    drop(Sqlite::open_read_only(folder.database()).await.unwrap());
    assert!(holds_a_lock_on(&folder.database()));
    store.commit(&[sample.change().record(sample.record("a"))]).await.unwrap();
}

/// True if a descriptor of this process holds one of SQLite's own locks on a file: a lock on the bytes of a connection that
/// reads it. `/proc/locks` says so of all processes, but skips lines when another process lets go of a lock meanwhile.
fn holds_a_lock_on(path: &Path) -> bool {
    let path = path.canonicalize().unwrap();
    std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).any(|descriptor| {
        let of_path = std::fs::read_link(descriptor.path()).is_ok_and(|target| target == path);
        let locks = Path::new("/proc/self/fdinfo").join(descriptor.file_name());
        of_path && std::fs::read_to_string(locks).is_ok_and(|locks| locks.contains("POSIX"))
    })
}

/// Starts this test binary again, in the part below, and waits until it has the database.
async fn process_with(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::sqlite::owner::the_other_process", "--ignored", "--nocapture"])
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
