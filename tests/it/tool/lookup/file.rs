//! The lookup of a file, among real files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use counterfoil::Key;
use counterfoil::ledger::{Basis, Contract, ErrorKind, LookupResult};
use counterfoil::tool::lookup::{FileAt, Sha256};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};

use crate::tool::lookup::world::{Cut, Faults, Sent};
use crate::world::brief;

struct Export {
    folder: PathBuf,
    faults: Arc<Faults>,
}

impl Export {
    fn file(&self, call: &Call) -> FileAt {
        FileAt::new(self.folder.join(call.key())).beside(self.folder.join("mounted"))
    }
}

impl Tool for Export {
    const NAME: &'static str = "export";
    type Effect = effect::InternalMutation;
    type Contract = contract::WithLookup<contract::NaturalKey>;
    type Input = Sent;
    type Output = u64;

    fn key(&self, sent: &Sent) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&sent.text))
    }

    fn contract(&self) -> Contract {
        <Self::Contract as contract::Contract>::declaration().sight(&FileAt::SIGHT)
    }

    fn retry(&self) -> counterfoil::ledger::RetryPolicy {
        brief()
    }

    async fn call(&self, call: &Call, sent: &Sent) -> Result<Done<u64>, ToolError> {
        let file = self.file(call);
        let done = self.faults.around(file.create(sent.text.clone())).await?;
        Ok(done.map(|file| file.len))
    }
}

impl Reconcile for Export {
    async fn reconcile(&self, call: &Call, sent: &Sent) -> Result<LookupResult<u64>, ToolError> {
        self.file(call).find(Sha256::of(&sent.text), |written| written.len).await
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// R-EXE-10: an export whose end nobody saw.
#[tokio::test]
async fn an_export_is_found_or_made_once_more() {
    for (cut, sends, basis) in
        [(Cut::AfterEffect, 1, Basis::Lookup), (Cut::BeforeEffect, 2, Basis::Declaration)]
    {
        let (folder, faults) = (tempfile::tempdir().unwrap(), Faults::new(cut));
        fs::write(folder.path().join("mounted"), "").unwrap();
        let export = Export { folder: folder.path().into(), faults: faults.clone() };
        let (outcome, _) = faults.outcome(export).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!((faults.sends(), answer.basis), (sends, basis), "{cut:?}");
        let names = names(folder.path());
        assert_eq!(names.len(), 2, "the export, and nothing left beside it: {names:?}");
        assert_eq!(fs::read_to_string(folder.path().join(&names[0])).unwrap(), Sent::new().text, "{cut:?}");
    }
}

async fn find(file: &FileAt) -> Result<LookupResult<u64>, ToolError> {
    file.find(Sha256::of("content"), |written| written.len).await
}

#[tokio::test]
async fn a_file_is_there_missing_or_unclear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/report");
    let file = FileAt::new(&path);
    assert_eq!(find(&file).await.unwrap(), LookupResult::NotFound, "not even its folder");
    fs::create_dir(folder.path().join("deep")).unwrap();
    assert_eq!(find(&file).await.unwrap(), LookupResult::NotFound);
    for other in ["cont", "", "another"] {
        fs::write(&path, other).unwrap();
        assert!(matches!(find(&file).await.unwrap(), LookupResult::Foreign { .. }), "{other:?}");
    }
    fs::write(&path, "content").unwrap();
    let external_ref = Some(format!("sha256:{}", Sha256::of("content")));
    assert_eq!(find(&file).await.unwrap(), LookupResult::Committed { output: 7, external_ref });
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert!(find(&file).await.is_err(), "a link that leads nowhere");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(find(&file).await.is_err(), "a folder");
    assert!(find(&FileAt::new(path.join("file/below"))).await.is_ok());
    fs::write(path.join("file"), "").unwrap();
    assert!(find(&FileAt::new(path.join("file/below"))).await.is_err(), "below a file");
}

#[tokio::test]
async fn an_empty_mount_point_is_no_miss() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileAt::new(folder.path().join("report")).beside(folder.path().join("mounted"));
    assert!(find(&file).await.is_err());
    fs::write(folder.path().join("mounted"), "").unwrap();
    assert_eq!(find(&file).await.unwrap(), LookupResult::NotFound);
}

#[tokio::test]
async fn of_many_writers_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileAt::new(folder.path().join("report"));
    let write = |n: usize| {
        let file = file.clone();
        tokio::spawn(async move { file.create(format!("{n}").repeat(100_000)).await })
    };
    let writers: Vec<_> = (0..8).map(write).collect();
    let mut written = Vec::new();
    for writer in writers {
        match writer.await.unwrap() {
            Ok(done) => written.push(done.output.digest),
            Err(error) => assert_eq!(error.kind, ErrorKind::Duplicate, "{error}"),
        }
    }
    assert_eq!(written.len(), 1);
    assert_eq!(Sha256::of(fs::read(folder.path().join("report")).unwrap()), written[0]);
    assert_eq!(names(folder.path()), ["report"]);
}

/// Where the other process writes.
const PATH: &str = "COUNTERFOIL_TEST_FILE";

// A process that is killed between its temporary file and the link leaves that file; the next process removes it. What a living
// writer holds, and what has another name, stays.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn temporary_files_of_killed_writers_go_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report");
    let died = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=linkat", "-e", "inject=linkat:signal=KILL", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tool::lookup::file::the_writer_that_is_killed", "--ignored"])
        .env(PATH, &path)
        .output()
        .expect("strace is missing: apt-get install strace");
    assert!(!died.status.success(), "{died:?}");
    let left = names(folder.path());
    let (own, others): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|name| name.starts_with(".counterfoil-"));
    assert_eq!(own.len(), 1, "{others:?}");

    let held = folder.path().join(".counterfoil-1-1.tmp");
    let living = fs::File::create(&held).unwrap();
    living.lock().unwrap();
    for foreign in [".counterfoil-notes.tmp", ".counterfoil-1-1.tmp.bak", "1-1.tmp"] {
        fs::write(folder.path().join(foreign), "").unwrap();
    }
    let found = FileAt::new(&path).find(Sha256::of("content"), |_| ()).await.unwrap();
    assert_eq!(found == LookupResult::NotFound, others.is_empty(), "killed before the link, or behind it");
    let left = names(folder.path());
    assert!(!left.contains(&own[0]), "{left:?}");
    assert_eq!(left.len(), 4 + others.len(), "{left:?}");
    drop(living);
}

#[tokio::test]
#[ignore = "a part of `temporary_files_of_killed_writers_go_at_the_next_start`, which runs it in a process of its own"]
async fn the_writer_that_is_killed() {
    let Ok(path) = std::env::var(PATH) else { return };
    let _ = FileAt::new(path).create("content").await;
}
