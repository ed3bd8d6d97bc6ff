//! A model is told what became of its call in words that it can act on, and an agent loop ends for none of its mistakes.

use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind};
use counterfoil::tool::{Call, Done, DynamicTool, Tool, ToolError, contract, effect};
use counterfoil::{Executor, Key, Outcome, ToolRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{Keys, Reply, World, acme};

/// Opens a ticket.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Ticket {
    /// The case that it belongs to.
    case: String,
    priority: u8,
}

struct OpenTicket;

impl Tool for OpenTicket {
    const NAME: &'static str = "open_ticket";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = Ticket;
    type Output = String;

    fn key(&self, ticket: &Ticket) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&ticket.case))
    }

    async fn call(&self, _: &Call, ticket: &Ticket) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("ticket for {}", ticket.case)))
    }
}

fn dynamic(name: &str, effect: EffectClass) -> DynamicTool {
    DynamicTool::new(name, effect, Contract::new(ContractClass::ReplaysKey))
        .key(|input| Some(Key::of("close").target(input["case"].as_str()?)))
        .call(|_, _| async { Ok(Done::new(json!({ "closed": true }))) })
}

async fn open() -> Executor {
    let schema = json!({ "type": "object", "properties": { "case": { "type": "string" } } });
    Executor::in_memory()
        .tool_for_model(OpenTicket)
        .dynamic_tool(dynamic("close", EffectClass::InternalMutation).describe("Closes a ticket.", schema))
        .dynamic_tool(dynamic("undescribed", EffectClass::InternalMutation).key(|input| {
            let case = input["case"].as_str().expect("a case"); // a tool's own code may fail on what a model wrote
            Some(Key::of("undescribed").target(case))
        }))
        .open()
        .await
        .unwrap()
}

async fn told(executor: &Executor, tool: &str, input: Value) -> (String, bool) {
    let result = executor.execute(ToolRequest::new(acme(), tool, input)).await.unwrap().for_model();
    (result.text, result.is_error)
}

#[tokio::test]
async fn each_mistake_of_a_model_is_answered_in_words_and_never_an_error() {
    let executor = open().await;
    for (tool, input, says) in [
        (
            "open_tickets",
            json!({}),
            r#"there is no tool "open_tickets"; there are: close, open_ticket, undescribed"#,
        ),
        ("open_ticket", json!({ "case": "c1" }), r#"the argument "priority" is missing"#),
        (
            "open_ticket",
            json!({ "case": "c1", "priority": 1, "key": "x" }),
            r#"there is no argument "key"; there are: case, priority"#,
        ),
        (
            "open_ticket",
            json!({ "case": "c1", "priority": "high" }),
            r#"invalid type: string "high", expected u8"#,
        ),
        ("open_ticket", json!([1]), "the arguments are no JSON object"),
        ("open_ticket", json!({ "case": "c1", "priority": u64::MAX }), "18446744073709551615"),
        ("close", json!({}), "do not say what it is to be done to"),
        ("undescribed", json!({}), "the tool cannot read it"),
    ] {
        let (text, is_error) = told(&executor, tool, input).await;
        assert!(is_error && text.starts_with("Nothing was done: ") && text.contains(says), "{tool}: {text}");
        assert!(!text.contains("::"), "no type names: {text}");
    }
    // The loop goes on.
    let ticket = json!({ "case": "c1", "priority": 1 });
    for _ in 0..2 {
        assert_eq!(told(&executor, "open_ticket", ticket.clone()).await, ("ticket for c1".to_owned(), false));
    }
    let (text, is_error) = told(&executor, "open_ticket", json!({ "case": "c1", "priority": 2 })).await;
    assert!(is_error && text.contains("this was done before with other arguments"), "{text}");
    assert_eq!(
        told(&executor, "close", json!({ "case": "c1" })).await,
        (r#"{"closed":true}"#.to_owned(), false)
    );
}

#[tokio::test]
async fn a_model_is_told_of_refusals_of_doubt_and_of_missing_approvals() {
    let world = World::new(Keys::Ignores);
    let contract = Contract::new(ContractClass::Blind);
    let executor = Executor::in_memory()
        .dynamic_tool(world.tool("post", EffectClass::InternalMutation, contract))
        .dynamic_tool(
            dynamic("notify", EffectClass::Notification)
                .package(|input| counterfoil::ApprovalSubject::of("notice", input)),
        )
        .open()
        .await
        .unwrap();
    let (text, is_error) = told(&executor, "notify", json!({ "case": "c1" })).await;
    assert!(is_error && text.contains("needs a person's approval"), "{text}");

    world.replies([Reply::Fail(ErrorKind::Validation), Reply::Fail(ErrorKind::Unknown)]);
    let (text, is_error) = told(&executor, "post", json!({ "case": "c1" })).await;
    assert!(is_error && text == "It was not done (validation): as told", "{text}");
    let outcome = executor.execute(ToolRequest::new(acme(), "post", json!({ "case": "c2" }))).await.unwrap();
    let Outcome::NeedsDecision { question } = outcome else { panic!("{outcome:?}") };
    let text = outcome.for_model().text;
    assert!(text.contains("Nobody knows") && text.contains(&question.to_string()), "{text}");
}

#[tokio::test]
async fn the_tools_that_describe_themselves_are_listed_as_a_models_request_wants_them() {
    let tools = json!(open().await.tools_for_model());
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["close", "open_ticket"]);
    let ticket = &tools[1]["function"];
    assert_eq!((&tools[1]["type"], &ticket["description"]), (&json!("function"), &json!("Opens a ticket.")));
    assert_eq!(ticket["parameters"]["required"], json!(["case", "priority"]));
    let case = &ticket["parameters"]["properties"]["case"];
    assert_eq!(case["description"], "The case that it belongs to.");
}
