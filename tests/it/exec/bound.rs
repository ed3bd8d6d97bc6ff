//! A key is bound to the fields that its tool names, by a rule with a version (R-KEY-5).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::{RequestError, StartError};
use counterfoil::ledger::{BoundFields, Contract, ContractClass, EffectClass, FinalState, Retention};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Executor, Key, Outcome, Secret, ToolRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::Place;
use crate::world::{Keys, World, acme, brief, soon};

const TOOL: &str = "transfer";

/// The same for a tool that is known only at run time.
async fn open(place: &Place, world: &Arc<World>, bound: BoundFields) -> Executor {
    let tool = world.tool(TOOL, EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
    place.executor().dynamic_tool(tool.retry(brief()).bound(bound)).open().await.unwrap()
}

async fn transfer(executor: &Executor, cents: u32, note: &str) -> Outcome {
    executor.execute(asked(json!({"case": "c1", "cents": cents, "note": note}))).await.unwrap()
}

fn asked(input: Value) -> ToolRequest {
    ToolRequest::new(acme(), TOOL, input).key(Key::of(TOOL).target("c1"))
}

/// The body with which the first request was carried out.
fn first(outcome: &Outcome) -> Value {
    let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
    answer.response.value().unwrap()["body"]["note"].clone()
}

fn cents() -> BoundFields {
    BoundFields::only(1, ["/cents", "/case"])
}

/// A payment that is bound to its amount and its secret.
struct Pay(Arc<World>);

#[derive(Serialize, Deserialize)]
struct Bill {
    lines: Vec<u32>,
    pin: Secret<String>,
    note: String,
}

impl Tool for Pay {
    const NAME: &'static str = "pay";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = Bill;
    type Output = Value;

    fn key(&self, _: &Bill) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann"))
    }

    fn bound(&self) -> BoundFields {
        BoundFields::only(1, ["/lines/0", "/pin"])
    }

    async fn call(&self, call: &Call, bill: &Bill) -> Result<Done<Value>, ToolError> {
        self.0.request(call.key(), json!({"note": bill.note})).await
    }
}

on_both_stores! {
    async fn a_difference_in_another_field_is_no_conflict(place) {
        let world = World::new(Keys::Ignores);
        let executor = open(&place, &world, cents()).await;
        assert_eq!(first(&transfer(&executor, 100, "rent").await), "rent");
        assert_eq!(first(&transfer(&executor, 100, "the rent").await), "rent", "the first record answers");
        let other = transfer(&executor, 101, "rent").await;
        assert!(matches!(other, Outcome::Conflict(_)), "{other:?}");
        assert_eq!(world.count(), 1);
    }

    async fn a_typed_tool_names_its_fields(place) {
        let world = World::new(Keys::Ignores);
        let executor = place.executor().tool(Pay(world.clone())).open().await.unwrap();
        let pay = async |line: u32, pin: &str, note: &str| {
            let bill = Bill { lines: vec![line, 7], pin: Secret::new(pin.to_owned()), note: note.to_owned() };
            executor.call::<Pay>(&acme(), bill, None).await.unwrap()
        };
        assert_eq!(first(&pay(1, "1234", "rent").await), "rent");
        assert_eq!(first(&pay(1, "1234", "the rent").await), "rent");
        assert!(matches!(pay(2, "1234", "rent").await, Outcome::Conflict(_)), "a bound line");
        assert!(matches!(pay(1, "1235", "rent").await, Outcome::Conflict(_)), "a bound secret");
        assert_eq!(world.count(), 1);
    }

    /// The stored request is hashed by today's rule before anything is called a conflict.
    async fn a_changed_rule_makes_no_conflict_of_an_equal_request(place) {
        let world = World::new(Keys::Ignores);
        let rules = [
            BoundFields::All,
            cents(),
            BoundFields::only(2, ["/cents"]),
            BoundFields::only(2, ["/note", "/cents"]),
            BoundFields::All,
        ];
        for rule in rules {
            let executor = open(&place, &world, rule.clone()).await;
            assert_eq!(first(&transfer(&executor, 100, "rent").await), "rent", "{rule:?}");
            let changed = transfer(&executor, 101, "rent").await;
            assert!(matches!(changed, Outcome::Conflict(_)), "{rule:?}: {changed:?}");
            let noted = transfer(&executor, 100, "the rent").await;
            let is_bound = rule == BoundFields::All || rule == BoundFields::only(2, ["/note", "/cents"]);
            assert_eq!(matches!(noted, Outcome::Conflict(_)), is_bound, "{rule:?}: {noted:?}");
            executor.shutdown(Duration::ZERO).await;
        }
        assert_eq!(world.count(), 1);
    }

    /// A record whose request is gone is compared by the rule of its time.
    async fn a_tombstone_is_compared_by_the_rule_of_its_time(place) {
        let world = World::new(Keys::Ignores);
        let with = async |bound: BoundFields| {
            let tool = world.tool(TOOL, EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
            let at_once = counterfoil::ledger::RetryPolicy {
                attempts: 1,
                attempt_timeout: Duration::from_millis(200),
                ..brief()
            };
            let tool = tool.retry(at_once).bound(bound);
            let tool = tool.retention(Retention::tombstone_after(Duration::from_secs(1)));
            place.executor().dynamic_tool(tool).sweep(true).open().await.unwrap()
        };
        let executor = with(cents()).await;
        assert_eq!(first(&transfer(&executor, 100, "rent").await), "rent");
        let gone = async {
            while !matches!(transfer(&executor, 100, "rent").await, Outcome::Expired { .. }) {
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(())
        };
        soon("the record is not swept".to_owned(), gone).await;
        executor.shutdown(Duration::ZERO).await;
        let executor = with(BoundFields::All).await;
        let same = transfer(&executor, 100, "the rent").await;
        assert_eq!(same, Outcome::Expired { was: FinalState::Committed });
        assert!(matches!(transfer(&executor, 101, "rent").await, Outcome::Conflict(_)));
        assert_eq!(world.count(), 1);
    }
}

#[tokio::test]
async fn an_input_without_a_bound_field_is_refused_at_the_call() {
    let (place, world) = (Place::sqlite(), World::new(Keys::Ignores));
    let executor = open(&place, &world, cents()).await;
    let outcome = executor.execute(asked(json!({"case": "c1", "amount": 100}))).await.unwrap();
    let Outcome::Refused(error) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(*error, RequestError::UnboundField { .. }), "{error:?}");
    for words in ["nothing was recorded or sent", "\"transfer\"", "no field /cents", "as `null`"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    assert_eq!(world.requests(), 0);
    let key = Key::of(TOOL).target("c1").render().unwrap();
    assert!(executor.record(&acme(), &key).await.unwrap().is_none());
    let null = executor.execute(asked(json!({"case": "c1", "cents": null}))).await.unwrap();
    assert!(null.answer().is_some(), "null is a value");
}

#[tokio::test]
async fn a_rule_that_binds_nothing_is_refused_at_registration() {
    let (place, world) = (Place::sqlite(), World::new(Keys::Ignores));
    let none: [&str; 0] = [];
    for (bound, says) in [
        (BoundFields::only(1, none), "it names no field"),
        (BoundFields::only(1, ["cents"]), "\"cents\" is no JSON pointer"),
        (BoundFields::only(1, ["/cents", ""]), "\"\" is no JSON pointer"),
        (BoundFields::only(1, ["/a~2b"]), "\"/a~2b\" is no JSON pointer"),
        (BoundFields::only(1, ["/cents", "/cents"]), "it names \"/cents\" twice"),
    ] {
        let tool = world.tool(TOOL, EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
        let error = place.executor().dynamic_tool(tool.bound(bound)).open().await.unwrap_err();
        assert!(matches!(error, StartError::Register(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}
