//! A saga: an order reserves, charges and ships. When it cannot be completed (the card is declined, or the courier does not
//! deliver within a week), the run fails, and what it did is undone in reverse order: each tool says how. A compensation has
//! a record and a key of its own, so that a crash in the middle of undoing undoes nothing twice and forgets nothing.
//!
//! ```text
//! cargo run --release --features sim --example order_saga      # crashed everywhere
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

use std::time::Duration;

use counterfoil::flow::{EffectOutcome, RunState, RunStatus};
use counterfoil::ledger::{ErrorKind, LookupResult, Undone};
use counterfoil::sim::{End, OpenQuestion, Simulation, World, truthful};
use counterfoil::store::Resolution;
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};
use serde::{Deserialize, Serialize};

const WEEK: Duration = Duration::from_hours(7 * 24);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
}

/// Carries an order out. If it fails, what it did is undone by the tools' own compensations.
pub async fn order(ctx: Ctx, order: Order) -> Result<String, Failure> {
    ctx.call::<Reserve>(order.clone()).await?;
    ctx.call::<Charge>(order.clone()).await?;
    ctx.call::<Ship>(order.clone()).await?;
    // The courier says so, whenever that is; until then the order is a row.
    match ctx.timeout("delivery", WEEK, ctx.signal::<String>("delivered")).await? {
        Ok(delivered) => delivered,
        Err(elapsed) => Err(Failure::new(format!("it was not delivered: {elapsed}"))),
    }
}

/// A tool of one of the three providers. All of them take a key and can be asked about it.
macro_rules! tool {
    ($(#[doc = $doc:literal] $tool:ident = $name:literal, undone by $undo:literal, $effect:ident at $system:literal;)*) => {$(
        #[doc = $doc]
        pub struct $tool(World);

        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::Undoable<effect::$effect>;
            type Contract = contract::WithLookup<contract::ReplaysKey>;
            type Input = Order;
            type Output = String;

            fn key(&self, order: &Order) -> Option<Key> {
                Some(Key::of(Self::NAME).target(&order.id))
            }

            async fn call(&self, call: &Call, order: &Order) -> Result<Done<String>, ToolError> {
                let what = format!("{} {}", $name, order.id);
                let declined = $name == "charge" && order.cents > LIMIT;
                self.0
                    .send_keyed(call, move |request| {
                        if declined {
                            return Err(ToolError::http(422, "the card is declined"));
                        }
                        Ok(Done::new(request.happened($system).unwrap_or_else(|| request.happen($system, &what))))
                    })
                    .await
            }
        }

        impl Reconcile for $tool {
            async fn reconcile(&self, call: &Call, order: &Order) -> Result<LookupResult<String>, ToolError> {
                self.0.find(call, $system, &format!("{} {}", $name, order.id)).await
            }
        }

        impl Compensate for $tool {
            async fn compensate(
                &self,
                call: &Call,
                forward: &OriginalCall<Order, String>,
            ) -> Result<Done<Undone>, ToolError> {
                let what = undoing($undo, forward)?;
                self.0
                    .send_keyed(call, move |request| {
                        let id = request.happened($system).unwrap_or_else(|| request.happen($system, &what));
                        Ok(Done::new(Undone::whole().detail(id)))
                    })
                    .await
            }

            async fn find_compensation(
                &self,
                call: &Call,
                forward: &OriginalCall<Order, String>,
            ) -> Result<LookupResult<Undone>, ToolError> {
                let found = self.0.find(call, $system, &undoing($undo, forward)?).await?;
                found.try_map(|id| Ok(Undone::whole().detail(id)))
            }
        }
    )*};
}

tool! {
    /// Puts the goods aside.
    Reserve = "reserve", undone by "release", InternalMutation at "stock";
    /// Takes the money.
    Charge = "charge", undone by "refund", Payment at "bank";
    /// Hands the parcel to the courier.
    Ship = "ship", undone by "recall", InternalMutation at "courier";
}

/// How the way back is told apart at the provider, by which it is found again.
fn undoing(verb: &str, forward: &OriginalCall<Order, String>) -> Result<String, ToolError> {
    let order = forward.input().ok_or_else(|| ToolError::new(ErrorKind::Validation, "which order?"))?;
    Ok(format!("{verb} {}", order.id))
}

/// The card has no more than this.
const LIMIT: u64 = 100_000;

/// One that is delivered, one that cannot be paid, and one that gets lost on its way.
fn orders() -> [Order; 3] {
    [("delivered", 4200), ("declined", 4_200_000), ("lost", 4200)]
        .map(|(id, cents)| Order { id: id.to_owned(), cents })
}

/// The courier tells of what it has delivered, under the parcel's own number: twice is once.
async fn courier(engine: Engine, world: World) -> String {
    let [delivered, ..] = orders();
    let mut parcel = None;
    for _ in 0..40 {
        parcel = world.found("courier", "ship delivered").pop().map(|shipped| shipped.id);
        if parcel.is_some() {
            break;
        }
        world.sleep(Duration::from_hours(1)).await;
    }
    let Some(parcel) = parcel else { return "nothing was shipped".to_owned() };
    let Ok(shop) = engine.tenant(Simulation::TENANT) else { return "there is no such shop".to_owned() };
    let told = async {
        let run = shop.run(order, delivered).key(Simulation::KEY).start().await?;
        run.signal("delivered", format!("the door, as {parcel}")).id(parcel).await
    };
    match told.await {
        Ok(_) => "it knows".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Who goes and looks, and says what was found as these tools do.
fn operator(question: &OpenQuestion<'_>) -> Option<Resolution> {
    Some(match truthful(question)? {
        Resolution::Happened(found) => Resolution::Happened(found["id"].clone()),
        resolution => resolution,
    })
}

pub fn simulation() -> Simulation {
    let [delivered, declined, lost] = orders();
    Simulation::of(order, delivered)
        .with_run(Simulation::TENANT, "declined", order, declined)
        .with_run(Simulation::TENANT, "lost", order, lost)
        .with_actor("courier", courier)
        .operator(operator)
        .engine(|engine, world| {
            let world = || world.clone();
            engine.tool(Reserve(world())).tool(Charge(world())).tool(Ship(world()))
        })
        .check("all of an order or nothing", whole)
        .fails(2)
        .single_crashes()
}

/// Of each order that has ended, everything that was done stands, or all of it was undone, the last first; and the run says
/// so.
fn whole(end: &End<'_>) -> Result<(), String> {
    for order in orders() {
        let is_its = |run: &&RunStatus| end.input::<Order>(run.id).is_some_and(|input| input.id == order.id);
        let runs = end.runs();
        let Some(run) = runs.iter().find(is_its) else { continue };
        let mut happened: Vec<_> = end.effects();
        happened.retain(|effect| effect.reference.ends_with(&format!(" {}", order.id)));
        happened.sort_by_key(|effect| effect.at);
        let mut happened: Vec<_> = happened.iter().filter_map(|e| e.reference.split(' ').next()).collect();
        let forth = ["reserve", "charge", "ship"];
        let is_whole = match &run.state {
            RunState::Succeeded => happened == forth,
            RunState::Failed { failure } => {
                let back = ["recall", "refund", "release"];
                let done = failure.effects.len();
                // Where a way back is refused for good, that effect is asked about, and the others are undone all the same.
                let undone = failure.effects.iter().map(|effect| effect.became == EffectOutcome::Undone);
                let back: Vec<_> = back[3 - done..]
                    .iter()
                    .zip(undone)
                    .filter_map(|(verb, undone)| undone.then_some(*verb))
                    .collect();
                let mut whole = [&forth[..done], &back].concat();
                // A way back that fails holds up no other one: it is gone again by the next process, or after an answer.
                let back = format!("%3A{}", order.id);
                if end.calls().iter().any(|call| call.key.as_str().ends_with(&back) && call.attempts > 1) {
                    happened.sort_unstable();
                    whole.sort_unstable();
                }
                happened == whole
            }
            _ => true,
        };
        if !is_whole {
            return Err(format!("{}: {:?} after {happened:?}", order.id, run.state));
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
