//! A tool of an MCP server that the engine calls itself: it is carried out once, whatever becomes of the server.

use std::time::Duration;

use counterfoil::ledger::{Backoff, Contract, ContractClass, EffectClass, LookupPolicy, RetryPolicy};
use counterfoil::mcp::{McpLookup, McpServer, McpTool, McpToolBuilder, McpToolError};
use counterfoil::tool::{Done, DynamicTool, Meaning};
use counterfoil::{Ctx, Engine, Executor, Failure, Key, Outcome, Secret, Tenant, ToolRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{self, Notes};

/// A server of notes in a folder.
struct Desk {
    folder: TempDir,
    server: McpServer,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let Notes { command, args, env } = Notes::started_in(folder.path());
        let args = args.as_array().unwrap().iter().filter_map(Value::as_str);
        let mut server = McpServer::program(command).name("notes").args(args);
        for (name, value) in env.as_object().unwrap() {
            server = server.env(name, value.as_str().unwrap());
        }
        Self { server: server.ready_within(Duration::from_secs(20)).build().unwrap(), folder }
    }

    fn create(&self) -> McpToolBuilder {
        let lookup = McpLookup::tool("list_notes")
            .arguments(json!({ "ref": "{token}" }))
            .at("/notes")
            .matches("/ref", "{token}")
            .id("/id");
        let arguments = json!({ "title": "{title}", "body": "for {/who}" });
        self.server
            .tool("create_note")
            .arguments(arguments)
            .reference("/ref")
            .external_id("/id")
            .key_fields(["case"])
            .lookup(lookup)
            .expects("/arguments/title", "{title}")
    }

    fn blind(&self) -> McpToolBuilder {
        self.server.tool("write_blindly").arguments(json!({ "title": "{title}" })).key_fields(["case"])
    }

    fn effects(&self) -> Vec<Value> {
        server::effects(self.folder.path())
    }

    fn fault(&self, fault: &str) {
        server::fault(self.folder.path(), fault);
    }
}

fn quick() -> RetryPolicy {
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(2) };
    RetryPolicy { attempts: 3, backoff, attempt_timeout: Duration::from_secs(2), ..RetryPolicy::default() }
}

fn looked_up(tool: &McpTool) -> DynamicTool {
    let contract = Contract::new(ContractClass::Lookup).settle(Duration::from_secs(2));
    let tool = tool.dynamic("create", EffectClass::InternalMutation, contract).unwrap();
    tool.retry(quick()).lookups(LookupPolicy::default())
}

fn asked_about(tool: &McpTool) -> DynamicTool {
    let contract = Contract::new(ContractClass::Blind);
    tool.dynamic("create", EffectClass::InternalMutation, contract).unwrap().retry(quick())
}

fn input() -> Value {
    json!({ "case": "c1", "title": "Tea", "who": "Ann" })
}

async fn called(tool: DynamicTool) -> Outcome {
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    executor.execute(ToolRequest::new(Tenant::new("acme").unwrap(), "create", input())).await.unwrap()
}

fn output(outcome: &Outcome) -> Value {
    outcome.answer().unwrap_or_else(|| panic!("{outcome:?}")).response.value().unwrap()
}

async fn notes(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    ctx.call_named("create", input()).await
}

#[tokio::test]
async fn a_workflow_calls_a_tool_of_a_server_once() {
    let desk = Desk::new();
    let tool = looked_up(&desk.create().build().unwrap());
    let engine = Engine::in_memory().dynamic_tool(tool).workflow("notes", 1, notes).start().await.unwrap();
    for run in ["a", "b"] {
        let made = engine
            .as_tenant(&Tenant::default())
            .run(notes, ())
            .key(run)
            .start()
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
        assert_eq!(made, json!({ "id": 1 }));
    }
    let effects = desk.effects();
    assert_eq!(effects.len(), 1, "the key is that of its fields");
    assert_eq!(effects[0]["arguments"]["body"], "for Ann");
    assert_eq!(effects[0]["arguments"]["ref"], effects[0]["key"], "both are the call's key");
    engine.shutdown(Duration::from_secs(1)).await;
    desk.server.shutdown().await;
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_looked_up_by_another_tool() {
    for (fault, made) in [("die_after", 1), ("die_before", 1), ("hang", 1), ("garbage", 1), ("error", 1)] {
        let desk = Desk::new();
        desk.fault(fault);
        let outcome = called(looked_up(&desk.create().build().unwrap())).await;
        assert_eq!(output(&outcome)["id"], 1, "{fault}: {outcome:?}");
        assert_eq!(desk.effects().len(), made, "{fault}");
    }
}

#[tokio::test]
async fn an_effect_that_is_not_what_was_sent_is_a_question() {
    let desk = Desk::new();
    desk.fault("die_after");
    let outcome =
        called(looked_up(&desk.create().expects("/arguments/body", "for {case}").build().unwrap())).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!(desk.effects().len(), 1);
}

// R-EXE-5
#[tokio::test]
async fn a_call_that_nobody_can_look_up_is_sent_once() {
    for fault in ["die_after", "error", "invalid_output", "garbage"] {
        let desk = Desk::new();
        desk.fault(fault);
        let outcome = called(asked_about(&desk.blind().build().unwrap())).await;
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{fault}: {outcome:?}");
        assert_eq!(desk.effects().len(), 1, "{fault}");
    }
}

#[tokio::test]
async fn an_answer_that_is_an_error_means_what_is_declared() {
    for meaning in [Meaning::Refused, Meaning::Later, Meaning::Done] {
        let desk = Desk::new();
        desk.fault("error");
        let outcome = called(asked_about(&desk.blind().errors(meaning).build().unwrap())).await;
        match (meaning, &outcome) {
            (Meaning::Refused, Outcome::Failed(failure)) => assert_eq!(failure.message, "the folder is full"),
            (Meaning::Later, outcome) => assert_eq!(output(outcome)["id"], 2, "the server was asked again"),
            (_, outcome) => assert_eq!(output(outcome), "the folder is full"),
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_started_was_not_sent_anything() {
    let missing = McpServer::program("/no/such/server").build().unwrap();
    let outcome = called(asked_about(&missing.tool("write").key_fields(["case"]).build().unwrap())).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("is not ready"), "{failure:?}");
}

// R-EXE-5
#[tokio::test]
async fn a_second_request_within_one_attempt_is_refused() {
    let desk = Desk::new();
    desk.fault("error");
    let declared = desk.blind().build().unwrap();
    let twice =
        DynamicTool::new("create", EffectClass::InternalMutation, Contract::new(ContractClass::Blind))
            .key(|_| Some(Key::of("create").target("c1")))
            .call(move |call, input| {
                let declared = declared.clone();
                async move {
                    match declared.send::<_, Value>(&call, &input).await {
                        Ok(done) => Ok::<Done<Value>, _>(done),
                        Err(_) => declared.send(&call, &input).await, // the mistake
                    }
                }
            });
    let outcome = called(twice.retry(quick())).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!(desk.effects().len(), 1);
}

#[test]
fn a_declaration_that_cannot_be_carried_out_is_refused() {
    let notes = McpServer::program("notes-server").build().unwrap();
    let itself = notes.tool("create").lookup(McpLookup::tool("create")).build();
    assert!(matches!(itself, Err(McpToolError::Lookup { .. })), "{itself:?}");
    for any in [
        McpLookup::tool("list"),
        McpLookup::tool("list").contains("").id("/id"),
        McpLookup::tool("list").at("/notes"),
    ] {
        let any = notes.tool("create").lookup(any).build();
        assert!(matches!(any, Err(McpToolError::Template { part: "lookup", .. })), "{any:?}");
    }
    let unclosed = notes.tool("create").arguments(json!({ "title": "{title" })).build();
    assert!(matches!(unclosed, Err(McpToolError::Template { part: "arguments", .. })), "{unclosed:?}");
    assert!(McpServer::program("").build().is_err() && notes.tool("").build().is_err());
    assert!(McpServer::url("ftp://notes.example").build().is_err());
    let secret = Secret::new("sk_\n".to_owned());
    let error = McpServer::url("http://notes.example").secret_header("x", secret).build().unwrap_err();
    assert!(!format!("{error} {error:?}").contains("sk_"), "{error}");
}
