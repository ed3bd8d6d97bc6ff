//! What the browser looks at: a desk for refunds after a bad night. One payment has lost its worker and was looked up, one was
//! found, one is in doubt, an approval and a timer wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use counterfoil::api::{Api, Caller, Role, TenantScope};
use counterfoil::clock::{Clock as _, SystemClock};
use counterfoil::exec::Evidence;
use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::{
    Contract, ContractClass, EffectClass, ErrorKind, LookupResult, Rate, RetryPolicy, ReviewPolicy,
};
use counterfoil::tool::{Call, Done, DynamicTool, ToolError};
use counterfoil::{ApprovalSubject, Client, Ctx, Engine, Failure, Key, QuestionId, RunId};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A refund: the letter is written, the case is opened, the money is sent, and the customer's answer is awaited.
async fn refund(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.step("letter", &order, |order| format!("Dear customer, about {order}: …")).await?;
    ctx.call_named("open_case", json!({ "order": order })).await?;
    ctx.call_named("pay_back", json!({ "order": order })).await?;
    ctx.sleep_named("cooling off", Duration::from_millis(300)).await?;
    ctx.signal("thanks").await
}

/// The longest time of an attempt, after which a lookup that shows nothing is believed.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The provider: the orders whose money went back, with its id for each.
type Bank = Arc<Mutex<BTreeMap<String, Value>>>;

fn tool(name: &'static str, contract: Contract, bank: &Bank) -> DynamicTool {
    let bank = bank.clone();
    DynamicTool::new(name, EffectClass::Payment, contract)
        .key(move |input| Some(Key::of(name).target(input["order"].as_str()?)))
        .call(move |call: Call, input: Value| {
            let bank = bank.clone();
            async move { carry_out(name, &bank, &call, &input).await }
        })
}

/// What happens to a request is in the name of its order.
async fn carry_out(name: &str, bank: &Bank, call: &Call, input: &Value) -> Result<Done<Value>, ToolError> {
    let order = input["order"].as_str().unwrap();
    SystemClock.sleep(Duration::from_millis(120)).await;
    match (name, order) {
        ("pay_back", "order/lost") if call.attempt() == 1 => std::future::pending().await,
        ("pay_back", order) if order.starts_with("order/doubt") => {
            Err(ToolError::new(ErrorKind::Disconnected, "the bank hung up after it had read the request"))
        }
        _ => {
            let hangs_up = name == "pay_back" && order.starts_with("order/hung-up") && call.attempt() == 1;
            let done = json!({ "id": format!("{name}-81"), "order": order });
            bank.lock().unwrap().insert(order.to_owned(), done.clone());
            if hangs_up {
                return Err(ToolError::new(ErrorKind::Disconnected, "the bank hung up before it answered"));
            }
            Ok(Done::new(done).external_ref(format!("{name}-81")))
        }
    }
}

/// What the bank says about an order: about one in doubt it cannot tell.
async fn look_up(bank: &Bank, input: &Value) -> Result<LookupResult<Value>, ToolError> {
    SystemClock.sleep(Duration::from_millis(60)).await;
    let order = input["order"].as_str().unwrap();
    if order.starts_with("order/doubt") {
        return Ok(LookupResult::Unknown);
    }
    Ok(match bank.lock().unwrap().get(order) {
        Some(done) => {
            LookupResult::Committed { output: done.clone(), external_ref: Some("pay_back-81".to_owned()) }
        }
        None => LookupResult::NotFound,
    })
}

fn engine(path: &Path) -> EngineBuilder {
    let (bank, cases) = (Bank::default(), Bank::default());
    let looked_up = Contract::new(ContractClass::Lookup).settle(ATTEMPT);
    let retry = RetryPolicy { attempt_timeout: ATTEMPT, ..RetryPolicy::default() };
    let pay = tool("pay_back", looked_up, &bank).retry(retry).reconcile(move |_: Call, input: Value| {
        let bank = bank.clone();
        async move { look_up(&bank, &input).await }
    });
    Engine::sqlite(path)
        .workflow("refund", 1, refund)
        .dynamic_tool(tool("open_case", Contract::new(ContractClass::ReplaysKey), &cases))
        .dynamic_tool(pay)
}

pub(super) struct Desk {
    engine: Engine,
    client: Client,
    pub(super) url: String,
    pub(super) token: String,
    /// The run whose payment lost its worker.
    pub(super) lost: RunId,
    /// The question about the payment that is in doubt.
    pub(super) doubt: QuestionId,
    pub(super) review: String,
    _dir: TempDir,
}

impl Desk {
    pub(super) async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.db");
        let lost = lose_a_worker(&path).await;
        let engine = engine(&path).start().await.unwrap();
        let client = Client::sqlite(&path).open().await.unwrap();
        let acme = engine.tenant("acme").unwrap();
        let doubted =
            acme.run(refund, "order/doubt-17".to_owned()).key("order/doubt-17").start().await.unwrap();
        let doubt = loop {
            let open = acme.questions().await.unwrap();
            if let Some(asked) = open.iter().find(|asked| asked.run == Some(doubted.id())) {
                break asked.id;
            }
            SystemClock.sleep(Duration::from_millis(20)).await;
        };
        for order in ["order/hung-up-20", "order/21", "order/22", "order/23"] {
            acme.run(refund, order.to_owned()).key(order).start().await.unwrap();
        }
        let content =
            json!({ "to": "Ann Lee", "cents": 12_900, "text": "We are sorry. Here is your money back." });
        let package = ApprovalSubject::of("refund above 100", &content).for_whom("Ann Lee");
        let policy = ReviewPolicy::by(["ann", "bob"]).expires_in(Duration::from_hours(72));
        let review = acme.approvals().ask("order/24", package, policy).await.unwrap().id;
        let (url, token) = serve(&client).await;
        let desk = Self { engine, client, url, token, lost, doubt, review, _dir: dir };
        desk.reaches(lost, "waiting").await;
        desk
    }

    /// The review's id as a part of a path.
    pub(super) fn review_path(&self) -> String {
        self.review.bytes().fold(String::new(), |path, byte| format!("{path}%{byte:02X}"))
    }

    /// Waits until a run is in a state.
    pub(super) async fn reaches(&self, run: RunId, state: &str) {
        let handle = self.client.tenant("acme").unwrap().handle::<Value>(run);
        while handle.status().await.unwrap().state.name() != state {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends the customer's thanks, which the run waits for.
    pub(super) async fn thank(&self, run: RunId) {
        let handle = self.client.tenant("acme").unwrap().handle::<Value>(run);
        handle.signal("thanks", json!("a pleasure")).await.unwrap();
    }

    /// The evidence of a call of acme.
    pub(super) async fn evidence(&self, key: &str) -> Evidence {
        self.client.tenant("acme").unwrap().evidence(key).await.unwrap().unwrap()
    }

    pub(super) async fn close(self) {
        self.client.shutdown(Duration::ZERO).await;
        self.engine.shutdown(Duration::ZERO).await;
    }
}

/// Serves the dashboard of a ledger, and returns its address and a token of Ann, who may do everything.
pub(super) async fn serve(client: &Client) -> (String, String) {
    let api = Api::new(client).rate(Rate::per_second(1_000_000).burst(1_000_000));
    let ann = Caller::new("ann", Role::Operate, TenantScope::All).unwrap();
    let token = api.tokens().create(ann).await.unwrap().secret().to_owned();
    let app = Router::new().nest_service("/ui", api.dashboard().router()).merge(api.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/ui", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, token)
}

/// A worker that dies while its payment is under way: its runtime goes with all tasks, and nothing is drained.
async fn lose_a_worker(path: &Path) -> RunId {
    let path = path.to_owned();
    let thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (engine, run) = runtime.block_on(async {
            let engine = engine(&path).start().await.unwrap();
            let acme = engine.tenant("acme").unwrap();
            let run = acme.run(refund, "order/lost".to_owned()).key("order/lost").start().await.unwrap();
            let is_sent = async || {
                let turns = run.history(None).await.unwrap();
                turns.iter().flat_map(|turn| &turn.calls).any(|call| call.tool == "pay_back")
            };
            while !is_sent().await {
                SystemClock.sleep(Duration::from_millis(20)).await;
            }
            SystemClock.sleep(Duration::from_millis(200)).await; // so that the bar of the lost attempt can be seen
            (engine, run.id())
        });
        drop((engine, runtime));
        run
    };
    tokio::task::spawn_blocking(thread).await.unwrap()
}
