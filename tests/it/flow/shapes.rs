//! The shapes that make a workflow short: typed signals, waits that are an `Option`, children in `join_all`, steps that may fail, state,
//! tools and runs by their names.

use std::time::Duration;

use counterfoil::flow::{Failure, FailureCode, RunError, SignalName};
use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::tool::{Done, DynamicTool};
use counterfoil::{Ctx, Engine, Key};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::flow;
use crate::flow::tools::{Bill, Pay};
use crate::flow::world::{Process, World};

const PAID: SignalName<u64> = SignalName::new("paid");
const HOUR: Duration = Duration::from_hours(1);
const SOON: Duration = Duration::from_millis(20);

async fn paid(ctx: Ctx, limit: Duration) -> Result<Option<u64>, Failure> {
    ctx.signal(PAID).timeout(limit).await
}

#[test]
fn a_wait_with_a_limit_is_an_option_and_the_same_after_a_crash() {
    let world = World::new();
    let flow = flow!(world, |ctx, _input: ()| {
        let none = ctx.signal::<u64>("never sent").timeout(SOON).await?;
        let some = ctx.signal(PAID).timeout(HOUR).await?;
        world.pass("stand").await;
        Ok((none, some))
    });
    world.hold("stand");
    let life = || Process::start(&world, world.engine().workflow("order", 1, flow.clone()));
    let process = life();
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), ()).key("o1").start().await.unwrap();
        process.acme().run_of(flow.clone(), "o1").signal(PAID, 4200).id("evt_1").await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.crash();
    world.release("stand");
    let process = life();
    let result = process.on(process.acme().handle::<(Option<u64>, Option<u64>)>(run).result());
    assert_eq!(result.unwrap(), (None, Some(4200)));
}

#[test]
fn children_go_into_join_all_and_a_childs_wait_may_have_a_limit() {
    async fn item(_: Ctx, n: u32) -> Result<u32, Failure> {
        Ok(n * n)
    }
    async fn endless(ctx: Ctx, _n: u8) -> Result<u8, Failure> {
        ctx.signal("never sent").await
    }
    async fn order(ctx: Ctx, items: Vec<u32>) -> Result<(Vec<u32>, Option<u8>), Failure> {
        let squares = try_join_all(items.into_iter().map(|n| ctx.child(item, n).id(n))).await?;
        Ok((squares, ctx.child(endless, 0).timeout(SOON).await?))
    }
    let world = World::new();
    let builder = world.engine().workflow("item", 1, item).workflow("endless", 1, endless);
    let process = Process::start(&world, builder.workflow("order", 1, order));
    let result = process.on(process.acme().run(order, vec![1, 2, 3]).into_future());
    assert_eq!(result.unwrap(), (vec![1, 4, 9], None));
}

#[test]
fn a_call_that_takes_too_long_is_followed_to_its_end() {
    let world = World::new();
    let flow = flow!(world, |ctx, _input: ()| {
        let paid = ctx.call::<Pay>(Bill::new("b1", 100)).timeout(SOON).await?;
        world.release("pay before");
        Ok(paid)
    });
    world.hold("pay before");
    let process = Process::start(&world, world.engine().workflow("order", 1, flow.clone()));
    assert_eq!(process.on(process.acme().run(flow, ()).into_future()).unwrap(), None);
    process.on(process.until(async |_| !world.effects("pay").is_empty()));
    assert_eq!(world.effects("pay").len(), 1);
    process.shut_down();
}

#[test]
fn a_run_that_nobody_started_is_told_by_its_workflow_and_key() {
    let world = World::new();
    let process = Process::start(&world, world.engine().workflow("paid", 1, paid));
    process.on(async {
        let acme = process.acme();
        let nobody = acme.run_of(paid, "o9");
        assert!(nobody.find().await.unwrap().is_none());
        let error = nobody.signal(PAID, 1).await.unwrap_err();
        assert!(matches!(error, RunError::UnknownKey { .. }), "{error}");
        for part in ["\"paid\"", "\"o9\"", "nothing was done"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let unregistered = acme.run_of_named("refund", "o9").result().await.unwrap_err();
        assert!(matches!(unregistered, RunError::UnknownKey { .. }), "{unregistered}");
        assert!(matches!(acme.run_named("refund", json!(1)).await, Err(RunError::Unregistered)));
    });
}

// Whoever knows no Rust types has the same run, under the same key.
#[test]
fn a_run_by_name_is_the_run_by_function() {
    async fn square(_: Ctx, n: u32) -> Result<u32, Failure> {
        Ok(n * n)
    }
    let world = World::new();
    let process = Process::start(&world, world.engine().workflow("square", 1, square));
    process.on(async {
        let acme = process.acme();
        let named = acme.run_named("square", json!(7)).key("s7").start().await.unwrap();
        assert_eq!(named.result().await.unwrap(), json!(49));
        let typed = acme.run(square, 7).key("s7").start().await.unwrap();
        assert_eq!((typed.id(), typed.result().await.unwrap()), (named.id(), 49));
        assert_eq!(acme.run_of_named("square", "s7").result().await.unwrap(), json!(49));
        let blocked = acme.run_named("square", json!("seven")).await.unwrap_err();
        assert!(blocked.to_string().contains("invalid type: string"), "{blocked}");
    });
}

fn ticket(world: &std::sync::Arc<World>) -> DynamicTool {
    let world = world.clone();
    DynamicTool::new("open", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
        .key(|input| Some(Key::of("open").target(input["case"].as_str()?)))
        .call(move |call, input| {
            let world = world.clone();
            async move {
                let n = world.happen("open", call.key(), input["case"].as_str().unwrap_or_default());
                Ok(Done::new(json!({ "ticket": n })))
            }
        })
}

#[test]
fn a_dynamic_tool_is_called_from_a_workflow_once() {
    let world = World::new();
    let flow = flow!(world, |ctx, case: String| {
        let ticket = ctx.call_named("open", json!({ "case": case })).await?;
        world.pass("stand").await;
        Ok(ticket)
    });
    world.hold("stand");
    let life = || {
        let engine = world.engine().dynamic_tool(ticket(&world));
        Process::start(&world, engine.workflow("triage", 1, flow.clone()))
    };
    let process = life();
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), "C-17".to_owned()).start().await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.shut_down();
    world.release("stand");
    let process = life();
    let result = process.on(process.acme().handle::<Value>(run).result()).unwrap();
    assert_eq!((result, world.effects("open").len()), (json!({ "ticket": 1 }), 1));
}

// A build that forgot the tool or the state holds the run up, and the next build lets it go on.
#[test]
fn a_build_without_the_tool_or_the_state_blocks_the_run_until_one_has_them() {
    struct Rate(u32);
    let world = World::new();
    let flow = flow!(world, |ctx, case: String| {
        let Rate(rate) = ctx.state::<Rate>()?;
        let ticket = ctx.call_named("open", json!({ "case": case })).await?;
        Ok(json!([rate, ticket["ticket"]]))
    });
    let blocked = |engine: counterfoil::flow::EngineBuilder, says: &str| {
        let process = Process::start(&world, engine.workflow("triage", 1, flow.clone()));
        process.on(async {
            let run = process.acme().run(flow.clone(), "C-17".to_owned()).key("r");
            let error = run.start().await.unwrap().result().await.unwrap_err();
            assert!(matches!(error, RunError::Blocked { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        });
        process.shut_down();
    };
    blocked(world.engine().dynamic_tool(ticket(&world)), "Rate");
    let process = Process::start(&world, world.engine().state(Rate(7)).workflow("triage", 1, flow.clone()));
    process.on(async {
        process.until(async |acme| {
            let run = acme.run_of(flow.clone(), "r");
            matches!(run.result().await, Err(RunError::Blocked { message, .. }) if message.contains("\"open\""))
        })
        .await;
    });
    process.shut_down();
    let engine = world.engine().state(Rate(7)).dynamic_tool(ticket(&world));
    let process = Process::start(&world, engine.workflow("triage", 1, flow.clone()));
    let result = process.on(process.acme().run_of(flow.clone(), "r").result()).unwrap();
    assert_eq!(result, json!([7, 1]), "it went on by itself");
}

async fn misused(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.try_step("key", &(), |()| Key::of("").target("x").render().map(drop)).await
}

// The error of a step is recorded like its result, so that a resume does not try again.
#[test]
fn a_failed_step_is_recorded_and_a_mendable_one_is_not() {
    let world = World::new();
    let flow = flow!(world, |ctx, cents: String| {
        let parsed = ctx.try_step("cents", &cents, |cents| {
            world.count("cents");
            cents.parse::<u32>()
        });
        let told = parsed.await.map_err(|failure| failure.to_string());
        world.pass("stand").await;
        Ok(told)
    });
    world.hold("stand");
    let life = || Process::start(&world, world.engine().workflow("total", 1, flow.clone()));
    let process = life();
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), "a few".to_owned()).start().await.unwrap();
        world.reached("stand").await;
        run.id()
    });
    process.shut_down();
    world.release("stand");
    let process = life();
    let result = process.on(process.acme().handle::<Result<u32, String>>(run).result()).unwrap();
    assert_eq!(result.unwrap_err(), "invalid digit found in string");
    assert_eq!(world.counted("cents"), 1, "the recorded error answered");

    let engine = world.engine().workflow("total", 1, flow.clone()).workflow("misused", 1, misused);
    process.shut_down();
    let process = Process::start(&world, engine);
    let error = process.on(process.acme().run(misused, ()).into_future()).unwrap_err();
    assert!(matches!(error, RunError::Blocked { .. }), "{error}");
}

#[tokio::test]
async fn an_asynchronous_step_is_tried_again_and_each_try_has_a_limit() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    struct Tries(Arc<AtomicU32>);

    async fn fetch(ctx: Ctx, good: u32) -> Result<u32, Failure> {
        let Tries(tries) = ctx.state::<Tries>()?;
        let fetched = ctx.try_step_async("fetch", &good, || async move {
            match tries.fetch_add(1, Ordering::SeqCst) + 1 {
                1 => Err(std::io::Error::other("refused")),
                2 => std::future::pending().await,
                n if n >= good => Ok(n),
                _ => Err(std::io::Error::other("refused again")),
            }
        });
        fetched.retry(3).timeout(Duration::from_millis(20)).await
    }
    let tries = Arc::new(AtomicU32::new(0));
    let builder = Engine::in_memory().state(Tries(tries.clone()));
    let engine =
        builder.entropy(crate::world::Chance::least()).workflow("fetch", 1, fetch).start().await.unwrap();
    assert_eq!(engine.default_tenant().run(fetch, 3).await.unwrap(), 3);

    tries.store(0, Ordering::SeqCst);
    let failed = engine.default_tenant().run(fetch, 9).await.unwrap_err();
    let RunError::Failed { failure, .. } = &failed else { panic!("{failed}") };
    assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Workflow, "refused again"));
    assert_eq!(tries.load(Ordering::SeqCst), 3, "no more than it may be tried");
    engine.shutdown(Duration::ZERO).await;
}
