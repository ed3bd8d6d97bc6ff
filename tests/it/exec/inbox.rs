//! The inbox: each message is processed once per consumer, in one transaction with what it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::exec::{ExecutorBuilder, StartError};
use counterfoil::inbox::{InboxError, Message, MessageRetention, Processed};
use counterfoil::store::{QuestionKind, Resolution, StoreError, TransactionError};
use counterfoil::{Executor, QuestionId, Tenant};
use futures_util::future::{BoxFuture, join_all};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};

use crate::store::postgres::Schema;
use crate::world::{acme, soon};

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

        fn ends<'c>(db: &'c mut Own, sql: &'static str) -> BoxFuture<'c, Result<i64, sqlx::Error>> {
            Box::pin(async move { sqlx::raw_sql(sql).execute(db).await.map(|_| 0) })
        }

        /// It is delivered again until it becomes that.
        async fn becomes(executor: &Executor, message: &str, becomes: Processed<i64>) {
            let delivered = async {
                loop {
                    let tenant = acme();
                    let delivery =
                        executor.process_once(&tenant, "billing", message, |db: &mut Own| enter(db, 1));
                    match delivery.await {
                        Ok(became) if became == becomes => break,
                        Ok(_) => {}
                        // It was forgotten while this delivery waited for its row.
                        Err(InboxError::Store(StoreError::Io { detail }))
                            if detail.ends_with("have it delivered again") => {}
                        Err(error) => panic!("{error}"),
                    }
                    tokio::task::yield_now().await;
                }
                Ok::<_, ()>(())
            };
            soon(format!("{message} does not become {becomes:?}"), delivered).await;
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

        // REC-8: the result goes when its time is over, and the id stays: a delivery that comes later than that is not processed again.
        #[tokio::test]
        async fn a_late_delivery_is_told_that_its_message_has_expired() {
            let (place, executor, own) = $open.await;
            executor.shutdown(Duration::from_secs(5)).await;
            let kept = MessageRetention::tombstone_after(Duration::from_millis(1));
            let executor = reopen(&place).messages("billing", kept).open().await.unwrap();
            for message in ["a", "b"] {
                assert!(matches!(process(&executor, message).await, Processed::Now(_)));
            }
            becomes(&executor, "a", Processed::Expired).await;
            becomes(&executor, "b", Processed::Expired).await;
            let other = executor.process_once(&acme(), "shipping", "a", |db: &mut Own| enter(db, 1)).await.unwrap();
            assert_eq!(other, Processed::Now(3), "nothing was run again");
            drop(own);
        }

        // REC-8: where it was declared, the id is new after a window.
        #[tokio::test]
        async fn a_forgotten_message_is_new() {
            let (place, executor, own) = $open.await;
            executor.shutdown(Duration::from_secs(5)).await;
            let window = Duration::from_millis(1);
            let executor =
                reopen(&place).messages("billing", MessageRetention::forget_after(window, window)).open().await.unwrap();
            assert_eq!(process(&executor, Message::new("a").version("order", 2)).await, Processed::Now(1));
            let outdated = Message::new("b").version("order", 1);
            assert_eq!(process(&executor, outdated).await, Processed::Outdated);
            becomes(&executor, "a", Processed::Now(2)).await;
            becomes(&executor, "b", Processed::Now(3)).await;
            drop(own);
        }

        // REC-8, invariant 9: a window that ends before the last delivery comes is refused.
        #[tokio::test]
        async fn a_window_shorter_than_redelivery_is_refused() {
            let (place, executor, _own) = $open.await;
            executor.shutdown(Duration::from_secs(5)).await;
            let short = MessageRetention::forget_after(Duration::from_hours(1), Duration::from_hours(2));
            let refused = reopen(&place).messages("billing", short).open().await.unwrap_err();
            assert!(matches!(&refused, StartError::Messages { consumer, .. } if consumer == "billing"), "{refused}");
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

        // Deliveries that come at once are not tries that failed: none is set aside, however few tries there are.
        #[tokio::test]
        async fn copies_at_once_are_no_tries() {
            let (_place, executor, _own) = $open.await;
            for message in 0..20 {
                let copy = || {
                    let message = Message::new(format!("storm {message}")).tries(1);
                    executor.process_once(&TENANT, "billing", message, |db: &mut Own| enter(db, 1))
                };
                let processed = join_all((0..16).map(|_| copy())).await;
                let processed: Vec<_> = processed.into_iter().map(Result::unwrap).collect();
                let now = processed.iter().filter(|processed| matches!(processed, Processed::Now(_))).count();
                let before = processed.iter().filter(|processed| matches!(processed, Processed::Before(_)));
                assert_eq!((now, before.count()), (1, 15), "{processed:?}");
            }
        }

        /// Enters a line, and ends the transaction.
        fn enters_and<'c>(db: &'c mut Own, sql: &'static str) -> BoxFuture<'c, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                enter(db, 1).await?;
                ends(db, sql).await
            })
        }

        async fn entries(own: &mut Own) -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(own).await.unwrap()
        }

        // What it committed is durable: a second run of it would be a second effect. Whatever it begins then, the message is not
        // taken for processed.
        #[tokio::test]
        async fn a_closure_that_ends_the_transaction_is_run_once_and_asked_about() {
            let (_place, executor, mut own) = $open.await;
            let endings = [("COMMIT", 1), ("ROLLBACK", 0), ("COMMIT; BEGIN", 1), ("ROLLBACK; BEGIN", 0)];
            for (sql, left) in endings {
                let before = entries(&mut own).await;
                let deliver = || executor.process_once(&TENANT, "billing", sql, |db: &mut Own| enters_and(db, sql));
                let first = deliver().await.unwrap();
                let Processed::SetAside(question) = first else { panic!("{sql}: {first:?}") };
                for _ in 0..2 {
                    assert_eq!(deliver().await.unwrap(), Processed::SetAside(question), "{sql}");
                }
                assert_eq!(process(&executor, sql).await, Processed::SetAside(question), "{sql}: nothing is run");
                assert_eq!(entries(&mut own).await - before, left, "{sql}");
                let asked = executor.questions(&TENANT).await.unwrap();
                let asked = asked.iter().find(|asked| asked.id == question).unwrap();
                assert_eq!(asked.kind, QuestionKind::Unprocessed);
                for part in ["ended the transaction itself", "Take the COMMIT", "`again`", "`skip`"] {
                    assert!(asked.question.contains(part), "{sql}: {}", asked.question);
                }
                executor.answer(&TENANT, question, Resolution::Again, "bob").await.unwrap();
                assert!(matches!(process(&executor, sql).await, Processed::Now(_)), "{sql}: mended");
            }
            assert_eq!(executor.questions(&TENANT).await.unwrap(), []);
        }

        // The mark is written before the closure runs, and committed by its COMMIT: no crash comes in between.
        #[tokio::test]
        async fn a_process_that_dies_behind_the_commit_of_a_closure_does_not_repeat_it() {
            let (_place, executor, mut own) = $open.await;
            let entered = Arc::new(tokio::sync::Notify::new());
            let inside = entered.clone();
            let dies = executor.process_once::<Own, i64, sqlx::Error, _>(&TENANT, "billing", "a", move |db| {
                Box::pin(async move {
                    enters_and(db, "COMMIT").await?;
                    inside.notify_one();
                    std::future::pending().await
                })
            });
            tokio::select! {
                ended = dies => panic!("{ended:?}"),
                () = entered.notified() => {}
            }
            let next = process(&executor, "a").await;
            assert!(matches!(next, Processed::SetAside(_)), "{next:?}");
            assert_eq!(entries(&mut own).await, 1);
            let asked = executor.questions(&TENANT).await.unwrap();
            assert!(asked[0].question.contains("ended the transaction itself"), "{asked:?}");
        }

        // Nor one that takes the message's row away, by which the next delivery would be known.
        #[tokio::test]
        async fn a_closure_that_takes_the_row_away_has_processed_nothing() {
            let (_place, executor, _own) = $open.await;
            let ended =
                executor.process_once(&TENANT, "billing", "a", |db: &mut Own| ends(db, "DELETE FROM inbox")).await;
            assert!(ended.is_err(), "{ended:?}");
            assert_eq!(process(&executor, "a").await, Processed::Now(1));
            assert_eq!(process(&executor, "a").await, Processed::Before(1));
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

        // What was known before counts, whatever a message says when it comes again; the least and the greatest are versions, too.
        #[tokio::test]
        async fn a_version_that_goes_backwards_changes_nothing() {
            let (_place, executor, _own) = $open.await;
            let of = |id: &str, version| Message::new(id).version("order/9", version);
            assert_eq!(process(&executor, of("least", i64::MIN)).await, Processed::Now(1));
            assert_eq!(process(&executor, of("negative", -1)).await, Processed::Now(2));
            assert_eq!(process(&executor, of("least", i64::MIN)).await, Processed::Before(1));
            assert_eq!(process(&executor, of("negative", -2)).await, Processed::Before(2), "known by its id");
            assert_eq!(process(&executor, of("older", -2)).await, Processed::Outdated);
            assert_eq!(process(&executor, of("older", 7)).await, Processed::Outdated, "skipped for good");
            assert_eq!(process(&executor, of("greatest", i64::MAX)).await, Processed::Now(3));
            assert_eq!(process(&executor, of("again", i64::MAX)).await, Processed::Outdated);
        }

        // The version is written with the effect: one that was rolled back overtakes nobody.
        #[tokio::test]
        async fn a_version_that_failed_overtakes_nobody() {
            let (_place, executor, _own) = $open.await;
            let of = |id: &str, version| Message::new(id).version("order/9", version);
            let failed = executor.process_once(&acme(), "billing", of("sent", 3), fails).await;
            assert!(matches!(failed, Err(InboxError::Failed(_))), "{failed:?}");
            assert_eq!(process(&executor, of("paid", 2)).await, Processed::Now(1));
            assert_eq!(process(&executor, of("sent", 3)).await, Processed::Now(2));
        }

        // Tenants and consumers know nothing of each other's messages, versions and tries.
        #[tokio::test]
        async fn tenants_and_consumers_are_apart() {
            let (_place, executor, _own) = $open.await;
            let asked = set_aside(&executor, "a").await;
            let globex = Tenant::new("globex").unwrap();
            let others = [(&globex, "billing"), (&*TENANT, "shipping"), (&globex, "shipping")];
            for (version, (tenant, consumer)) in (-3..).zip(others) {
                let message = || Message::new("a").version("order/9", version).tries(1);
                let first = executor.process_once(tenant, consumer, message(), |db: &mut Own| enter(db, 1));
                let first = first.await.unwrap();
                assert!(matches!(first, Processed::Now(_)), "{tenant} {consumer}: {first:?}");
                let again = executor.process_once(tenant, consumer, message(), |db: &mut Own| enter(db, 1));
                assert_eq!(again.await.unwrap(), Processed::Before(first.result().unwrap()));
            }
            assert_eq!(process(&executor, "a").await, Processed::SetAside(asked));
            assert_eq!(executor.questions(&globex).await.unwrap(), []);
            // What one name ends with is not what the next one begins with.
            for (consumer, id) in [("billing/a", "b"), ("billing", "a/b"), ("billing", "' OR 1 = 1 --")] {
                let one = executor.process_once(&TENANT, consumer, id, |db: &mut Own| enter(db, 1));
                assert!(matches!(one.await.unwrap(), Processed::Now(_)), "{consumer} {id}");
            }
        }

        // A name that cannot be one is refused before anything is counted or run.
        #[tokio::test]
        async fn a_name_that_cannot_be_one_is_refused() {
            let (_place, executor, _own) = $open.await;
            let huge = "x".repeat(256);
            for bad in ["", "a\0b", "\0", "line\nbreak", &huge] {
                let deliveries = [
                    (bad, Message::new("a")),
                    ("billing", Message::new(bad)),
                    ("billing", Message::new("a").version(bad, 1)),
                ];
                for (consumer, message) in deliveries {
                    let shown = format!("{consumer:?} {message:?}");
                    let refused =
                        executor.process_once(&TENANT, consumer, message, |db: &mut Own| enter(db, 1));
                    let refused = refused.await;
                    assert!(matches!(refused, Err(InboxError::Name(_))), "{shown}: {refused:?}");
                }
            }
            assert_eq!(process(&executor, "a").await, Processed::Now(1), "nothing was run");
            let longest = "ü".repeat(127);
            assert_eq!(process(&executor, longest.as_str()).await, Processed::Now(2));
            assert_eq!(process(&executor, longest.as_str()).await, Processed::Before(2));
            assert_eq!(executor.questions(&acme()).await.unwrap(), []);
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
            let asked = executor.questions(&acme()).await.unwrap();
            assert_eq!((asked.len(), asked[0].id, asked[0].kind), (1, question, QuestionKind::Unprocessed));
            assert!(asked[0].question.contains("in 2 tries"), "{}", asked[0].question);
            assert_eq!(process(&executor, poison()).await, Processed::SetAside(question), "nothing is run");
            executor.answer(&acme(), question, Resolution::Again, "bob").await.unwrap();
            assert_eq!(process(&executor, poison()).await, Processed::Now(1));
            let dropped = set_aside(&executor, "b").await;
            executor.answer(&acme(), dropped, Resolution::Skip, "bob").await.unwrap();
            assert_eq!(process(&executor, "b").await, Processed::Dropped);
        }

        fn panics(db: &mut Own) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                enter(db, 7).await?;
                panic!("a panic that was asked for")
            })
        }

        fn panics_at_once(_: &mut Own) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            panic!("a panic that was asked for")
        }

        // A panic of the closure is a failed try: it is told, its changes are gone, and others are processed.
        #[tokio::test]
        async fn a_closure_that_panics_costs_a_try() {
            let (_place, executor, _own) = $open.await;
            let poison = || Message::new("a").tries(3);
            let first = executor.process_once(&acme(), "billing", poison(), panics).await;
            let second = executor.process_once(&acme(), "billing", poison(), panics_at_once).await;
            for told in [first, second] {
                let told = told.unwrap_err().to_string();
                assert!(told.contains("a panic that was asked for"), "{told}");
                assert!(told.ends_with("[panicked]"), "{told}");
            }
            assert_eq!(process(&executor, "b").await, Processed::Now(1), "nothing is left of the tries");
            let third = executor.process_once(&acme(), "billing", poison(), panics).await.unwrap();
            let Processed::SetAside(question) = third else { panic!("{third:?}") };
            let asked = executor.questions(&acme()).await.unwrap();
            assert!(asked[0].question.contains("a panic that was asked for"), "{}", asked[0].question);
            executor.answer(&acme(), question, Resolution::Again, "bob").await.unwrap();
            assert_eq!(process(&executor, poison()).await, Processed::Now(2));
        }

        async fn set_aside(executor: &Executor, id: &str) -> QuestionId {
            let once = Message::new(id).tries(1);
            match executor.process_once(&acme(), "billing", once, fails).await.unwrap() {
                Processed::SetAside(question) => question,
                other => panic!("{other:?}"),
            }
        }

        // Of two deliveries at once one fails for the last time, while the other one waits and is processed: nobody is asked about
        // a message that is processed.
        #[tokio::test]
        async fn nobody_is_asked_about_a_processed_message() {
            let (_place, executor, _own) = $open.await;
            let ran = AtomicU32::new(0);
            let deliver = || {
                let first = &ran;
                let twice = Message::new("a").tries(2);
                executor.process_once::<Own, i64, sqlx::Error, _>(&TENANT, "billing", twice, move |db| {
                    let is_first = first.fetch_add(1, Ordering::SeqCst) == 0;
                    if is_first { fails(db) } else { enter(db, 1) }
                })
            };
            let both = futures_util::join!(deliver(), deliver());
            let last = process(&executor, Message::new("a").tries(2)).await;
            let asked = executor.questions(&acme()).await.unwrap().len();
            match last {
                Processed::SetAside(_) => assert_eq!(asked, 1, "{both:?}"),
                last => assert_eq!((last.result(), asked), (Some(1), 0), "{both:?}"),
            }
        }

        /// Its process dies in it.
        async fn dies(executor: &Executor, message: Message) {
            let entered = std::sync::Arc::new(tokio::sync::Notify::new());
            let inside = entered.clone();
            let dies =
                executor.process_once::<Own, i64, sqlx::Error, _>(&TENANT, "billing", message, move |_| {
                    inside.notify_one(); // it was counted before
                    Box::pin(std::future::pending())
                });
            tokio::select! {
                ended = dies => panic!("{ended:?}"),
                () = entered.notified() => {}
            }
        }

        // K06: a try that nobody comes back from is counted all the same; one that is not made is not.
        #[tokio::test]
        async fn a_message_that_kills_its_process_is_set_aside() {
            let (_place, executor, _own) = $open.await;
            let deadly = || Message::new("a").tries(2);
            for _ in 0..2 {
                dies(&executor, deadly()).await;
            }
            for _ in 0..2 {
                let last = process(&executor, deadly()).await;
                assert!(matches!(last, Processed::SetAside(_)), "{last:?}");
            }
            let asked = executor.questions(&acme()).await.unwrap();
            let evidence = "in 2 tries, the last time so: its process died in it";
            assert!(asked.len() == 1 && asked[0].question.contains(evidence), "{asked:?}");
        }

        // Tried again after an answer, it is asked about with what came of it since.
        #[tokio::test]
        async fn the_evidence_is_of_the_present_tries() {
            let (_place, executor, _own) = $open.await;
            let first = set_aside(&executor, "a").await;
            executor.answer(&acme(), first, Resolution::Again, "bob").await.unwrap();
            dies(&executor, Message::new("a").tries(1)).await;
            let last = process(&executor, Message::new("a").tries(1)).await;
            assert!(matches!(last, Processed::SetAside(question) if question != first), "{last:?}");
            let asked = executor.questions(&acme()).await.unwrap();
            assert!(asked[0].question.contains("its process died in it"), "{asked:?}");
        }
    };
}

static TENANT: std::sync::LazyLock<Tenant> = std::sync::LazyLock::new(acme);

pub(crate) mod sqlite {
    /// An executor, and a connection of its own with a table for effects.
    pub(crate) async fn open() -> (tempfile::TempDir, Executor, SqliteConnection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        let executor = Executor::sqlite(&path).open().await.unwrap();
        let options = SqliteConnectOptions::new().filename(&path).busy_timeout(Duration::from_secs(30));
        let mut own = options.connect().await.unwrap();
        own.execute("CREATE TABLE entry (what INTEGER NOT NULL)").await.unwrap();
        (folder, executor, own)
    }

    fn reopen(folder: &tempfile::TempDir) -> ExecutorBuilder {
        Executor::sqlite(folder.path().join("test.db"))
    }

    on!(SqliteConnection, open());

    // The next process knows what was processed.
    #[tokio::test]
    async fn a_redelivery_to_the_next_process_is_no_operation() {
        let (folder, executor, own) = open().await;
        assert_eq!(process(&executor, "a").await, Processed::Now(1));
        executor.shutdown(Duration::from_secs(5)).await;
        drop(own);
        let executor = Executor::sqlite(folder.path().join("test.db")).open().await.unwrap();
        assert_eq!(process(&executor, "a").await, Processed::Before(1));
    }
}

pub(crate) mod postgres {
    /// The same on a schema of its own.
    pub(crate) async fn open() -> (Schema, Executor, PgConnection) {
        let schema = Schema::new();
        let executor =
            counterfoil::exec::ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
        let executor = executor.open().await.unwrap();
        let mut own = schema.plain().await;
        own.execute("CREATE TABLE entry (what BIGINT NOT NULL)").await.unwrap();
        (schema, executor, own)
    }

    fn reopen(schema: &Schema) -> ExecutorBuilder {
        ExecutorBuilder::postgres_with(crate::server::url(), schema.options())
    }

    on!(PgConnection, open());

    // PostgreSQL rolls back what goes on behind a failed statement, whatever the closure says.
    #[tokio::test]
    async fn an_error_that_was_swallowed_is_told() {
        fn swallows(db: &mut PgConnection) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                let failed = db.execute("SELECT 1 / 0").await;
                Ok(i64::from(failed.is_ok()))
            })
        }
        let (_schema, executor, _own) = open().await;
        let told = executor.process_once(&TENANT, "billing", "a", swallows).await;
        let spoilt = matches!(told, Err(InboxError::Transaction(TransactionError::Spoilt { .. })));
        assert!(spoilt, "{told:?}");
        assert_eq!(process(&executor, "a").await, Processed::Now(1));
    }
}
