//! What the buttons are pressed on: a shop whose provider hangs up or refuses, whose events are refused, and whose runs wait for
//! their customers. What goes wrong is in the name of the order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::clock::{Clock as _, SystemClock};
use counterfoil::exec::QuestionView;
use counterfoil::flow::{EngineBuilder, RunHandle, TenantClient};
use counterfoil::ledger::{
    Backoff, Compensation, Contract, ContractClass, EffectClass, ErrorKind, LookupPolicy, LookupResult,
    Undone,
};
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::store::{Question, QuestionKind};
use counterfoil::tool::{Call, Done, DynamicTool, OriginalCall, ToolError};
use counterfoil::{Client, Ctx, Engine, Failure, Key, QuestionId, RunId, Tenant};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::desk::serve;

/// The pause before a look at what another task does.
const SOON: Duration = Duration::from_millis(20);
/// The number of looks that a test makes in all: a minute of waiting.
const LOOKS: u32 = 3000;

async fn pay(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.call_named("pay", json!({ "order": order })).await
}

async fn ship(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.call_named("ship", json!({ "order": order })).await
}

/// Books and pays an order, which its customer may still cancel.
async fn hold(ctx: Ctx, order: String) -> Result<u32, Failure> {
    ctx.call_named("book", json!({ "order": order })).await?;
    ctx.call_named("pay", json!({ "order": order })).await?;
    ctx.signal("number").await
}

async fn wait(ctx: Ctx, _: String) -> Result<u32, Failure> {
    ctx.signal("number").await
}

/// Publishes two events about an order, of which the first one is refused.
async fn tell(ctx: Ctx, order: String) -> Result<(), Failure> {
    ctx.emit(&order, "refused", &order).await?;
    ctx.emit(&order, "taken", &order).await
}

/// The provider of all tools.
#[derive(Default)]
pub(super) struct Provider {
    /// The number of requests, by the key of the call.
    requests: Mutex<BTreeMap<String, u32>>,
    /// The orders whose bookings were undone.
    undone: Mutex<Vec<String>>,
    /// The orders whose events were taken.
    told: Mutex<Vec<String>>,
    /// True if its lookup shows what was shipped.
    shows: AtomicBool,
}

impl Provider {
    pub(super) fn requests(&self, key: &str) -> u32 {
        self.requests.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    pub(super) fn undone(&self) -> Vec<String> {
        self.undone.lock().unwrap().clone()
    }

    /// Lets its lookup show what was shipped. Until then it cannot tell.
    pub(super) fn shows(&self) {
        self.shows.store(true, Ordering::Release);
    }

    /// Answers a request. Only the first one about an order goes wrong.
    fn carry_out(&self, tool: &str, input: &Value) -> Result<Done<Value>, ToolError> {
        let order = input["order"].as_str().unwrap();
        let key = format!("{tool}:{order}");
        let times = {
            let mut requests = self.requests.lock().unwrap();
            let times = requests.entry(key.clone()).or_default();
            *times += 1;
            *times
        };
        match order {
            order if times == 1 && order.contains("doubt") => {
                Err(ToolError::new(ErrorKind::Disconnected, "the provider hung up"))
            }
            order if times == 1 && order.contains("broke") => Err(ToolError::refused("no money")),
            _ => Ok(Done::new(json!({ "done": key }))),
        }
    }

    fn look_up(&self, input: &Value) -> LookupResult<Value> {
        if self.shows.load(Ordering::Acquire) {
            LookupResult::Committed { output: input.clone(), external_ref: None }
        } else {
            LookupResult::Unknown
        }
    }
}

/// The receiver of the events.
struct Listener(Arc<Provider>);

impl Sink for Listener {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let (mut result, mut behind) = (PublishResult::all(), BTreeSet::new());
        for (place, event) in batch.iter().enumerate() {
            if event.kind == "refused" {
                result = result.except(place, SinkError::refused("no such customer"));
                behind.insert(&event.aggregate);
            } else if !behind.contains(&event.aggregate) {
                self.0.told.lock().unwrap().push(event.aggregate.clone());
            }
        }
        Ok(result)
    }
}

fn tool(name: &'static str, contract: Contract, provider: &Arc<Provider>) -> DynamicTool {
    let provider = provider.clone();
    DynamicTool::new(name, EffectClass::InternalMutation, contract)
        .key(move |input| Some(Key::of(name).target(input["order"].as_str()?)))
        .call(move |_: Call, input: Value| {
            let provider = provider.clone();
            async move { provider.carry_out(name, &input) }
        })
}

/// An engine that takes its ledger for older than the world, until somebody lifts that.
fn engine(path: &Path, provider: &Arc<Provider>) -> EngineBuilder {
    let (looks, undoes) = (provider.clone(), provider.clone());
    let lookup = Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender();
    let ship = tool("ship", lookup, provider).lookups(LookupPolicy::default().attempts(1)).reconcile(
        move |_: Call, input: Value| {
            let provider = looks.clone();
            async move { Ok(provider.look_up(&input)) }
        },
    );
    let book = tool("book", Contract::new(ContractClass::ReplaysKey), provider).compensate(
        Compensation::Approved,
        move |_: Call, original: OriginalCall| {
            let provider = undoes.clone();
            async move {
                let order = original.input().and_then(|input| input["order"].as_str()).map(str::to_owned);
                provider.undone.lock().unwrap().extend(order);
                Ok(Undone::whole().into())
            }
        },
    );
    let at_once = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(20) };
    Engine::sqlite(path)
        .restored(None)
        .workflow("pay", 1, self::pay)
        .workflow("ship", 1, self::ship)
        .workflow("hold", 1, hold)
        .workflow("wait", 1, wait)
        .workflow("tell", 1, tell)
        .dynamic_tool(tool("pay", Contract::new(ContractClass::Blind), provider))
        .dynamic_tool(ship)
        .dynamic_tool(book)
        .sink(Publisher::new(Listener(provider.clone())).backoff(at_once).tries(2))
}

pub(super) struct Shop {
    engine: Engine,
    client: Client,
    pub(super) provider: Arc<Provider>,
    pub(super) url: String,
    pub(super) token: String,
    looks: AtomicU32,
    _dir: TempDir,
}

impl Shop {
    /// A shop whose ledger is still taken for older than the world.
    pub(super) async fn restored() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.db");
        let provider = Arc::new(Provider::default());
        let engine = engine(&path, &provider).start().await.unwrap();
        let client = Client::sqlite(&path).open().await.unwrap();
        let (url, token) = serve(&client).await;
        Self { engine, client, provider, url, token, looks: AtomicU32::new(0), _dir: dir }
    }

    pub(super) async fn open() -> Self {
        let shop = Self::restored().await;
        shop.engine.executor().lift_restored("bob", "the shop is new").await.unwrap();
        shop
    }

    /// True if the ledger is taken for older than the world.
    pub(super) async fn is_restored(&self) -> bool {
        self.engine.executor().restored().await.unwrap().is_some()
    }

    /// The operations of a tenant, beside the engine.
    pub(super) fn of(&self, tenant: &Tenant) -> TenantClient {
        self.client.as_tenant(tenant)
    }

    pub(super) fn acme(&self) -> TenantClient {
        self.client.tenant("acme").unwrap()
    }

    pub(super) fn handle(&self, run: RunId) -> RunHandle<Value> {
        self.acme().handle(run)
    }

    /// Begins a run of this workflow about an order.
    pub(super) async fn start(&self, workflow: &str, order: &str) -> RunId {
        self.acme().run_named(workflow, order.to_owned()).key(order).start().await.unwrap().id()
    }

    /// Waits before the next look. A wait for something that does not come fails the test.
    async fn waits(&self, otherwise: &str) {
        assert!(self.looks.fetch_add(1, Ordering::Relaxed) < LOOKS, "{otherwise}");
        SystemClock.sleep(SOON).await;
    }

    /// Waits until a run is in a state.
    pub(super) async fn reaches(&self, run: RunId, state: &str) {
        while self.handle(run).status().await.unwrap().state.name() != state {
            self.waits(&format!("{run} is not {state}")).await;
        }
    }

    /// Waits until the provider has had a request under this key.
    pub(super) async fn sends(&self, key: &str) {
        while self.provider.requests(key) == 0 {
            self.waits(&format!("no request under {key}")).await;
        }
    }

    /// Waits until the events about an order were taken.
    pub(super) async fn hears_of(&self, order: &str) {
        while !self.provider.told.lock().unwrap().iter().any(|told| told == order) {
            self.waits(&format!("no event about {order}")).await;
        }
    }

    /// Waits for an open question of this kind, about this run if one is named.
    pub(super) async fn asks(&self, tenant: &Tenant, kind: QuestionKind, run: Option<RunId>) -> QuestionId {
        loop {
            let open = self.of(tenant).questions().await.unwrap();
            let is_it = |asked: &&Question| asked.kind == kind && (run.is_none() || asked.run == run);
            if let Some(asked) = open.iter().find(is_it) {
                return asked.id;
            }
            self.waits(&format!("no question: {kind:?}")).await;
        }
    }

    /// Waits until a question is answered, and returns it.
    pub(super) async fn answered(&self, tenant: &Tenant, id: QuestionId) -> QuestionView {
        loop {
            let view = self.of(tenant).question(id).await.unwrap().unwrap();
            if view.answer.is_some() {
                return view;
            }
            self.waits(&format!("{id} is not answered")).await;
        }
    }

    pub(super) async fn close(self) {
        self.client.shutdown(Duration::ZERO).await;
        self.engine.shutdown(Duration::ZERO).await;
    }
}
