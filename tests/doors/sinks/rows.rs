//! The SQL sink, into tables of SQLite and of PostgreSQL.

use std::slice::from_ref;
use std::time::Duration;

use counterfoil::outbox::{PublishResult, Sink as _};
use counterfoil::{EventField, SqlSink, Tenant};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::{Events, MINUTE, Service, refused};

const TABLE: &str = "CREATE TABLE event (tenant TEXT NOT NULL, id TEXT NOT NULL, aggregate TEXT NOT NULL, seq BIGINT NOT NULL, \
     kind TEXT NOT NULL CONSTRAINT no_bad_kind CHECK (kind <> 'bad'), payload TEXT NOT NULL, created_at BIGINT NOT NULL, \
     PRIMARY KEY (tenant, id))";
const NEWEST: &str = "CREATE TABLE latest (tenant TEXT NOT NULL, id TEXT NOT NULL, aggregate TEXT NOT NULL, seq BIGINT NOT NULL, \
     kind TEXT NOT NULL, payload TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (tenant, aggregate))";

/// The same tests on both databases.
macro_rules! on {
    ($pool:ty, $sink:path, $open:expr) => {
        use super::*;

        async fn run(pool: &$pool, sql: &str) {
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.unwrap();
        }

        fn event_sink(pool: &$pool) -> SqlSink {
            $sink(pool.clone(), "event", MINUTE).unwrap()
        }

        /// Ids, sequences and payloads of the rows.
        async fn rows(pool: &$pool, table: &str) -> Vec<(String, i64, String)> {
            let sql = format!("SELECT id, seq, payload FROM {table} ORDER BY tenant, aggregate, seq");
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(pool).await.unwrap()
        }

        fn row(aggregate: &str, seq: i64) -> (String, i64, String) {
            (format!("{aggregate}/{seq}"), seq, format!(r#"{{"version":{seq}}}"#))
        }

        #[tokio::test]
        async fn a_replay_changes_nothing() {
            let (_keep, pool) = $open.await;
            run(&pool, TABLE).await;
            let (sink, events) = (event_sink(&pool), Events::new().await);
            let batch = [events.of("a", 1), events.of("a", 2), events.of("b", 1)];
            let stored = [row("a", 1), row("a", 2), row("b", 1)];
            for _ in 0..3 {
                assert_eq!(sink.publish(&batch).await, Ok(PublishResult::all()));
                assert_eq!(rows(&pool, "event").await, stored);
            }
            assert_eq!(sink.publish(&batch[..1]).await, Ok(PublishResult::all()));
            assert_eq!(rows(&pool, "event").await, stored);
            let sql = "SELECT count(*) FROM event WHERE tenant = 'acme' AND kind = 'said' AND created_at = $1";
            let count = sqlx::query_scalar(sql).bind(batch[0].created_at.0);
            let count: i64 = count.fetch_one(&pool).await.unwrap();
            assert_eq!(count, 3);
        }

        #[tokio::test]
        async fn an_older_event_overwrites_no_newer_one() {
            let (_keep, pool) = $open.await;
            run(&pool, NEWEST).await;
            let sink = $sink(pool.clone(), "latest", MINUTE).unwrap().newest_of_each_aggregate().unwrap();
            let events = Events::new().await;
            assert_eq!(sink.publish(&[events.of("a", 1), events.of("a", 2), events.of("b", 7)]).await, Ok(PublishResult::all()));
            let stored = [row("a", 2), row("b", 7)];
            assert_eq!(rows(&pool, "latest").await, stored);
            for late in [events.of("a", 1), events.of("a", 2), events.of("b", 6)] {
                assert_eq!(sink.publish(&[late]).await, Ok(PublishResult::all()));
                assert_eq!(rows(&pool, "latest").await, stored);
            }
            assert_eq!(sink.publish(&[events.of("a", 3)]).await, Ok(PublishResult::all()));
            assert_eq!(rows(&pool, "latest").await, [row("a", 3), row("b", 7)]);
        }

        #[tokio::test]
        async fn tenants_share_no_rows() {
            let (_keep, pool) = $open.await;
            run(&pool, TABLE).await;
            let (sink, events) = (event_sink(&pool), Events::new().await);
            let ours = events.of("a", 1);
            let mut theirs = ours.clone();
            theirs.tenant = Tenant::new("globex").unwrap();
            assert_eq!(sink.publish(&[ours, theirs]).await, Ok(PublishResult::all()));
            assert_eq!(rows(&pool, "event").await.len(), 2);
        }

        #[tokio::test]
        async fn a_refused_row_holds_back_its_aggregate_alone() {
            let (_keep, pool) = $open.await;
            run(&pool, TABLE).await;
            let (sink, events) = (event_sink(&pool), Events::new().await);
            let bad = events.told("b", 1, "bad", &json!("a secret"));
            let acked = sink.publish(&[events.of("a", 1), bad, events.of("b", 2), events.of("c", 1)]).await;
            refused(&acked, 1, "the row was refused");
            assert!(!format!("{acked:?}").contains("secret"), "{acked:?}");
            assert_eq!(rows(&pool, "event").await, [row("a", 1), row("c", 1)]);

            let mut service = Service::with(sink).await;
            for (aggregate, kind) in [("x", "bad"), ("x", "good"), ("y", "good"), ("y", "better")] {
                service.emit(aggregate, kind).await;
            }
            let asked = service.asked(1).await;
            assert!(asked[0].contains("refused 2 times") && asked[0].contains("no_bad_kind"), "{asked:?}");
            while rows(&pool, "event").await.len() < 4 {
                tokio::task::yield_now().await;
            }
            let ids: Vec<_> = rows(&pool, "event").await.into_iter().map(|(id, ..)| id).collect();
            assert_eq!(ids, ["a/1", "c/1", "y/good", "y/better"]);
        }

        // Nobody is asked about events because a table is missing.
        #[tokio::test]
        async fn a_table_that_comes_late_gets_all_rows_in_their_order() {
            let (_keep, pool) = $open.await;
            let (sink, events) = (event_sink(&pool), Events::new().await);
            assert!(sink.publish(&[events.of("a", 1), events.of("b", 1)]).await.is_err());
            let mut service = Service::with(sink).await;
            service.emit("a", "placed").await;
            service.emit("a", "paid").await;
            run(&pool, TABLE).await;
            while rows(&pool, "event").await.len() < 2 {
                tokio::task::yield_now().await;
            }
            let ids: Vec<_> = rows(&pool, "event").await.into_iter().map(|(id, seq, _)| (id, seq)).collect();
            assert_eq!(ids, [("a/placed".to_owned(), 1), ("a/paid".to_owned(), 2)]);
            assert!(service.asked(0).await.is_empty());
        }

        #[tokio::test]
        async fn a_huge_payload_is_a_row() {
            let (_keep, pool) = $open.await;
            run(&pool, TABLE).await;
            let (sink, events) = (event_sink(&pool), Events::new().await);
            let text = "ü".repeat(8 << 20);
            let huge = events.told("a", 1, "said", &json!(text));
            assert_eq!(sink.publish(&[huge.clone(), events.of("a", 2)]).await, Ok(PublishResult::all()));
            let stored = rows(&pool, "event").await;
            assert!(stored.len() == 2 && stored[0].2 == huge.payload.as_str());
        }

        #[tokio::test]
        async fn hostile_names_and_values_stay_names_and_values() {
            let (_keep, pool) = $open.await;
            run(&pool, TABLE).await;
            let table = r#"we"ird; DROP TABLE event; --"#;
            let quoted = format!(r#""{}""#, table.replace('"', "\"\""));
            let columns = [(EventField::Id, "select"), (EventField::Kind, r#"a") VALUES (1); --"#), (EventField::Seq, "$1 ?")];
            let sql = format!(r#"CREATE TABLE {quoted} ("select" TEXT PRIMARY KEY, "a"") VALUES (1); --" TEXT, "$1 ?" BIGINT)"#);
            run(&pool, &sql).await;
            let sink = $sink(pool.clone(), table, MINUTE).unwrap().columns(columns).unwrap();
            let events = Events::new().await;
            let hostile = events.told("'); DROP TABLE event; --", 1, r#"'"\$1{}"#, &json!("\0"));
            for _ in 0..2 {
                assert_eq!(sink.publish(from_ref(&hostile)).await, Ok(PublishResult::all()));
            }
            let sql = format!(r#"SELECT "select", "$1 ?", "a"") VALUES (1); --" FROM {quoted}"#);
            let stored: Vec<(String, i64, String)> = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&pool).await.unwrap();
            assert_eq!(stored, [(hostile.id.clone(), 1, hostile.kind.clone())]);
            assert_eq!(event_sink(&pool).publish(from_ref(&hostile)).await, Ok(PublishResult::all()));
            assert_eq!(rows(&pool, "event").await, [(hostile.id, 1, hostile.payload.as_str().to_owned())]);
        }
    };
}

mod sqlite {
    async fn open() -> (tempfile::TempDir, SqlitePool) {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("reports.db"));
        let options = options.create_if_missing(true).busy_timeout(MINUTE);
        (folder, SqlitePoolOptions::new().connect_with(options).await.unwrap())
    }

    on!(SqlitePool, SqlSink::sqlite, open());

    #[tokio::test]
    async fn a_database_that_is_locked_puts_the_sink_off() {
        let (folder, pool) = open().await;
        run(&pool, TABLE).await;
        let options = SqliteConnectOptions::new().filename(folder.path().join("reports.db"));
        let hasty =
            SqlitePoolOptions::new().connect_with(options.busy_timeout(Duration::ZERO)).await.unwrap();
        let (sink, events) = (event_sink(&hasty), Events::new().await);
        let writer = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        assert!(sink.publish(&[events.of("a", 1)]).await.is_err());
        writer.rollback().await.unwrap();
        assert_eq!(sink.publish(&[events.of("a", 1)]).await, Ok(PublishResult::all()));
        assert_eq!(rows(&pool, "event").await, [row("a", 1)]);
    }
}

mod postgres {
    use crate::own_server::Server;
    use crate::server::Schema;

    async fn open() -> (Schema, PgPool) {
        let schema = Schema::new();
        let admin = PgPool::connect(&crate::server::url()).await.unwrap();
        run(&admin, &format!("CREATE SCHEMA {}", schema.name())).await;
        let pool = PgPoolOptions::new().max_connections(3).connect_with(schema.connect_options()).await;
        (schema, pool.unwrap())
    }

    on!(PgPool, SqlSink::postgres, open());

    #[tokio::test]
    async fn a_payload_may_be_jsonb_and_a_table_in_a_schema() {
        let (schema, pool) = open().await;
        run(&pool, "CREATE TABLE event (id TEXT PRIMARY KEY, body JSONB NOT NULL)").await;
        let table = format!("{}.event", schema.name());
        let columns = [(EventField::Id, "id"), (EventField::PayloadJsonb, "body")];
        let elsewhere = PgPool::connect(&crate::server::url()).await.unwrap();
        let sink = SqlSink::postgres(elsewhere, table, MINUTE).unwrap().columns(columns).unwrap();
        let events = Events::new().await;
        assert_eq!(sink.publish(&[events.of("a", 1)]).await, Ok(PublishResult::all()));
        let found = sqlx::query_scalar("SELECT id FROM event WHERE body->>'version' = '1'");
        let found: String = found.fetch_one(&pool).await.unwrap();
        assert_eq!(found, "a/1");
        // A character that jsonb cannot hold.
        let unfit = events.told("b", 1, "said", &json!("a\0b"));
        refused(&sink.publish(&[unfit, events.of("a", 2)]).await, 0, "22P05");
    }

    #[tokio::test]
    async fn a_server_that_goes_away_and_comes_back_gets_all_rows() {
        let server = Server::start(&[]).await;
        let pool =
            PgPoolOptions::new().acquire_timeout(Duration::from_secs(2)).connect_lazy(&server.url()).unwrap();
        run(&pool, TABLE).await;
        let sink = event_sink(&pool);
        let mut service = Service::with(sink.clone()).await;
        service.emit("a", "placed").await;
        while rows(&pool, "event").await.is_empty() {
            tokio::task::yield_now().await;
        }
        server.stop_immediate().await;
        let events = Events::new().await;
        assert!(sink.publish(&[events.of("x", 1)]).await.is_err());
        service.emit("a", "paid").await;
        service.emit("b", "placed").await;
        server.start_again().await;
        let ids = async || {
            let sql = "SELECT id FROM event ORDER BY aggregate, seq";
            sqlx::query_scalar(sql).fetch_all(&pool).await.unwrap_or_default()
        };
        let mut stored: Vec<String> = ids().await;
        while stored.len() < 3 {
            tokio::task::yield_now().await;
            stored = ids().await;
        }
        assert_eq!(stored, ["a/placed", "a/paid", "b/placed"]);
        assert!(service.asked(0).await.is_empty());
    }

    #[tokio::test]
    async fn a_database_that_answers_late_puts_the_sink_off() {
        let (_schema, pool) = open().await;
        run(&pool, TABLE).await;
        let mut other = pool.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE event").execute(&mut *other).await.unwrap();
        let sink = SqlSink::postgres(pool.clone(), "event", Duration::from_millis(50)).unwrap();
        let events = Events::new().await;
        let late = sink.publish(&[events.of("a", 1)]).await.unwrap_err();
        assert!(late.to_string().contains("late"), "{late}");
        other.rollback().await.unwrap();
        let sink = event_sink(&pool);
        assert_eq!(sink.publish(&[events.of("a", 1)]).await, Ok(PublishResult::all()));
        assert_eq!(rows(&pool, "event").await, [row("a", 1)]);
    }
}
