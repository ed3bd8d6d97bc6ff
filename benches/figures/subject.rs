//! The measured subject: an engine with a trivial tool, and workflows around it.
//!
//! *Guarded call*: `ctx.call` of an in-process tool of class `Lookup`, 100 bytes there and 100 back.
//! *Query*: `ctx.call` of the same as a read-only tool: nothing is recorded before it.
//! *Payment*: the same of effect class `Payment`, which is looked up once after each send.
//! *Plain step*: `ctx.step` of a closure with the same result.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use counterfoil::Timestamp;
use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::LookupResult;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Turn};
use futures_util::future::try_join_all;
use tokio::sync::oneshot;

use crate::place::Place;

pub(crate) const TENANT: &str = "acme";
/// The time for closing an engine. Idle tasks end at once, which takes a moment on a busy machine.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// A JSON text of 100 bytes, with its quotation marks.
pub(crate) fn text() -> String {
    "x".repeat(98)
}

struct Touch;

impl Tool for Touch {
    const NAME: &'static str = "touch";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    async fn call(&self, _: &Call, input: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(input.clone()))
    }
}

impl Reconcile for Touch {
    async fn reconcile(&self, _: &Call, _: &String) -> Result<LookupResult<String>, ToolError> {
        Ok(LookupResult::NotFound)
    }
}

struct Read;

impl Tool for Read {
    const NAME: &'static str = "read";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind;
    type Input = String;
    type Output = String;

    async fn call(&self, _: &Call, input: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(input.clone()))
    }
}

struct Pay;

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Payment;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    async fn call(&self, _: &Call, input: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(input.clone()))
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, _: &Call, input: &String) -> Result<LookupResult<String>, ToolError> {
        Ok(LookupResult::Committed { output: input.clone(), external_ref: None })
    }
}

pub(crate) async fn payments(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for _ in 0..n {
        bytes += ctx.call::<Pay>(text()).await?.len();
    }
    Ok(bytes)
}

pub(crate) async fn queries(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for _ in 0..n {
        bytes += ctx.call::<Read>(text()).await?.len();
    }
    Ok(bytes)
}

pub(crate) async fn guarded(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for _ in 0..n {
        bytes += ctx.call::<Touch>(text()).await?.len();
    }
    Ok(bytes)
}

/// Puts artifacts, each with its own id.
pub(crate) async fn artifacts(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for i in 0..n {
        ctx.artifact("report", format!("{}/{i}", ctx.run_id())).put(&text()).await?;
        bytes += text().len();
    }
    Ok(bytes)
}

/// Emits events of an aggregate of its own.
pub(crate) async fn events(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for _ in 0..n {
        ctx.emit(format!("order/{}", ctx.run_id()), "priced", &text()).await?;
        bytes += text().len();
    }
    Ok(bytes)
}

/// Remembers things about a subject of its own.
#[cfg(feature = "memory")]
pub(crate) async fn memories(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for i in 0..n {
        let content = format!("is known to prefer the colour of number {i}");
        ctx.memory(format!("customer {}", ctx.run_id())).remember("preference", content).await?;
        bytes += text().len();
    }
    Ok(bytes)
}

pub(crate) async fn plain(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for i in 0..n {
        bytes += ctx.step("plain", &i, |_| text()).await?.len();
    }
    Ok(bytes)
}

pub(crate) async fn asynchronous(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let mut bytes = 0;
    for i in 0..n {
        bytes += ctx.step_async("async", &i, || async { text() }).await?.len();
    }
    Ok(bytes)
}

/// Makes guarded calls, reports its arrival, and stays active: a run to be resumed.
pub(crate) async fn guarded_and_stay(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    guarded(ctx, n).await?;
    stay().await
}

/// Makes plain steps, reports its arrival, and stays active: a run to be resumed.
pub(crate) async fn plain_and_stay(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    plain(ctx, n).await?;
    stay().await
}

/// Runs a loop of `n` turns with a step in each, and stays in the last one.
pub(crate) async fn turns_and_stay(ctx: Ctx, n: u32) -> Result<usize, Failure> {
    let turns = ctx.turns("turns", 1, |turn: u32, ctx: Ctx| async move {
        let next = ctx.step("count", &turn, |turn| turn + 1).await?;
        if turn < n {
            return Ok(Turn::Next(next));
        }
        stay().await.map(Turn::Done)
    });
    turns.await
}

/// Waits as a row for this number of hours.
pub(crate) async fn nap(ctx: Ctx, hours: u64) -> Result<(), Failure> {
    ctx.sleep(Duration::from_hours(hours)).await
}

/// Waits as a row until this instant.
pub(crate) async fn alarm(ctx: Ctx, at: Timestamp) -> Result<(), Failure> {
    ctx.sleep_until("alarm", at).await?;
    arrived();
    Ok(())
}

/// Waits as a row, for a signal.
pub(crate) async fn listen(ctx: Ctx, (): ()) -> Result<u32, Failure> {
    let said = ctx.signal("say").await?;
    arrived();
    Ok(said)
}

/// The number of runs that have yet to arrive, and the channel that is told when the last of them has.
static EXPECTED: Mutex<Option<(usize, oneshot::Sender<Instant>)>> = Mutex::new(None);

/// Resolves with the instant at which the next run reports its arrival.
pub(crate) fn arrival() -> oneshot::Receiver<Instant> {
    arrival_of(1)
}

/// Resolves with the instant at which the last of this number of runs reports its arrival.
pub(crate) fn arrival_of(runs: usize) -> oneshot::Receiver<Instant> {
    let (sender, receiver) = oneshot::channel();
    *EXPECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some((runs, sender));
    receiver
}

fn arrived() {
    let mut expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((runs, _)) = expected.as_mut() else { return };
    *runs -= 1;
    if *runs == 0
        && let Some((_, last)) = expected.take()
    {
        let _ = last.send(Instant::now());
    }
}

async fn stay() -> Result<usize, Failure> {
    arrived();
    std::future::pending().await
}

pub(crate) fn builder(place: &Place) -> EngineBuilder {
    let builder = on(place);
    #[cfg(feature = "memory")]
    let builder = builder.workflow("memories", 1, memories);
    builder
        .tool(Touch)
        .tool(Read)
        .tool(Pay)
        .workflow("guarded", 1, guarded)
        .workflow("payments", 1, payments)
        .workflow("queries", 1, queries)
        .workflow("artifacts", 1, artifacts)
        .workflow("events", 1, events)
        .workflow("plain", 1, plain)
        .workflow("asynchronous", 1, asynchronous)
        .workflow("guarded_and_stay", 1, guarded_and_stay)
        .workflow("plain_and_stay", 1, plain_and_stay)
        .workflow("turns_and_stay", 1, turns_and_stay)
        .workflow("nap", 1, nap)
        .workflow("alarm", 1, alarm)
        .workflow("listen", 1, listen)
        .max_recovery_attempts(u32::MAX) // a run is resumed over and over
}

fn on(place: &Place) -> EngineBuilder {
    match place {
        Place::File(db) => Engine::sqlite(db),
        #[cfg(feature = "postgres")]
        Place::Schema { url, name } => {
            let options = counterfoil::store::postgres::Options {
                schema: Some(name.clone()),
                ..counterfoil::store::postgres::Options::default()
            };
            Engine::postgres_with(url, options)
        }
    }
}

pub(crate) async fn engine(place: &Place) -> Engine {
    builder(place).start().await.expect("an engine on the measured disk")
}

/// Starts `runs` runs at once, each with `calls` guarded calls, and waits until all results are durable.
pub(crate) async fn guarded_runs(engine: &Engine, runs: usize, calls: u32) {
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let results = try_join_all((0..runs).map(|_| tenant.run(guarded, calls).into_future())).await;
    assert_eq!(results.expect("all runs end well"), vec![calls as usize * text().len(); runs]);
}

/// Starts runs like [`guarded_runs`], but one in 16 uses a guard instead: artifacts, events, memories in turn.
pub(crate) async fn mixed_runs(engine: &Engine, runs: usize, calls: u32) {
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let run = |nth: usize| match (nth % 16, nth / 16 % 3) {
        (0, 0) => tenant.run(artifacts, calls).into_future(),
        (0, 1) => tenant.run(events, calls).into_future(),
        #[cfg(feature = "memory")]
        (0, 2) => tenant.run(memories, calls).into_future(),
        _ => tenant.run(guarded, calls).into_future(),
    };
    let results = try_join_all((0..runs).map(run)).await;
    assert_eq!(results.expect("all runs end well"), vec![calls as usize * text().len(); runs]);
}

pub(crate) async fn artifact_runs(engine: &Engine, runs: usize, calls: u32) {
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let results = try_join_all((0..runs).map(|_| tenant.run(artifacts, calls).into_future())).await;
    assert_eq!(results.expect("all runs end well"), vec![calls as usize * text().len(); runs]);
}
