//! Full and read-only disks (HAZARDS G03, G05).
//!
//! The disk is a small one in memory, mounted in a namespace of its own: this binary runs itself again there, and
//! the mount goes with the process, however it ends. Where that is not permitted the tests say that they are
//! skipped; with `COUNTERFOIL_NO_SKIP` set they fail instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use counterfoil::SystemClock;
use counterfoil::store::conformance::sample::{Sample, payload};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Change, Group, OpenError, Store, StoreError, Verdict};
use serde_json::json;

use super::closed;

const FOLDER: &str = "COUNTERFOIL_TEST_FOLDER";

/// Runs a test of this module where it may mount. If this process is already there, it gives a folder to mount on.
fn inside(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let may = |options: &str| {
        let tried = Command::new("unshare").args([options, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let Some(options) = ["--mount", "-rm"].into_iter().find(|options| may(options)) else {
        let skipped = format!("SKIPPED {test}: no mount namespaces here");
        assert!(std::env::var_os("COUNTERFOIL_NO_SKIP").is_none(), "{skipped}");
        eprintln!("{skipped}");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let test = format!("store::sqlite::disk::{test}");
    let ran = Command::new("unshare")
        .args([options.as_ref(), exe.as_os_str()])
        .args(["--exact", &test, "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    None
}

fn mount(options: &[&str], folder: &Path) {
    let mounted = Command::new("mount").args(options).arg(folder).output().unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
}

fn large(sample: &Sample, name: &str, bytes: usize) -> Change {
    let body = payload(&json!({ "name": name, "body": "x".repeat(bytes) }));
    let change = sample.change().record(sample.record(name));
    Change { payloads: vec![(sample.tenant.clone(), body)], ..change }
}

/// Nothing of a write that found no room is there, whatever was admitted is, and it goes on when there is room.
#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let Some(folder) = inside("a_full_disk_loses_nothing") else { return };
    for step in [100, 5_000, 60_000] {
        mount(&["-t", "tmpfs", "-o", "size=1500k", "tmpfs"], &folder); // over the last one
        let ballast = folder.join("ballast");
        std::fs::write(&ballast, vec![0; 400 * 1024]).unwrap();
        let path = folder.join("test.db");
        let store = Sqlite::open(&path).await.unwrap();
        let sample = Sample::enrol(&store, "ann").await;
        let mut there = Vec::new();
        let refused = loop {
            let i = there.len();
            assert!(i < 100_000, "the disk is never full");
            // Two changes, of which the second has an answer of its own when they are judged.
            let twice = sample.change().record(sample.record(&format!("{step}/0 small")));
            let batch = [large(&sample, &format!("{step}/{i}"), step), twice];
            let written =
                if i % 2 == 0 { store.commit(&batch[..1]).await } else { store.commit(&batch).await };
            match written {
                Ok(verdicts) => {
                    assert_eq!(verdicts[0], Verdict::Admitted);
                    there.push(batch[0].clone());
                }
                Err(error) => {
                    assert!(matches!(error, StoreError::Full { .. }) && error.is_transient(), "{error:?}");
                    break batch[0].clone();
                }
            }
        };
        assert_found(&store, &sample, &there, true).await;
        assert_found(&store, &sample, std::slice::from_ref(&refused), false).await;
        // Again and again: it stays full, and nothing gets worse.
        for _ in 0..20 {
            let result = store.commit(std::slice::from_ref(&refused)).await;
            assert!(matches!(result, Err(StoreError::Full { .. })), "{result:?}");
        }
        assert_found(&store, &sample, &there, true).await;

        std::fs::remove_file(&ballast).unwrap();
        assert_eq!(store.commit(std::slice::from_ref(&refused)).await.unwrap(), [Verdict::Admitted]);
        there.push(refused);
        drop(store);
        assert_found(&Sqlite::open(&path).await.unwrap(), &sample, &there, true).await;
    }
}

async fn assert_found(store: &Sqlite, sample: &Sample, changes: &[Change], found: bool) {
    for change in changes {
        let record = change.record.as_ref().unwrap();
        let is_found = store.record_find(&sample.tenant, &record.key).await.unwrap();
        assert_eq!(is_found.is_some(), found, "{}", record.key);
        let digest = change.payloads[0].1.digest();
        assert_eq!(
            store.payload_find(&sample.tenant, digest).await.unwrap().is_some(),
            found,
            "{}",
            record.key
        );
    }
}

/// Through the queue: everyone who waits is told, and the queue goes on when there is room.
#[tokio::test]
async fn a_full_disk_stops_no_queue() {
    let Some(folder) = inside("a_full_disk_stops_no_queue") else { return };
    mount(&["-t", "tmpfs", "-o", "size=1500k", "tmpfs"], &folder);
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![0; 400 * 1024]).unwrap();
    let store = Arc::new(Sqlite::open(folder.join("test.db")).await.unwrap());
    let sample = Sample::enrol(&*store, "ann").await;
    let group = Group::new(store, Arc::new(SystemClock));
    let tickets: Vec<_> = (0..20).map(|i| group.submit(large(&sample, &i.to_string(), 100_000))).collect();
    for ticket in tickets {
        let told = ticket.durable().await;
        assert!(matches!(told, Err(StoreError::Full { .. })), "{told:?}");
    }
    std::fs::remove_file(&ballast).unwrap();
    let verdict = group.commit_one(large(&sample, "small", 1_000)).await.unwrap();
    assert_eq!(verdict, Verdict::Admitted);
    group.close().await;
}

/// A file, a folder or a filesystem that cannot be written is refused when it is opened, not at the first effect.
#[tokio::test]
async fn what_cannot_be_written_is_refused_when_opened() {
    let Some(folder) = inside("what_cannot_be_written_is_refused_when_opened") else { return };
    let path = folder.join("test.db");
    drop(Sqlite::open(&path).await.unwrap());
    closed(&path).await;
    let refused = async |what: &str| {
        let result = Sqlite::open(&path).await;
        assert!(matches!(result, Err(StoreError::Open(OpenError::ReadOnly { .. }))), "{what}: {result:?}");
    };
    let before = std::fs::read(&path).unwrap();
    bind_read_only(&path);
    refused("the file").await;
    mount(&["-o", "remount,bind,rw"], &path);
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    bind_read_only(&folder);
    refused("the folder").await;
    assert_eq!(std::fs::read(&path).unwrap(), before, "left as it was");
}

fn bind_read_only(path: &Path) {
    mount(&["--bind", path.to_str().unwrap()], path);
    mount(&["-o", "remount,bind,ro"], path);
}

/// The same without any mount: nobody can make a file in /sys, not even root.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_without_write_permission_is_refused() {
    let result = Sqlite::open("/sys/counterfoil-test.db").await;
    assert!(matches!(result, Err(StoreError::Open(OpenError::ReadOnly { .. }))), "{result:?}");
}
