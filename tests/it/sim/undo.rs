//! A person gives money back by hand while a run is about to fail: the engine looks before it gives it back, too.

use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::ledger::{Contract, ContractClass, LookupResult, State, Undone};
use counterfoil::sim::{Offer, Rule, Service, Simulation, World};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Tenant};
use serde_json::Value;

/// Takes money at a provider that knows no keys, and gives it back as often as it is asked to.
struct Pay(Service, World, Contract);

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    fn key(&self, order: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(order))
    }

    async fn call(&self, call: &Call, order: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, order).await
    }
}

impl Reconcile for Pay {
    async fn reconcile(&self, call: &Call, order: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, order).await
    }
}

impl Compensate for Pay {
    fn compensation_contract(&self) -> Contract {
        self.2.clone()
    }

    async fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<Done<Undone>, ToolError> {
        let charge = forward.external_ref().unwrap_or_default().to_owned();
        let refund = move |request: &counterfoil::sim::Request| {
            Ok(Done::new(Undone::whole().detail(request.happen("refund", &charge))))
        };
        self.1.send(call, refund).await
    }

    async fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<String, Value>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        let found = self.1.find(call, "refund", forward.external_ref().unwrap_or_default()).await?;
        found.try_map(|id| Ok(Undone::whole().detail(id)))
    }
}

/// Pays, and fails a minute later.
async fn pays_in_vain(ctx: Ctx, order: String) -> Result<Value, Failure> {
    ctx.call::<Pay>(order).await?;
    ctx.sleep(Duration::from_mins(1)).await?;
    Err(Failure::new("out of stock"))
}

/// Gives back what was paid within the first fifty seconds.
async fn ann(_engine: Engine, world: World) -> String {
    while world.clock().boot().0 < Duration::from_secs(50) {
        if let Some(charge) =
            world.found("bank", "o1").first().filter(|charge| world.count("refund", &charge.id) == 0)
        {
            return world.by_hand(&Tenant::new(Simulation::TENANT).unwrap(), "refund", &charge.id);
        }
        world.clock().sleep(Duration::from_secs(1)).await;
    }
    "nothing to give back".to_owned()
}

fn simulation(undoing: Contract) -> Simulation {
    Simulation::of(pays_in_vain, "o1".to_owned())
        .fails(1)
        .engine(move |engine, world| {
            engine.tool(Pay(world.service("bank", Offer::Lookup), world.clone(), undoing.clone()))
        })
        .with_actor("ann", ann)
        .check("each charge is given back once", |end| {
            let charges = end.effects().into_iter().filter(|effect| effect.system == "bank");
            match charges.map(|charge| end.count("refund", &charge.id)).max() {
                Some(2..) => Err("a charge was given back twice".to_owned()),
                _ => Ok(()),
            }
        })
        .check("what is given back is recorded", |end| {
            let paid = end.records().into_iter().find(|record| record.operation.as_str() == "pay");
            match paid.filter(|paid| matches!(paid.state, State::Committed { .. })) {
                Some(paid) if end.questions().is_empty() => Err(format!("{} stands", paid.key)),
                _ => Ok(()),
            }
        })
}

#[test]
fn what_a_person_gave_back_is_not_given_back_again() {
    simulation(Contract::new(ContractClass::Lookup)).single_crashes().explore().assert_ok();
}

#[test]
fn an_undoing_that_does_not_look_is_found_out() {
    // An undoing that claims to collide is sent at once.
    let replay =
        simulation(Contract::new(ContractClass::ReplaysKey)).replay(&"nothing goes wrong".parse().unwrap());
    let rules: Vec<_> = replay.violations.into_iter().map(|violation| violation.rule).collect();
    assert!(rules.contains(&Rule::Own("each charge is given back once".to_owned())), "{rules:?}");
}
