//! The rules that keep the schema fit for a distributed PostgreSQL (DEPENDENCIES.md, 11), as far as a catalogue and
//! the statements show them. No such server was tried.

use counterfoil::store::Store;
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::postgres::Options;
use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use super::{Schema, number, sources};

/// Tables that are not about any tenant. In a queue tenants take turns.
pub(super) const OF_NO_TENANT: [&str; 4] = ["worker", "fence", "migration", "queue"];

async fn rows(connection: &mut PgConnection, sql: &'static str) -> Vec<(String, String)> {
    let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn the_tenant_comes_first_in_every_unique_key() {
    let schema = Schema::new();
    drop(schema.open().await);
    let mut connection = schema.plain().await;
    let keys = rows(
        &mut connection,
        "SELECT c.relname::text, a.attname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
         JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1 \
         WHERE c.relnamespace = current_schema()::regnamespace AND i.indisunique",
    )
    .await;
    assert!(keys.len() >= 12, "{keys:?}");
    for (table, first) in keys {
        // The links of a process are numbered, whatever tenants they are about.
        if !OF_NO_TENANT.contains(&table.as_str()) && table != "link" {
            assert_eq!(first, "tenant", "of {table}");
        }
    }
}

#[tokio::test]
async fn there_is_nothing_that_distributed_servers_lack() {
    let schema = Schema::new();
    drop(schema.open().await);
    let mut connection = schema.plain().await;
    let strange = rows(
        &mut connection,
        "SELECT 'relation', relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
         AND relkind NOT IN ('r', 'i', 'v') \
         UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE c.relnamespace = current_schema()::regnamespace \
         UNION ALL SELECT 'constraint', conname::text FROM pg_constraint \
         WHERE connamespace = current_schema()::regnamespace AND (contype NOT IN ('p', 'u', 'n') OR condeferrable) \
         UNION ALL SELECT 'function', proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace \
         UNION ALL SELECT 'type of ' || attname, format_type(atttypid, NULL) FROM pg_attribute a \
         JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = current_schema()::regnamespace \
         AND c.relkind = 'r' AND a.attnum > 0 \
         AND format_type(atttypid, NULL) NOT IN ('bigint', 'text', 'bytea', 'boolean')",
    )
    .await;
    assert_eq!(strange, []);
}

/// A collation of the operating system may change with an update of it, and a unique index no longer find what is
/// there.
#[tokio::test]
async fn text_in_keys_is_compared_by_bytes() {
    let schema = Schema::new();
    drop(schema.open().await);
    let mut connection = schema.plain().await;
    let others = rows(
        &mut connection,
        "SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
         JOIN pg_collation l ON l.oid = a.attcollation \
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 \
         AND l.collname <> 'C' AND c.relname <> 'migration'",
    )
    .await;
    assert_eq!(others, []);
}

/// Volatile functions in writes differ from node to node; advisory locks are unknown to some.
#[test]
fn no_write_calls_what_is_volatile() {
    let volatile = ["now()", "clock_timestamp", "random(", "gen_random", "nextval", "current_timestamp"];
    for sql in counterfoil::store::postgres::statements() {
        for word in volatile.into_iter().chain(["advisory"]) {
            assert!(!sql.contains(word), "{word} in {sql}");
        }
    }
    for (file, text) in sources() {
        for literal in crate::store::source::literals(&text).into_iter().map(|(_, text, _)| text) {
            let writes = ["INSERT", "UPDATE", "DELETE"].iter().any(|verb| literal.contains(verb));
            let calls = volatile.into_iter().find(|word| literal.contains(word));
            assert!(!writes || calls.is_none(), "{file}: {calls:?} in {literal}");
            // What a guest may have left is taken away, and nowhere else.
            assert!(!literal.contains("advisory") || file == "connect.rs", "{file}: {literal}");
        }
    }
}

/// Each transaction keeps to one tenant where the store is told that it must; otherwise a batch is one.
#[tokio::test]
async fn a_distributed_store_writes_one_tenant_at_a_time() {
    for (distributed, transactions) in [(false, 1), (true, 3)] {
        let schema = Schema::new();
        let store = schema.open_with(Options { distributed, ..schema.options() }).await.unwrap();
        let sample = Sample::enrol(&store, "ann").await;
        let batch: Vec<_> = ["a", "a", "b", "b", "b", "c"]
            .into_iter()
            .enumerate()
            .map(|(i, tenant)| {
                let of = sample.for_tenant(tenant);
                of.change().record(of.record(&i.to_string())).run(of.run(&i.to_string()))
            })
            .collect();
        let verdicts = store.commit(&batch).await.unwrap();
        assert!(verdicts.iter().all(counterfoil::store::Verdict::is_admitted), "{verdicts:?}");
        let mut other = schema.plain().await;
        let count = "SELECT count(DISTINCT xmin::text) FROM record";
        assert_eq!(number(&mut other, count).await, transactions, "distributed: {distributed}");
        let mixed = "SELECT count(*) FROM (SELECT 1 FROM record GROUP BY xmin::text HAVING count(DISTINCT tenant) > 1) m";
        assert_eq!(number(&mut other, mixed).await, i64::from(!distributed));
    }
}
