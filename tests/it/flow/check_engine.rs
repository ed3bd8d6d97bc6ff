//! FLOW-9: what the replay check says of edited code is what the engine then does with it.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::check::{Consequence, ReplayAnswer, ReplayOutcome, ReplayReport, WaitsFor};
use counterfoil::flow::{Turn, WorkflowFn};
use counterfoil::store::QuestionKind;
use counterfoil::{ApprovalSubject, Ctx, Failure, RunId};

use crate::flow;
use crate::flow::check::unreached;
use crate::flow::lives::{NAME, died_at, life, stand};
use crate::flow::tools::{Bill, Pay, Ring, post};
use crate::flow::world::{Process, World, counted};
use crate::world::acme;

const HOUR: Duration = Duration::from_hours(1);

async fn pay(ctx: &Ctx) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new("rent", 100)).await
}

async fn go(ctx: &Ctx) -> Result<u32, Failure> {
    ctx.signal("go").await
}

/// A run that died with this recorded: a step, a payment. It was about to wait for a signal.
fn paid(world: &Arc<World>) -> RunId {
    let code = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        pay(&ctx).await?;
        stand(&ctx, &world).await?;
        go(&ctx).await
    });
    died_at(world, "stand", code)
}

/// A run that died with this recorded: what its tool keeps when a run goes another way.
fn posted(world: &Arc<World>) -> RunId {
    let code = flow!(world, |ctx, _input: ()| {
        post(&ctx, "note").await?;
        stand(&ctx, &world).await?;
        go(&ctx).await
    });
    died_at(world, "stand", code)
}

/// What the check says, without and with new steps being run.
fn said<W: WorkflowFn<(), u32> + Clone>(world: &Arc<World>, run: RunId, edited: &W) -> [ReplayReport; 2] {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let careful = world.engine().replayer().await.unwrap();
        let further = world.engine().replayer().await.unwrap().run_new_steps();
        [
            careful.run(&acme(), run, edited.clone()).await.unwrap(),
            further.run(&acme(), run, edited.clone()).await.unwrap(),
        ]
    })
}

/// The state to which the engine brings the run with this code.
fn comes_to<W: WorkflowFn<(), u32>>(world: &Arc<World>, run: RunId, edited: W, state: &str) -> Process {
    let process = life(world, edited);
    process.on(process.state(run, state));
    process
}

fn breaks(report: &ReplayReport) -> bool {
    report.answer == ReplayAnswer::Breaks && !report.is_ok()
}

#[test]
fn a_new_timer_in_front_of_a_payment_breaks() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        ctx.sleep(HOUR).await?;
        pay(&ctx).await?;
        go(&ctx).await
    });
    for report in said(&world, run, &edited) {
        assert!(breaks(&report), "{report}");
        assert_eq!((report.anew[0].kind.as_str(), report.orphaned[0].tool.as_str()), ("timer", "pay"));
        assert_eq!(report.orphaned[0].consequence, Consequence::Blocks);
    }
    comes_to(&world, run, edited, "blocked");
}

#[test]
fn a_new_call_in_front_of_a_payment_breaks() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        ctx.call::<Ring>("bell".into()).await?;
        pay(&ctx).await?;
        go(&ctx).await
    });
    for report in said(&world, run, &edited) {
        assert!(breaks(&report), "{report}");
    }
    comes_to(&world, run, edited, "blocked");
    assert_eq!(world.counted("ring called"), 0);
}

#[test]
fn a_removed_payment_behind_a_new_step_is_not_said_to_be_fine() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        counted(&world, &ctx, "new", 1).await?;
        go(&ctx).await
    });
    let [careful, further] = said(&world, run, &edited);
    assert_eq!(unreached(&careful), [("call", "pay")], "{careful}");
    assert!(careful.to_string().contains("cannot tell"), "{careful}");
    assert!(breaks(&further), "{further}");
    comes_to(&world, run, edited, "blocked");
}

#[test]
fn a_removed_payment_of_a_run_that_ends_is_asked_about() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| counted(&world, &ctx, "first", 1).await);
    for report in said(&world, run, &edited) {
        assert!(breaks(&report), "{report}");
        assert_eq!(report.orphaned[0].consequence, Consequence::Asks, "{report}");
    }
    let process = comes_to(&world, run, edited, "succeeded");
    process.on(process.question(QuestionKind::Orphaned));
}

#[test]
fn a_new_step_in_front_of_a_payment_is_fine_once_it_is_run() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        counted(&world, &ctx, "first", 1).await?;
        counted(&world, &ctx, "new", 1).await?;
        pay(&ctx).await?;
        go(&ctx).await
    });
    let [careful, further] = said(&world, run, &edited);
    assert_eq!(unreached(&careful), [("call", "pay")], "{careful}");
    assert!(further.is_ok(), "{further}");
    comes_to(&world, run, edited, "waiting");
}

// The engine keeps the note for a call with its key, which the check cannot see coming.
#[test]
fn an_effect_that_is_kept_behind_a_new_timer_is_unreached() {
    let world = World::new();
    let run = posted(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        ctx.sleep(HOUR).await?;
        post(&ctx, "note").await?;
        go(&ctx).await
    });
    for report in said(&world, run, &edited) {
        assert_eq!(unreached(&report), [("call", "post")], "{report}");
        assert!(report.orphaned.is_empty() && !report.is_ok(), "{report}");
    }
    comes_to(&world, run, edited, "waiting");
}

// A step with another input behind a new call: the call goes out before anybody sees that the step no longer fits.
#[test]
fn a_recorded_step_behind_a_new_call_is_unreached() {
    let world = World::new();
    let run = paid(&world);
    let edited = flow!(world, |ctx, _input: ()| {
        pay(&ctx).await?;
        ctx.call::<Ring>("bell".into()).await?;
        counted(&world, &ctx, "first", 2).await?;
        go(&ctx).await
    });
    for report in said(&world, run, &edited) {
        assert_eq!(unreached(&report), [("step", "first")], "{report}");
    }
    comes_to(&world, run, edited, "blocked");
    assert_eq!(world.counted("ring called"), 1);
}

async fn kid(ctx: Ctx, (): ()) -> Result<u32, Failure> {
    go(&ctx).await
}

// One of each kind: a code asks for whatever it has recorded itself.
#[test]
fn the_code_that_recorded_a_run_fits_it() {
    let world = World::new();
    let lent = flow!(world, |ctx, _input: ()| pay(&ctx).await);
    let code = flow!(world, |ctx, _input: ()| {
        ctx.now().await?;
        ctx.sleep(Duration::ZERO).await?;
        pay(&ctx).await?; // another run's
        let refused = ctx.call::<Pay>(Bill::new("broke twice", 1)).await;
        ctx.emit("case", "refused", &refused.is_err()).await?;
        let child = ctx.child(kid, ()).start().await?;
        ctx.send(child.id(), "go", &1).await?;
        child.result().await?;
        let _ = ctx.select("race", counted(&world, &ctx, "quick", 1), ctx.sleep(HOUR)).await?;
        let _ = ctx.select("drops", counted(&world, &ctx, "quicker", 1), post(&ctx, "dropped")).await?;
        ctx.turns("loop", 1, |turn: u32, ctx| {
            Box::pin(async move {
                post(&ctx, "turn").await?;
                Ok(if turn < 2 { Turn::Next(turn + 1) } else { Turn::Done(turn) })
            })
        })
        .await?;
        ctx.timeout("soon", HOUR, go(&ctx)).await?.map_err(|_| Failure::new("too late"))?
    });
    let builder = world.engine().workflow(NAME, 1, code.clone()).workflow("kid", 1, kid);
    let process = Process::start(&world, builder.workflow("lent", 1, lent.clone()));
    process.on(async {
        process.acme().run(lent, ()).await.unwrap();
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        let check = async || {
            let replayer = world.engine().workflow("kid", 1, kid).replayer().await.unwrap();
            let report = replayer.run(&acme(), run.id(), code.clone()).await.unwrap();
            assert!(report.is_ok(), "{report}");
        };
        process.state(run.id(), "waiting").await;
        check().await;
        run.signal("go", 1).await.unwrap();
        run.result().await.unwrap();
        check().await;
    });
}

/// A run that has come to its wait, and what the check says that it waits for.
fn waits_for<W: WorkflowFn<(), u32> + Clone>(code: impl Fn(&Arc<World>) -> W) -> Vec<WaitsFor> {
    let world = World::new();
    let code = code(&world);
    let process =
        Process::start(&world, world.engine().workflow(NAME, 1, code.clone()).workflow("kid", 1, kid));
    process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap().id();
        process.state(run, "waiting").await;
        let builder = world.engine().workflow("kid", 1, kid);
        let report = builder.replayer().await.unwrap().run(&acme(), run, code).await.unwrap();
        assert!(report.is_ok(), "{report}");
        let ReplayOutcome::Waiting { on } = report.outcome.clone() else { panic!("{report}") };
        for waits_for in &on {
            assert!(report.to_string().contains(&waits_for.to_string()), "{report}");
        }
        on
    })
}

#[test]
fn a_run_that_waits_says_for_what() {
    let signal = waits_for(|world| flow!(world, |ctx, _input: ()| go(&ctx).await));
    assert_eq!(signal, [WaitsFor::Signal("go".into())]);
    let child = waits_for(|world| flow!(world, |ctx, _input: ()| ctx.child(kid, ()).await));
    assert!(matches!(child[..], [WaitsFor::Child(_)]), "{child:?}");
    let timer = waits_for(|world| flow!(world, |ctx, _input: ()| ctx.sleep(HOUR).await.map(|()| 1_u32)));
    assert!(matches!(timer[..], [WaitsFor::Time(_)]), "{timer:?}");
    let decision = waits_for(|world| {
        flow!(world, |ctx, _input: ()| {
            ctx.approval(ApprovalSubject::of("notice", "Dear Ann")).reviewers(["ann"]).await?;
            Ok::<_, Failure>(1_u32)
        })
    });
    assert_eq!(decision, [WaitsFor::Decision]);
}

#[test]
fn a_call_with_an_open_question_waits_for_its_answer() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("bell".into()).await);
    let run = died_at(&world, "ring before", code.clone());
    let process = comes_to(&world, run, code.clone(), "waiting");
    let report = process.on(async {
        let replayer = world.engine().replayer().await.unwrap();
        replayer.run(&acme(), run, code).await.unwrap()
    });
    assert_eq!(report.outcome, ReplayOutcome::Waiting { on: vec![WaitsFor::Answer] }, "{report}");
    assert!(report.is_ok() && report.unsettled.is_empty(), "{report}");
}
