//! Other programs at the file: one that locks it, one that reads it and does not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::store::conformance::sample::{Sample, inline};
use counterfoil::store::sqlite::{Options, Sqlite};
use counterfoil::store::{Change, Store, StoreError, StoreFuture, Verdict};
use sqlx::Connection as _;
use tokio::sync::Notify;

use super::{Folder, plain, run};
use crate::world::{Keys, Log, Reply, World, acme, request};

fn impatient() -> Options {
    Options { busy_timeout: Duration::from_millis(1), ..Options::default() }
}

/// Counts the writes that found the file locked.
#[derive(Debug)]
struct Locked {
    store: Arc<dyn Store>,
    times: Arc<AtomicUsize>,
    again: Arc<Notify>,
}

impl Store for Locked {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let written = self.store.commit(changes).await;
            if matches!(written, Err(StoreError::Busy { .. })) {
                self.times.fetch_add(1, Ordering::Relaxed);
                self.again.notify_one();
            }
            written
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

/// Nobody can look up what became of a blind call: if its answer were given up, a person would be asked.
#[tokio::test]
async fn the_answer_of_a_call_is_kept_for_as_long_as_the_file_is_locked() {
    let (folder, world) = (Folder::new(), World::new(Keys::Ignores));
    let store = Sqlite::open_with(folder.database(), impatient()).await.unwrap();
    let (times, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, rung) = (times.clone(), again.clone());
    let tool = world.tool("pay", EffectClass::InternalMutation, Contract::new(ContractClass::Blind));
    let executor = ExecutorBuilder::store(Arc::new(store))
        .wrap_store(move |store| Arc::new(Locked { store, times: counted, again: rung }))
        .dynamic_tool(tool)
        .open()
        .await
        .unwrap();
    world.replies([Reply::EffectThenHang]);
    let calling = executor.clone();
    let call = tokio::spawn(async move { calling.execute(request("pay")).await });
    world.requested(1).await;

    let mut shell = plain(&folder.database()).await;
    run(&mut shell, "BEGIN IMMEDIATE").await;
    world.release();
    while times.load(Ordering::Relaxed) < 8 && !call.is_finished() {
        again.notified().await; // by then a batch that fails otherwise is given up
    }
    assert!(!call.is_finished(), "it is not told before it is durable");
    run(&mut shell, "COMMIT").await;
    shell.close().await.unwrap();
    let outcome = call.await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((world.count(), executor.questions(&acme()).await.unwrap().len()), (1, 0));
    executor.shutdown(Duration::ZERO).await;
}

/// A shell that somebody has forgotten does not keep an engine from ending.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_lock_from_outside() {
    let folder = Folder::new();
    let store = Sqlite::open_with(folder.database(), impatient()).await.unwrap();
    let executor = ExecutorBuilder::store(Arc::new(store)).open().await.unwrap();
    let mut shell = plain(&folder.database()).await;
    run(&mut shell, "BEGIN IMMEDIATE").await;
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_log_that_grows_behind_a_reader_is_reported_once_for_each_doubling() {
    let log = Log::default();
    let _scope = log.listen();
    let warned = || -> Vec<u64> {
        let lines = log.lines();
        let growing = lines.iter().filter(|line| line.message == "database log grows behind a reader");
        growing.map(|line| line.field("pages").unwrap().parse().unwrap()).collect()
    };
    let folder = Folder::new();
    // SQLite begins the log anew at 1000 pages, about 4 MiB.
    let options = Options { large_log: 6 << 20, ..Options::default() };
    let store = Sqlite::open_with(folder.database(), options).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let write = async |count: u32, name: &str| {
        for i in 0..count {
            let mut record = sample.record(&format!("{name}{i}"));
            record.request = inline(serde_json::json!("x".repeat(50_000)));
            assert!(store.commit(&[sample.change().record(record)]).await.unwrap()[0].is_admitted());
        }
    };
    write(400, "free").await; // 20 MB, moved into the database again and again
    assert_eq!(warned(), [0_u64; 0]);
    let mut reader = plain(&folder.database()).await;
    run(&mut reader, "BEGIN; SELECT count(*) FROM record").await;
    write(400, "behind").await;
    let warned = warned();
    assert!(warned.len() == 2 && warned[1] >= 2 * warned[0], "{warned:?}");
}
