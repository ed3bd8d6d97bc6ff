//! The service with tenants in two processes on one PostgreSQL: a request may go to either, and when one is killed with SIGKILL
//! the other one carries its runs on.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil::Engine;
use counterfoil::store::postgres::Options;
use counterfoil::{Clock as _, SystemClock};
use reqwest::{Client, Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::Failed;
use crate::harness::process::{Process, Program};
use crate::harness::role::{Message, say};
use crate::harness::worker::Ledger;
use crate::{on_postgres, run};

#[path = "../../workflows/tenants_service.rs"]
#[allow(dead_code, reason = "its program has a port of its own")]
mod service;

const LEASE: Duration = Duration::from_secs(1);

/// One process of the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serves {
    url: String,
    schema: String,
    books: PathBuf,
}

/// Until it is killed.
pub(crate) async fn play(own: Serves) -> Result<i32, Failed> {
    let options = Options { schema: Some(own.schema), ..Options::default() };
    let engine = Engine::postgres_with(&own.url, options).lease(LEASE);
    let engine = service::engine(engine, service::books::Books::File(own.books)).start().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    say(&Message::Listening { url: format!("http://{}", listener.local_addr()?) })?;
    axum::serve(listener, service::routes(&engine)).await?;
    Ok(0)
}

/// A client of one process.
struct Door {
    process: Process,
    url: String,
    http: Client,
}

impl Door {
    async fn open(program: &Program, serves: &Serves) -> Self {
        let mut process = program.start(serves).unwrap();
        let Some(Message::Listening { url }) = process.hear().await.unwrap() else {
            panic!("it did not start")
        };
        Self { process, url, http: Client::builder().no_proxy().build().unwrap() }
    }

    async fn asks(&self, tenant: &str, method: Method, path: &str, body: Value) -> (StatusCode, String) {
        let request = self.http.request(method, format!("{}/orders/{path}", self.url));
        let answer = request.bearer_auth(format!("token-of-{tenant}")).json(&body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn posts(&self, tenant: &str, path: &str, body: Value) -> StatusCode {
        self.asks(tenant, Method::POST, path, body).await.0
    }

    /// Asks until the order has ended well.
    async fn until_succeeded(&self, tenant: &str, order: &str) {
        loop {
            match self.asks(tenant, Method::GET, order, Value::Null).await {
                (StatusCode::OK, state) if state == "succeeded" => return,
                (StatusCode::OK, _) => SystemClock.sleep(Duration::from_millis(20)).await,
                other => panic!("{tenant} {order}: {other:?}"),
            }
        }
    }
}

#[test]
fn either_process_serves_each_tenant_and_carries_on_the_runs_of_one_that_is_killed() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        let Ledger::Postgres { url, schema } = on_postgres() else { unreachable!("it is asked for") };
        let books = folder.path().join("books.txt");
        let serves = Serves { url, schema, books: books.clone() };
        let (first, second) = (Door::open(&program, &serves).await, Door::open(&program, &serves).await);

        // The same id is another order for each tenant, and the same request twice is one order.
        for (tenant, cents) in [("acme", 4200), ("globex", 9900), ("acme", 4200)] {
            assert_eq!(first.posts(tenant, "o-1", json!({ "cents": cents })).await, StatusCode::ACCEPTED);
        }
        assert_eq!(second.posts("acme", "o-1", json!({ "cents": 1 })).await, StatusCode::CONFLICT);
        assert_eq!(first.posts("acme", "o-2", json!({ "cents": 500 })).await, StatusCode::ACCEPTED);
        let (status, _) = second.asks("globex", Method::GET, "o-2", Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "no tenant sees the order of another one");

        // Begun by the one, paid at the other, told twice.
        for _ in 0..2 {
            assert_eq!(second.posts("acme", "o-1/paid", json!("evt_1")).await, StatusCode::ACCEPTED);
        }
        second.until_succeeded("acme", "o-1").await;

        // The first one is killed. What it began goes on with the second one.
        let Door { process, .. } = first;
        process.kill().await.unwrap();
        for (tenant, order) in [("globex", "o-1"), ("acme", "o-2")] {
            let path = format!("{order}/paid");
            assert_eq!(second.posts(tenant, &path, json!("evt_1")).await, StatusCode::ACCEPTED);
            second.until_succeeded(tenant, order).await;
        }
        let text = std::fs::read_to_string(books).unwrap();
        let mut entries: Vec<_> =
            text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        entries.sort_unstable();
        assert_eq!(entries, ["acme o-1 4200", "acme o-2 500", "globex o-1 9900"]);
    });
}
