//! The HTTP layer in the simulator: wherever the service dies, a request takes effect once, and its client gets one answer.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Request, Response};
use counterfoil::Clock as _;
use counterfoil::flow::TenantClient;
use counterfoil::http::{HandlerCall, Idempotency, LedgerTransaction, RequestBody, RequestScope};
use counterfoil::inbox::Message;
use counterfoil::ledger::{Contract, ContractClass, LookupResult};
use counterfoil::sim::{CrashPoint, End, Rule, Simulation, World};
use counterfoil::{Ctx, Engine, Failure, Tenant};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;
use tower_layer::Layer as _;
use tower_service::Service;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS purchase (what TEXT NOT NULL)";

type Answer = Response<Full<Bytes>>;
/// A handler.
type Handler = fn(TenantClient, Request<RequestBody<Full<Bytes>>>) -> BoxFuture<'static, Answer>;

/// The effect. Nothing of the table's own keeps two of them apart.
fn purchase(db: &mut SqliteConnection) -> BoxFuture<'_, Result<i64, sqlx::Error>> {
    Box::pin(async move {
        db.execute(TABLE).await?;
        db.execute("INSERT INTO purchase VALUES ('a book')").await?;
        sqlx::query_scalar("SELECT count(*) FROM purchase").fetch_one(db).await
    })
}

fn answer(status: u16, text: String) -> Answer {
    Response::builder().status(status).body(Bytes::from(text).into()).unwrap()
}

/// Buys in the transaction of the request.
fn buys(_: TenantClient, request: Request<RequestBody<Full<Bytes>>>) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let transaction = request.extensions().get::<LedgerTransaction<SqliteConnection>>().unwrap();
        match transaction.run(|db: &mut SqliteConnection| purchase(db)).await {
            Ok(number) => answer(201, format!("purchase {number}")),
            Err(error) => answer(500, error.to_string()),
        }
    })
}

/// Buys in a transaction of its own, in each attempt anew.
fn buys_beside(
    tenant: TenantClient,
    request: Request<RequestBody<Full<Bytes>>>,
) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let attempt = request.extensions().get::<HandlerCall>().unwrap().attempt;
        let message = Message::new(format!("attempt {attempt}")).tries(100);
        let bought = tenant.process_once("shop", message, |db: &mut SqliteConnection| purchase(db)).await;
        match bought {
            Ok(bought) => answer(201, format!("purchase {:?}", bought.result())),
            Err(error) => answer(500, error.to_string()),
        }
    })
}

/// The handler as a service.
#[derive(Clone)]
struct Shop(TenantClient, Handler);

impl Service<Request<RequestBody<Full<Bytes>>>> for Shop {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Full<Bytes>>>) -> Self::Future {
        let answered = (self.1)(self.0.clone(), request);
        Box::pin(async { Ok(answered.await) })
    }
}

fn guard(engine: &Engine) -> Idempotency {
    let tenant = Tenant::new(Simulation::TENANT).unwrap();
    Idempotency::new(&engine.executor(), move |request| {
        Some(RequestScope::new(tenant.clone(), request.uri.path()))
    })
}

/// Sends the request until it is answered, and once more.
async fn client(engine: Engine, world: World, handler: Handler, guard: Idempotency) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let mut service = guard.layer().unwrap().layer(Shop(tenant, handler));
    let mut told = Vec::new();
    while told.len() < 2 {
        let request = Request::post("/purchases").header("idempotency-key", "order-1");
        let request = request.body(Full::new(Bytes::from_static(b"a book"))).unwrap();
        let Ok(answered) = service.call(request).await;
        let status = answered.status();
        let text = answered.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        if status.is_success() {
            told.push(text);
        } else if text.contains("outcome-unknown") {
            return format!("asked: {text}");
        } else if world.clock().boot().0 > Duration::from_hours(2) {
            return format!("gave up: {text}"); // a worker that was taken for dead is refused for ever
        }
        world.clock().sleep(Duration::from_secs(1)).await;
    }
    told.dedup();
    format!("done: {}", told.join("; "))
}

async fn idle(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.step("nothing", &(), |()| ()).await
}

const ONCE: &str = "the request takes effect once";

fn simulation(handler: Handler, say: fn(Idempotency) -> Idempotency) -> Simulation {
    Simulation::of(idle, ())
        .with_actor("client", move |engine, world| {
            let guard = say(guard(&engine));
            client(engine, world, handler, guard)
        })
        .check(ONCE, |end| match (purchases(end)?, done(end).as_slice()) {
            (0, []) | (1, _) => Ok(()),
            (purchases, done) => Err(format!("{purchases} purchases, {done:?}")),
        })
}

fn purchases(end: &End<'_>) -> Result<i64, String> {
    end.tables(|db| {
        Box::pin(async {
            db.execute(TABLE).await?;
            sqlx::query_scalar("SELECT count(*) FROM purchase").fetch_one(db).await
        })
    })
}

/// What the clients of all lives were told.
fn done<'e>(end: &'e End<'_>) -> Vec<&'e str> {
    let mut done = end.heard("client");
    done.retain(|told| told.starts_with("done: "));
    done.dedup();
    done
}

#[test]
fn changes_and_answer_are_one_wherever_the_service_is_crashed() {
    let report = crate::sim::quick(simulation(buys, Idempotency::transactional::<SqliteConnection>))
        .check("each client gets the same answer", |end| match done(end).as_slice() {
            [] | ["done: purchase 1"] => Ok(()),
            told => Err(told.join("\n")),
        })
        .check("nobody is asked", |end| {
            // A restart lists what it cannot know of a route that it has not met; the next request takes that back.
            let open = end.questions();
            if open.is_empty() || done(end).is_empty() { Ok(()) } else { Err(format!("{open:?}")) }
        })
        .explore();
    report.assert_ok();
    for point in [CrashPoint::BeforeTransaction, CrashPoint::AfterTransaction, CrashPoint::BeforeCall] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}

// The proof of the proof: a handler whose effect is not in the request's transaction, behind a lookup that never finds it.
#[test]
fn a_handler_that_buys_beside_its_transaction_is_found_out() {
    let blind = |guard: Idempotency| {
        let contract = Contract::new(ContractClass::Lookup).ends_with_sender().settle(Duration::ZERO);
        guard.reconcile(contract, |_, _| async { Ok(LookupResult::NotFound) })
    };
    let report = crate::sim::quick(simulation(buys_beside, blind)).explore();
    let found = report.failures().iter().flat_map(|failing| &failing.violations);
    assert!(found.into_iter().any(|found| found.rule == Rule::Own(ONCE.to_owned())), "{report}");
}
