//! The row about the guard as a service: calls that a client begins and seals over HTTP, beside the executor alone.

use std::net::SocketAddr;
use std::time::Instant;

use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::guard_service::GuardService;
use counterfoil::ledger::Rate;
use counterfoil::{Engine, Key, Tenant};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::options::Options;
use crate::place::{Database, Home};
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};
use crate::wire::{Wire, serve};

/// The number of concurrent clients, and the calls of each in a round.
const CLIENTS: usize = 64;
const CALLS: usize = 50;

pub(crate) fn calls(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let (served, alone) = multi_thread().block_on(async {
        let [ours, raw] = [home.place("subject"), home.place("raw")];
        let (ours, raw) = (subject::engine(&ours).await, subject::engine(&raw).await);
        let service = Service::of(&ours).await;
        let (mut served, mut alone) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            let rates = [
                rate(|client| through(service.clone(), format!("{round} {client}"))).await,
                rate(|client| execute(raw.clone(), format!("{round} {client}"))).await,
            ];
            if round > 0 {
                served.push(rates[0]);
                alone.push(rates[1]);
            }
        }
        ours.shutdown(subject::DRAIN).await;
        raw.shutdown(subject::DRAIN).await;
        (served, alone)
    });
    let measure = format!("calls of {CLIENTS} clients through the guard over HTTP ÷ by the executor alone");
    let (served, alone) = (Values::new("/s", served), Values::new("/s", alone));
    Ok(vec![Finding::ratio("guard-service", measure, served, alone).at_least(0.4, 0.6)])
}

/// Calls per second of all clients.
async fn rate<F: Future<Output = ()> + Send + 'static>(client: impl Fn(usize) -> F) -> f64 {
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS).map(|nth| tokio::spawn(client(nth))).collect();
    for ended in join_all(clients).await {
        ended.expect("a client");
    }
    (CLIENTS * CALLS) as f64 / start.elapsed().as_secs_f64()
}

/// A served guard, and the token of its clients.
#[derive(Clone)]
struct Service {
    address: SocketAddr,
    authorization: String,
}

impl Service {
    async fn of(engine: &Engine) -> Self {
        // A client has a limit of its own, which is not what is measured.
        let rate = Rate::per_second(1_000_000).burst(1_000_000);
        let api = Api::of_engine(engine).rate(rate).guard(&GuardService::new(&engine.executor()));
        let caller = Caller::new("bench", Role::Call, TenantScope::One(tenant())).expect("a caller");
        let token = api.tokens().create(caller).await.expect("a token");
        let authorization = format!("authorization: Bearer {}", token.secret());
        Self { address: serve(api.router()).await, authorization }
    }
}

/// Makes one call after the other as a program in another language does: it begins each, and seals it.
async fn through(service: Service, client: String) {
    let mut wire = Wire::to(service.address).await;
    let mut post = async |verb: &str, body: Value| -> Value {
        let path = format!("/guard/{verb}");
        let answer = wire.post(&path, &service.authorization, &body.to_string()).await;
        serde_json::from_slice(answer).expect("JSON")
    };
    for nth in 0..CALLS {
        let key = format!("{client} {nth}");
        let refund = json!({ "tool": "refund", "key": key, "input": { "cents": 1200 } });
        let begun = post("begin", refund).await;
        let outcome = json!({ "done": { "output": { "id": "re_7" }, "external_ref": "re_7" } });
        let sealed = post("seal", json!({ "permit": begun["permit"], "outcome": outcome })).await;
        assert!(sealed["step"] == "done", "{begun} {sealed}");
    }
}

async fn execute(engine: Engine, client: String) {
    let (executor, tenant) = (engine.executor(), tenant());
    for nth in 0..CALLS {
        let key = Key::given("refund", format!("{client} {nth}"));
        let input = json!({ "cents": 1200 });
        let done = executor.execute_once(&tenant, key, &input, || async { Ok(json!({ "id": "re_7" })) });
        assert!(done.await.expect("an outcome").answer().is_some(), "it is done");
    }
}

fn tenant() -> Tenant {
    Tenant::new(TENANT).expect("a tenant")
}
