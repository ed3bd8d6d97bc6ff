//! The input of a tool gets another form: what an earlier build has stored is read as today's, is no conflict, and settles a call that was
//! under way when its process died (R-KEY-5).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::{ExecError, ExecutorBuilder};
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, ErrorKind, LookupResult};
use counterfoil::store::QuestionKind;
use counterfoil::tool::{Call, Done, DynamicTool, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Executor, Key, Outcome, ToolRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{Keys, Process, Reply, World, acme, brief};

/// A bill as the first build knows it.
#[derive(Clone, Serialize, Deserialize)]
struct Euros {
    to: String,
    euros: u32,
}

/// The same in cents. It reads the former one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "AnyBill")]
struct Cents {
    to: String,
    cents: u32,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyBill {
    Cents { to: String, cents: u32 },
    Euros(Euros),
}

impl From<AnyBill> for Cents {
    fn from(bill: AnyBill) -> Self {
        match bill {
            AnyBill::Cents { to, cents } => Self { to, cents },
            AnyBill::Euros(Euros { to, euros }) => Self { to, cents: euros * 100 },
        }
    }
}

/// The tool of each build.
struct Pay<const VERSION: u32>(Arc<World>);

macro_rules! pays {
    ($($version:literal $input:ident)+) => {$(
        impl Tool for Pay<$version> {
            const NAME: &'static str = "pay";
            const INPUT_VERSION: u32 = $version;
            type Effect = effect::Payment;
            type Contract = contract::Lookup;
            type Input = $input;
            type Output = Value;

            fn key(&self, bill: &$input) -> Option<Key> {
                Some(Key::of(Self::NAME).target(&bill.to))
            }

            async fn call(&self, call: &Call, bill: &$input) -> Result<Done<Value>, ToolError> {
                self.0.request(call.key(), json!(bill)).await
            }
        }

        impl Reconcile for Pay<$version> {
            async fn reconcile(&self, call: &Call, bill: &$input) -> Result<LookupResult<Value>, ToolError> {
                look(&self.0, call, &json!(bill)).await
            }
        }
    )+};
}

pays! { 1 Euros 2 Cents }

/// The lookup, which says what it was asked for.
async fn look(world: &World, call: &Call, input: &Value) -> Result<LookupResult<Value>, ToolError> {
    let found = world.lookup(call.key(), call.external_ref()).await?;
    found.try_map(|_| Ok(json!({"asked for": input})))
}

/// The same as a tool that is known only at run time.
fn dynamic(world: &Arc<World>, version: u32) -> DynamicTool {
    let (create, find) = (world.clone(), world.clone());
    let tool = DynamicTool::new("pay", EffectClass::Payment, Contract::new(ContractClass::Lookup))
        .key(|bill| Some(Key::of("pay").target(bill["to"].as_str()?)))
        .retry(brief())
        .call(move |call: Call, bill| {
            let (world, key) = (create.clone(), call.key().to_owned());
            async move { world.request(&key, bill).await }
        })
        .reconcile(move |call: Call, bill| {
            let world = find.clone();
            async move { look(&world, &call, &bill).await }
        });
    if version == 1 { tool } else { tool.input_version(version, |stored, bill| in_cents(stored, &bill)) }
}

fn in_cents(version: u32, bill: &Value) -> Option<Value> {
    assert_eq!(version, 1, "only the first build had another form");
    Some(json!({"to": bill["to"], "cents": bill["euros"].as_u64()? * 100}))
}

/// What both kinds of tool do alike.
#[derive(Clone, Copy)]
enum Of {
    Typed,
    Dynamic,
}

impl Of {
    const BOTH: [Self; 2] = [Self::Typed, Self::Dynamic];

    fn build(self, place: &Place, world: &Arc<World>, version: u32) -> ExecutorBuilder {
        let executor = place.executor().lease(Duration::from_secs(1));
        match (self, version) {
            (Self::Typed, 1) => executor.tool(Pay::<1>(world.clone())),
            (Self::Typed, _) => executor.tool(Pay::<2>(world.clone())),
            (Self::Dynamic, version) => executor.dynamic_tool(dynamic(world, version)),
        }
    }
}

fn pay(bill: Value) -> ToolRequest {
    ToolRequest::new(acme(), "pay", bill)
}

async fn execute(executor: &Executor, bill: Value) -> Outcome {
    executor.execute(pay(bill)).await.unwrap()
}

/// For each kind of tool, on a place of its own.
async fn each(new: fn() -> Place, test: impl AsyncFn(Of, Place, Arc<World>)) {
    for of in Of::BOTH {
        test(of, new(), World::new(Keys::Ignores)).await;
    }
}

async fn is_no_conflict(of: Of, place: Place, world: Arc<World>) {
    let executor = of.build(&place, &world, 1).open().await.unwrap();
    assert!(execute(&executor, json!({"to": "ann", "euros": 5})).await.answer().unwrap().first);
    executor.shutdown(Duration::ZERO).await;
    let executor = of.build(&place, &world, 2).open().await.unwrap();
    let again = execute(&executor, json!({"to": "ann", "cents": 500})).await;
    assert!(!again.answer().unwrap_or_else(|| panic!("{again:?}")).first);
    let other = execute(&executor, json!({"to": "ann", "cents": 501})).await;
    assert!(matches!(other, Outcome::Conflict(_)), "{other:?}");
    assert_eq!(world.count(), 1);
}

/// The process dies while its request is on the way; the next one is of the later build.
async fn is_settled_after_a_crash(of: Of, place: Place, world: Arc<World>) {
    world.replies([Reply::EffectThenHang]);
    let process = Process::start(of.build(&place, &world, 1)).await.unwrap();
    drop(process.execute(pay(json!({"to": "ann", "euros": 5}))));
    world.requested(1).await;
    process.kill();
    let process = Process::start(of.build(&place, &world, 2)).await.unwrap();
    let outcome = process.execute(pay(json!({"to": "ann", "cents": 500}))).await.unwrap().unwrap();
    let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(answer.basis, Basis::Lookup);
    assert_eq!(answer.response.value().unwrap(), json!({"asked for": {"to": "ann", "cents": 500}}));
    assert_eq!((world.count(), world.requests()), (1, 1));
}

#[tokio::test]
async fn an_equal_request_of_another_version_is_no_conflict_on_sqlite() {
    each(Place::sqlite, is_no_conflict).await;
}

#[tokio::test]
async fn an_equal_request_of_another_version_is_no_conflict_on_postgres() {
    each(Place::postgres, is_no_conflict).await;
}

#[tokio::test]
async fn a_call_under_way_is_settled_by_the_next_version_on_sqlite() {
    each(Place::sqlite, is_settled_after_a_crash).await;
}

#[tokio::test]
async fn a_call_under_way_is_settled_by_the_next_version_on_postgres() {
    each(Place::postgres, is_settled_after_a_crash).await;
}

on_both_stores! {
    /// Nobody asks for it any more: its stored input is read as today's before the lookup gets it.
    async fn the_lookup_of_an_orphan_gets_todays_input(place) {
        let world = World::new(Keys::Ignores);
        world.replies([Reply::EffectThenHang]);
        let process = Process::start(Of::Dynamic.build(&place, &world, 1)).await.unwrap();
        drop(process.execute(pay(json!({"to": "ann", "euros": 5}))));
        world.requested(1).await;
        process.kill();
        let process = Process::start(Of::Dynamic.build(&place, &world, 2)).await.unwrap();
        world.looked_up(1).await;
        let outcome = process.execute(pay(json!({"to": "ann", "cents": 500}))).await.unwrap().unwrap();
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!(answer.response.value().unwrap(), json!({"asked for": {"to": "ann", "cents": 500}}));
        assert_eq!((world.count(), world.requests()), (1, 1));
    }
}

/// A build that cannot read what an earlier one has stored asks a person, and names the version.
#[tokio::test]
async fn an_input_that_is_not_upgraded_is_a_question() {
    let (place, world) = (Place::sqlite(), World::new(Keys::Ignores));
    world.replies([Reply::EffectThenHang]);
    let process = Process::start(Of::Dynamic.build(&place, &world, 1)).await.unwrap();
    drop(process.execute(pay(json!({"to": "ann", "euros": 5}))));
    world.requested(1).await;
    process.kill();
    let builder = place.executor().dynamic_tool(dynamic(&world, 1).input_version(2, |_, _| None));
    let process = Process::start(builder).await.unwrap();
    process.spawn(process.executor().shutdown(Duration::from_mins(1))).await.unwrap();
    let asked = process.executor().questions(&acme()).await.unwrap();
    assert_eq!((asked.len(), asked[0].kind), (1, QuestionKind::UnknownTool), "{asked:?}");
    for words in ["does not take its stored request", "stored as version 1"] {
        assert!(asked[0].question.contains(words), "{}", asked[0].question);
    }
}

/// A request that fails for certain may go again, in its later form.
#[tokio::test]
async fn a_failed_call_goes_again_in_the_later_form() -> Result<(), ExecError> {
    for of in Of::BOTH {
        let (place, world) = (Place::sqlite(), World::new(Keys::Ignores));
        world.replies([Reply::Fail(ErrorKind::Validation)]);
        let executor = of.build(&place, &world, 1).open().await.unwrap();
        let failed = execute(&executor, json!({"to": "ann", "euros": 5})).await;
        assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
        executor.shutdown(Duration::ZERO).await;
        let executor = of.build(&place, &world, 2).open().await.unwrap();
        let done = execute(&executor, json!({"to": "ann", "cents": 500})).await;
        assert!(done.answer().is_some(), "{done:?}");
        assert_eq!(world.count(), 1);
    }
    Ok(())
}
