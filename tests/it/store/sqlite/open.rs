//! What is refused when a database is opened, and that it is left as it was.

use std::path::Path;

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::sqlite::{self, Sqlite};
use counterfoil::store::{OpenError, Store, StoreError, Verdict, Worker};
use counterfoil::{RunId, Timestamp};
use sqlx::Executor as _;

use super::{Folder, number, plain, run};

async fn refused(path: &Path) -> OpenError {
    match Sqlite::open(path).await {
        Err(StoreError::Open(error)) => error,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[tokio::test]
async fn a_database_from_the_future_is_refused() {
    let folder = Folder::new();
    drop(folder.open().await);
    let mut other = plain(&folder.database()).await;
    run(&mut other, "PRAGMA user_version = 999").await;
    let error = refused(&folder.database()).await;
    let known = sqlite::migrations().map(|(number, ..)| number).max().unwrap();
    assert!(matches!(error, OpenError::FromTheFuture { found: 999, known: k, .. } if k == known), "{error}");
    assert_eq!(number(&mut other, "PRAGMA user_version").await, 999, "left as it was");
}

/// SCALE-6: a file of an earlier version is brought up to date, and what its workers and records did not say stays unsaid.
#[tokio::test]
async fn a_file_of_an_earlier_version_is_migrated() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "before").await;
    let (record, old, mut new) = (sample.record("a"), sample.run("old"), sample.run("new"));
    let change = sample.change().record(record.clone()).run(old.clone());
    assert_eq!(store.commit(&[change]).await.unwrap(), [Verdict::Admitted]);
    drop(store);
    let mut other = plain(&folder.database()).await;
    let before = "DROP VIEW runs; DROP VIEW calls; DROP VIEW open_questions; DROP VIEW attempts; ALTER TABLE worker DROP COLUMN version; ALTER TABLE record DROP COLUMN sealed_at; \
                  ALTER TABLE record DROP COLUMN approval; ALTER TABLE record DROP COLUMN scopes; ALTER TABLE record DROP COLUMN cost; DROP INDEX run_deadline; ALTER TABLE run DROP COLUMN deadline; \
                  DROP INDEX run_state; DROP TABLE contact; DROP TABLE run_label; DROP TABLE record_label; DROP TABLE link; DROP INDEX signal_over; ALTER TABLE run DROP COLUMN traceparent; DROP TABLE published; DROP INDEX run_over; DROP INDEX escalation_settled; DROP INDEX inbox_over; \
                  DROP INDEX evidence_at; DROP INDEX use_at; DROP INDEX escalation_opened; \
                  DELETE FROM _counterfoil_migrations WHERE version >= 9; PRAGMA user_version = 8";
    run(&mut other, before).await;
    drop(other);
    let store = folder.open().await;
    Sample::enrol(&store, "after").await;
    assert_eq!(store.record_at(&record.tenant, record.id).await.unwrap(), Some(record));
    new.deadline = Some(Timestamp(70));
    assert_eq!(store.commit(&[sample.change().run(new.clone())]).await.unwrap(), [Verdict::Admitted]);
    assert_eq!(store.run_list(&sample.tenant, RunId(0), 10).await.unwrap(), [old, new]);
    for (name, version) in [("before", None), ("after", Some(Worker::VERSION))] {
        let worker = store.worker_find(name).await.unwrap().unwrap();
        assert_eq!(worker.version.as_deref(), version, "{name}");
    }
}

#[tokio::test]
async fn the_database_of_another_application_is_refused() {
    let told_by = ["PRAGMA application_id = 7", "CREATE TABLE theirs (a)"];
    for sql in told_by {
        let folder = Folder::new();
        let mut other = plain(&folder.database()).await;
        run(&mut other, sql).await;
        let before = std::fs::read(folder.database()).unwrap();
        let error = refused(&folder.database()).await;
        assert!(matches!(error, OpenError::Foreign { .. }), "{sql}: {error}");
        assert_eq!(std::fs::read(folder.database()).unwrap(), before, "{sql}: left as it was");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let noise: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in [noise, b"not a database, but a letter\n".repeat(500), b"SQLite format 3\0".to_vec()] {
        let folder = Folder::new();
        std::fs::write(folder.database(), &bytes).unwrap();
        let error = refused(&folder.database()).await;
        assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
        assert_eq!(std::fs::read(folder.database()).unwrap(), bytes, "left as it was");
    }
}

#[tokio::test]
async fn a_place_without_a_file_is_said_to_be_so() {
    let folder = Folder::new();
    let error = refused(&folder.0.path().join("nowhere/test.db")).await;
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
    std::fs::create_dir(folder.0.path().join("folder.db")).unwrap();
    let error = refused(&folder.0.path().join("folder.db")).await;
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let folder = Folder::new();
    std::fs::write(folder.database(), b"").unwrap();
    Sample::enrol(&folder.open().await, "ann").await;
}

/// The name is a name, not a URI with parameters.
#[tokio::test]
async fn a_hostile_name_is_a_name() {
    for name in [
        "a b.db",
        "a?mode=memory.db",
        "a#b.db",
        "a%20b.db",
        "é👩.db",
        "file:a.db",
        ":memory:",
        "-.db",
        "'\".db",
    ] {
        let folder = Folder::new();
        let path = folder.0.path().join(name);
        let store = Sqlite::open(&path).await.unwrap();
        Sample::enrol(&store, "ann").await;
        assert!(path.metadata().unwrap().len() > 0, "{name} is not where it should be");
        drop(store);
        assert!(Sqlite::open(&path).await.unwrap().worker_find("ann").await.unwrap().is_some(), "{name}");
    }
}

/// A crash between two migrations, or before the first, is resumed at the next start.
#[tokio::test]
async fn interrupted_migrations_are_resumed() {
    let count = sqlite::migrations().count();
    for done in 0..=count {
        let folder = Folder::new();
        drop(folder.open().await);
        let mut other = plain(&folder.database()).await;
        // As it was when only so many were done: the tables and columns of the others are gone.
        run(&mut other, "PRAGMA foreign_keys = OFF; PRAGMA user_version = 0").await;
        let undone: Vec<_> = sqlite::migrations().skip(done).collect();
        for (number, _, sql) in undone.iter().rev() {
            for view in sql.lines().filter_map(|line| line.strip_prefix("CREATE VIEW ")) {
                run(&mut other, format!("DROP VIEW {}", view.split(' ').next().unwrap())).await;
            }
            for index in sql.lines().filter_map(|line| line.strip_prefix("CREATE INDEX ")) {
                let index = index.split(' ').next().unwrap();
                run(&mut other, format!("DROP INDEX IF EXISTS {index}")).await; // gone with its table otherwise
            }
            for added in sql.lines().filter(|line| line.starts_with("ALTER TABLE ")) {
                let (table, column) = added.split_once(" ADD COLUMN ").unwrap();
                let column = column.split(' ').next().unwrap();
                run(&mut other, format!("{table} DROP COLUMN {column}")).await;
            }
            for table in sql.lines().filter_map(|line| line.strip_prefix("CREATE TABLE ")) {
                run(&mut other, format!("DROP TABLE {}", table.trim_end_matches(" ("))).await;
            }
            run(&mut other, format!("DELETE FROM _counterfoil_migrations WHERE version = {number}")).await;
        }
        if done == 0 {
            run(&mut other, "DROP TABLE _counterfoil_migrations").await;
        }
        let store = folder.open().await;
        Sample::enrol(&store, "ann").await;
        let known = sqlite::migrations().map(|(number, ..)| number).max().unwrap();
        assert_eq!(number(&mut other, "PRAGMA user_version").await, known, "after {done} of {count}");
        assert_eq!(number(&mut other, "SELECT count(*) FROM _counterfoil_migrations").await, known);
    }
}

/// Someone else's long write is waited for, and told if it does not end.
#[tokio::test]
async fn a_file_that_is_locked_is_busy() {
    let folder = Folder::new();
    let options =
        sqlite::Options { busy_timeout: std::time::Duration::from_millis(20), ..sqlite::Options::default() };
    let store = Sqlite::open_with(folder.database(), options).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let mut backup = plain(&folder.database()).await;
    backup.execute("BEGIN IMMEDIATE").await.unwrap();
    let (one, run) = (sample.record("one"), sample.run("a"));
    for batch in [
        vec![sample.change().record(one.clone())],
        vec![sample.change().record(one.clone()).run(run.clone())],
        vec![sample.change()],
    ] {
        let result = store.commit(&batch).await;
        assert!(
            matches!(&result, Err(error @ StoreError::Busy { .. }) if error.is_transient()),
            "{result:?}"
        );
    }
    backup.execute("COMMIT").await.unwrap();
    assert_eq!(store.record_at(&sample.tenant, one.id).await.unwrap(), None);
    assert!(store.commit(&[sample.change().record(one).run(run)]).await.unwrap()[0].is_admitted());
}
