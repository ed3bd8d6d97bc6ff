//! FLOW-9: edited code against recorded runs: what would be asked anew, what would be left behind, what no longer fits; and
//! nothing is written, and nobody is called.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::check::{Consequence, ReplayAnswer, ReplayOutcome, ReplayReport, Replayer, WaitsFor};
use counterfoil::flow::{RunError, Turn, WorkflowFn};
use counterfoil::ledger::EffectClass;
use counterfoil::store::Model;
use counterfoil::{Ctx, Engine, Failure, RunId, Tenant};
use futures_util::future::Either;
use serde_json::json;

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, stand};
use crate::flow::tools::{Bill, Pay, Ring, post};
use crate::flow::world::{Process, World, counted};
use crate::store::postgres::Schema;
use crate::world::acme;

async fn pay(ctx: &Ctx, reference: &str, cents: u32) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new(reference, cents)).await
}

/// What most runs here have recorded: a step, a call without a key, one with a key, another step.
fn recorded(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone {
    flow!(world, |ctx, _input: ()| {
        let one = counted(&world, &ctx, "first", 1).await?;
        post(&ctx, "note").await?;
        pay(&ctx, "rent", 100).await?;
        counted(&world, &ctx, "last", one).await
    })
}

/// A run of it that has succeeded, and the process that is still there.
fn succeeded(world: &Arc<World>) -> (Process, RunId) {
    let code = recorded(world);
    let process = life(world, code.clone());
    let run = process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        run.id()
    });
    (process, run)
}

async fn replayer(world: &Arc<World>) -> Replayer {
    world.engine().replayer().await.unwrap()
}

fn anew(report: &ReplayReport) -> Vec<(&str, &str)> {
    report.anew.iter().map(|anew| (anew.kind.as_str(), anew.name.as_str())).collect()
}

/// Kinds and names of what the check did not reach, if that is its answer.
pub(crate) fn unreached(report: &ReplayReport) -> Vec<(&str, &str)> {
    let ReplayAnswer::CannotTell { unreached } = &report.answer else { panic!("{report}") };
    unreached.iter().map(|entry| (entry.kind.as_str(), entry.name.as_str())).collect()
}

fn tools(left: &[counterfoil::flow::check::LeftBehind]) -> Vec<&str> {
    left.iter().map(|left| left.tool.as_str()).collect()
}

#[test]
fn the_same_code_asks_for_nothing_and_touches_nothing() {
    let world = World::new();
    let (process, run) = succeeded(&world);
    let written = world.tap.see(|tapped| tapped.batches.len());
    let file = std::fs::read(world.path()).unwrap();
    process.on(async {
        // Beside the engine that works on the file.
        let replayer = replayer(&world).await;
        let runs = replayer.runs(&acme(), None).await.unwrap();
        assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
        let report = replayer.run(&acme(), run, recorded(&world)).await.unwrap();
        assert_eq!(report.outcome, ReplayOutcome::Returned(json!(3)), "{report}");
        assert!(report.is_ok() && report.anew.is_empty(), "{report}");
        assert_eq!((report.state, report.version), ("succeeded", 1));

        let unknown = replayer.run(&Tenant::new("globex").unwrap(), run, recorded(&world)).await;
        assert!(matches!(unknown, Err(RunError::Unknown { .. })), "{unknown:?}");
    });
    for (what, times) in
        [("first", 1), ("last", 1), ("post called", 1), ("pay called", 1), ("pay looked up", 0)]
    {
        assert_eq!(world.counted(what), times, "{what}");
    }
    assert_eq!(world.tap.see(|tapped| tapped.batches.len()), written, "nothing was written");
    assert_eq!(std::fs::read(world.path()).unwrap(), file);
}

#[test]
fn new_steps_and_calls_are_named_and_stop_their_branch() {
    let world = World::new();
    let (process, run) = succeeded(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        let one = counted(&world, &ctx, "first", 1).await?;
        counted(&world, &ctx, "between", 5).await?;
        post(&ctx, "note").await?;
        pay(&ctx, "rent", 100).await?;
        ctx.call::<Ring>("bell".into()).await?;
        counted(&world, &ctx, "last", one).await
    });
    process.on(async {
        let report = replayer(&world).await.run(&acme(), run, edited.clone()).await.unwrap();
        assert_eq!(anew(&report), [("step", "between")], "{report}");
        assert_eq!(report.outcome, ReplayOutcome::Stopped);
        assert_eq!(
            unreached(&report),
            [("call", "post"), ("call", "pay"), ("step", "last")],
            "whether these are asked for is not known: {report}"
        );
        assert_eq!(world.counted("between"), 0);

        let further = replayer(&world).await.run_new_steps();
        let report = further.run(&acme(), run, edited).await.unwrap();
        assert_eq!(anew(&report), [("step", "between"), ("call", "ring")], "{report}");
        assert_eq!(unreached(&report), [("step", "last")], "{report}");
        assert_eq!((world.counted("between"), world.counted("ring called")), (1, 0));
    });
}

#[test]
fn new_waits_draws_and_choices_are_named() {
    const HOUR: Duration = Duration::from_hours(1);
    let world = World::new();
    let (process, run) = succeeded(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        let race = ctx.select("race", counted(&world, &ctx, "first", 1), ctx.sleep(HOUR));
        let (now, nap, race) = tokio::join!(ctx.now(), ctx.sleep_named("nap", HOUR), race);
        now.and(nap).and(race.map(|_| 1_u32))
    });
    process.on(async {
        let report = replayer(&world).await.run(&acme(), run, edited).await.unwrap();
        let new = [("drawn", "now"), ("timer", "nap"), ("timer", "sleep"), ("select", "race")];
        assert_eq!(anew(&report), new, "{report}");
        assert!(report.changed.is_empty() && report.orphaned.is_empty(), "{report}");
        assert_eq!(unreached(&report), [("call", "post"), ("call", "pay"), ("step", "last")], "{report}");
    });
}

#[test]
fn effects_that_are_not_asked_for_are_orphans() {
    let world = World::new();
    let (process, run) = succeeded(&world);
    let without = flow!(world, |ctx, _input: ()| counted(&world, &ctx, "first", 1).await);
    let drawn = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        post(&ctx, "note").await?;
        pay(&ctx, "random", 100).await
    });
    process.on(async {
        let replayer = replayer(&world).await;
        let report = replayer.run(&acme(), run, without).await.unwrap();
        assert_eq!(report.outcome, ReplayOutcome::Returned(json!(2)));
        assert_eq!(tools(&report.orphaned), ["post", "pay"], "{report}");
        let [post, pay] = &report.orphaned[..] else { unreachable!() };
        assert_eq!((post.consequence, pay.consequence), (Consequence::Asks, Consequence::Asks));
        assert!(pay.happened && pay.effect == EffectClass::Payment && !report.is_ok());
        assert!(report.to_string().contains("(payment) happened; a person would be asked"), "{report}");

        let report = replayer.run(&acme(), run, drawn).await.unwrap();
        assert_eq!(anew(&report), [("call", "pay")]);
        assert_eq!(tools(&report.orphaned), ["pay"], "a new call is held back until this is seen");
    });
}

/// Records a payment of its own, under a key that is drawn each time.
#[test]
fn an_unstable_key_is_named() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| pay(&ctx, "random", 100).await);
    let process = life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        run.result().await.unwrap();
        let report = replayer(&world).await.run(&acme(), run.id(), code).await.unwrap();
        let [left] = &report.orphaned[..] else { panic!("{report}") };
        assert!(left.asked_for_as.as_ref().is_some_and(|key| *key != left.key), "{report}");
        assert!(report.to_string().contains("its key is unstable"), "{report}");
    });
}

#[test]
fn what_no_longer_fits_is_told() {
    let world = World::new();
    let (process, run) = succeeded(&world);
    let input = flow!(world, |ctx, _input: ()| counted(&world, &ctx, "first", 2).await);
    let result = flow!(world, |ctx, _input: ()| {
        ctx.step("first", &1_u32, |_| world.count("wrong").to_string()).await.map(|_| 1_u32)
    });
    let request = flow!(world, |ctx, _input: ()| pay(&ctx, "rent", 999).await);
    let whole = flow!(world, |_ctx, input: String| Ok::<_, Failure>(input));
    process.on(async {
        let replayer = replayer(&world).await;
        let mut told = Vec::new();
        told.push(replayer.run(&acme(), run, input).await.unwrap());
        told.push(replayer.run(&acme(), run, result).await.unwrap());
        told.push(replayer.run(&acme(), run, request).await.unwrap());
        told.push(replayer.run(&acme(), run, whole).await.unwrap());
        for (report, why) in
            told.iter().zip(["another input", "no longer fits", "another request", "expected a string"])
        {
            let [changed] = &report.changed[..] else { panic!("{why}: {report}") };
            assert!(changed.why.contains(why) && !report.is_ok(), "{why}: {report}");
        }
    });
    assert_eq!((world.counted("wrong"), world.effects("pay").len()), (0, 1));
}

#[test]
fn a_run_that_died_and_one_that_waits_can_be_checked() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        let first = ctx.select("first", post(&ctx, "note"), ctx.sleep(Duration::from_secs(1000))).await?;
        assert!(matches!(first, Either::Left(_)));
        stand(&ctx, &world).await?;
        ctx.call::<Ring>("bell".into()).await
    });
    let run = died_at(&world, "ring before", code.clone());
    let waits = flow!(world, |ctx, _input: ()| {
        ctx.sleep(Duration::from_secs(1_000_000)).await?;
        post(&ctx, "late").await
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let report = replayer(&world).await.run(&acme(), run, code.clone()).await.unwrap();
        assert_eq!(report.unsettled.len(), 1, "{report}");
        assert!(report.unsettled[0].contains("ring") && report.anew.is_empty(), "{report}");
        assert_eq!((report.state, report.outcome), ("active", ReplayOutcome::Stopped));
    });
    assert_eq!((world.counted("ring called"), world.counted("ring looked up")), (1, 0));

    let process = Process::start(&world, world.engine().workflow(NAME, 1, waits.clone()));
    process.on(async {
        let run = process.acme().run(waits.clone(), ()).start().await.unwrap().id();
        process.state(run, "waiting").await;
        let report = replayer(&world).await.run(&acme(), run, waits).await.unwrap();
        assert!(
            matches!(&report.outcome, ReplayOutcome::Waiting { on } if matches!(on[..], [WaitsFor::Time(_)])),
            "{report}"
        );
        assert!(report.is_ok(), "{report}");
    });
}

// On any store: what is behind it shows that nothing is written.
#[test]
fn a_store_of_ones_own_is_only_read() {
    let (world, store) = (World::new(), Arc::new(Model::new()));
    let code = recorded(&world);
    let engine = || world.equip(Engine::store(store.clone()), &world.tap);
    let process = Process::start(&world, engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        run.result().await.unwrap();
        let before = (store.runs(), store.records(), world.tap.see(|tapped| tapped.batches.len()));
        let replayer = engine().replayer().await.unwrap().run_new_steps();
        let report = replayer.run(&acme(), run.id(), code).await.unwrap();
        assert_eq!(report.outcome, ReplayOutcome::Returned(json!(3)), "{report}");
        let panics = flow!(world, |ctx, _input: ()| {
            ctx.step("new", &(), |()| 1_u32).await?;
            assert_eq!(world.count("panicked"), 0, "on purpose");
            Ok::<_, Failure>(1_u32)
        });
        let report = replayer.run(&acme(), run.id(), panics).await.unwrap();
        assert!(
            matches!(&report.outcome, ReplayOutcome::Panicked(why) if why.contains("on purpose")),
            "{report}"
        );
        let after = (store.runs(), store.records(), world.tap.see(|tapped| tapped.batches.len()));
        assert_eq!(before, after);
    });
}

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let world = World::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(world.engine().replayer());
    assert!(refused.is_err() && !world.path().exists());
}

// What is recorded there in turns and signals is read as well.
#[test]
fn runs_on_postgres_are_checked() {
    let (world, schema) = (World::new(), Schema::new());
    let engine = || world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let code = flow!(world, |ctx, _input: ()| {
        let world = &world;
        let sum = ctx.turns("loop", 0, |sum: u32, ctx| {
            Box::pin(async move {
                let step = counted(world, &ctx, "turn", sum).await?;
                post(&ctx, &format!("letter {sum}")).await?;
                Ok(if step < 3 { Turn::Next(step) } else { Turn::Done(step) })
            })
        });
        let said: u32 = ctx.signal("go").await?;
        pay(&ctx, "rent", 100).await?;
        Ok::<_, Failure>(sum.await? + said)
    });
    let edited = flow!(world, |ctx, _input: ()| {
        let said: u32 = ctx.signal("go").await?;
        ctx.call::<Ring>("bell".into()).await?;
        Ok::<_, Failure>(said)
    });
    let process = Process::start(&world, engine().workflow(NAME, 1, code.clone()));
    let (run, sum) = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        run.signal("go", 4).await.unwrap();
        (run.id(), run.result().await.unwrap())
    });
    process.shut_down();
    let written = world.tap.see(|tapped| tapped.batches.len());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let replayer = engine().replayer().await.unwrap();
        assert_eq!(replayer.runs(&acme(), None).await.unwrap().len(), 1);
        let report = replayer.run(&acme(), run, code).await.unwrap();
        assert_eq!(report.outcome, ReplayOutcome::Returned(json!(sum)), "{report}");
        assert!(report.is_ok() && report.anew.is_empty(), "{report}");
        let report = replayer.run(&acme(), run, edited).await.unwrap();
        assert_eq!(anew(&report), [("call", "ring")], "{report}");
        assert!(tools(&report.orphaned).contains(&"pay") && !report.is_ok(), "{report}");
    });
    assert_eq!(world.tap.see(|tapped| tapped.batches.len()), written, "nothing was written");
    assert_eq!((world.counted("turn"), world.counted("ring called")), (3, 0));
}
