//! The inbox: each message is processed once per consumer, in one transaction with what it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil::inbox::{InboxError, Message, Processed};
use counterfoil::store::{EscalationKind, Resolution};
use counterfoil::{EscalationId, Executor, Tenant};
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};

use crate::postgres::Schema;

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

/// The same tests on both databases.
macro_rules! on {
    ($connection:ty, $open:expr) => {
        use super::*;

        type Own = $connection;

        fn enter(db: &mut Own, what: i64) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                sqlx::query("INSERT INTO entry (what) VALUES ($1)").bind(what).execute(&mut *db).await?;
                sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(db).await
            })
        }

        fn fails(db: &mut Own) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                enter(db, 0).await?;
                Err(sqlx::Error::RowNotFound)
            })
        }

        async fn process(executor: &Executor, message: impl Into<Message>) -> Processed<i64> {
            executor.process_once(&acme(), "billing", message, |db: &mut Own| enter(db, 1)).await.unwrap()
        }

        // J01, J03: a message that comes again is answered, and nothing is run; also by the next process.
        #[tokio::test]
        async fn a_message_is_processed_once() {
            let (place, executor, _own) = $open.await;
            assert_eq!(process(&executor, "a").await, Processed::Now(1));
            assert_eq!(process(&executor, "a").await, Processed::Before(1));
            assert_eq!(process(&executor, "b").await, Processed::Now(2));
            let other =
                executor.process_once(&acme(), "shipping", "a", |db: &mut Own| enter(db, 1)).await.unwrap();
            assert_eq!(other, Processed::Now(3), "another consumer has its own");
            let theirs = Tenant::new("globex").unwrap();
            let theirs =
                executor.process_once(&theirs, "billing", "a", |db: &mut Own| enter(db, 1)).await.unwrap();
            assert_eq!(theirs, Processed::Now(4));
            drop(executor);
            drop(place);
        }

        // J05: two deliveries at once: one is processed, the other one waits for it.
        #[tokio::test]
        async fn of_two_deliveries_one_is_processed() {
            let (_place, executor, _own) = $open.await;
            let ran = Arc::new(AtomicU32::new(0));
            let deliver = || {
                let ran = ran.clone();
                executor.process_once::<Own, i64, sqlx::Error, _>(&TENANT, "billing", "a", move |db| {
                    Box::pin(async move {
                        ran.fetch_add(1, Ordering::SeqCst);
                        enter(db, 1).await
                    })
                })
            };
            let all = futures_util::future::join_all((0..8).map(|_| deliver())).await;
            let now = all.iter().filter(|one| matches!(one, Ok(Processed::Now(1)))).count();
            let before = all.iter().filter(|one| matches!(one, Ok(Processed::Before(1)))).count();
            assert_eq!((now, before, ran.load(Ordering::SeqCst)), (1, 7, 1), "{all:?}");
        }

        // J10: by version, not by arrival.
        #[tokio::test]
        async fn an_older_version_is_not_run() {
            let (_place, executor, _own) = $open.await;
            let of = |id: &str, version| Message::new(id).version("order/9", version);
            assert_eq!(process(&executor, of("paid", 2)).await, Processed::Now(1));
            assert_eq!(process(&executor, of("placed", 1)).await, Processed::Outdated);
            assert_eq!(process(&executor, of("placed", 1)).await, Processed::Outdated);
            assert_eq!(process(&executor, of("paid as well", 2)).await, Processed::Outdated);
            assert_eq!(process(&executor, of("sent", 3)).await, Processed::Now(2));
            assert_eq!(process(&executor, of("paid", 2)).await, Processed::Before(1));
        }

        // A failed try leaves nothing behind but its count; after the last one somebody is asked.
        #[tokio::test]
        async fn a_poisonous_message_is_set_aside() {
            let (_place, executor, _own) = $open.await;
            let poison = || Message::new("a").tries(2);
            let first = executor.process_once(&acme(), "billing", poison(), fails).await;
            assert!(matches!(first, Err(InboxError::Failed(_))), "{first:?}");
            let second = executor.process_once(&acme(), "billing", poison(), fails).await.unwrap();
            let Processed::SetAside(question) = second else { panic!("{second:?}") };
            let asked = executor.escalations(&acme()).await.unwrap();
            assert_eq!((asked.len(), asked[0].id, asked[0].kind), (1, question, EscalationKind::Unprocessed));
            assert!(asked[0].question.contains("in 2 tries"), "{}", asked[0].question);
            assert_eq!(process(&executor, poison()).await, Processed::SetAside(question), "nothing is run");
            executor.resolve(&acme(), question, Resolution::NotCommitted, "bob").await.unwrap();
            assert_eq!(process(&executor, poison()).await, Processed::Now(1));
            let dropped = set_aside(&executor, "b").await;
            executor.resolve(&acme(), dropped, Resolution::Abandon, "bob").await.unwrap();
            assert_eq!(process(&executor, "b").await, Processed::Dropped);
        }

        async fn set_aside(executor: &Executor, id: &str) -> EscalationId {
            let once = Message::new(id).tries(1);
            match executor.process_once(&acme(), "billing", once, fails).await.unwrap() {
                Processed::SetAside(question) => question,
                other => panic!("{other:?}"),
            }
        }

        // K06: a try that nobody comes back from is counted all the same.
        #[tokio::test]
        async fn a_message_that_kills_its_process_is_set_aside() {
            let (_place, executor, _own) = $open.await;
            for _ in 0..2 {
                let entered = std::sync::Arc::new(tokio::sync::Notify::new());
                let inside = entered.clone();
                let dies = executor.process_once::<Own, i64, sqlx::Error, _>(
                    &TENANT,
                    "billing",
                    Message::new("a").tries(2),
                    move |_| {
                        inside.notify_one(); // it was counted before
                        Box::pin(std::future::pending())
                    },
                );
                tokio::select! {
                    ended = dies => panic!("{ended:?}"),
                    () = entered.notified() => {}
                }
            }
            let last = process(&executor, Message::new("a").tries(2)).await;
            assert!(matches!(last, Processed::SetAside(_)), "{last:?}");
        }
    };
}

static TENANT: std::sync::LazyLock<Tenant> = std::sync::LazyLock::new(acme);

mod sqlite {
    async fn open() -> (tempfile::TempDir, Executor, SqliteConnection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let executor = Executor::sqlite(&path).open().await.unwrap();
        let mut own = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        own.execute("CREATE TABLE entry (what INTEGER NOT NULL)").await.unwrap();
        (folder, executor, own)
    }

    on!(SqliteConnection, open());

    // The next process knows what was processed.
    #[tokio::test]
    async fn a_redelivery_to_the_next_process_is_no_operation() {
        let (folder, executor, own) = open().await;
        assert_eq!(process(&executor, "a").await, Processed::Now(1));
        executor.close(std::time::Duration::from_secs(5)).await;
        drop(own);
        let executor = Executor::sqlite(folder.path().join("test.db")).open().await.unwrap();
        assert_eq!(process(&executor, "a").await, Processed::Before(1));
    }
}

mod postgres {
    async fn open() -> (Schema, Executor, PgConnection) {
        let schema = Schema::new();
        let executor =
            counterfoil::exec::ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
        let executor = executor.open().await.unwrap();
        let mut own = schema.plain().await;
        own.execute("CREATE TABLE entry (what BIGINT NOT NULL)").await.unwrap();
        (schema, executor, own)
    }

    on!(PgConnection, open());
}
