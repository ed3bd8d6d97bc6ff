//! An event is done once, however often and in whatever form it is delivered. (HAZARDS J01 to J03, J05, J11)

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::webhook::{EventIdentity, WebhookConfigError};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::*;
use crate::world::{TestClock, soon};

/// The same tests on both databases.
macro_rules! on {
    ($connection:ty, $open:expr) => {
        use super::*;

        type Own = $connection;

        /// A source whose events are entered, one line for each.
        fn enters(builder: WebhookBuilder, executor: &Executor) -> Webhook {
            builder.on(executor, |_| async { Ok::<_, Infallible>(enter()) }).unwrap()
        }

        fn enter() -> Reaction<Own> {
            Reaction::transaction(|db: &mut Own| {
                Box::pin(
                    async move { sqlx::query("INSERT INTO entry VALUES (1)").execute(db).await.map(drop) },
                )
            })
        }

        async fn lines(own: &mut Own) -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(own).await.unwrap()
        }

        #[tokio::test]
        async fn a_storm_of_deliveries_is_one_event_each_with_one_receipt() {
            let (_place, executor, mut own) = $open.await;
            let asked = Arc::new(AtomicU32::new(0));
            let counted = asked.clone();
            let on_event = move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, Infallible>(enter()) }
            };
            let webhook = standard().on(&executor, on_event).unwrap();
            let deliver = |n: u32| {
                let webhook = webhook.clone();
                async move { webhook.receive(signed(&format!("evt_{}", n % 5), "{}")).await }
            };
            let answers = join_all((0..100).map(deliver)).await;
            assert_eq!(lines(&mut own).await, 5);
            assert_eq!(asked.load(Ordering::SeqCst), 5, "a copy that comes meanwhile is not looked into");
            let now = answers.iter().filter(|answer| decided(answer) == Decided::Executed).count();
            let before = answers.iter().filter(|answer| decided(answer) == Decided::Replayed).count();
            assert_eq!((now, before), (5, 95));
            for answer in &answers {
                assert_eq!((answer.status().as_u16(), answer.body()), (200, answers[0].body()));
            }
        }

        // Some senders build an event anew for each try.
        #[tokio::test]
        async fn another_body_under_a_known_id_is_a_duplicate() {
            let (_place, executor, mut own) = $open.await;
            let webhook = enters(standard(), &executor);
            for (body, expected) in [
                (r#"{"try":1}"#, Decided::Executed),
                (r#"{"try":2}"#, Decided::Replayed),
                ("", Decided::Replayed),
            ] {
                let answer = webhook.receive(signed("evt_1", body)).await;
                assert_eq!((answer.status().as_u16(), decided(&answer)), (200, expected));
            }
            assert_eq!(lines(&mut own).await, 1);
        }

        #[tokio::test]
        async fn sources_and_tenants_share_no_ids() {
            let (_place, executor, mut own) = $open.await;
            let theirs = Tenant::new("globex").unwrap();
            let new = |source, tenant| {
                Webhook::source(source, Scheme::standard_webhooks(), [SECRET], tenant).unwrap()
            };
            for builder in [new("shop", acme()), new("bank", acme()), new("shop", theirs)] {
                let answer = enters(builder, &executor).receive(signed("evt_1", "{}")).await;
                assert_eq!(decided(&answer), Decided::Executed);
            }
            // One source may serve several tenants, too.
            let by_account = new("shops", acme()).tenant_of(|event| {
                let account: serde_json::Value = event.json().ok()?;
                Tenant::new(account["account"].as_str()?).ok()
            });
            let webhook = enters(by_account, &executor);
            for (body, expected) in [(r#"{"account":"a"}"#, 200), (r#"{"account":"b"}"#, 200), ("{}", 404)] {
                assert_eq!(
                    webhook.receive(signed("evt_1", body)).await.status().as_u16(),
                    expected,
                    "{body}"
                );
            }
            assert_eq!(lines(&mut own).await, 5);
        }

        // J11: whoever does not know the secret cannot use an id up.
        #[tokio::test]
        async fn a_forged_delivery_marks_nothing() {
            let (_place, executor, mut own) = $open.await;
            let webhook = enters(standard(), &executor);
            assert_eq!(webhook.receive(signed_at(OTHER, "evt_1", seconds(), "{}")).await.status(), 401);
            let stale = signed_at(SECRET, "evt_1", seconds() - 4000, "{}");
            assert_eq!(webhook.receive(stale).await.status(), 400);
            assert_eq!(decided(&webhook.receive(signed("evt_1", "{}")).await), Decided::Executed);
            assert_eq!(lines(&mut own).await, 1);
        }

        // A sender that gives up and sends again meets its first delivery.
        #[tokio::test]
        async fn a_sender_that_goes_away_cuts_nothing_off() {
            let (_place, executor, mut own) = $open.await;
            let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
            let (reached, gate) = (begun.clone(), go.clone());
            let webhook = standard()
                .on(&executor, move |_| {
                    let (begun, go) = (begun.clone(), go.clone());
                    async move {
                        begun.add_permits(1);
                        let _ = go.acquire().await;
                        Ok::<_, Infallible>(enter())
                    }
                })
                .unwrap();
            let sender = webhook.clone();
            let first = tokio::spawn(async move { sender.receive(signed("evt_1", "{}")).await });
            soon("the event is not begun".to_owned(), async { reached.acquire().await.map(drop) }).await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            gate.add_permits(2);
            executor.shutdown(Duration::from_secs(30)).await;
            assert_eq!(lines(&mut own).await, 1, "the delivery was carried out to its end");
        }

        #[tokio::test]
        async fn an_event_is_known_by_what_its_host_says() {
            let (_place, executor, mut own) = $open.await;
            let by_object = standard().identify(|event| {
                let said: serde_json::Value = event.json().ok()?;
                let identity = EventIdentity::new(said["order"].as_str()?);
                Some(identity.version(said["version"].as_i64()?).action(said["action"].as_str()?))
            });
            let webhook = enters(by_object, &executor);
            let long = "o".repeat(300);
            let bodies = [
                r#"{"order":"9","version":4,"action":"updated"}"#.to_owned(),
                r#"{"order":"9","version":5,"action":"updated"}"#.to_owned(),
                r#"{"order":"9","version":4,"action":"deleted"}"#.to_owned(),
                format!(r#"{{"order":"{long}1","version":4,"action":"updated"}}"#),
                format!(r#"{{"order":"{long}2","version":4,"action":"updated"}}"#),
            ];
            for expected in [Decided::Executed, Decided::Replayed] {
                for (n, body) in bodies.iter().enumerate() {
                    let answer = webhook.receive(signed(&format!("try_{n}_{expected:?}"), body)).await;
                    assert_eq!(decided(&answer), expected, "{body}");
                }
            }
            assert_eq!(webhook.receive(signed("m", "{}")).await.status(), 400, "no identity");
            assert_eq!(lines(&mut own).await, 5);
        }
    };
}

mod sqlite {
    on!(SqliteConnection, crate::exec::inbox::sqlite::open());

    /// A source without ids, and the clock.
    async fn by_body() -> (tempfile::TempDir, TestClock, Executor, Webhook, SqliteConnection) {
        let (folder, executor, _own) = crate::exec::inbox::sqlite::open().await;
        executor.shutdown(Duration::from_secs(5)).await;
        let clock = TestClock::breathing();
        let path = folder.path().join("test.db");
        let executor = Executor::sqlite(&path).clock(clock.clone()).open().await.unwrap();
        let webhook = enters(standard().identify_by_body(WINDOW), &executor);
        let own = <SqliteConnection as sqlx::Connection>::connect(path.to_str().unwrap()).await.unwrap();
        (folder, clock, executor, webhook, own)
    }

    const WINDOW: Duration = Duration::from_mins(10);

    async fn send(webhook: &Webhook, clock: &TestClock, body: &str) -> Decided {
        decided(&webhook.receive(signed_at(SECRET, "ignored", clock.now().0 / 1_000_000, body)).await)
    }

    #[tokio::test]
    async fn without_ids_the_same_body_within_the_window_is_one_event() {
        let (_folder, clock, _executor, webhook, mut own) = by_body().await;
        assert_eq!(send(&webhook, &clock, "ping").await, Decided::Executed);
        assert_eq!(send(&webhook, &clock, "pong").await, Decided::Executed);
        // Over the edge of the inner window, wherever that is.
        for _ in 0..9 {
            clock.advance(Duration::from_secs(66));
            assert_eq!(send(&webhook, &clock, "ping").await, Decided::Replayed);
        }
        clock.advance(Duration::from_secs(6)); // ten minutes behind the first
        assert_eq!(send(&webhook, &clock, "ping").await, Decided::Executed);
        assert_eq!(send(&webhook, &clock, "ping").await, Decided::Replayed);
        for _ in 0..3 {
            clock.advance(Duration::from_hours(30));
            assert_eq!(send(&webhook, &clock, "ping").await, Decided::Executed);
        }
        assert_eq!(lines(&mut own).await, 6);
    }

    #[tokio::test]
    async fn without_ids_deliveries_at_once_are_one_event() {
        let (_folder, clock, _executor, webhook, mut own) = by_body().await;
        let answers = join_all((0..16).map(|_| send(&webhook, &clock, "ping"))).await;
        assert_eq!(answers.iter().filter(|answer| **answer == Decided::Executed).count(), 1, "{answers:?}");
        assert_eq!(lines(&mut own).await, 1);
    }

    #[tokio::test]
    async fn a_window_that_is_shorter_than_the_tolerance_is_refused() {
        let (_folder, executor, _own) = crate::exec::inbox::sqlite::open().await;
        let short = standard().identify_by_body(Duration::from_mins(9));
        let none = standard().tolerance(Duration::ZERO).identify_by_body(Duration::ZERO);
        for refused in [short, none] {
            let error = refused.on(&executor, |_| async { Ok::<_, Infallible>(enter()) }).unwrap_err();
            assert!(matches!(error, WebhookConfigError::WindowTooShort { .. }), "{error}");
        }
    }

    // J03: the process dies behind the effect, and before the sender hears of it.
    #[tokio::test]
    async fn the_next_process_knows_what_was_done() {
        let (folder, executor, mut own) = crate::exec::inbox::sqlite::open().await;
        let webhook = enters(standard(), &executor);
        assert_eq!(decided(&webhook.receive(signed("evt_1", "{}")).await), Decided::Executed);
        executor.shutdown(Duration::from_secs(5)).await;
        drop(webhook);
        let executor = Executor::sqlite(folder.path().join("test.db")).open().await.unwrap();
        let webhook = enters(standard(), &executor);
        assert_eq!(decided(&webhook.receive(signed("evt_1", "{}")).await), Decided::Replayed);
        assert_eq!(lines(&mut own).await, 1);
    }
}

mod postgres {
    on!(sqlx::PgConnection, crate::exec::inbox::postgres::open());
}
