//! One engine, one file: the file that was opened, whatever becomes of its name and of the process's folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, Key};
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Change, OpenError, Store, StoreError, StoreFuture, Verdict};

use super::Folder;
use crate::world::{Keys, World, acme, request};

fn is_replaced(error: &StoreError) -> bool {
    matches!(error, StoreError::Open(OpenError::Replaced { .. }))
}

/// Removes the database with its log, as `rm test.db*` does.
fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
}

/// An executor with one tool, on the folder's database.
fn builder(folder: &Folder, world: &Arc<World>) -> counterfoil::exec::ExecutorBuilder {
    let contract = Contract::new(ContractClass::Lookup);
    Executor::sqlite(folder.database()).dynamic_tool(world.tool(
        "pay",
        EffectClass::InternalMutation,
        contract,
    ))
}

#[tokio::test]
async fn a_url_of_sqlite_is_the_file_and_memory_is_refused() {
    let folder = Folder::new();
    let url = format!("sqlite://{}", folder.database().display());
    Sqlite::open(&url).await.unwrap().close().await;
    assert!(folder.database().exists());
    let error = Sqlite::open(":memory:").await.unwrap_err();
    assert!(matches!(error, StoreError::Open(OpenError::NoFile { .. })), "{error}");
    assert!(!Path::new(":memory:").exists());
}

/// Its name is gone, or is another file's: what it records would be lost, so it sends nothing more.
#[tokio::test]
async fn an_engine_whose_file_was_removed_or_replaced_sends_nothing_more() {
    for replaced in [false, true] {
        let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
        let executor = builder(&folder, &world).open().await.unwrap();
        let _done = executor.execute(request("pay")).await.unwrap();
        remove(&folder.database());
        if replaced {
            folder.open().await.close().await; // another engine begins anew
        }
        let mut other = request("pay");
        other.key = Some(Key::of("pay").target("c2"));
        let error = executor.execute(other).await.unwrap_err().to_string();
        assert!(
            error.contains(&*folder.database().to_string_lossy()) && error.contains("replaced"),
            "{error}"
        );
        assert_eq!(world.count(), 1, "replaced: {replaced}");
        executor.shutdown(Duration::ZERO).await;
    }
}

/// Removes the file directly after a commit, when the `started` of a call is durable and the call not yet sent.
#[derive(Debug)]
struct Removes {
    store: Arc<dyn Store>,
    file: PathBuf,
    now: Arc<AtomicBool>,
}

impl Store for Removes {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let verdicts = self.store.commit(changes).await?;
            if self.now.load(Ordering::Acquire) {
                remove(&self.file);
            }
            Ok(verdicts)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

#[tokio::test]
async fn a_file_that_is_removed_between_the_intent_and_the_send_is_noticed() {
    let (folder, world, now) = (Folder::new(), World::new(Keys::Ignores), Arc::<AtomicBool>::default());
    let (file, armed) = (folder.database(), now.clone());
    let builder =
        builder(&folder, &world).wrap_store(move |store| Arc::new(Removes { store, file, now: armed }));
    let executor = builder.open().await.unwrap();
    // A send looks for the file, and others rely on that look for a moment: not those whose intents come behind it.
    let _done = executor.execute(request("pay")).await.unwrap();
    now.store(true, Ordering::Release);
    let mut other = request("pay");
    other.key = Some(Key::of("pay").target("c2"));
    let error = executor.execute(other).await.unwrap_err().to_string();
    assert!(error.contains("removed or replaced"), "{error}");
    assert_eq!(world.count(), 1);
    executor.shutdown(Duration::ZERO).await;
}

/// Readers are opened when they are needed, by name.
#[tokio::test]
async fn a_reader_that_is_opened_late_reads_no_other_file_of_that_name() {
    let (folder, other) = (Folder::new(), Folder::new());
    let theirs = other.open().await;
    let sample = Sample::enrol(&theirs, "ann").await;
    theirs.close().await;
    let store = folder.open().await; // nothing was read so far
    remove(&folder.database());
    std::fs::copy(other.database(), folder.database()).unwrap();
    let found = store.worker_find("ann").await;
    assert!(found.is_err(), "{found:?}");
    assert!(is_replaced(&store.commit(&[sample.change()]).await.unwrap_err()));
}

/// What `cp agents.db backup/` is expected to do.
#[tokio::test]
async fn a_copy_of_the_file_alone_after_a_shutdown_holds_everything() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let executor = builder(&folder, &world).open().await.unwrap();
    let _done = executor.execute(request("pay")).await.unwrap();
    executor.record(&acme(), &Key::of("pay").target("c1").render().unwrap()).await.unwrap(); // a reader is open
    executor.shutdown(Duration::from_secs(5)).await;
    let copy = Folder::new();
    std::fs::copy(folder.database(), copy.database()).unwrap();
    let executor = builder(&copy, &world).open().await.unwrap();
    let outcome = executor.execute(request("pay")).await.unwrap();
    assert!(outcome.answer().is_some_and(|answer| !answer.first), "{outcome:?}");
    assert_eq!(world.count(), 1);
}

const FOLDERS: &str = "COUNTERFOIL_TEST_FOLDERS";

/// A process's folder is the whole process's: the test has one of its own.
#[tokio::test]
async fn a_relative_path_means_one_file_after_the_process_has_changed_its_folder() {
    let folders = tempfile::tempdir().unwrap();
    let ended = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::sqlite::place::the_process_that_changes_its_folder",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDERS, folders.path())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(folders.path().join("reached").exists());
}

#[tokio::test]
#[ignore = "a part of the test above, which runs it in a process of its own"]
async fn the_process_that_changes_its_folder() {
    let Ok(folders) = std::env::var(FOLDERS) else { return };
    let (ours, theirs) = (Path::new(&folders).join("ours"), Path::new(&folders).join("theirs"));
    for folder in [&ours, &theirs] {
        std::fs::create_dir(folder).unwrap();
    }
    std::env::set_current_dir(&theirs).unwrap();
    let other = Sqlite::open("agents.db").await.unwrap();
    Sample::enrol(&other, "theirs").await;
    other.close().await;

    std::env::set_current_dir(&ours).unwrap();
    let store = Sqlite::open("agents.db").await.unwrap();
    Sample::enrol(&store, "ours").await;
    std::env::set_current_dir(&theirs).unwrap();
    assert!(store.worker_find("ours").await.unwrap().is_some());
    assert!(store.worker_find("theirs").await.unwrap().is_none());
    assert_eq!(store.path(), ours.canonicalize().unwrap().join("agents.db"));
    std::fs::write(Path::new(&folders).join("reached"), "").unwrap();
}
