//! A saga: an order reserves, charges and ships, and what was done is undone in reverse order when it cannot be
//! completed: the card is declined, or the courier does not deliver within a week. Each way back is a guarded call with a
//! key of its own, so that a crash in the middle of undoing undoes nothing twice and forgets nothing.
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

use counterfoil::flow::FailureCode;
use counterfoil::ledger::Finding;
use counterfoil::sim::{End, Simulation, World, truthful};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};
use serde::{Deserialize, Serialize};

const WEEK: Duration = Duration::from_hours(7 * 24);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
}

/// What was done so far, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reserved,
    Charged,
    Shipped,
}

/// How an order ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Delivered { to: String },
    Undone { because: String },
}

/// Carries an order out, or leaves nothing of it. It fails only if a way back fails: then what is left is asked about.
pub async fn order(ctx: Ctx, order: Order) -> Result<Ended, Failure> {
    let mut done = Vec::new();
    match forward(&ctx, &order, &mut done).await {
        Ok(to) => Ok(Ended::Delivered { to }),
        Err(failure) => {
            back(&ctx, &order, done).await?;
            Ok(Ended::Undone { because: failure.message })
        }
    }
}

async fn forward(ctx: &Ctx, order: &Order, done: &mut Vec<Step>) -> Result<String, Failure> {
    noted(done, Step::Reserved, ctx.call::<Reserve>(order.clone()).await)?;
    noted(done, Step::Charged, ctx.call::<Charge>(order.clone()).await)?;
    noted(done, Step::Shipped, ctx.call::<Ship>(order.clone()).await)?;
    // The courier says so, whenever that is; until then the order is a row.
    match ctx.within("delivery", WEEK, ctx.signal::<String>("delivered")).await? {
        Ok(delivered) => delivered,
        Err(elapsed) => Err(Failure::new(format!("it was not delivered: {elapsed}"))),
    }
}

/// Notes for the way back what was done, and what may have been done: somebody has given up finding out.
fn noted<T>(done: &mut Vec<Step>, what: Step, result: Result<T, Failure>) -> Result<T, Failure> {
    let perhaps = |failure: &Failure| failure.code == FailureCode::Abandoned;
    if result.as_ref().map_or_else(perhaps, |_| true) {
        done.push(what);
    }
    result
}

/// The last first. Each is one effect, whichever life of the process asks for it.
async fn back(ctx: &Ctx, order: &Order, done: Vec<Step>) -> Result<(), Failure> {
    for what in done.into_iter().rev() {
        match what {
            Step::Shipped => ctx.call::<Recall>(order.clone()).await?,
            Step::Charged => ctx.call::<Refund>(order.clone()).await?,
            Step::Reserved => ctx.call::<Release>(order.clone()).await?,
        };
    }
    Ok(())
}

/// A tool of one of the three providers. All of them take a key and can be asked about it.
macro_rules! tool {
    ($(#[doc = $doc:literal] $tool:ident = $name:literal, $effect:ident at $system:literal;)*) => {$(
        #[doc = $doc]
        pub struct $tool(World);

        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::$effect;
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
            async fn reconcile(&self, call: &Call, order: &Order) -> Result<Finding<String>, ToolError> {
                self.0.find(call, $system, &format!("{} {}", $name, order.id)).await
            }
        }
    )*};
}

tool! {
    /// Puts the goods aside.
    Reserve = "reserve", InternalMutation at "stock";
    /// Puts them back.
    Release = "release", InternalMutation at "stock";
    /// Takes the money.
    Charge = "charge", Payment at "bank";
    /// Gives it back.
    Refund = "refund", Payment at "bank";
    /// Hands the parcel to the courier.
    Ship = "ship", InternalMutation at "courier";
    /// Calls it back.
    Recall = "recall", InternalMutation at "courier";
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

pub fn simulation() -> Simulation {
    let [delivered, declined, lost] = orders();
    Simulation::of(order, delivered)
        .also(Simulation::TENANT, "declined", order, declined)
        .also(Simulation::TENANT, "lost", order, lost)
        .beside("courier", courier)
        .operator(truthful)
        .engine(|engine, world| {
            let world = || world.clone();
            let engine = engine.tool(Reserve(world())).tool(Release(world())).tool(Charge(world()));
            engine.tool(Refund(world())).tool(Ship(world())).tool(Recall(world()))
        })
        .check("all of an order or nothing", whole)
        .singles_only()
}

/// Of each order that has ended, everything that was done stands, or all of it was undone, the last first.
fn whole(end: &End<'_>) -> Result<(), String> {
    for (order, ended) in orders().iter().zip(end.results()) {
        let Some(ended) = ended.and_then(|ended| serde_json::from_value::<Ended>(ended).ok()) else {
            continue;
        };
        let effects = end.effects();
        let mut happened: Vec<_> =
            effects.iter().filter(|e| e.reference.ends_with(&format!(" {}", order.id))).collect();
        happened.sort_by_key(|effect| effect.at);
        let happened: Vec<_> = happened.iter().filter_map(|e| e.reference.split(' ').next()).collect();
        let undone = |verb: &str| match verb {
            "reserve" => "release",
            "charge" => "refund",
            _ => "recall",
        };
        let (forth, back) = match ended {
            Ended::Delivered { .. } => (happened.as_slice(), Vec::new()),
            Ended::Undone { .. } => {
                let (forth, back) = happened.split_at(happened.len() / 2);
                (forth, back.to_vec())
            }
        };
        let expected: Vec<_> = match ended {
            Ended::Delivered { .. } => Vec::new(),
            Ended::Undone { .. } => forth.iter().rev().map(|verb| undone(verb)).collect(),
        };
        if !["reserve", "charge", "ship"].starts_with(forth) || back != expected {
            return Err(format!("{}: {ended:?} after {happened:?}", order.id));
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
