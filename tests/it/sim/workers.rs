//! Several workers beside one another on one ledger: each dies and stands still at each point, and another one carries on.

use std::sync::Arc;

use counterfoil::ledger::State;
use counterfoil::sim::{Fault, Incident, Offer, Rule, Schedule, Simulation, Stop};
use counterfoil::store::Change;

use crate::sim::{Looks, Tampered, of_each_class, quick, simulation, twice};

// SIM-4: two live workers, for each downstream class.
#[test]
fn every_class_keeps_its_promise_among_several_workers() {
    for simulation in of_each_class() {
        let report = quick(simulation.workers(2)).explore();
        report.assert_ok();
        assert!(report.schedules() > 150, "only {} schedules", report.schedules());
    }
}

// Two runs that rest on the same effects, among three workers.
#[test]
fn what_two_runs_share_is_done_once_among_three_workers() {
    let simulation = simulation(Offer::Lookup, Looks)
        .with_run(Simulation::TENANT, "other", twice::<Looks>, "case".to_owned())
        .workers(3);
    quick(simulation).explore().assert_ok();
}

/// A person is asked because the lookup is away, and the worker that asks stands still, for less than its lease: another one makes
/// the next look, and withdraws the question.
fn asked_and_withdrawn(simulation: &Simulation) -> Vec<(Schedule, Rule)> {
    let broken = (1..=24).flat_map(|crossing| {
        let schedule = Schedule::new([
            Incident::Fault { request: 1, fault: Fault::FailsBefore },
            Incident::LookupDown { lookup: 1, seconds: 3 },
            Incident::Stop { stop: Stop::PauseFor { seconds: 100 }, life: 1, crossing },
        ]);
        let violations = simulation.replay(&schedule).violations;
        violations.into_iter().map(move |violation| (schedule.clone(), violation.rule))
    });
    broken.collect()
}

fn seized(change: &mut Change) {
    if let Some(record) = &mut change.record
        && record.state == State::Started
    {
        record.not_before = None;
    }
}

#[test]
fn a_record_that_was_left_is_taken_up_by_another_worker_that_lives() {
    let honest = simulation(Offer::Lookup, Looks).workers(2);
    assert_eq!(asked_and_withdrawn(&honest), []);
    let seized = honest.engine(|engine, _| engine.wrap_store(|store| Arc::new(Tampered(store, seized))));
    let found = asked_and_withdrawn(&seized);
    assert!(found.iter().any(|(_, rule)| *rule == Rule::NothingDropped), "the mutant survives: {found:?}");
}
