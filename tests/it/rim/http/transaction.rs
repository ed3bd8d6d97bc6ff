//! A handler that writes to the ledger's own database: its changes and its answer are committed together, exactly once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use counterfoil::Executor;
use counterfoil::http::{Idempotency, LedgerTransaction, LedgerTransactionError};
use counterfoil::store::QuestionKind;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor as _, PgConnection};
use tokio::sync::watch;

use super::shop::{Answered, answered, post_to, scope};
use crate::world::{acme, serve, soon};

/// Lets handlers wait behind their changes.
#[derive(Clone)]
struct Gate {
    arrived: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Self {
        Self { arrived: watch::Sender::new(0), open: watch::Sender::new(false) }
    }

    async fn waiting(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let come = async { arrived.wait_for(|arrived| *arrived >= count).await.map(drop) };
        soon(format!("there are no {count} handlers that wait"), come).await;
    }
}

async fn send(url: &str, key: &str, what: &str) -> Answered {
    answered(post_to(&format!("{url}/entries"), key, &json!({ "do": what }))).await
}

/// The same tests on both databases.
macro_rules! on {
    ($connection:ty, $open:expr) => {
        use super::*;

        type Own = $connection;

        fn enter(db: &mut Own) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
            Box::pin(async move {
                db.execute("INSERT INTO entry (what) VALUES (1)").await?;
                sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(db).await
            })
        }

        fn runs<'c>(db: &'c mut Own, sql: &'static str) -> BoxFuture<'c, Result<(), sqlx::Error>> {
            Box::pin(async move { sqlx::raw_sql(sql).execute(db).await.map(drop) })
        }

        async fn entry(
            State(gate): State<Gate>,
            Extension(transaction): Extension<LedgerTransaction<Own>>,
            Json(body): Json<Value>,
        ) -> Response {
            let number = transaction.run(|db: &mut Own| enter(db)).await.unwrap();
            match body["do"].as_str().unwrap() {
                "refuse" => (StatusCode::CONFLICT, "full").into_response(),
                "fail" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                "panic" => panic!("behind the change"),
                "wait" => {
                    gate.arrived.send_modify(|arrived| *arrived += 1);
                    gate.open.subscribe().wait_for(|open| *open).await.unwrap();
                    format!("entry {number}").into_response()
                }
                "commit" => {
                    let ended = transaction.run(|db: &mut Own| runs(db, "COMMIT")).await;
                    format!("ended {ended:?}").into_response()
                }
                "wrong" => {
                    let wrong =
                        transaction.run(|db: &mut Own| runs(db, "SELECT nonsense FROM nowhere")).await;
                    assert!(matches!(wrong, Err(LedgerTransactionError::Failed(_))));
                    (StatusCode::UNPROCESSABLE_ENTITY, "no such thing").into_response()
                }
                _ => (StatusCode::CREATED, format!("entry {number}")).into_response(),
            }
        }

        async fn served(executor: &Executor, gate: &Gate) -> String {
            let layer = Idempotency::new(executor, scope).transactional::<Own>().layer().unwrap();
            serve(Router::new().route("/entries", post(entry)).with_state(gate.clone()).layer(layer)).await
        }

        async fn entries(own: &mut Own) -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(own).await.unwrap()
        }

        #[tokio::test]
        async fn changes_and_answer_are_committed_together() {
            let (_place, executor, mut own) = $open.await;
            let url = served(&executor, &Gate::new()).await;
            let first = send(&url, "a", "enter").await;
            assert_eq!((first.status, first.text().as_str(), first.is_replayed()), (201, "entry 1", false));
            let again = send(&url, "a", "enter").await;
            assert_eq!((again.status, again.text().as_str(), again.is_replayed()), (201, "entry 1", true));
            assert_eq!(send(&url, "a", "other").await.problem().1, "idempotency-key-reused");
            assert_eq!(send(&url, "b", "enter").await.text(), "entry 2");
            assert_eq!(entries(&mut own).await, 2);
        }

        #[tokio::test]
        async fn what_is_not_well_is_rolled_back_and_frees_the_key() {
            let (_place, executor, mut own) = $open.await;
            let url = served(&executor, &Gate::new()).await;
            assert_eq!(send(&url, "a", "refuse").await.text(), "full");
            assert_eq!(send(&url, "a", "fail").await.status, 500);
            assert_eq!(send(&url, "a", "wrong").await.status, 422);
            assert_eq!(send(&url, "a", "panic").await.problem(), (503, "transaction-rolled-back".into()));
            assert_eq!(entries(&mut own).await, 0);
            assert_eq!(send(&url, "a", "enter").await.text(), "entry 1");
            assert!(executor.questions(&acme()).await.unwrap().is_empty());
        }

        // What it committed is durable, and it is not run a second time.
        #[tokio::test]
        async fn a_handler_that_ends_the_transaction_is_asked_about() {
            let (_place, executor, mut own) = $open.await;
            let url = served(&executor, &Gate::new()).await;
            for _ in 0..2 {
                assert_eq!(send(&url, "a", "commit").await.problem(), (409, "outcome-unknown".into()));
            }
            assert_eq!(entries(&mut own).await, 1);
            let [question] = &executor.questions(&acme()).await.unwrap()[..] else { panic!("one question") };
            assert_eq!(question.kind, QuestionKind::Ambiguous);
            assert!(question.question.contains("ended its transaction itself"), "{}", question.question);
            assert_eq!(send(&url, "b", "enter").await.text(), "entry 2", "others go on");
        }

        // A client that goes away does not roll it back.
        #[tokio::test]
        async fn a_client_that_goes_away_does_not_cut_it_off() {
            let (_place, executor, mut own) = $open.await;
            let gate = Gate::new();
            let url = served(&executor, &gate).await;
            let first = tokio::spawn({
                let url = url.clone();
                async move { send(&url, "a", "wait").await }
            });
            gate.waiting(1).await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            gate.open.send_replace(true);
            let mut again = send(&url, "a", "wait").await;
            for _ in 0..1000 {
                if again.status == 200 {
                    break;
                }
                again = send(&url, "a", "wait").await;
            }
            assert_eq!((again.text().as_str(), again.is_replayed()), ("entry 1", true));
            assert_eq!(entries(&mut own).await, 1);
        }
    };
}

mod sqlite {
    use crate::exec::inbox::sqlite::open;

    on!(SqliteConnection, open());

    // A process that dies in the handler has done nothing: the next one handles the request, and asks nobody.
    #[tokio::test]
    async fn what_a_dead_process_began_is_done_from_the_beginning() {
        use crate::world::Process;
        let (folder, executor, mut own) = open().await;
        executor.shutdown(Duration::from_secs(5)).await;
        let path = folder.path().join("test.db");
        let process = Process::start(Executor::sqlite(&path)).await.unwrap();
        let (gate, executor) = (Gate::new(), process.executor());
        let serving = gate.clone();
        let url = process.spawn(async move { served(&executor, &serving).await }).await.unwrap();
        let body = json!({ "do": "wait" });
        let client = tokio::spawn(post_to(&format!("{url}/entries"), "a", &body).send());
        gate.waiting(1).await;
        process.kill();
        assert!(client.await.unwrap().is_err());
        assert_eq!(entries(&mut own).await, 0);
        let next = Executor::sqlite(&path).open().await.unwrap();
        gate.open.send_replace(true);
        let url = served(&next, &gate).await;
        let mut again = send(&url, "a", "wait").await;
        for _ in 0..1000 {
            if again.status == 200 {
                break;
            }
            again = send(&url, "a", "wait").await;
        }
        assert_eq!((again.text().as_str(), again.is_replayed()), ("entry 1", false));
        assert_eq!(entries(&mut own).await, 1);
        assert!(next.questions(&acme()).await.unwrap().is_empty());
    }
}

mod postgres {
    use crate::exec::inbox::postgres::open;

    on!(PgConnection, open());

    // Copies of one request in two processes: one is handled, the other one gets its answer or is told to come again.
    #[tokio::test]
    async fn two_processes_have_one_effect() {
        let (schema, executor, mut own) = open().await;
        let other = counterfoil::exec::ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
        let other = Arc::new(other.open().await.unwrap());
        let urls = [served(&executor, &Gate::new()).await, served(&other, &Gate::new()).await];
        let copies = (0..20).map(|copy| {
            let url = urls[copy % 2].clone();
            tokio::spawn(async move { send(&url, "a", "enter").await })
        });
        for copy in futures_util::future::join_all(copies).await {
            let copy = copy.unwrap();
            match copy.status {
                201 => assert_eq!(copy.text(), "entry 1"),
                _ => assert_eq!(copy.problem().1, "request-in-progress"),
            }
        }
        assert_eq!(entries(&mut own).await, 1);
    }
}
