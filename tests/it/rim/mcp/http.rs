//! The gateway at an address: clients with bearer tokens, over streamable HTTP.

use std::path::Path;
use std::process::Stdio;

use counterfoil::api::{Api, Caller, Role, TenantScope, Tokens};
use counterfoil::mcp::McpGateway;
use counterfoil::types::reqwest::{self, StatusCode};
use counterfoil::{Client, Executor, Tenant};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::client::first;
use super::{TOOLS, config, one_server, server};

/// The tokens of the ledger in a folder.
async fn tokens(folder: &Path) -> Tokens {
    Api::new(&Client::sqlite(folder.join("calls.db")).open().await.unwrap()).tokens()
}

fn default() -> TenantScope {
    TenantScope::One(Tenant::default())
}

async fn token(tokens: &Tokens, name: &str) -> String {
    tokens.create(Caller::new(name, Role::Call, default()).unwrap()).await.unwrap().secret().to_owned()
}

/// A client over HTTP, written by hand, in a session or before one.
struct Agent {
    url: String,
    token: String,
    session: Option<String>,
}

/// The message of an answer, which is JSON or a stream of events.
fn message(body: &str) -> Value {
    let mut events = body.lines().filter_map(|line| line.strip_prefix("data:"));
    let answer = events.rfind(|data| data.contains("\"result\"") || data.contains("\"error\""));
    serde_json::from_str(answer.unwrap_or(body)).unwrap_or_default()
}

impl Agent {
    fn new(url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), token: token.to_owned(), session: None }
    }

    fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let request = reqwest::Client::new()
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-06-18");
        let request = match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        };
        request.json(body)
    }

    async fn post(&self, body: &Value) -> (StatusCode, Value) {
        let answer = self.request(body).send().await.unwrap();
        (answer.status(), message(&answer.text().await.unwrap()))
    }

    fn initialize() -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
    }

    async fn begun(mut self) -> Self {
        let answer = self.request(&Self::initialize()).send().await.unwrap();
        self.session = Some(answer.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let told = message(&answer.text().await.unwrap());
        assert_eq!(told["result"]["serverInfo"]["name"], "counterfoil", "{told}");
        let (status, _) =
            self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        self
    }

    async fn call_with(&self, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let (_, answer) = self.post(&request).await;
        answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone()
    }

    async fn call(&self, tool: &str) -> Value {
        self.call_with(json!({ "name": tool, "arguments": { "title": "Tea" } })).await
    }
}

/// A gateway in this process, at an address.
struct Bench {
    folder: TempDir,
    url: String,
    tokens: Tokens,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Executor::sqlite(folder.path().join("calls.db"));
        let gateway = McpGateway::open_on(config(folder.path()), ledger).await.unwrap();
        let tokens = tokens(folder.path()).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        drop(tokio::spawn(axum::serve(listener, gateway.router(&["tools.example"])).into_future()));
        Self { folder, url, tokens }
    }

    async fn agent(&self, name: &str) -> Agent {
        Agent::new(&self.url, &token(&self.tokens, name).await).begun().await
    }

    fn effects(&self) -> usize {
        server::effects(self.folder.path()).len()
    }
}

#[tokio::test]
async fn a_client_is_known_by_the_name_of_its_token() {
    let bench = Bench::new().await;
    let (ann, too, bob) = (bench.agent("ann").await, bench.agent("ann").await, bench.agent("bob").await);
    assert!(first(&ann.call("write_blindly").await));
    assert!(!first(&ann.call("write_blindly").await));
    assert!(!first(&too.call("write_blindly").await), "two tokens of one name are one client");
    assert!(first(&bob.call("write_blindly").await), "another client's call is another operation");
    assert_eq!(bench.effects(), 2);
}

#[tokio::test]
async fn a_key_beside_the_parameters_counts() {
    let bench = Bench::new().await;
    let ann = bench.agent("ann").await;
    let call = |key: &str| json!({ "name": "write_blindly", "arguments": { "title": "Tea" }, "idempotencyKey": key });
    assert!(first(&ann.call_with(call("k1")).await));
    assert!(!first(&ann.call_with(call("k1")).await));
    assert!(first(&ann.call_with(call("k2")).await));
    assert_eq!(bench.effects(), 2);
}

#[tokio::test]
async fn who_has_no_token_for_it_reaches_nothing() {
    let bench = Bench::new().await;
    let secret = |role, tenants| {
        let caller = Caller::new("eve", role, tenants).unwrap();
        async { bench.tokens.create(caller).await.unwrap().secret().to_owned() }
    };
    let revoked = bench.tokens.create(Caller::new("eve", Role::Call, default()).unwrap()).await.unwrap();
    bench.tokens.revoke(revoked.id(), "ann").await.unwrap();
    let other = TenantScope::One(Tenant::new("acme").unwrap());
    for (token, status) in [
        ("nonsense".to_owned(), StatusCode::UNAUTHORIZED),
        (revoked.secret().to_owned(), StatusCode::UNAUTHORIZED),
        (secret(Role::Operate, default()).await, StatusCode::FORBIDDEN),
        (secret(Role::Call, other).await, StatusCode::FORBIDDEN),
    ] {
        assert_eq!(Agent::new(&bench.url, &token).post(&Agent::initialize()).await.0, status);
    }
    let nobody = reqwest::Client::new().post(&bench.url).json(&Agent::initialize()).send().await.unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(nobody.headers()["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn a_page_that_has_taken_another_name_for_this_machine_is_refused() {
    let bench = Bench::new().await;
    let agent = Agent::new(&bench.url, &token(&bench.tokens, "ann").await);
    for (name, value, status) in [
        ("host", "evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://evil.example", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
        ("host", "tools.example", StatusCode::OK),
        ("origin", "https://tools.example", StatusCode::OK),
        ("origin", "http://localhost:3000", StatusCode::OK),
    ] {
        let answer = agent.request(&Agent::initialize()).header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_session_is_its_own_clients_alone() {
    let bench = Bench::new().await;
    let ann = bench.agent("ann").await;
    let eve = Agent { session: ann.session.clone(), ..bench.agent("eve").await };
    let call = json!({ "name": "write_blindly", "arguments": { "title": "Tea" } });
    let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call });
    assert_eq!(eve.post(&request).await.0, StatusCode::NOT_FOUND);
    assert_eq!(bench.effects(), 0);
}

#[tokio::test]
async fn malformed_messages_are_refused_and_the_next_one_is_served() {
    let bench = Bench::new().await;
    let ann = bench.agent("ann").await;
    for body in ["{ not json", "[1, 2]"] {
        let answer = ann.request(&Value::Null).body(body).send().await.unwrap();
        assert!(answer.status().is_client_error(), "{body}: {}", answer.status());
    }
    // A message of JSON-RPC is answered in JSON-RPC.
    let nameless = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": 7 } });
    let answer = ann.request(&nameless).send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("\"error\"") && answer.contains("\"id\":9"), "{answer}");
    let long = format!("{{\"x\": \"{}\"}}", "x".repeat(17 << 20));
    // The connection may be closed before the client has written it all.
    if let Ok(answer) = ann.request(&Value::Null).body(long).send().await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert!(first(&ann.call("write_blindly").await));
}

/// The program at an address of its choice, and its URL.
async fn program(folder: &Path) -> (Child, String) {
    let config = folder.join("gateway.yml");
    std::fs::write(&config, one_server(folder, TOOLS)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["mcp", "--listen", "127.0.0.1:0", "--config"]).arg(config);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.next_line().await.unwrap().unwrap();
    let url = told.strip_prefix("listening at ").unwrap_or_else(|| panic!("{told}"));
    (child, format!("{url}/mcp"))
}

#[tokio::test]
async fn the_program_serves_clients_at_an_address_and_meets_their_calls_again_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, url) = program(folder.path()).await;
    let secret = token(&tokens(folder.path()).await, "ann").await;
    let ann = Agent::new(&url, &secret).begun().await;
    assert!(first(&ann.call("write_blindly").await));
    child.kill().await.unwrap();

    let (_child, url) = program(folder.path()).await;
    let ann = Agent::new(&url, &secret).begun().await;
    assert!(!first(&ann.call("write_blindly").await));
    assert_eq!(server::effects(folder.path()).len(), 1);
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused_without_tls_in_front() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yml");
    std::fs::write(&config, one_server(folder.path(), TOOLS)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["mcp", "--listen", "0.0.0.0:0", "--config"]).arg(&config);
    let refused = command.output().await.unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("--behind-tls"), "{told}");
}
