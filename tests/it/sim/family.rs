//! Children in the simulator: what a child did that succeeded is undone with its parent, or asked about, wherever a process
//! dies.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::{EffectClass, LookupResult, Record, Undone};
use counterfoil::sim::{End, Offer, Rule, Service, Simulation, World};
use counterfoil::store::{Change, Run, RunState, Store, StoreFuture, Verdict};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, RunId, Tenant};
use serde_json::Value;

use crate::sim::quick;

/// Writes a letter, and nobody can tell whether it was.
struct Write(Service);

impl Tool for Write {
    const NAME: &'static str = "write";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = Value;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, what).await
    }
}

async fn writes(ctx: Ctx, what: String) -> Result<Value, Failure> {
    ctx.call::<Write>(what).await
}

async fn guarded(ctx: Ctx, what: String) -> Result<Value, Failure> {
    ctx.child(writes, what).await
}

macro_rules! tool {
    ($tool:ident, $name:literal, $system:literal) => {
        struct $tool(World);

        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::Undoable<effect::InternalMutation>;
            type Contract = contract::WithLookup<contract::ReplaysKey>;
            type Input = String;
            type Output = String;

            fn key(&self, what: &String) -> Option<Key> {
                Some(Key::of(Self::NAME).target(what))
            }

            async fn call(&self, call: &Call, what: &String) -> Result<Done<String>, ToolError> {
                let what = what.clone();
                let send = self.0.send_keyed(call, move |request| {
                    let id = request.happened($system).unwrap_or_else(|| request.happen($system, &what));
                    Ok(Done::new(id))
                });
                send.await
            }
        }

        impl Reconcile for $tool {
            async fn reconcile(&self, call: &Call, what: &String) -> Result<LookupResult<String>, ToolError> {
                self.0.find(call, $system, what).await
            }
        }

        impl Compensate for $tool {
            async fn compensate(
                &self,
                call: &Call,
                forward: &OriginalCall<String, String>,
            ) -> Result<Done<Undone>, ToolError> {
                let what = undone(forward);
                let send = self.0.send_keyed(call, move |request| {
                    let id = request.happened($system).unwrap_or_else(|| request.happen($system, &what));
                    Ok(Done::new(Undone::whole().detail(id)))
                });
                send.await
            }

            async fn find_compensation(
                &self,
                call: &Call,
                forward: &OriginalCall<String, String>,
            ) -> Result<LookupResult<Undone>, ToolError> {
                let found = self.0.find(call, $system, &undone(forward)).await?;
                found.try_map(|id| Ok(Undone::whole().detail(id)))
            }
        }
    };
}

fn undone(forward: &OriginalCall<String, String>) -> String {
    format!("{} undone", forward.input().map_or("?", String::as_str))
}

tool!(Charge, "charge", "bank");
tool!(Ship, "ship", "courier");
tool!(Pack, "pack", "store");

/// Ships it, and has a child of its own pack it.
async fn ship(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.child(pack, id.clone()).await?;
    ctx.call::<Ship>(id).await
}

async fn pack(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.call::<Pack>(id).await
}

/// What a parent does whose warehouse burns down.
async fn order(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.call::<Charge>(format!("{id} deposit")).await?;
    ctx.child(ship, id.clone()).await?;
    ctx.call::<Charge>(id).await?;
    Err(Failure::new("the warehouse burned down"))
}

/// The same with a child that is begun and not waited for.
async fn hasty(ctx: Ctx, id: String) -> Result<String, Failure> {
    let _parcel = ctx.child(ship, id.clone()).start().await?;
    ctx.call::<Charge>(id).await?;
    Err(Failure::new("the warehouse burned down"))
}

/// It waits for a customer who never comes, and is cancelled.
async fn patient(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.child(ship, id).await?;
    ctx.signal::<String>("fetched").await
}

/// Has the parcel shipped by a child of its own, and does not wait for it.
async fn agent(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.child(picked_up, id.clone()).start().await?;
    Ok(id)
}

/// Ships it, and waits for somebody who never comes.
async fn picked_up(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.call::<Ship>(id).await?;
    ctx.signal::<String>("fetched").await
}

/// Its child ends well, and leaves a child of its own under way.
async fn through_an_agent(ctx: Ctx, id: String) -> Result<String, Failure> {
    ctx.child(agent, id.clone()).await?;
    ctx.call::<Charge>(id).await?;
    Err(Failure::new("the warehouse burned down"))
}

async fn impatient(engine: Engine, world: World) -> String {
    let shop = engine.tenant(Simulation::TENANT).unwrap();
    let run = shop.run(patient, "o1".to_owned()).key(Simulation::KEY).start().await;
    world.sleep(Duration::from_hours(1)).await;
    match run {
        Ok(run) => format!("{:?}", run.cancel("ann", "too late").key("c").await.is_ok()),
        Err(error) => error.to_string(),
    }
}

const UNASKED: &str = "nothing is left standing unasked";

fn family<W>(workflow: W) -> Simulation
where
    W: counterfoil::flow::WorkflowFn<String, String> + Clone,
{
    Simulation::of(workflow, "o1".to_owned())
        .fails(1)
        .engine(|engine, world| {
            let engine = engine.workflow("ship", 1, ship).workflow("pack", 1, pack);
            let engine = engine.workflow("agent", 1, agent).workflow("picked up", 1, picked_up);
            let engine = engine.tool(Charge(world.clone()));
            engine.tool(Ship(world.clone())).tool(Pack(world.clone()))
        })
        .check(UNASKED, |end| {
            let waits = |run: &Run| matches!(run.state, RunState::Waiting { .. }) && run.parent.is_none();
            if end.rows().iter().any(waits) {
                return Ok(()); // somebody is asked, and then it goes on
            }
            for (system, tool) in [("bank", "charge"), ("courier", "ship"), ("store", "pack")] {
                let (done, undone) = (end.count(system, "o1"), end.count(system, "o1 undone"));
                let asked = end.questions().iter().any(|question| question.question.contains(tool));
                if done > undone && !asked {
                    return Err(format!("{tool}: done {done}, undone {undone}, and nobody is asked"));
                }
            }
            Ok(())
        })
}

/// Where everything went well on the way back, the last is undone first.
fn in_reverse(end: &End<'_>) -> Result<(), String> {
    let effects: Vec<_> = end.effects().into_iter().map(|effect| (effect.system, effect.reference)).collect();
    let (done, undone): (Vec<_>, Vec<_>) = effects.iter().partition(|(_, what)| !what.ends_with("undone"));
    let back: Vec<_> =
        undone.iter().rev().map(|(system, what)| (system.clone(), what.replace(" undone", ""))).collect();
    let done: Vec<_> = done.into_iter().cloned().collect();
    let is_way_back = |record: &Record| record.class == EffectClass::Compensation;
    let tried_again = end.records().iter().any(|record| is_way_back(record) && record.attempts > 1);
    if back.len() == done.len() && back != done && end.asked().is_empty() && !tried_again {
        return Err(format!("done {done:?}, undone {undone:?}"));
    }
    Ok(())
}

/// A parent whose child ships.
pub(crate) fn simulation() -> Simulation {
    family(order)
}

#[test]
fn what_a_child_did_is_undone_or_asked_about() {
    quick(family(order).check("the last is undone first", in_reverse)).explore().assert_ok();
}

#[test]
fn a_child_that_nobody_waited_for_is_undone_with_its_parent() {
    quick(family(hasty)).explore().assert_ok();
}

#[test]
fn a_run_that_fails_waits_for_the_children_of_its_children() {
    quick(family(through_an_agent)).explore().assert_ok();
}

#[test]
fn what_a_child_did_is_undone_when_its_parent_is_cancelled() {
    quick(family(patient).with_actor("ann", impatient)).explore().assert_ok();
}

/// Has a child write, goes on as new, and fails.
async fn renewed(ctx: Ctx, tries: u32) -> Result<Value, Failure> {
    ctx.child(writes, format!("letter {tries}")).await?;
    match tries {
        0 => ctx.continue_as_new(&1_u32).await,
        _ => Err(Failure::new("the post is closed")),
    }
}

// The first letter is finished history, and nobody is asked about it; about the second somebody is.
#[test]
fn what_a_child_did_before_its_parent_went_on_as_new_stands() {
    let nobody_asks_about_the_first = |end: &End| {
        let asked = end
            .asked()
            .into_iter()
            .find(|asked| asked.question.contains("its run failed") && asked.question.contains("letter 0"));
        asked.map_or(Ok(()), |asked| Err(asked.question))
    };
    let somebody_asks_about_the_second = |end: &End| {
        let is_written = end.effects().iter().any(|effect| effect.reference.contains("letter 1"));
        let is_asked = end.asked().iter().any(|asked| asked.question.contains("letter 1"));
        if is_written && !is_asked { Err("nobody is asked about letter 1".to_owned()) } else { Ok(()) }
    };
    // A name with a slash is escaped where the child's place in its parent is recorded.
    for name in ["writes", "post/100%"] {
        let simulation = Simulation::of(renewed, 0).fails(1).engine(move |engine, world| {
            engine.workflow(name, 1, writes).tool(Write(world.service("post", Offer::Blind)))
        });
        let simulation = simulation.check("finished history stands", nobody_asks_about_the_first);
        let simulation = simulation.check("the present is asked about", somebody_asks_about_the_second);
        quick(simulation).explore().assert_ok();
    }
}

#[test]
fn a_parent_that_waits_for_a_child_is_asked_about_through_its_child() {
    let simulation = Simulation::of(guarded, "o1".to_owned()).engine(|engine, world| {
        engine.workflow("writes", 1, writes).tool(Write(world.service("post", Offer::Blind)))
    });
    quick(simulation).explore().assert_ok();
}

/// A store that says of no run that it has children.
#[derive(Debug)]
struct Childless(Arc<dyn Store>);

impl Store for Childless {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.0.commit(changes)
    }

    fn run_children<'a>(&'a self, _: &'a Tenant, _: RunId, _: RunId, _: u32) -> StoreFuture<'a, Vec<Run>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

#[test]
fn an_engine_that_forgets_its_children_is_found_out() {
    let forgetful = |engine: EngineBuilder, _: &World| engine.wrap_store(|store| Arc::new(Childless(store)));
    let report = quick(family(order).engine(forgetful)).explore();
    let found = report.failures().iter().flat_map(|failing| &failing.violations);
    assert!(found.into_iter().any(|found| found.rule == Rule::Own(UNASKED.to_owned())), "{report:?}");
}
