//! The driver's facts that would lose writes silently (DEPENDENCIES.md, 0), each with what keeps it away; and what the
//! server's log is told.

use counterfoil::store::conformance::cancel::drop_after;
use counterfoil::store::conformance::sample::{self, Sample, answered};
use counterfoil::store::postgres::Postgres;
use counterfoil::store::{Store, Turns, Verdict};

use super::proxy::Proxy;
use super::{Schema, number, sources};

/// Facts 2 and 3: a transaction inside a transaction, and a commit of one that was aborted, lose writes without a
/// word; fact 4: a `begin` that is dropped poisons its connection. The store writes BEGIN and COMMIT itself, and never
/// uses the driver's transactions or its pool.
#[test]
fn facts_2_to_4_the_drivers_transactions_are_not_used() {
    for (file, text) in sources() {
        for word in [
            ".begin(",
            "begin_with",
            "sqlx::Transaction",
            "Transaction<'",
            "sqlx::Acquire",
            "Acquire as _",
            "PgPool,",
        ] {
            assert!(!text.contains(word), "{file} uses {word}");
        }
        // The driver's listener asks for a pool. Nothing else may.
        assert!(!text.contains("PgPoolOptions") || file == "listen.rs", "{file} uses the driver's pool");
    }
}

/// Fact 3: COMMIT of a transaction that was aborted is answered as if it had been made. No path leads there: an error
/// of any statement ends the judgement, and is never passed over.
#[tokio::test]
async fn fact_3_an_aborted_commit_is_never_taken_for_one() {
    let schema = Schema::new();
    let store = schema.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    store.commit(&[sample.change().record(sample.record("taken"))]).await.unwrap();
    let mut other = schema.plain().await;
    // Fails what is written after a savepoint, for a reason that is no verdict.
    super::run(
        &mut other,
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'spoilt' USING ERRCODE = 'XX000'; END $$; \
         CREATE TRIGGER spoil BEFORE INSERT ON step FOR EACH ROW EXECUTE FUNCTION spoil()",
    )
    .await;
    let owner = sample.run("a");
    let spoilt = sample.change().run(owner.clone()).step(sample.step(&owner, "1"));
    let judged = [
        sample.change().record(sample.record("new")),
        sample.change().record(sample.record("taken")),
        spoilt.clone(),
    ];
    for batch in [&judged[..], &[spoilt]] {
        let result = store.commit(batch).await;
        assert!(result.is_err(), "{result:?}");
        assert_eq!(number(&mut other, "SELECT count(*) FROM record").await, 1);
        assert_eq!(number(&mut other, "SELECT count(*) FROM run").await, 0);
    }
    super::run(&mut other, "DROP TRIGGER spoil ON step").await;
    let verdicts = store.commit(&judged).await.unwrap();
    assert_eq!(verdicts.iter().filter(|verdict| verdict.is_admitted()).count(), 2, "and the store goes on");
}

/// Fact 4: whatever is dropped, wherever it was, what is answered as committed afterwards is there for others.
#[tokio::test]
async fn fact_4_a_dropped_future_leaves_nothing_open() {
    let schema = Schema::new();
    let store = schema.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = schema.plain().await;
    store.commit(&[sample.change().record(sample.record("taken"))]).await.unwrap();
    for polls in 1..40 {
        let dropped = [
            sample.change().record(sample.record(&format!("dropped {polls}"))),
            sample.change().record(sample.record("taken")),
        ];
        drop(drop_after(store.commit(&dropped), polls).await);
        drop(drop_after(store.run_history(&sample.tenant, counterfoil::RunId(1), Turns::ALL), polls).await);
        let record = sample.record(&format!("after {polls}"));
        let verdicts = store.commit(&[sample.change().record(record.clone())]).await.unwrap();
        assert_eq!(verdicts, [Verdict::Admitted]);
        let there = format!("SELECT count(*) FROM record WHERE id = {}", record.id.0);
        assert_eq!(number(&mut other, there).await, 1, "after {polls} polls");
    }
}

/// The server writes each error into its log: a row that violates a constraint with all its columns, a key that is
/// taken with its text. A change that is refused must tell it nothing of what it holds.
#[tokio::test]
async fn a_refusal_tells_the_servers_log_nothing() {
    let (schema, proxy) = (Schema::new(), Proxy::new().await);
    let store = Postgres::open_with(&proxy.url(), schema.options()).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let (record, owner, question) =
        (sample.record("secret"), sample.run("secret"), sample.escalation("secret"));
    let step = sample.step(&owner, "secret");
    let change = sample.change().record(record.clone()).run(owner.clone()).step(step.clone());
    store.commit(&[change.escalation(question.clone())]).await.unwrap();
    let other = sample.run("other");
    let secret = sample::inline(serde_json::json!("secret"));
    let stale = counterfoil::store::Run { revision: 7, ..owner.clone() };
    let old = counterfoil::ledger::Record { revision: 9, ..sample.committed(&record) };
    let nowhere = counterfoil::ledger::Record { revision: 2, ..sample.record("secret nowhere") };
    let refused = [
        sample.change().record(sample.record("secret")),
        sample.change().record(old),
        sample.change().record(nowhere),
        sample.change().run(sample.run("secret")),
        sample.change().run(stale),
        sample.change().step(counterfoil::store::Step { value: Some(secret), ..step }),
        sample.change().escalation(question.clone()).step(sample.step(&other, "1")),
        sample.change().escalation(answered(&sample.escalation("nobody asked"), "secret")),
        counterfoil::store::Change {
            fence: Some(counterfoil::Fence(999)),
            ..sample.change().record(sample.record("secret 2"))
        },
    ];
    // The question alone would be the same again.
    let refused = refused.map(|change| {
        let mut change = change;
        for escalation in &mut change.escalations {
            if escalation.id == question.id {
                escalation.question = "secret, too".into();
            }
        }
        change
    });
    for change in &refused {
        let alone = store.commit(std::slice::from_ref(change)).await.unwrap();
        assert!(!alone[0].is_admitted(), "{change:?}");
    }
    let verdicts = store.commit(&refused).await.unwrap();
    assert!(verdicts.iter().all(|verdict| !verdict.is_admitted()), "{verdicts:?}");
    let errors: Vec<_> = proxy.heard().iter().flat_map(|bytes| errors(bytes)).collect();
    assert!(errors.len() > 5, "{errors:?}");
    for error in errors {
        assert!(error.contains("C22012"), "no other error than the division: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// The error messages in what a server said (postgresql.org/docs/current/protocol-message-formats.html).
fn errors(mut bytes: &[u8]) -> Vec<String> {
    let mut errors = Vec::new();
    while let [kind, a, b, c, d, ..] = *bytes {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(message) = bytes.get(5..=length) else { break };
        if kind == b'E' {
            errors.push(String::from_utf8_lossy(message).replace('\0', " "));
        }
        bytes = &bytes[length + 1..];
    }
    errors
}
