//! Calls that are idempotent by nature in the simulator: they are repeated wherever a process dies, and a late repeat overwrites a later
//! value unless each call carries a version.

use counterfoil::ledger::{Contract, ErrorKind};
use counterfoil::sim::{CrashPoint, Report, Rule, Simulation, World, truthful};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};

use crate::sim::quick;

/// Sets a flag to a value. The values are versions as well: each is set after the one before it.
struct SetFlag {
    world: World,
    versioned: bool,
}

impl Tool for SetFlag {
    const NAME: &'static str = "set_flag";
    type Effect = effect::InternalMutation;
    type Contract = contract::Idempotent;
    type Input = u32;
    type Output = ();

    fn key(&self, value: &u32) -> Option<Key> {
        Some(Key::of(Self::NAME).target("flag").operation(value.to_string()))
    }

    fn contract(&self) -> Contract {
        let contract = <Self::Contract as contract::Contract>::declaration();
        if self.versioned { contract.versioned() } else { contract }
    }

    async fn call(&self, call: &Call, value: &u32) -> Result<Done<()>, ToolError> {
        let (value, versioned, world) = (*value, self.versioned, self.world.clone());
        let set = move |request: &counterfoil::sim::Request| {
            if versioned && flag(&world).is_some_and(|set| set > value) {
                return Err(ToolError::new(ErrorKind::VersionConflict, "it has a later version"));
            }
            request.happen("flags", &value.to_string());
            Ok(Done::new(()))
        };
        self.world.send(call, set).await
    }
}

/// What the flag is set to.
fn flag(world: &World) -> Option<u32> {
    world.effects().last().map(|effect| effect.reference.parse().unwrap())
}

async fn twice(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.call::<SetFlag>(1).await?;
    ctx.call::<SetFlag>(2).await
}

fn simulation(versioned: bool) -> Simulation {
    Simulation::of(twice, ())
        .engine(move |engine, world| engine.tool(SetFlag { world: world.clone(), versioned }))
        .operator(truthful)
        .check("the later value stands", |end| match end.effects().last().map(|set| set.reference.clone()) {
            Some(value) if end.succeeded() && value != "2" => Err(format!("the flag is {value}")),
            None if end.succeeded() => Err("nothing was set".to_owned()),
            _ => Ok(()),
        })
}

fn broken(report: &Report) -> Vec<Rule> {
    report
        .failures()
        .iter()
        .flat_map(|failing| &failing.violations)
        .map(|broken| broken.rule.clone())
        .collect()
}

// R-EXE-1: no rule is broken by what is repeated, wherever a process dies, and the later value stands.
#[test]
fn what_carries_a_version_is_repeated_and_overwrites_nothing() {
    let report = quick(simulation(true)).explore();
    report.assert_ok();
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterCall), "{report}");
}

// The guarantee report says so ("a late repeat may overwrite a later value"), and here it does.
#[test]
fn what_carries_no_version_may_overwrite_a_later_value() {
    let report = quick(simulation(false)).explore();
    let broken = broken(&report);
    assert!(!broken.is_empty(), "{report}");
    assert!(broken.iter().all(|rule| *rule == Rule::Own("the later value stands".into())), "{report}");
}
