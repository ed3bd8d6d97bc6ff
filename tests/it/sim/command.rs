//! Commands in the simulator: whatever dies, a run that is cancelled ends, with its children and with nothing forgotten; one
//! that is paused goes on where it stood; and a command that is given in every life of the process is obeyed once.

use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::flow::{Failure, FailureCode, GiveCommand, RunError, RunHandle, Sent, WorkflowFn};
use counterfoil::sim::{CrashPoint, End, Offer, Simulation, World};
use counterfoil::store::RunState;
use counterfoil::{Ctx, Engine};
use futures_util::future::{Either, try_join};

use crate::sim::{Looks, quick};

const DAY: Duration = Duration::from_hours(24);

/// Pays twice, with ten days in between.
async fn pay(ctx: &Ctx, invoice: &str) -> Result<String, Failure> {
    ctx.call::<Looks>(format!("{invoice} first")).await?;
    ctx.sleep(10 * DAY).await?;
    ctx.call::<Looks>(format!("{invoice} second")).await?;
    Ok(invoice.to_owned())
}

async fn plain(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    pay(&ctx, &invoice).await
}

/// Tidies up when it is told to end.
async fn careful(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    match ctx.select("work", pay(&ctx, &invoice), ctx.cancelled()).await? {
        Either::Left(paid) => paid,
        Either::Right(told) => {
            ctx.call::<Looks>(format!("{invoice} tidied")).await?;
            Err(Failure::new(format!("given up: {}", told?.reason)))
        }
    }
}

/// Hears that it is to end, and takes a day over it.
async fn stubborn(ctx: Ctx, invoice: String) -> Result<String, Failure> {
    if ctx.timeout("a month", 30 * DAY, ctx.cancelled()).await?.is_err() {
        return Ok("nobody said so".to_owned());
    }
    ctx.sleep(DAY).await?;
    ctx.call::<Looks>(format!("{invoice} late")).await?;
    Ok(invoice)
}

/// Has three of them do its work.
async fn office(ctx: Ctx, _: String) -> Result<String, Failure> {
    let (one, two) = try_join(
        ctx.child(plain, "plain".to_owned()).id(1).start(),
        ctx.child(careful, "careful".to_owned()).id(2).start(),
    )
    .await?;
    let three = ctx.child(stubborn, "stubborn".to_owned()).start().await?;
    one.result().await?;
    two.result().await?;
    three.result().await
}

/// A client tries so often: one of a process that was taken for dead is never served again.
const TRIES: u32 = 20;

/// Asks until there is an answer.
pub(crate) async fn asked<T, Fut: Future<Output = Option<T>> + Send>(
    world: &World,
    ask: impl Fn() -> Fut + Send,
) -> Option<T> {
    for _ in 0..TRIES {
        match ask().await {
            Some(answer) => return Some(answer),
            None => world.clock().sleep(Duration::from_secs(1)).await,
        }
    }
    None
}

/// The run, as a client finds it.
async fn found<W: WorkflowFn<String, String> + Clone>(
    engine: &Engine,
    world: &World,
    code: W,
) -> Option<RunHandle<String>> {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let start = || tenant.run(code.clone(), "one".to_owned()).key(Simulation::KEY).start();
    asked(world, || {
        let start = start();
        async { start.await.ok() }
    })
    .await
}

/// Gives a command, until it is taken.
async fn give(world: &World, command: impl Fn() -> GiveCommand + Send + Sync) -> String {
    let given = asked(world, || {
        let command = command();
        async {
            match command.await {
                Ok(sent) => Some(format!("{sent:?}")),
                Err(over @ RunError::Over { .. }) => Some(over.to_string()),
                Err(_) => None,
            }
        }
    });
    given.await.unwrap_or_else(|| "nothing".to_owned())
}

fn simulation() -> Simulation {
    Simulation::of(office, "one".to_owned()).engine(|engine, world| {
        let engine = engine.tool(Looks(world.service("bank", Offer::Lookup)));
        engine.workflow("plain", 1, plain).workflow("careful", 1, careful).workflow("stubborn", 1, stubborn)
    })
}

/// How each run ended, the office first: with its result, or with the code of its failure.
fn ends(end: &End<'_>) -> Vec<Result<(), FailureCode>> {
    let mut runs = end.rows();
    runs.sort_by_key(|run| run.id);
    let ended = runs.iter().map(|run| match &run.state {
        RunState::Failed { failure } => Err(failure.decode::<Failure>().unwrap().code),
        RunState::Succeeded { .. } => Ok(()),
        other => panic!("{other:?}"),
    });
    ended.collect()
}

fn once(end: &End<'_>, what: &str, wanted: usize) -> Result<(), String> {
    match end.count("bank", what) {
        n if n == wanted || n > wanted && !end.questions().is_empty() => Ok(()),
        n => Err(format!("{what:?} happened {n} times, and not {wanted}")),
    }
}

/// The command is new once, in whichever life that was told.
fn new_once(end: &End<'_>) -> Result<(), String> {
    let heard = end.heard("manager");
    match heard.iter().filter(|what| what.starts_with("New")).count() {
        0 | 1 => Ok(()),
        _ => Err(format!("the command was taken for a new one twice: {heard:?}")),
    }
}

/// Cancelled after so long: while the first calls are on their way, or while all wait.
fn cancelled(after: Duration) -> Simulation {
    simulation()
        .with_actor("manager", move |engine, world| async move {
            let Some(run) = found(&engine, &world, office).await else { return "nothing".to_owned() };
            world.sleep(after).await;
            let cancel = || run.cancel("ann", "enough").key("c1").grace(Duration::from_mins(1));
            give(&world, cancel).await
        })
        .check("all of them end as they were told", |end| {
            let (office, children) = match ends(end).split_first() {
                Some((office, children)) => (*office, children.to_vec()),
                None => return Ok(()),
            };
            let told = |end: &Result<(), FailureCode>| {
                matches!(end, Err(FailureCode::Cancelled | FailureCode::Workflow | FailureCode::ToolFailed))
            };
            match office {
                // What was not begun yet need not be cancelled; what a provider has refused had failed by itself.
                Err(FailureCode::Cancelled) if children.iter().all(told) => Ok(()),
                // So had the office, and nobody was told anything.
                Err(FailureCode::ChildFailed) => Ok(()),
                _ => Err(format!("{office:?}: {children:?}")),
            }
        })
        .check("nobody goes on", |end| {
            if ends(end).first() != Some(&Err(FailureCode::Cancelled)) {
                return Ok(());
            }
            once(end, "plain second", 0)?;
            once(end, "careful second", 0)?;
            once(end, "stubborn late", 0)
        })
        .check("the command is one", new_once)
        .seed(after.as_secs())
}

// FLOW-9: the cancellation is durable when it is told so; it goes down to the children; no effect is forgotten.
#[test]
fn who_is_cancelled_ends_with_all_its_children() {
    for after in [Duration::from_millis(12), 30 * Duration::from_secs(60)] {
        let simulation = cancelled(after);
        let waiting = after > Duration::from_secs(1);
        let simulation = simulation.check("it was tidied up", move |end| {
            if waiting && ends(end).get(2) == Some(&Err(FailureCode::Workflow)) {
                once(end, "careful tidied", 1)?;
            }
            Ok(())
        });
        let report = every(simulation);
        assert!(report.crashed_at().contains_key(&CrashPoint::AfterSignal), "never died at a command");
    }
}

/// Every single incident and mixtures. What is told of the clean run is not that it succeeded.
fn every(simulation: Simulation) -> counterfoil::sim::Report {
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    report
}

/// Pauses a run beyond the time at which it is to pay again, in each life of the process: that is one pause.
async fn holiday(run: RunHandle<String>, world: World) -> String {
    world.sleep(Duration::from_millis(12)).await;
    let told = give(&world, || run.pause("ann", "holiday").key("p1")).await;
    if told.contains("is over") {
        return told;
    }
    world.sleep(20 * DAY).await;
    let gone_on = asked(&world, || {
        let run = run.clone();
        async move {
            match run.resume("ann", "back again").key("g1").await {
                Ok(Sent::New) => Some("went on"),
                Ok(Sent::Before) => Some("had gone on"),
                Err(RunError::NotPaused { .. }) => Some("was not paused"),
                Err(_) => None,
            }
        }
    });
    gone_on.await.unwrap_or("nothing").to_owned()
}

// A pause holds the run alone: what it has begun goes on, and it goes on itself where it stood.
#[test]
fn who_is_paused_goes_on_where_it_stood() {
    let report = every(
        Simulation::of(plain, "one".to_owned())
            .engine(|engine, world| engine.tool(Looks(world.service("bank", Offer::Lookup))))
            .with_actor("manager", |engine, world| async move {
                match found(&engine, &world, plain).await {
                    Some(run) => holiday(run, world).await,
                    None => "nothing".to_owned(),
                }
            })
            .check("it is paid as without a pause", |end| match ends(end).as_slice() {
                [Ok(())] => {
                    once(end, "one first", 1)?;
                    once(end, "one second", 1)
                }
                // A provider that refuses it makes it fail, paused or not.
                [Err(FailureCode::ToolFailed)] => Ok(()),
                ends => Err(format!("{ends:?}")),
            })
            .check("one pause, one end of it", |end| {
                let went_on = end.heard("manager").iter().filter(|what| **what == "went on").count();
                if went_on < 2 { Ok(()) } else { Err(format!("it went on {went_on} times")) }
            }),
    );
    for point in [CrashPoint::AfterSignal, CrashPoint::BeforeAnswer, CrashPoint::AfterAnswer] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}");
    }
}
