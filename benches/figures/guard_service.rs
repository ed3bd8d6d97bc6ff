//! The row about the guard as a service: calls that a client begins and seals over HTTP, beside the executor alone.

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

/// The number of concurrent clients, and the calls of each in a round.
const CLIENTS: usize = 64;
const CALLS: usize = 50;

pub(crate) fn calls(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let (served, alone) = multi_thread().block_on(async {
        let [ours, raw] = [home.place("subject"), home.place("raw")];
        let (ours, raw) = (subject::engine(&ours).await, subject::engine(&raw).await);
        let client = Client::of(&ours).await;
        let (mut served, mut alone) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            let (client, engine) = (client.clone(), raw.clone());
            let rates = [
                rate(move |key| call(client.clone(), format!("{round} {key}"))).await,
                rate(move |key| execute(engine.clone(), format!("{round} {key}"))).await,
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

/// Calls per second of all clients, each of which makes one call after the other.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    call: impl Fn(String) -> F + Clone + Send + 'static,
) -> f64 {
    let start = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let call = call.clone();
        tokio::spawn(async move {
            for nth in 0..CALLS {
                call(format!("{client} {nth}")).await;
            }
        })
    });
    for ended in join_all(clients).await {
        ended.expect("a client");
    }
    (CLIENTS * CALLS) as f64 / start.elapsed().as_secs_f64()
}

/// A client of a served guard, as a program in another language is one.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    async fn of(engine: &Engine) -> Self {
        // A client has a limit of its own, which is not what is measured.
        let rate = Rate::per_second(1_000_000).burst(1_000_000);
        let api = Api::of_engine(engine).rate(rate).guard(&GuardService::new(&engine.executor()));
        let caller = Caller::new("bench", Role::Call, TenantScope::One(tenant())).expect("a caller");
        let token = api.tokens().create(caller).await.expect("a token").secret().to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/guard", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, api.router()).await });
        Self { http: reqwest::Client::new(), url, token }
    }

    async fn post(&self, verb: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}/{verb}", self.url)).bearer_auth(&self.token).json(&body);
        request.send().await.expect("an answer").json().await.expect("JSON")
    }
}

async fn call(client: Client, key: String) {
    let refund = json!({ "tool": "refund", "key": key, "input": { "cents": 1200 } });
    let begun = client.post("begin", refund).await;
    let outcome = json!({ "done": { "output": { "id": "re_7" }, "external_ref": "re_7" } });
    let sealed = client.post("seal", json!({ "permit": begun["permit"], "outcome": outcome })).await;
    assert!(sealed["step"] == "done", "{begun} {sealed}");
}

async fn execute(engine: Engine, key: String) {
    let (executor, tenant, key) = (engine.executor(), tenant(), Key::given("refund", key));
    let input = json!({ "cents": 1200 });
    let done = executor.execute_once(&tenant, key, &input, || async { Ok(json!({ "id": "re_7" })) });
    assert!(done.await.expect("an outcome").answer().is_some(), "it is done");
}

fn tenant() -> Tenant {
    Tenant::new(TENANT).expect("a tenant")
}
