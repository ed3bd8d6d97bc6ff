//! A ledger that is older than the world, as the simulator sees it: restored from any backup, recognised or told; and engines that
//! do not mind, which it finds out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Key;
use counterfoil::ledger::{Contract, ContractClass, RetryPolicy};
use counterfoil::sim::{Offer, Rule, Service, Simulation};
use counterfoil::store::Change;
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use serde_json::Value;

use crate::sim::{Blind, Looks, Natural, Rejects, Replays, ReplaysAndLooks, Tampered, quick, simulation};

const HOUR: Duration = Duration::from_hours(1);

fn once<T>(offer: Offer, tool: fn(Service) -> T) -> Simulation
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    let simulation = simulation(offer, tool).restores();
    simulation.check("each effect once", |end| {
        ["case/1", "case/2"].into_iter().try_for_each(|what| end.exactly_once_if_succeeded("desk", what))
    })
}

// A10, SIM-2: each backup, recognised and told, alone and with whatever else goes wrong, for each downstream class.
#[test]
fn every_class_keeps_its_promise_whichever_backup_is_restored() {
    let reports = [
        quick(once(Offer::ReplaysKey, Replays)).explore(),
        quick(once(Offer::ReplaysKeyAndLookup, ReplaysAndLooks)).explore(),
        quick(once(Offer::RejectsKey, Rejects)).explore(),
        quick(once(Offer::NaturalKey, Natural)).explore(),
        quick(once(Offer::Lookup, Looks)).random(200).explore(),
        quick(once(Offer::Blind, Blind)).explore(),
    ];
    for report in &reports {
        report.assert_ok();
        assert!(report.schedules() > 100, "only {} schedules", report.schedules());
    }
}

/// Its provider forgets keys after an hour, and says so.
struct Forgetful(Service);

impl Tool for Forgetful {
    const NAME: &'static str = "forgetful";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = Value;

    fn contract(&self) -> Contract {
        Contract::new(ContractClass::ReplaysKey).key_window(HOUR)
    }

    fn retry(&self) -> RetryPolicy {
        let minute = Duration::from_mins(1);
        RetryPolicy {
            attempts: 2,
            attempt_timeout: minute,
            retry_after_cap: minute,
            ..RetryPolicy::default()
        }
    }

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

// The age of a key counts from the instant of the backup: what is younger than its window is sent, what may be older is asked about.
#[test]
fn a_key_that_may_be_forgotten_by_now_is_asked_about() {
    let simulation = || {
        once(Offer::ReplaysKey, |desk: Service| Forgetful(desk.forgets_after(HOUR)))
            .random(100)
            .single_crashes()
    };
    simulation().explore().assert_ok();
    for (schedule, asks) in
        [("restored-told+2@2", false), ("restored-told+2@2 down+4000@2", true), ("restored+2@2", true)]
    {
        let replay = simulation().replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
        let asked = replay.timeline().contains("Nothing else can tell");
        assert_eq!(asked, asks, "{schedule}\n{}", replay.timeline());
    }
}

// The effect that the backup does not know of is found, and the result is that of the first life.
#[test]
fn an_effect_that_a_backup_does_not_know_is_looked_up() {
    let clean = once(Offer::Lookup, Looks).replay(&"".parse().unwrap());
    assert!(!clean.timeline().contains("looked up"), "{}", clean.timeline());
    for schedule in
        ["restored+0@2", "restored-told+0@2", "crash@1.30 restored+2@2", "restored+3@2 crash@2.12"]
    {
        let replay = once(Offer::Lookup, Looks).replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
        let timeline = replay.timeline();
        assert!(timeline.contains("is put back") && timeline.contains("looked up: 1"), "{timeline}");
        assert_eq!(timeline.matches("happens as").count(), 2, "{schedule}\n{timeline}");
    }
}

// What the lost ledger has sent may arrive when the look in its place has shown a later send: whether the backup knows nothing
// of the call, or its first attempt.
#[test]
fn a_request_of_the_lost_ledger_that_lands_later_is_found() {
    for batches in 0..8 {
        for crash in 20..40 {
            let schedule = format!("landing+100@1 kill@1.{crash} restored+{batches}@2");
            let replay = once(Offer::Lookup, Looks).replay(&schedule.parse().unwrap());
            assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
        }
    }
}

// The clock was set back as well: what the backup knows looks newer than the restore. A failed attempt is one that may go again.
#[test]
fn a_clock_that_was_set_back_hides_no_restore() {
    for batches in 0..12 {
        let schedule = format!("unauthorized@1 restored-told+{batches}@2 clock-9000@2");
        let replay = once(Offer::Lookup, Looks).replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
    }
}

/// What an engine breaks that works on such a store, whatever is restored.
fn broken<T>(offer: Offer, tool: fn(Service) -> T, tamper: fn(&mut Change)) -> BTreeSet<Rule>
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    let simulation = simulation(offer, tool).restores().single_crashes();
    let report = simulation
        .engine(move |engine, _| engine.wrap_store(move |store| Arc::new(Tampered(store, tamper))))
        .explore();
    let violations = report.failures().iter().flat_map(|failing| {
        let schedule = failing.schedule.to_string();
        assert!(schedule.contains("restored"), "{schedule} is enough");
        &failing.violations
    });
    violations.map(|violation| violation.rule.clone()).collect()
}

#[test]
fn an_engine_that_does_not_mind_a_restore_is_found_out() {
    // What is noted is at once lifted: first sends are preceded by nothing.
    let lifted = |change: &mut Change| change.documents.iter_mut().for_each(|document| document.open = false);
    for rules in [broken(Offer::Lookup, Looks, lifted), broken(Offer::Blind, Blind, lifted)] {
        assert!(rules.contains(&Rule::SilentDuplicate) && rules.contains(&Rule::NoBlindRepeat), "{rules:?}");
    }
}
