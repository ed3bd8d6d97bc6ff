//! An order whose parcels are children: each item is shipped by a run of its own, all at the same time. When one of them is
//! sold out, the order fails, and what it and its other children did is undone.
//!
//! ```text
//! cargo run --release --features sim --example order_with_children      # crashed everywhere
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

use counterfoil::flow::RunState;
use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::sim::{End, Simulation, World};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub items: Vec<String>,
}

/// Charges, and ships each item by a child.
pub async fn order(ctx: Ctx, order: Order) -> Result<Vec<Value>, Failure> {
    ctx.call::<Charge>(order.id.clone()).await?;
    let parcels = order.items.iter().map(|item| {
        // Several children are open at once, so each needs an id.
        ctx.child(parcel, format!("{}/{item}", order.id)).id(item)
    });
    try_join_all(parcels).await
}

/// Ships one item.
pub async fn parcel(ctx: Ctx, item: String) -> Result<Value, Failure> {
    ctx.call::<Ship>(item).await
}

/// A provider of our own in the simulated world: it takes a key, and can be asked.
struct Provider<'a> {
    world: &'a World,
    system: &'static str,
}

impl Provider<'_> {
    async fn enter(&self, call: &Call, entry: String) -> Result<Value, ToolError> {
        let system = self.system;
        let sent = self.world.send_keyed(call, move |request| {
            if entry.ends_with("sold out") {
                return Err(ToolError::refused("it is sold out"));
            }
            let id = request.happened(system).unwrap_or_else(|| request.happen(system, &entry));
            Ok(Done::new(json!({ "id": id })))
        });
        Ok(sent.await?.output)
    }

    async fn find(&self, call: &Call, entry: &str) -> Result<LookupResult<Value>, ToolError> {
        self.world.find(call, self.system, entry).await?.try_map(|id| Ok(json!({ "id": id })))
    }
}

/// Two tools of two providers, which are undone by a second entry.
macro_rules! tool {
    ($(#[doc = $doc:literal] $tool:ident = $name:literal, undone by $undo:literal, $effect:ident at $system:literal;)*) => {$(
        #[doc = $doc]
        pub struct $tool(World);

        impl $tool {
            fn provider(&self) -> Provider<'_> {
                Provider { world: &self.0, system: $system }
            }

            fn undoing(forward: &OriginalCall<String, Value>) -> Result<String, ToolError> {
                let item = forward.input().ok_or_else(|| ToolError::refused("it is not known what was done"))?;
                Ok(format!("{} {item}", $undo))
            }
        }

        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::Undoable<effect::$effect>;
            type Contract = contract::WithLookup<contract::ReplaysKey>;
            type Input = String;
            type Output = Value;

            fn key(&self, item: &String) -> Option<Key> {
                Some(Key::of(Self::NAME).target(item))
            }

            async fn call(&self, call: &Call, item: &String) -> Result<Done<Value>, ToolError> {
                Ok(self.provider().enter(call, format!("{} {item}", $name)).await?.into())
            }
        }

        impl Reconcile for $tool {
            async fn reconcile(&self, call: &Call, item: &String) -> Result<LookupResult<Value>, ToolError> {
                self.provider().find(call, &format!("{} {item}", $name)).await
            }
        }

        impl Compensate for $tool {
            async fn compensate(&self, call: &Call, forward: &OriginalCall<String, Value>) -> Result<Done<Undone>, ToolError> {
                let undone = self.provider().enter(call, Self::undoing(forward)?).await?;
                Ok(Undone::whole().detail(undone).into())
            }

            async fn find_compensation(
                &self,
                call: &Call,
                forward: &OriginalCall<String, Value>,
            ) -> Result<LookupResult<Undone>, ToolError> {
                let found = self.provider().find(call, &Self::undoing(forward)?).await?;
                found.try_map(|undone| Ok(Undone::whole().detail(undone)))
            }
        }
    )*};
}

tool! {
    /// Takes the money.
    Charge = "charge", undone by "refund", Payment at "bank";
    /// Hands an item to the courier.
    Ship = "ship", undone by "recall", InternalMutation at "courier";
}

/// One order that can be carried out, and one with an item that is sold out.
fn orders() -> [Order; 2] {
    [("whole", ["lamp", "bulb"]), ("half", ["lamp", "sold out"])]
        .map(|(id, items)| Order { id: id.to_owned(), items: items.map(str::to_owned).into() })
}

pub fn simulation() -> Simulation {
    let [whole, half] = orders();
    Simulation::of(order, whole)
        .with_run(Simulation::TENANT, "half", order, half)
        .engine(|engine, world| {
            let engine = engine.workflow("parcel", 1, parcel);
            engine.tool(Charge(world.clone())).tool(Ship(world.clone()))
        })
        .check("all of an order or nothing", all_or_nothing)
        .fails(1)
        .single_crashes()
}

/// Of an order that succeeded everything was done and nothing undone. Of one that failed each entry was undone, or a question
/// is open about it.
fn all_or_nothing(end: &End<'_>) -> Result<(), String> {
    let (runs, questions) = (end.runs(), end.questions());
    for (order, key) in orders().iter().zip([Simulation::KEY, "half"]) {
        let mut entries = vec![("bank", ["charge", "refund"], order.id.clone())];
        let items = order.items.iter().map(|item| format!("{}/{item}", order.id));
        entries.extend(items.map(|item| ("courier", ["ship", "recall"], item)));
        let run = runs.iter().find(|run| run.key.as_deref() == Some(key));
        for (system, verbs, what) in entries {
            let [done, undone] = verbs.map(|verb| end.count(system, &format!("{verb} {what}")));
            let is_asked = || questions.iter().any(|question| question.question.contains(&what));
            let is_right = match run.map(|run| &run.state) {
                Some(RunState::Succeeded) => (done, undone) == (1, 0),
                Some(RunState::Failed { .. }) => done == undone || is_asked(),
                _ => true,
            };
            if !is_right {
                return Err(format!("{what}: done {done} times, and undone {undone} times"));
            }
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "tests and `counterfoil simulate` have a main of their own")]
fn main() {
    let report = simulation().explore();
    report.print();
    std::process::exit(i32::from(!report.is_ok()));
}
