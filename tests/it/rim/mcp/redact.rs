//! Arguments that are not kept: the server gets them, and nothing else does.

use counterfoil::mcp::McpConfig;
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};

use super::client::{first, text};
use super::{Bench, one_server};

const TOOLS: &str = "
      write_blindly: { redact: [/body] }
      delete_note: { effect: deletion, contract: idempotent, reviewers: [ann], redact: [/body] }
      pay: { key: [/order, /body], redact: [/body], redact_output: [/structuredContent/id] }
";

const CANARY: &str = "canary-4111-1111";

/// A gateway whose ledger is a file.
async fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let config = McpConfig::parse(one_server(folder.path(), TOOLS)).unwrap();
    let executor = Executor::sqlite(config.ledger());
    Bench::on(folder, config, executor, &json!({})).await
}

async fn call(bench: &mut Bench, tool: &str, body: &str) -> Value {
    bench.client.call(tool, json!({ "title": "Tea", "order": "o1", "body": body })).await
}

/// The redacted argument is in no file of the ledger. The file of the server's effects beside it has it.
fn keeps_nothing(bench: &Bench) {
    crate::canary::is_in_no_file(bench.folder.path(), "calls.db");
}

#[tokio::test]
async fn a_redacted_argument_reaches_the_server_and_tells_calls_apart() {
    let mut bench = bench().await;
    assert!(first(&call(&mut bench, "write_blindly", CANARY).await));
    assert!(!first(&call(&mut bench, "write_blindly", CANARY).await), "the same call is one operation");
    assert!(
        first(&call(&mut bench, "write_blindly", "canary-other").await),
        "another secret is another call"
    );
    let paid = call(&mut bench, "pay", CANARY).await;
    assert!(first(&paid) && !first(&call(&mut bench, "pay", CANARY).await), "{paid}");
    assert_eq!(paid["structuredContent"]["id"], json!({ "$secret": "redacted" }));
    let effects = bench.effects();
    let bodies: Vec<_> = effects.iter().map(|effect| &effect["arguments"]["body"]).collect();
    assert_eq!(bodies, [CANARY, "canary-other", CANARY]);
    keeps_nothing(&bench);
}

#[tokio::test]
async fn a_person_approves_a_call_without_its_redacted_argument() {
    let mut bench = bench().await;
    let waiting = call(&mut bench, "delete_note", CANARY).await;
    assert!(text(&waiting).contains("ann") && !text(&waiting).contains("canary"), "{waiting}");
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    let review = approvals.reviews(None).await.unwrap().pop().unwrap();
    assert_eq!(review.review.content["body"], json!({ "$secret": "redacted" }));
    approvals.decide(&review.id, review.version).approve("ann").await.unwrap();
    assert!(first(&call(&mut bench, "delete_note", CANARY).await));
    assert_eq!(bench.effects().len(), 1);
    keeps_nothing(&bench);
}

#[tokio::test]
async fn a_place_that_is_no_pointer_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let file = one_server(folder.path(), &TOOLS.replace("redact: [/body]", "redact: [body]"));
    let error = McpConfig::parse(file).unwrap_err().to_string();
    assert!(error.contains("redact") && error.contains("JSON pointer"), "{error}");
}

#[tokio::test]
async fn a_lookup_by_an_argument_that_is_kept_goes_beside_one_that_is_not() {
    let by = |argument: &str| {
        let lookup = format!(
            "{{ tool: list_notes, at: /notes, matches: {{ /arguments{argument}: '{{{argument}}}' }} }}"
        );
        format!("\n      write_blindly: {{ redact: [/body], timeout: 5 s, settle: 5 s, lookup: {lookup} }}\n")
    };
    let read = |folder: &std::path::Path| McpConfig::parse(one_server(folder, &by("/title"))).unwrap();
    let mut bench = Bench::with(read, &json!({})).await;
    bench.fault("die_after");
    let found = call(&mut bench, "write_blindly", CANARY).await;
    assert_ne!(found["isError"], true, "{found}");
    assert_eq!(bench.effects().len(), 1);
    let error = McpConfig::parse(one_server(bench.folder.path(), &by("/body"))).unwrap_err().to_string();
    assert!(error.contains("not kept"), "{error}");
}
