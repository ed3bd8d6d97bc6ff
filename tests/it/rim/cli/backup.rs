//! Copies of a SQLite ledger, and what follows when one takes its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use counterfoil::Failure;
use counterfoil::flow::WorkflowFn;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};

use super::{Line, program};
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::{Bill, Pay};
use crate::flow::world::{Process, World};

/// A world with a ledger in a file, and the folder of its copies.
struct Scene {
    world: Arc<World>,
    whole: Line,
    copies: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let whole = Line::at(&Place::File, &world).whole();
        Self { world, whole, copies: tempfile::tempdir().unwrap() }
    }

    fn copy(&self, name: &str) -> PathBuf {
        self.copies.path().join(name)
    }

    fn pays(&self) -> impl WorkflowFn<Bill, u32> + Clone + use<> {
        let world = &self.world;
        flow!(world, |ctx, bill: Bill| ctx.call::<Pay>(bill).await)
    }

    fn start(&self) -> Process {
        Process::start(&self.world, self.world.engine().workflow("pays", 1, self.pays()))
    }

    fn pay(&self, process: &Process, reference: &str) -> Result<u32, Failure> {
        let run = process.acme().run(self.pays(), Bill::new(reference, 100));
        process.on(async { run.await.map_err(|error| Failure::new(error.to_string())) })
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn number(file: &Path, sql: &'static str) -> i64 {
    let mut connection = SqliteConnectOptions::new().filename(file).read_only(true).connect().await.unwrap();
    sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0)
}

#[test]
fn a_copy_beside_a_busy_engine_holds_one_moment_and_overwrites_nothing() {
    let scene = Scene::new();
    let process = scene.start();
    let busy = process.spawn({
        let (tenant, code) = (process.acme(), scene.pays());
        async move {
            for n in 0.. {
                tenant.run(code.clone(), Bill::new(&format!("bill {n}"), 1)).await.unwrap();
            }
        }
    });
    for n in 0..3 {
        let copy = scene.copy(&format!("{n}.db"));
        let told = scene.whole.json(&["backup", copy.to_str().unwrap()]).remove(0);
        assert_eq!(told["bytes"], json!(copy.metadata().unwrap().len()));
        assert!(told["as_of"].as_str().unwrap().ends_with('Z'), "{told}");
        process.on(async {
            assert_eq!(
                number(&copy, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'")
                    .await,
                0
            );
            let torn = "SELECT count(*) FROM run WHERE state = 3 AND NOT EXISTS (SELECT 1 FROM record \
                        WHERE record.run = run.id AND record.status = 2)";
            assert_eq!(number(&copy, torn).await, 0, "a run ended and its call did not");
        });
    }
    busy.abort();
    assert_eq!(names(scene.copies.path()), ["0.db", "1.db", "2.db"]);
    let before = fs::read(scene.copy("0.db")).unwrap();
    let refused = scene.whole.run(&["backup", scene.copy("0.db").to_str().unwrap()]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(error.contains("is there already: nothing was written"), "{error}");
    assert_eq!(fs::read(scene.copy("0.db")).unwrap(), before);
    process.shut_down();
}

/// A backup with a limit for the size of files: what a full disk does to it, or a kill in the middle.
fn limited(scene: &Scene, before: &str, copy: &Path) -> std::process::Output {
    let script = format!("{before} ulimit -f 100; exec \"$0\" backup \"$1\" --db \"$2\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_counterfoil")]);
    shell.arg(copy).arg(scene.world.path()).env_remove("COUNTERFOIL_DB").output().unwrap()
}

#[test]
fn a_copy_that_has_no_room_or_is_broken_off_leaves_nothing_under_its_name() {
    let scene = Scene::new();
    let process = scene.start();
    scene.pay(&process, "a").unwrap();
    let full = limited(&scene, "trap '' XFSZ;", &scene.copy("full.db"));
    let error = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1), "{error}");
    assert!(error.contains("was not written") && error.contains("no file has that name now"), "{error}");
    assert_eq!(names(scene.copies.path()), [] as [String; 0]);
    let killed = limited(&scene, "", &scene.copy("killed.db"));
    assert_eq!(killed.status.code(), None, "a signal ended it");
    assert!(names(scene.copies.path()).iter().all(|name| name.starts_with("killed.db.partial-")));
    scene.pay(&process, "b").unwrap();
    scene.whole.text(&["backup", scene.copy("killed.db").to_str().unwrap()]);
    process.shut_down();
}

#[test]
fn a_restored_ledger_looks_up_each_first_send_until_that_is_lifted() {
    let scene = Scene::new();
    let process = scene.start();
    scene.pay(&process, "before").unwrap();
    let copy = scene.copy("one.db");
    let copy = copy.to_str().unwrap();
    let told = scene.whole.json(&["backup", copy]).remove(0);
    let paid = scene.pay(&process, "after").unwrap();
    let refused = scene.whole.run(&["restore", copy]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(error.contains("belongs to another process that is alive"), "{error}");
    process.shut_down();

    let restored = scene.whole.json(&["restore", copy]).remove(0);
    assert_eq!(restored["as_of"], told["as_of"]);
    let replaced = PathBuf::from(restored["replaced"].as_str().unwrap());
    let process = scene.start();
    process.on(async {
        let pays = "SELECT count(*) FROM record WHERE operation = 'pay'";
        assert_eq!((number(&replaced, pays).await, number(&scene.world.path(), pays).await), (2, 1));
    });
    assert_eq!(scene.pay(&process, "after").unwrap(), paid, "the lookup shows the payment");
    assert_eq!(scene.world.effects("pay").len(), 2, "it was not paid twice");
    assert_eq!(scene.world.counted("pay looked up"), 1);
    process.shut_down();

    let path = format!("sqlite:{}", scene.world.path().display());
    let lifted =
        program(&["lift-restored", &path, "--by", "ann", "--because", "all is seen to"]).output().unwrap();
    assert!(lifted.status.success(), "{}", String::from_utf8_lossy(&lifted.stderr));
    let process = scene.start();
    scene.pay(&process, "new").unwrap();
    assert_eq!(scene.world.counted("pay looked up"), 1);
    process.shut_down();
}

/// A copy that was made without `counterfoil backup` does not say of which instant it is, even if the ledger was
/// restored before from one that did.
#[test]
fn a_second_restore_counts_as_one_and_is_not_of_the_instant_of_the_first() {
    let scene = Scene::new();
    let lift = || {
        let path = format!("sqlite:{}", scene.world.path().display());
        let lifted = program(&["lift-restored", &path, "--by", "ann", "--because", "all is seen to"])
            .output()
            .unwrap();
        assert!(lifted.status.success(), "{}", String::from_utf8_lossy(&lifted.stderr));
    };
    let first = scene.copy("first.db");
    scene.start().shut_down();
    scene.whole.text(&["backup", first.to_str().unwrap()]);
    scene.whole.text(&["restore", first.to_str().unwrap()]);
    lift();
    let process = scene.start();
    scene.pay(&process, "before").unwrap();
    process.shut_down();
    let second = scene.copy("second.db");
    fs::copy(scene.world.path(), &second).unwrap();
    let process = scene.start();
    let paid = scene.pay(&process, "after").unwrap();
    process.shut_down();

    let restored = scene.whole.json(&["restore", second.to_str().unwrap()]).remove(0);
    assert_eq!(restored["as_of"], json!(null), "nobody said of which instant the copy is");
    let process = scene.start();
    let in_force = process.on(process.engine().executor().restored()).unwrap();
    assert_eq!(in_force.expect("the second restore is noted").as_of, None);
    assert_eq!(scene.pay(&process, "after").unwrap(), paid, "the lookup shows the payment");
    assert_eq!(scene.world.effects("pay").len(), 2, "it was not paid twice");
    process.shut_down();
    lift();
}

#[test]
fn a_restore_that_was_broken_off_lets_no_engine_in_and_is_made_again() {
    let scene = Scene::new();
    let process = scene.start();
    scene.pay(&process, "a").unwrap();
    let copy = scene.copy("one.db");
    scene.whole.text(&["backup", copy.to_str().unwrap()]);
    process.shut_down();
    let ledger = scene.world.path();
    fs::hard_link(&ledger, ledger.with_extension("db.replaced-1")).unwrap();
    let engine = scene.world.engine().workflow("pays", 1, scene.pays());
    let refused = Process::try_start(&scene.world, engine).err().expect("it has two names");
    assert!(refused.to_string().contains("several names"), "{refused}");
    scene.whole.text(&["restore", copy.to_str().unwrap()]);
    scene.start().shut_down();
}

#[test]
fn what_is_no_copy_replaces_nothing() {
    let scene = Scene::new();
    scene.start().shut_down();
    let ledger = scene.world.path();
    let before = fs::read(&ledger).unwrap();
    let junk = scene.copy("junk.db");
    fs::write(&junk, "a letter to ann".repeat(1000)).unwrap();
    let other = scene.copy("other.db");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let options = SqliteConnectOptions::new().filename(&other).create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql("CREATE TABLE notes (text)").execute(&mut connection).await.unwrap();
    });
    for file in [junk, other, scene.copy("none.db")] {
        let refused = scene.whole.run(&["restore", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "{}", file.display());
    }
    assert_eq!(fs::read(&ledger).unwrap(), before);
    let around = names(ledger.parent().unwrap());
    assert!(around.iter().all(|name| !name.contains("partial") && !name.contains("replaced")), "{around:?}");
}

#[test]
fn a_ledger_is_restored_where_there_is_none() {
    let scene = Scene::new();
    let process = scene.start();
    scene.pay(&process, "a").unwrap();
    let copy = scene.copy("one.db");
    scene.whole.text(&["backup", copy.to_str().unwrap()]);
    process.shut_down();
    let elsewhere = World::new();
    let line = Line::at(&Place::File, &elsewhere).whole();
    let restored = line.json(&["restore", copy.to_str().unwrap()]).remove(0);
    assert_eq!(restored["replaced"], json!(null));
    Process::start(&elsewhere, elsewhere.engine().workflow("pays", 1, scene.pays())).shut_down();
}

#[test]
fn of_a_postgresql_database_the_tools_of_the_server_are_named() {
    let line = Line(vec!["--db".to_owned(), "postgres://nobody@127.0.0.1:1/none".to_owned()]);
    for (command, tool) in [("backup", "pg_dump"), ("restore", "pg_restore")] {
        let refused = line.run(&[command, "copy.db"]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(error.contains(tool) && error.contains("docs/backup.md"), "{error}");
    }
    assert!(!Path::new("copy.db").exists());
}
