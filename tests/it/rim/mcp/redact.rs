//! Arguments that are not kept: the server gets them, and nothing else does.

use counterfoil::mcp::{McpConfig, McpGateway};
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};

use super::client::{Client, first, text};
use super::{one_server, server};

const TOOLS: &str = "
      write_blindly: { redact: [/body] }
      delete_note: { effect: deletion, contract: idempotent, reviewers: [ann], redact: [/body] }
      pay: { key: [/order, /body], redact: [/body], redact_output: [/structuredContent/id] }
";

const CANARY: &str = "canary-4111-1111";

struct Desk {
    folder: tempfile::TempDir,
    gateway: McpGateway,
    client: Client,
}

impl Desk {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = McpConfig::parse(one_server(folder.path(), TOOLS)).unwrap();
        let executor = Executor::sqlite(config.ledger());
        let gateway = McpGateway::open_on(config, executor).await.unwrap();
        let client = Client::of(&gateway, &json!({})).await;
        Self { folder, gateway, client }
    }

    async fn call(&mut self, tool: &str, body: &str) -> Value {
        self.client.call(tool, json!({ "title": "Tea", "order": "o1", "body": body })).await
    }

    /// The redacted argument is in no file of the ledger.
    fn keeps_nothing(&self) {
        let mut searched = 0;
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("calls.db") && path.is_file() {
                let bytes = std::fs::read(&path).unwrap_or_default();
                searched += bytes.len();
                assert!(!bytes.windows(6).any(|six| six == b"canary"), "{}", path.display());
            }
        }
        assert!(searched > 0, "there was nothing to search");
    }
}

#[tokio::test]
async fn a_redacted_argument_reaches_the_server_and_tells_calls_apart() {
    let mut desk = Desk::new().await;
    assert!(first(&desk.call("write_blindly", CANARY).await));
    assert!(!first(&desk.call("write_blindly", CANARY).await), "the same call is one operation");
    assert!(first(&desk.call("write_blindly", "canary-other").await), "another secret is another call");
    let paid = desk.call("pay", CANARY).await;
    assert!(first(&paid) && !first(&desk.call("pay", CANARY).await), "{paid}");
    assert_eq!(paid["structuredContent"]["id"], json!({ "$secret": "redacted" }));
    let effects = server::effects(desk.folder.path());
    let bodies: Vec<_> = effects.iter().map(|effect| &effect["arguments"]["body"]).collect();
    assert_eq!(bodies, [CANARY, "canary-other", CANARY]);
    desk.keeps_nothing();
}

#[tokio::test]
async fn a_person_approves_a_call_without_its_redacted_argument() {
    let mut desk = Desk::new().await;
    let waiting = desk.call("delete_note", CANARY).await;
    assert!(text(&waiting).contains("ann") && !text(&waiting).contains("canary"), "{waiting}");
    let approvals = desk.gateway.executor().approvals(&Tenant::default());
    let review = approvals.reviews(None).await.unwrap().pop().unwrap();
    assert_eq!(review.review.content["body"], json!({ "$secret": "redacted" }));
    approvals.decide(&review.id, review.version).approve("ann").await.unwrap();
    assert!(first(&desk.call("delete_note", CANARY).await));
    assert_eq!(server::effects(desk.folder.path()).len(), 1);
    desk.keeps_nothing();
}

#[tokio::test]
async fn a_place_that_is_no_pointer_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let file = one_server(folder.path(), &TOOLS.replace("redact: [/body]", "redact: [body]"));
    let error = McpConfig::parse(file).unwrap_err().to_string();
    assert!(error.contains("redact") && error.contains("JSON pointer"), "{error}");
}
