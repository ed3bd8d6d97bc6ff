//! What is refused when a database is opened, and what several processes do that open it at once.

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::postgres::{self, Options, Postgres};
use counterfoil::store::{OpenError, Store, StoreError, Verdict, Worker};
use counterfoil::{RunId, Timestamp};

use super::proxy::{Proxy, url_of};
use super::{Schema, number, run, url};

async fn refused(url: &str, options: Options) -> OpenError {
    match Postgres::open_with(url, options).await {
        Err(StoreError::Open(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn latest() -> i64 {
    postgres::migrations().map(|(number, ..)| number).max().unwrap()
}

#[tokio::test]
async fn a_database_from_the_future_is_refused() {
    let schema = Schema::new();
    drop(schema.open().await);
    let mut other = schema.plain().await;
    let (next, needs) = (latest() + 1, latest() + 1);
    run(&mut other, format!("INSERT INTO migration VALUES ({next}, 'later', 'unknown', {needs})")).await;
    let error = refused(&url(), schema.options()).await;
    let expected =
        matches!(error, OpenError::FromTheFuture { found, known, .. } if (found, known) == (next, latest()));
    assert!(expected, "{error}");
    assert_eq!(number(&mut other, "SELECT count(*) FROM migration").await, next, "left as it was");
}

/// SCALE-6: during an update, workers of this version go on beside those of the next one, if its migration says that
/// they can: one that added a column and a table here.
#[tokio::test]
async fn a_database_one_migration_ahead_is_worked_on() {
    let schema = Schema::new();
    let before = schema.open().await;
    let sample = Sample::enrol(&before, "ann").await;
    let mut other = schema.plain().await;
    let (next, works_from) = (latest() + 1, latest());
    run(
        &mut other,
        format!(
            "INSERT INTO migration VALUES ({next}, 'later', 'unknown', {works_from}); \
             ALTER TABLE record ADD COLUMN later TEXT; ALTER TABLE run ADD COLUMN later BIGINT DEFAULT 7; \
             CREATE TABLE later (tenant TEXT PRIMARY KEY)"
        ),
    )
    .await;
    let after = schema.open().await;
    for (store, name) in [(&before, "before"), (&after, "after")] {
        let (record, owner) = (sample.record(name), sample.run(name));
        store.commit(&[sample.change().record(record.clone()).run(owner.clone())]).await.unwrap();
        run(&mut other, format!("UPDATE record SET later = 'kept' WHERE id = {}", record.id.0)).await;
        let committed = sample.committed(&record);
        store.commit(&[sample.change().record(committed.clone())]).await.unwrap();
        assert_eq!(after.record_at(&sample.tenant, record.id).await.unwrap(), Some(committed));
        assert_eq!(before.run_find(&sample.tenant, owner.id).await.unwrap(), Some(owner));
    }
    assert_eq!(
        number(&mut other, "SELECT count(*) FROM record WHERE later = 'kept'").await,
        2,
        "not its own"
    );
}

/// SCALE-6: a database of an earlier version is brought up to date, and what its workers and records did not say stays unsaid.
#[tokio::test]
async fn a_database_of_an_earlier_version_is_migrated() {
    let schema = Schema::new();
    let store = schema.open().await;
    let sample = Sample::enrol(&store, "before").await;
    let (record, old, mut new) = (sample.record("a"), sample.run("old"), sample.run("new"));
    let change = sample.change().record(record.clone()).run(old.clone());
    assert_eq!(store.commit(&[change]).await.unwrap(), [Verdict::Admitted]);
    drop(store);
    let mut other = schema.plain().await;
    let before = "DROP VIEW runs, calls, open_questions, attempts; ALTER TABLE worker DROP COLUMN version; ALTER TABLE record DROP COLUMN sealed_at; \
                  ALTER TABLE record DROP COLUMN approval; ALTER TABLE record DROP COLUMN scopes; ALTER TABLE record DROP COLUMN cost; ALTER TABLE run DROP COLUMN deadline; \
                  DROP INDEX run_state; DROP TABLE contact; DROP TABLE run_label; DROP TABLE record_label; DROP TABLE link; DROP INDEX signal_over; ALTER TABLE run DROP COLUMN traceparent; DROP TABLE published; DROP INDEX run_over; DROP INDEX escalation_settled; DROP INDEX inbox_over; \
                  DROP INDEX evidence_at; DROP INDEX use_at; DROP INDEX escalation_opened; \
                  DELETE FROM migration WHERE number >= 9";
    run(&mut other, before.to_owned()).await;
    let store = schema.open().await;
    Sample::enrol(&store, "after").await;
    assert_eq!(store.record_at(&record.tenant, record.id).await.unwrap(), Some(record));
    new.deadline = Some(Timestamp(70));
    assert_eq!(store.commit(&[sample.change().run(new.clone())]).await.unwrap(), [Verdict::Admitted]);
    assert_eq!(store.run_list(&sample.tenant, RunId(0), 10).await.unwrap(), [old, new]);
    for (name, version) in [("before", None), ("after", Some(Worker::VERSION))] {
        let worker = store.worker_find(name).await.unwrap().unwrap();
        assert_eq!(worker.version.as_deref(), version, "{name}");
        assert!(store.pulse().await.unwrap().workers.contains(&worker), "{name}");
    }
}

#[tokio::test]
async fn the_tables_of_something_else_are_refused() {
    for spoil in
        ["UPDATE migration SET name = 'theirs' WHERE number = 1", "UPDATE migration SET digest = 'x'"]
    {
        let schema = Schema::new();
        drop(schema.open().await);
        run(&mut schema.plain().await, spoil).await;
        let error = refused(&url(), schema.options()).await;
        assert!(matches!(error, OpenError::Strange { .. }), "{spoil}: {error}");
    }
    let schema = Schema::new();
    let mut other = schema.plain().await;
    let table = "CREATE TABLE migration (theirs BIGINT); CREATE TABLE run (theirs BIGINT)";
    run(&mut other, format!("CREATE SCHEMA {}; {table}", schema.name())).await;
    let error = refused(&url(), schema.options()).await;
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert_eq!(number(&mut other, "SELECT count(*) FROM run").await, 0, "left as it was");
}

/// Whoever comes first makes each migration; nobody fails for having come at the same time.
#[tokio::test]
async fn many_open_a_new_database_at_once() {
    for _ in 0..3 {
        let schema = Schema::new();
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let options = Options { readers: 1, ..schema.options() };
                tokio::spawn(async move { Postgres::open_with(&url(), options).await })
            })
            .collect();
        for store in opening {
            store.await.unwrap().unwrap();
        }
        assert_eq!(number(&mut schema.plain().await, "SELECT count(*) FROM migration").await, latest());
    }
}

/// A commit that is answered before it is on disk may be lost, and an effect be made again.
#[tokio::test]
async fn weak_durability_is_refused_unless_it_was_asked_for() {
    let proxy = Proxy::new().await;
    for (setting, weak) in
        [("off", true), ("local", true), ("remote_write", true), ("on", false), ("remote_apply", false)]
    {
        let schema = Schema::new();
        let url = format!("{}&options=-c%20synchronous_commit%3D{setting}", proxy.url());
        if weak {
            let error = refused(&url, schema.options()).await;
            assert!(matches!(&error, OpenError::WeakDurability { found, .. } if found == setting), "{error}");
            assert!(error.to_string().contains("may be lost"), "{error}");
        }
        let allowed = Options { allow_async_commit: weak, ..schema.options() };
        let store = Postgres::open_with(&url, allowed).await.unwrap();
        Sample::enrol(&store, "ann").await;
    }
}

/// A URL of several hosts promises that another one can take over: it must not lack what was committed.
#[tokio::test]
async fn standbys_that_lag_behind_are_refused_unless_they_were_asked_for() {
    let (schema, one, two) = (Schema::new(), Proxy::new().await, Proxy::new().await);
    let url = url_of(&[&one, &two]);
    let error = refused(&url, schema.options()).await;
    assert!(matches!(error, OpenError::AsynchronousStandby { .. }), "{error}");
    assert!(error.to_string().contains("may be lost"), "{error}");
    let allowed = Options { allow_async_standby: true, ..schema.options() };
    Postgres::open_with(&url, allowed).await.unwrap();
}

/// The next host is asked when one is gone, at the beginning and later on.
#[tokio::test]
async fn any_of_several_hosts_will_do() {
    let (schema, one, two) = (Schema::new(), Proxy::new().await, Proxy::new().await);
    one.refuse(true);
    let options = Options { allow_async_standby: true, ..schema.options() };
    let store = Postgres::open_with(&url_of(&[&one, &two]), options).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    assert_eq!(one.accepted(), 0);
    for (round, (up, down)) in [(&one, &two), (&two, &one), (&one, &two)].into_iter().enumerate() {
        up.refuse(false);
        down.refuse(true);
        let record = sample.record(&round.to_string());
        let verdicts = store.commit(&[sample.change().record(record.clone())]).await.unwrap();
        assert!(verdicts[0].is_admitted(), "round {round}");
        assert_eq!(
            store.record_find(&sample.tenant, &record.key).await.unwrap(),
            Some(record),
            "round {round}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let schema = Schema::new();
    let quick = Options { retry_for: std::time::Duration::ZERO, ..schema.options() };
    let error = refused("postgres://ann:secret@127.0.0.1:1/ledger", quick).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1/ledger") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_schema_has_a_plain_name() {
    for name in ["", "1a", "Big", "a b", "a\"b", "a'; DROP SCHEMA public; --", &"x".repeat(64)] {
        let options = Options { schema: Some(name.to_owned()), ..Options::default() };
        let error = refused(&url(), options).await;
        assert!(matches!(error, OpenError::Unusable { .. }), "{name:?}: {error}");
    }
}

/// The store's own sessions decide what isolation they have, whatever the role was given.
#[tokio::test]
async fn the_roles_isolation_does_not_matter() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let url = format!("{}&options=-c%20default_transaction_isolation%3Dserializable", proxy.url());
    let store = Postgres::open_with(&url, schema.options()).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let record = sample.record("a");
    let batch = [sample.change().record(record.clone()), sample.change().record(sample.record("a"))];
    assert!(store.commit(&batch).await.unwrap()[0].is_admitted());
    store.close().await;
    assert!(matches!(store.commit(&batch).await, Err(StoreError::Closed)));
    assert!(matches!(store.record_at(&sample.tenant, record.id).await, Err(StoreError::Closed)));
}
