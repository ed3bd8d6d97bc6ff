//! Versions in the simulator: a newer one is deployed while runs of the old one are under way, and taken back again, with a
//! crash wherever there can be one.

use std::time::Duration;

use counterfoil::flow::{EngineBuilder, RunError, Workflow};
use counterfoil::sim::{CrashPoint, End, Offer, OpenQuestion, Simulation, World, truthful};
use counterfoil::store::{QuestionKind, Resolution, Run, RunState};
use counterfoil::{Ctx, Engine, Failure};

use crate::sim::command::asked;
use crate::sim::{Looks, quick};

const NAME: &str = "letter";

async fn posted(ctx: &Ctx, what: &str) -> Result<(), Failure> {
    ctx.call::<Looks>(what.to_owned()).await.map(drop)
}

/// Writes a letter, files a copy by hand, and asks a day later.
async fn first(ctx: Ctx, case: String) -> Result<u32, Failure> {
    let letter: String = ctx.step("draft", &case, |case| format!("{case} letter")).await?;
    posted(&ctx, &letter).await?;
    posted(&ctx, "copy by hand").await?;
    ctx.sleep(Duration::from_hours(24)).await?;
    posted(&ctx, "question").await?;
    Ok(1)
}

/// The same without the copy by hand, and with a copy at the end.
async fn second(ctx: Ctx, case: String) -> Result<u32, Failure> {
    let letter: String = ctx.step("draft", &case, |case| format!("{case} letter")).await?;
    posted(&ctx, &letter).await?;
    ctx.sleep(Duration::from_hours(24)).await?;
    posted(&ctx, "question").await?;
    posted(&ctx, "copy").await?;
    Ok(2)
}

/// In which lives of the process the first version is deployed.
type FirstIn = fn(u32) -> bool;

fn deployed(engine: EngineBuilder, world: &World, first_in: FirstIn) -> EngineBuilder {
    let engine = engine.tool(Looks(world.service("mail", Offer::Lookup)));
    if first_in(world.life()) {
        engine.workflow(NAME, 1, first)
    } else {
        engine.register(Workflow::new(NAME, second).version(2).replaces([1]))
    }
}

/// Asks for the run by whichever version is there.
async fn client(engine: Engine, world: World, is_first: bool) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let told = asked(&world, || async {
        let case = "c1".to_owned();
        let result = if is_first {
            tenant.run(first, case).key("one").await
        } else {
            tenant.run(second, case).key("one").await
        };
        match result {
            Ok(version) => Some(format!("version {version}")),
            Err(RunError::Failed { .. }) => Some("failed".to_owned()),
            Err(_) => None,
        }
    });
    told.await.unwrap_or_else(|| "nothing".to_owned())
}

/// Lets a run go on that took another path; what a version alone can answer stays open.
fn operator(question: &OpenQuestion<'_>) -> Option<Resolution> {
    match question.question.kind {
        QuestionKind::Unregistered | QuestionKind::Orphaned | QuestionKind::Duplicated => None,
        _ => truthful(question),
    }
}

fn simulation(first_in: FirstIn) -> Simulation {
    async fn nothing(_: Ctx, input: String) -> Result<String, Failure> {
        Ok(input)
    }
    Simulation::of(nothing, String::new())
        .engine(move |engine, world| deployed(engine, world, first_in))
        .with_actor("client", move |engine, world| {
            let is_first = first_in(world.life());
            client(engine, world, is_first)
        })
        .operator(operator)
        .check("one run", |end| match letters(end).len() {
            0 | 1 => Ok(()),
            n => Err(format!("{n} runs of one start key")),
        })
        .check("what both versions ask for is done once", |end| {
            ["c1 letter", "question"].into_iter().try_for_each(|what| match end.count("mail", what) {
                0 if !end.heard("client").iter().any(|told| told.starts_with("version")) => Ok(()),
                1 => Ok(()),
                n if n > 1 && asks(end, QuestionKind::Duplicated) => Ok(()),
                n if n > 1 && asks(end, QuestionKind::Unregistered) => Ok(()), // it goes on where it is known
                n => Err(format!("{what} was posted {n} times")),
            })
        })
        .check("what the newer one does not ask for is listed", |end| {
            let left = end.count("mail", "copy by hand") > 0 && ended_as(end, 2);
            if left && !asks(end, QuestionKind::Orphaned) {
                Err("a copy nobody asked for".into())
            } else {
                Ok(())
            }
        })
}

pub(crate) fn asks(end: &End<'_>, kind: QuestionKind) -> bool {
    end.questions().iter().any(|question| question.kind == kind)
}

fn letters(end: &End<'_>) -> Vec<Run> {
    end.rows().into_iter().filter(|run| run.workflow.as_str() == NAME).collect()
}

fn ended_as(end: &End<'_>, version: u32) -> bool {
    letters(end).iter().any(|run| run.version == version && matches!(run.state, RunState::Succeeded { .. }))
}

// FLOW-1, DESIGN 4.1: from the second life of the process on, there is the second version alone.
#[test]
fn a_newer_version_takes_over_wherever_the_older_one_dies() {
    let report = quick(simulation(|life| life == 1)).explore();
    report.assert_ok();
    let crashed = report.crashed_at();
    for point in [CrashPoint::AfterTakeover, CrashPoint::AfterSeal, CrashPoint::AfterPark] {
        assert!(crashed.contains_key(&point), "never died at {point}");
    }
}

// The version that it was taken from does not get it back: it waits, listed, until the newer one is there again.
#[test]
fn a_run_is_not_given_back_to_the_version_it_was_taken_from() {
    let simulation = simulation(|life| life % 2 == 1).check("it waits, listed", |end| {
        let waits = letters(end).iter().any(|run| matches!(run.state, RunState::Blocked { .. }));
        if waits && !asks(end, QuestionKind::Unregistered) {
            return Err("it was blocked, and nobody was asked".into());
        }
        Ok(())
    });
    quick(simulation).random(150).explore().assert_ok();
}
