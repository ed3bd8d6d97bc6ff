//! The identities of calls, events, children and runs: what is one effect, and what are two.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::exec::{ExecError, ExecutorBuilder, Outcome, RequestError, ToolRequest};
use counterfoil::flow::{EngineBuilder, RunError};
use counterfoil::id::Entropy;
use counterfoil::ledger::ErrorKind;
use counterfoil::outbox::{Event, PublishResult, Sink, SinkError};
use counterfoil::store::{Model, Store as _};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Tenant};
use serde_json::json;
use tokio::sync::mpsc;

/// A provider that replays keys: a known key gets the first answer again, whatever is asked for.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<BTreeMap<String, String>>>);

impl Provider {
    fn order(&self, key: &str, what: &str) -> String {
        self.0.lock().unwrap().entry(key.to_owned()).or_insert_with(|| what.to_owned()).clone()
    }

    fn ordered(&self) -> Vec<String> {
        let mut ordered: Vec<_> = self.0.lock().unwrap().values().cloned().collect();
        ordered.sort_unstable();
        ordered
    }
}

/// Orders something. What begins with `keyed` has a key of its own, and is refused.
struct Order(Provider);

impl Tool for Order {
    const NAME: &'static str = "order";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = String;

    fn key(&self, what: &String) -> Option<Key> {
        what.starts_with("keyed").then(|| Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<String>, ToolError> {
        if what.starts_with("keyed") {
            return Err(ToolError::new(ErrorKind::Validation, "sold out"));
        }
        Ok(Done::new(self.0.order(call.key(), what)))
    }
}

/// Its key is a random number: the classic mistake.
struct Drawn(AtomicU64);

impl Tool for Drawn {
    const NAME: &'static str = "drawn";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = ();
    type Output = ();

    fn key(&self, (): &()) -> Option<Key> {
        Some(Key::of(Self::NAME).target(self.0.fetch_add(1, Ordering::Relaxed)))
    }

    async fn call(&self, _: &Call, (): &()) -> Result<Done<()>, ToolError> {
        panic!("a call under an unstable key went out")
    }
}

struct Heard(mpsc::UnboundedSender<Event>);

impl Sink for Heard {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        for event in batch {
            let _ = self.0.send(event.clone());
        }
        Ok(PublishResult::all())
    }
}

async fn echo(_: Ctx, what: String) -> Result<String, Failure> {
    Ok(what)
}

async fn engine(provider: &Provider, also: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Engine {
    let builder =
        Engine::store(Arc::new(Model::default())).tool(Order(provider.clone())).workflow("echo", 1, echo);
    also(builder).start().await.unwrap()
}

fn acme_tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

async fn calls(ctx: Ctx, (): ()) -> Result<Vec<String>, Failure> {
    let mut answers = Vec::new();
    for id in ["0", "~0", "~~0"] {
        answers.push(ctx.call::<Order>(format!("with id {id}")).id(id).await?);
    }
    answers.push(ctx.call::<Order>("without id".to_owned()).await?);
    Ok(answers)
}

#[tokio::test]
async fn a_call_with_an_id_and_a_call_without_one_are_two_effects() {
    let provider = Provider::default();
    let engine = engine(&provider, |builder| builder.workflow("calls", 1, calls)).await;
    let answers = engine.tenant("acme").unwrap().run(calls, ()).await.unwrap();
    assert_eq!(answers, ["with id 0", "with id ~0", "with id ~~0", "without id"]);
    assert_eq!(provider.ordered().len(), 4);
}

async fn keyed_and_not(ctx: Ctx, (): ()) -> Result<String, Failure> {
    let key = Key::of("order").target("keyed").render().unwrap();
    ctx.call::<Order>("keyed".to_owned()).await.unwrap_err();
    let ordered = ctx.call::<Order>("a pen".to_owned()).id(key).await?;
    ctx.signal::<()>("go on").await?;
    Ok(ordered)
}

#[tokio::test]
async fn an_id_that_looks_like_a_key_is_another_call() {
    let (store, provider) = (Arc::new(Model::default()), Provider::default());
    let start = || {
        let builder = Engine::store(store.clone()).tool(Order(provider.clone()));
        builder.workflow("keyed", 1, keyed_and_not).start()
    };
    let engine = start().await.unwrap();
    let run = engine.tenant("acme").unwrap().run(keyed_and_not, ()).start().await.unwrap().id();
    while provider.ordered().is_empty() {
        tokio::task::yield_now().await;
    }
    engine.shutdown(Duration::from_secs(10)).await;
    // The resumed run finds the failure of the one call, and must not take it for that of the other.
    let engine = start().await.unwrap();
    let run = engine.tenant("acme").unwrap().handle::<String>(run);
    run.signal("go on", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "a pen");
}

async fn events(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.emit("order/1", ("kind", 0), "paid").await?;
    ctx.emit("order/1", ("kind", "~0"), "paid").await?;
    ctx.emit("order/1", "kind", "paid").await?;
    // The name ends where it ends: neither of these is the other.
    ctx.emit("order/1", ("a", "b/~0"), "paid").await?;
    ctx.emit("order/1", "a/b", "paid").await?;
    ctx.emit("order/1", "end", "paid").await
}

#[tokio::test]
async fn an_event_with_an_id_and_an_event_without_one_are_two_events() {
    let (sink, mut heard) = mpsc::unbounded_channel();
    let also = |builder: EngineBuilder| builder.workflow("events", 1, events).sink(Heard(sink));
    let engine = engine(&Provider::default(), also).await;
    engine.tenant("acme").unwrap().run(events, ()).await.unwrap();
    let mut ids = std::collections::BTreeSet::new();
    while let Some(event) = heard.recv().await
        && event.kind != "end"
    {
        ids.insert(event.id);
    }
    assert_eq!(ids.len(), 5);
}

async fn parent(ctx: Ctx, (): ()) -> Result<Vec<String>, Failure> {
    let with_id = ctx.child(echo, "with id".to_owned()).id(0).await?;
    Ok(vec![with_id, ctx.child(echo, "without id".to_owned()).await?])
}

#[tokio::test]
async fn a_child_with_an_id_and_a_child_without_one_are_two_runs() {
    let engine = engine(&Provider::default(), |builder| builder.workflow("parent", 1, parent)).await;
    let answers = engine.tenant("acme").unwrap().run(parent, ()).await.unwrap();
    assert_eq!(answers, ["with id", "without id"]);
}

async fn steps(ctx: Ctx, (): ()) -> Result<Vec<u32>, Failure> {
    let mut results = Vec::new();
    results.push(ctx.step(("s", 0), &1, |n| *n).await?);
    results.push(ctx.step(("s", "~0"), &2, |n| *n).await?);
    results.push(ctx.step("s", &3, |n| *n).await?);
    Ok(results)
}

#[tokio::test]
async fn a_step_with_an_id_and_a_step_without_one_are_two_steps() {
    let engine = engine(&Provider::default(), |builder| builder.workflow("steps", 1, steps)).await;
    assert_eq!(engine.tenant("acme").unwrap().run(steps, ()).await.unwrap(), [1, 2, 3]);
}

// Outside of workflows nothing but this tells that a key is unstable: each call would be a first one.
#[tokio::test]
async fn an_unstable_key_is_refused_before_anything_is_recorded() {
    let store = Arc::new(Model::default());
    let executor = ExecutorBuilder::store(store).tool(Drawn(AtomicU64::new(0))).open().await.unwrap();
    let typed = executor.call::<Drawn>(&acme_tenant(), (), None).await.unwrap_err();
    let request = ToolRequest::new(acme_tenant(), "drawn", json!(null));
    let Outcome::Refused(untyped) = executor.execute(request).await.unwrap() else { panic!() };
    for error in [typed, ExecError::Request(*untyped)] {
        let ExecError::Request(RequestError::UnstableKey(unstable)) = &error else { panic!("{error}") };
        assert_ne!(unstable.first, unstable.second);
        assert!(error.to_string().contains(&unstable.first) && error.to_string().contains(&unstable.second));
    }
    // A key that the caller gives is the caller's, and the tool is not asked for one.
    let record =
        executor.record(&acme_tenant(), &Key::of("drawn").target(0).render().unwrap()).await.unwrap();
    assert!(record.is_none());
}

async fn draws(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.call::<Drawn>(()).await
}

#[tokio::test]
async fn an_unstable_key_in_a_workflow_blocks_its_run() {
    let also = |builder: EngineBuilder| builder.workflow("draws", 1, draws).tool(Drawn(AtomicU64::new(0)));
    let engine = engine(&Provider::default(), also).await;
    let Err(RunError::Blocked { message, .. }) = engine.tenant("acme").unwrap().run(draws, ()).await else {
        panic!()
    };
    assert!(message.contains("drawn:0") && message.contains("drawn:1"), "{message}");
}

async fn one_order(ctx: Ctx, what: String) -> Result<String, Failure> {
    ctx.emit("orders", "ordered", "something").await?;
    let ordered = ctx.call::<Order>(what).await?;
    ctx.signal::<()>("go on").await?;
    Ok(ordered)
}

/// Always draws the same number.
#[derive(Debug)]
struct Constant;

impl Entropy for Constant {
    fn bits(&self) -> u64 {
        7
    }
}

/// What the runs of two databases at one provider were answered, and the ids of their events.
async fn two_databases(random: bool) -> (Vec<String>, Vec<String>) {
    let (provider, mut answers, mut events) = (Provider::default(), Vec::new(), Vec::new());
    for what in ["10 to ann", "99 to bob"] {
        let (sink, mut heard) = mpsc::unbounded_channel();
        let also = |builder: EngineBuilder| {
            let builder = builder.workflow("order", 1, one_order).sink(Heard(sink));
            if random { builder } else { builder.entropy(Constant) }
        };
        let engine = engine(&provider, also).await;
        let run = engine.tenant("acme").unwrap().run(one_order, what.to_owned()).start().await.unwrap();
        run.signal("go on", ()).await.unwrap();
        answers.push(run.result().await.unwrap());
        events.push(heard.recv().await.unwrap().id);
    }
    (answers, events)
}

// Run ids begin anew with each database: the first run of each has the same one.
#[tokio::test]
async fn runs_of_two_databases_share_neither_a_wire_key_nor_an_event_id() {
    let (answers, events) = two_databases(true).await;
    assert_eq!(answers, ["10 to ann", "99 to bob"]);
    assert_ne!(events[0], events[1]);
    // It is the run's number that keeps them apart.
    let (answers, events) = two_databases(false).await;
    assert_eq!(answers, ["10 to ann", "10 to ann"]);
    assert_eq!(events[0], events[1]);
}

// The number is the run's own: a resumed run and a fork find what was done, and do it under the same key.
#[tokio::test]
async fn a_resume_and_a_fork_keep_the_number_of_their_run() {
    let (store, provider) = (Arc::new(Model::default()), Provider::default());
    let start = || {
        let builder = Engine::store(store.clone()).tool(Order(provider.clone()));
        builder.workflow("order", 1, one_order).start()
    };
    let engine = start().await.unwrap();
    let run = engine.tenant("acme").unwrap().run(one_order, "a pen".to_owned()).start().await.unwrap().id();
    while provider.ordered().is_empty() {
        tokio::task::yield_now().await;
    }
    engine.shutdown(Duration::from_secs(10)).await;
    let engine = start().await.unwrap();
    let acme = engine.tenant("acme").unwrap();
    let first = acme.handle::<String>(run);
    first.signal("go on", ()).await.unwrap();
    assert_eq!(first.result().await.unwrap(), "a pen");
    let fork = first.fork("ann", "again").from_step("order").await.unwrap();
    fork.signal("go on", ()).await.unwrap();
    assert_eq!(fork.result().await.unwrap(), "a pen");
    let mut numbers = Vec::new();
    for run in [run, fork.id()] {
        numbers.push(store.run_find(&acme_tenant(), run).await.unwrap().unwrap().number);
    }
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(provider.ordered(), ["a pen"], "one order under one key");
}
