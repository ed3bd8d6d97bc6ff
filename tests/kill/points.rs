//! Killed at every crash point, in front of every class of provider, and under every fault.

use std::sync::Arc;

use counterfoil::sim::CrashPoint;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::case_notice::classes::Class;
use crate::harness::process::World;
use crate::harness::role::Ended;
use crate::harness::scenario::{Depth, Fault, Scenario, of_class};
use crate::harness::trial::{Ours, Place};
use crate::{Bench, PACE, full, ledger_violations, run, violations};

const AT_ONCE: usize = 3;

// R-SIM-1, R-SIM-3, R-FLOW-8; A01, A02, A03, A05, A06, A09's neighbours in a process that dies; F02, F03, C01.
for_each_class! { |class| run(every_scenario(class)) }

/// R-SIM-1: a clean run crosses these points and no other, in front of a provider that can be asked.
#[test]
fn a_clean_run_numbers_its_points() {
    run(async {
        let class = Class::ReplaysKeyWithLookup;
        let bench = Bench::of(class).await;
        let scenarios = of_class(&bench.place, &bench.world, class, Depth::First).await.unwrap();
        let names: Vec<_> = scenarios.iter().map(Scenario::to_string).collect();
        let expected = [
            "before-enrolment",
            "after-enrolment",
            "before-run-start",
            "after-run-start",
            "before-checkpoint",
            "after-checkpoint",
            "before-started",
            "after-started",
            "before-call",
            "after-call",
            "before-seal",
            "after-seal",
            "before-transaction",
            "after-transaction",
            "before-run-end",
            "after-run-end",
            "before-retirement",
            "after-retirement",
            "after-call, then before-takeover",
            "after-call, then after-takeover",
            "after-call, then before-adoption",
            "after-call, then after-adoption",
            "after-call, then before-lookup",
            "after-call, then after-lookup",
            "after-call, then before-progress",
            "after-call, then after-progress",
            "before-call, then before-attempt",
            "before-call, then after-attempt",
            "before-call, then before-confirming",
            "before-call, then after-confirming",
            "before-call, then before-confirmed",
            "before-call, then after-confirmed",
        ];
        assert_eq!(names[..names.len() - Fault::ALL.len()], expected);
    });
}

async fn every_scenario(class: Class) {
    let bench = Bench::of(class).await;
    let depth = if full() { Depth::Each } else { Depth::First };
    let scenarios = of_class(&bench.place, &bench.world, class, depth).await.unwrap();
    assert!(scenarios.len() > 25, "too few points were numbered: {scenarios:?}");

    let Bench { place, world, _folder } = bench;
    let (world, slots) = (Arc::new(world), Arc::new(Semaphore::new(AT_ONCE)));
    let mut trials = JoinSet::new();
    for (number, scenario) in scenarios.into_iter().enumerate() {
        let (place, world, slots) = (place.clone(), world.clone(), slots.clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            trial(&place, &world, class, &scenario, number).await
        });
    }
    let (mut wrong, mut succeeded) = (Vec::new(), 0);
    while let Some(trial) = trials.join_next().await {
        match trial.unwrap() {
            Ok(well) => succeeded += u32::from(well),
            Err(said) => wrong.push(said),
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", class.name(), wrong.join("\n"));
    assert!(succeeded > 0, "no run of {} has succeeded: nothing was shown", class.name());
}

/// One scenario; whether its run succeeded, or what was wrong.
async fn trial(
    place: &Place,
    shared: &World,
    class: Class,
    scenario: &Scenario,
    number: usize,
) -> Result<bool, String> {
    let case = format!("case-{number}");
    let own;
    let world = if scenario.needs_own_world() {
        let db = place.folder.join(format!("{case}-provider.db"));
        own = World::start(&place.program, &db, &scenario.behaviour(class, PACE)).await.unwrap();
        &own
    } else {
        shared
    };
    let ours =
        place.ours(world, class, scenario, &case).await.map_err(|error| format!("{scenario}: {error}"))?;
    let succeeded = ours.report.ended == Ended::Succeeded;
    let mut wrong = violations(&ours.report);
    wrong.extend(counted(class, scenario, &ours));
    wrong.extend(ledger_violations(&place.folder.join(format!("{case}.db")), succeeded).await);
    if wrong.is_empty() {
        Ok(succeeded)
    } else {
        Err(format!("{scenario}: {}\n    {ours:?}", wrong.join("; ")))
    }
}

/// What the provider has counted, against what is promised for its class.
fn counted(class: Class, scenario: &Scenario, ours: &Ours) -> Vec<String> {
    let mut wrong = Vec::new();
    if ours.is_silent_duplicate() {
        wrong.push(format!("{} effects, and nobody was told", ours.effects));
    }
    if ours.is_silent_loss() {
        wrong.push("lost".to_owned());
    }
    // These are the provider's own doing, or beyond what it declared: then it is enough that somebody is told.
    let excused = match scenario {
        Scenario::Fault(Fault::SendsTwice) => true,
        Scenario::Fault(Fault::ArrivesTooLate) => class == Class::Lookup,
        _ => class == Class::IgnoresKey,
    };
    if ours.effects > 1 && !excused && class != Class::IgnoresKey {
        wrong.push(format!("{} effects", ours.effects));
    }
    if ours.effects == 0 && ours.report.ended == Ended::Succeeded {
        wrong.push("succeeded without an effect".to_owned());
    }
    // A provider that ignores keys, crashed right after the effect, sends twice: that must be shown, and marked.
    let after_call = matches!(scenario, Scenario::Crash(kills) if kills.first().is_some_and(|kill| kill.point == CrashPoint::AfterCall));
    if class == Class::IgnoresKey && after_call && !(ours.effects > 1 && ours.is_marked()) {
        wrong.push(format!("{} effects, marked: {}", ours.effects, ours.is_marked()));
    }
    wrong
}
