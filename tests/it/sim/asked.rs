//! Lookups that have no answer for a while, as the simulator sees them; and engines that give up too soon or believe too much,
//! which it finds out.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::ledger::{LookupResult, RecordedFailure, State};
use counterfoil::sim::{Offer, Rule, Service, Simulation, World};
use counterfoil::store::{Change, QuestionKind, Resolution};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};
use serde_json::{Value, json};

use crate::sim::Tampered;

struct Open(Service);

impl Tool for Open {
    const NAME: &'static str = "open";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

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
    let simulation = Simulation::of(open, "case".to_owned()).engine(move |engine, world| {
        let desk = world.service("desk", Offer::Lookup);
        engine.tool(Open(desk)).wrap_store(move |store| Arc::new(Tampered(store, tamper)))
    });
    simulation.check("nobody need be asked", |end| match end.questions().first() {
        Some(open) => Err(format!("still open: {}", open.question)),
        None => Ok(()),
    })
}

fn broken(simulation: &Simulation, schedule: &str) -> Vec<Rule> {
    let replay = simulation.replay(&schedule.parse().unwrap());
    let mut rules: Vec<_> = replay.violations.into_iter().map(|violation| violation.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

/// Says that it did not happen as soon as anybody asks, without having looked.
async fn ann(engine: Engine, world: World) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    for _ in 0..200 {
        let open = tenant.questions().await.unwrap_or_default();
        let asked = open.iter().find(|q| q.kind == QuestionKind::Ambiguous && q.waiting.is_none());
        if let Some(asked) = asked {
            let answered = tenant.answer(asked.id, Resolution::DidNotHappen, "ann").because("so they say");
            return answered.await.map_or_else(|error| error.to_string(), |()| "heard".to_owned());
        }
        world.sleep(Duration::from_secs(1)).await;
    }
    "nobody has asked".to_owned()
}

/// Short and long, in one life and over several.
const DOWN: [&str; 6] = [
    "answer-lost@1 lookup-down+600@1",
    "request-lost@1 lookup-down+600@1",
    "answer-lost@1 lookup-down+20000@1",
    "landing+30@1 lookup-down+600@1",
    "answer-lost@1 lookup-down+600@1 down+3600@2 crash@1.16",
    "crash@1.5 lookup-down+600@1 crash@2.9",
];

#[test]
fn a_lookup_that_answers_again_answers_the_question() {
    for schedule in DOWN {
        assert_eq!(broken(&simulation(|_| {}), schedule), [], "{schedule}");
    }
}

#[test]
fn whoever_says_that_it_did_not_happen_is_looked_up_first() {
    let simulation = simulation(|_| {}).with_actor("ann", ann);
    for schedule in DOWN {
        assert_eq!(broken(&simulation, schedule), [], "{schedule}");
    }
}

#[test]
fn an_engine_that_never_looks_again_is_found_out() {
    let never_again = simulation(|change| drop(change.look.take_if(|look| look.reason.is_beside_question())));
    let found = broken(&never_again, DOWN[0]);
    assert_eq!(found, [Rule::Own("nobody need be asked".to_owned())]);
}

/// What the answer was to wait for is left out: it takes effect at once.
fn believes_at_once(change: &mut Change) {
    let waits = change.escalations.iter_mut().find(|asked| asked.answer.is_none() && asked.waiting.is_some());
    let Some(asked) = waits else { return };
    asked.answer = asked.waiting.take();
    if let Some(record) = change.record.as_mut() {
        let failure = json!({ "kind": "unknown", "message": "ann says so", "detail": null });
        let failure: RecordedFailure = serde_json::from_value(failure).unwrap();
        (record.state, record.escalation, record.in_doubt) = (State::Failed { failure }, None, false);
    }
    if let Some(look) = change.look.as_mut() {
        look.due_at = None;
    }
}

#[test]
fn an_engine_that_sends_on_a_persons_word_is_found_out() {
    let believes = simulation(believes_at_once).with_actor("ann", ann);
    let found = (10..60)
        .map(|crossing| broken(&believes, &format!("answer-lost@1 lookup-down+600@1 crash@1.{crossing}")));
    let found: Vec<_> = found.flatten().collect();
    assert!(found.contains(&Rule::SilentDuplicate), "{found:?}");
}
