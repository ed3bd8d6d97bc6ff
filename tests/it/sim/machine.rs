//! The simulated machine: what a crash, a kill and a pause are, several runs on it, and a person in front of it.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::ledger::ErrorKind;
use counterfoil::sim::{CrashPoint, Happened, Offer, Replay, Rule, Schedule, Simulation, World, truthful};
use counterfoil::store::{
    Change, QuestionKind, Resolution, Run, RunState, Store, StoreError, StoreFuture, Verdict,
};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key, RunId, Tenant};
use serde_json::json;

use crate::sim::{Blind, Looks, simulation, twice};

fn replayed(simulation: &Simulation, schedule: &str) -> Replay {
    let replay = simulation.replay(&schedule.parse().unwrap());
    assert_eq!(replay.violations, [], "{schedule}: {}", replay.timeline());
    replay
}

// Invariant 6, A05: it was paused with the answer in its hands; another one has asked the world since.
#[test]
fn a_paused_process_that_comes_back_changes_nothing() {
    let replay = replayed(&simulation(Offer::Lookup, Looks), "pause@1.12");
    let timeline = replay.timeline();
    let (before, after) = timeline.split_once("goes on").expect("it comes back");
    assert!(
        before.contains("is paused at after-call") && before.contains("the run is succeeded"),
        "{before}"
    );
    assert!(after.contains("refused: this worker has been fenced"), "{after}");
    assert!(!after.contains("is committed") && !after.contains("sent"), "{after}");
}

fn two_tenants() -> Simulation {
    let other = "case".to_owned();
    simulation(Offer::Lookup, Looks).with_run("other", "simulated", twice::<Looks>, other).single_crashes()
}

// What is on its way to the disk when its process dies at a call of another run is there, or it is not.
#[test]
fn what_was_being_written_may_have_reached_the_disk() {
    let simulation = two_tenants();
    let after = |schedule: String| {
        let timeline = replayed(&simulation, &schedule).timeline();
        let lines = timeline.lines().filter(|line| !line.contains('✗')).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let differ = (1..40).filter(|n| after(format!("crash@1.{n}")) != after(format!("kill@1.{n}")));
    assert!(differ.count() > 0, "a kill is a crash, everywhere");
}

// KEY-2, invariant 10: one key, two tenants, two effects; whoever crashes when.
#[test]
fn each_tenant_has_its_own() {
    let report = two_tenants()
        .check("once for each", |end| {
            let (effects, enough) = (end.effects().len(), end.succeeded());
            let twice = end.questions().is_empty() && effects > 4;
            if enough && effects < 4 || twice { Err(format!("{effects} effects")) } else { Ok(()) }
        })
        .check("each caller gets an answer of its own", |end| match end.results().as_slice() {
            [a, b] if end.succeeded() && (a, b) != (&Some(json!("both")), &Some(json!("both"))) => {
                Err(format!("{a:?} and {b:?}"))
            }
            _ => Ok(()),
        })
        .random(50)
        .explore();
    report.assert_ok();
}

// REC-7: with a person who goes and looks, nothing stays open, and nothing happens twice, wherever it is crashed.
#[test]
fn a_person_who_tells_the_truth_gets_every_run_to_its_end() {
    let report = simulation(Offer::Blind, Blind)
        .operator(truthful)
        .check("nothing is left open", |end| match end.questions().as_slice() {
            [] => Ok(()),
            open => Err(open[0].question.clone()),
        })
        .check("never twice", |end| match end.effects().len() {
            0..=2 => Ok(()),
            n => Err(format!("{n} effects of two calls")),
        })
        .explore();
    report.assert_ok();
    for point in [CrashPoint::BeforeAnswer, CrashPoint::AfterAnswer, CrashPoint::AfterPark] {
        assert!(report.crashed_at().contains_key(&point), "never crashed at {point}");
    }
}

/// Nobody knows what becomes of its calls.
struct Counts;

impl Tool for Counts {
    const NAME: &'static str = "counts";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = ();
    type Output = u32;

    fn key(&self, (): &()) -> Option<Key> {
        Some(Key::of(Self::NAME).target("all"))
    }

    async fn call(&self, _: &Call, (): &()) -> Result<Done<u32>, ToolError> {
        Err(ToolError::new(ErrorKind::Disconnected, "cut off"))
    }
}

// An answer that does not fit changes nothing: the run waits, and the question stays open.
#[test]
fn a_person_who_answers_what_does_not_fit_spoils_nothing() {
    let simulation = Simulation::of(async |ctx: Ctx, (): ()| ctx.call::<Counts>(()).await, ())
        .engine(|engine, _| engine.tool(Counts))
        .operator(|question| match question.question.kind {
            QuestionKind::Ambiguous => Some(Resolution::Happened(json!("not a number"))),
            _ => None,
        });
    let report = simulation.explore();
    assert!(report.failures().is_empty(), "{report}");
    assert_eq!(report.asked(), report.schedules(), "each schedule leaves its question open");
}

// A person whose answers raise the same question again and again is found out, and does not keep the simulation busy for ever.
#[test]
fn a_person_who_gets_nowhere_is_found_out() {
    let simulation = Simulation::of(async |ctx: Ctx, (): ()| ctx.call::<Counts>(()).await, ())
        .turns(2_000)
        .operator(|_| Some(Resolution::Resume)); // it goes on, and its tool is still not registered
    let replay = simulation.replay(&Schedule::default());
    let [violation] = replay.violations.as_slice() else { panic!("{:?}", replay.violations) };
    assert_eq!(violation.rule, Rule::NothingDropped);
    assert!(violation.what.contains("busy for ever"), "{violation}");
}

/// Calls a tool four hundred times.
async fn calls_often(ctx: Ctx, (): ()) -> Result<(), Failure> {
    for number in 0..400 {
        ctx.call::<Looks>(format!("case/{number}")).await?;
    }
    Ok(())
}

// A long workflow makes progress all the time, and is not taken for one that is busy for ever.
#[test]
fn a_long_workflow_is_not_busy_for_ever() {
    let simulation = Simulation::of(calls_often, ())
        .engine(|engine, world| engine.tool(Looks(world.service("desk", Offer::Lookup))))
        .check("all calls happen", |end| match end.effects().len() {
            400 => Ok(()),
            n => Err(format!("{n} effects")),
        });
    replayed(&simulation, "");
}

// A request that is still on its way arrives before the end, although nothing but a question is left to the engine.
#[test]
fn a_request_on_its_way_arrives_before_the_end() {
    let simulation = simulation(Offer::Blind, Blind)
        .with_actor("a clock", async |_, world: World| {
            for _ in 0..200 {
                world.sleep(Duration::from_secs(1)).await;
            }
            "it has struck".to_owned()
        })
        .check("the request arrives", |end| match (end.questions().len(), end.count("desk", "case/1")) {
            (1, 1) => Ok(()),
            found => Err(format!("{found:?} questions and effects")),
        });
    replayed(&simulation, "landing+150@1");
}

/// A store of a process that tells a caller nothing of a run that has ended.
#[derive(Debug)]
struct Mute(Arc<dyn Store>, Muting);

/// How it tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Muting {
    /// The run is read as one that is still carried out.
    RunGoesOn,
    /// No run can be started.
    StartFails,
}

impl Store for Mute {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        let starts = changes.iter().any(|change| change.run.as_ref().is_some_and(|run| run.revision == 1));
        if self.1 == Muting::StartFails && starts {
            let (row, detail) = ("run".to_owned(), "simulated".to_owned());
            return Box::pin(async move { Err(StoreError::Corrupt { row, detail }) });
        }
        self.0.commit(changes)
    }

    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            let mut found = self.0.run_find(tenant, id).await?;
            if let Some(run) = found.as_mut().filter(|run| run.state.is_final())
                && self.1 == Muting::RunGoesOn
            {
                run.state = RunState::Active;
            }
            Ok(found)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// A caller who comes back after a crash is told how its run has ended: that the ledger is complete is not enough.
#[test]
fn a_caller_who_is_never_told_is_found_out() {
    let honest = simulation(Offer::Lookup, Looks);
    let clean = replayed(&honest, "");
    let mut crossed = clean.events.iter().filter(|event| matches!(event.what, Happened::Crossed(_)));
    let ended = Happened::Crossed(CrashPoint::AfterRunEnd);
    let place = crossed.position(|event| event.what == ended).unwrap() + 1;
    let schedule = format!("crash@1.{place}");
    replayed(&honest, &schedule);
    for muting in [Muting::RunGoesOn, Muting::StartFails] {
        let mute = simulation(Offer::Lookup, Looks).engine(move |engine, world| match world.life() {
            0 | 1 => engine,
            _ => engine.wrap_store(move |store| Arc::new(Mute(store, muting))),
        });
        let replay = mute.replay(&schedule.parse().unwrap());
        let rules: Vec<_> = replay.violations.iter().map(|violation| &violation.rule).collect();
        assert!(rules.contains(&&Rule::CallerTold), "{muting:?}: {rules:?}\n{}", replay.timeline());
    }
}

// A process that dies whenever it is started leaves nothing done, and says so.
#[test]
fn a_process_that_never_comes_up_is_found_out() {
    let replay = Simulation::of(async |ctx: Ctx, (): ()| ctx.call::<Counts>(()).await, ())
        .engine(|engine, _| engine.tool(Counts).tool(Counts)) // it is refused
        .replay(&Schedule::default());
    let [violation] = replay.violations.as_slice() else { panic!("{:?}", replay.violations) };
    assert_eq!(violation.rule, Rule::NothingDropped);
    assert!(violation.what.contains("die one after another"), "{violation}");
}
