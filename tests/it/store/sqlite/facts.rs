//! The driver's facts that would lose writes silently (DEPENDENCIES.md, 0), each with what keeps it away.

use counterfoil::payload::{Payload, PayloadError};
use counterfoil::store::Store;
use counterfoil::store::conformance::sample::Sample;
use serde_json::json;

use super::{Folder, number, plain, run, sources};

/// Fact 1: `fetch_one` and `fetch_optional` hide a commit that fails after the first row. So they only read.
#[test]
fn fact_1_only_reads_are_fetched() {
    for (file, text) in sources() {
        assert!(!text.contains("RETURNING"), "{file}: a write that gives rows invites to fetch them");
        for statement in text.split("sqlx::query").skip(1) {
            let statement = statement.split(';').next().unwrap();
            let writes = ["INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE"]
                .iter()
                .any(|verb| statement.contains(verb));
            assert!(!(writes && statement.contains("fetch")), "{file}: write with `execute`: {statement}");
        }
    }
}

/// Fact 1: a commit that fails is told, whichever way it was written, and nothing of it is there.
#[tokio::test]
async fn fact_1_a_failed_commit_is_reported() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = plain(&folder.database()).await;
    // A foreign key that is looked at when the transaction ends: every statement succeeds, COMMIT does not.
    run(
        &mut other,
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER spoil AFTER INSERT ON step BEGIN INSERT INTO child VALUES (7); END",
    )
    .await;
    let (owner, taken) = (sample.run("a"), sample.record("taken"));
    store.commit(&[sample.change().record(taken)]).await.unwrap();
    let step = sample.change().step(sample.step(&owner, "1"));
    let one_table = vec![step.clone()];
    let two_tables = vec![step.clone().run(owner.clone())];
    let judged = vec![step.run(owner.clone()), sample.change().record(sample.record("taken"))];
    for (how, batch) in [("one table", one_table), ("two tables", two_tables), ("judged", judged)] {
        let result = store.commit(&batch).await;
        assert!(result.is_err(), "{how}: {result:?}");
        assert_eq!(number(&mut other, "SELECT count(*) FROM step").await, 0, "{how}");
        assert_eq!(number(&mut other, "SELECT count(*) FROM run").await, 0, "{how}");
    }
    run(&mut other, "DROP TRIGGER spoil").await;
    store.commit(&[sample.change().step(sample.step(&owner, "1"))]).await.unwrap();
    assert_eq!(number(&mut other, "SELECT count(*) FROM step").await, 1, "and the store goes on");
}

/// Facts 2 and 3: a transaction inside a transaction, and a commit of one that was aborted, lose writes without a
/// word. The store writes BEGIN and COMMIT itself, and never uses the driver's transactions.
#[test]
fn facts_2_and_3_the_drivers_transactions_are_not_used() {
    for (file, text) in sources() {
        for word in [".begin(", "begin_with", "sqlx::Transaction", "Transaction<'", "Acquire"] {
            assert!(!text.contains(word), "{file} uses {word}");
        }
    }
}

/// Fact 5: below 3.51.3 two connections that checkpoint at once can corrupt the file.
#[tokio::test]
async fn fact_5_the_library_is_safe() {
    let folder = Folder::new();
    let mut connection = plain(&folder.database()).await;
    let version: String =
        sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await.unwrap();
    let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert!(parts >= vec![3, 51, 3], "SQLite {version}");
}

/// What makes a commit durable is set on the connection that writes, and WAL is on.
#[tokio::test]
async fn the_file_is_in_wal_mode() {
    let folder = Folder::new();
    let _store = folder.open().await;
    let mut other = plain(&folder.database()).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut other).await.unwrap();
    assert_eq!(mode, "wal");
}

/// Fact 7: RFC 8785 rounds integers beyond 2^53, and two different requests would hash alike.
#[test]
fn fact_7_inexact_integers_are_refused() {
    let refused = Payload::of(&json!({ "cents": 9_007_199_254_740_993_u64 }));
    assert!(matches!(refused, Err(PayloadError::InexactInteger { .. })), "{refused:?}");
}
