//! Committed records are looked up again, as the simulator sees it; and engines that do it too seldom, which it finds out.

use std::collections::BTreeSet;
use std::sync::Arc;

use counterfoil::ledger::{Confirm, Contract, ContractClass, LookupResult, Reason};
use counterfoil::sim::{Offer, Rule, Service, Simulation};
use counterfoil::store::{Change, QuestionKind};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde_json::Value;

use crate::sim::{Tampered, quick};

/// A tool that is looked at after each send.
struct Open(Service);

impl Tool for Open {
    const NAME: &'static str = "open";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn contract(&self) -> Contract {
        Contract::new(ContractClass::Lookup).confirm(Confirm::Always)
    }

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

impl Reconcile for Open {
    async fn reconcile(&self, call: &Call, case: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, case).await
    }
}

async fn open(ctx: Ctx, case: String) -> Result<Value, Failure> {
    ctx.call::<Open>(case).await
}

fn simulation(tamper: fn(&mut Change)) -> Simulation {
    Simulation::of(open, "case".to_owned()).engine(move |engine, world| {
        let desk = world.service("desk", Offer::Lookup);
        engine.tool(Open(desk)).wrap_store(move |store| Arc::new(Tampered(store, tamper)))
    })
}

fn broken(schedule: &str, tamper: fn(&mut Change)) -> BTreeSet<Rule> {
    let replay = simulation(tamper).replay(&schedule.parse().unwrap());
    replay.violations.into_iter().map(|violation| violation.rule).collect()
}

// SIM-2: also by itself, the simulator tries what only looks after a send can find out.
#[test]
fn looks_find_whatever_the_simulator_tries() {
    quick(simulation(|_| {})).explore().assert_ok();
}

/// Lands before the second send is looked at, or one, several and many settle times after it; and after a restart.
const LANDING: [&str; 7] = [
    "landing+100@1",
    "landing+150@1",
    "landing+600@1",
    "landing+3000@1",
    "landing+600@1 crash@1.12",
    "landing+3000@1 crash@1.12 down+200@2",
    "landing+2700@1 crash@1.12 clock+7000@2",
];

#[test]
fn whatever_lands_before_the_horizon_is_found() {
    for schedule in LANDING {
        assert_eq!(broken(schedule, |_| {}), BTreeSet::new(), "{schedule}");
    }
    let beyond = broken("landing+5000@1", |_| {});
    assert_eq!(beyond, BTreeSet::from([Rule::SilentDuplicate]), "the promise ends at the horizon");
}

#[test]
fn what_the_network_doubles_and_what_the_provider_forgets_is_asked_about() {
    for schedule in ["twice@1", "forgets@1", "forgets@1 crash@1.12", "twice@1 crash@1.12"] {
        assert_eq!(broken(schedule, |_| {}), BTreeSet::new(), "{schedule}");
    }
}

/// What the simulator finds by itself of such an engine: the smallest schedules that break a rule.
fn found(tamper: fn(&mut Change)) -> String {
    let report = simulation(tamper).single_crashes().explore();
    let schedules = report.failures().iter().map(|failing| failing.schedule.to_string());
    schedules.collect::<Vec<_>>().join(", ")
}

#[test]
fn an_engine_that_looks_too_seldom_is_found_out() {
    let only_the_first = |change: &mut Change| {
        if let Some(look) = change.look.as_mut().filter(|look| look.made > 0) {
            look.due_at = None;
        }
    };
    let broken_rules = broken("landing+600@1", only_the_first);
    assert_eq!(broken_rules, BTreeSet::from([Rule::SilentDuplicate]), "no further looks after the first");
    assert_eq!(found(only_the_first), "landing+2700@1");
    let not_after_one = |change: &mut Change| {
        change.look.take_if(|look| look.revision == 1 && look.reason == Reason::Doubled);
    };
    let broken_rules = broken("twice@1", not_after_one);
    assert_eq!(broken_rules, BTreeSet::from([Rule::SilentDuplicate]), "no look after a single send");
    assert!(found(not_after_one).contains("twice@1"));
    let miss_confirms = |change: &mut Change| {
        change.escalations.retain(|question| question.kind != QuestionKind::Missing);
        if let Some(look) = change.look.as_mut().filter(|look| look.missed) {
            (look.due_at, look.missed) = (None, false);
        }
    };
    let broken_rules = broken("forgets@1", miss_confirms);
    assert_eq!(broken_rules, BTreeSet::from([Rule::SilentLoss]), "a miss counts as confirmation");
    assert!(found(miss_confirms).contains("forgets@1"));
}
