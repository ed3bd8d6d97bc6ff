//! A server at a URL: each attempt is one request on the wire, and what became of a lost one is looked up or asked about.

use std::convert::Infallible;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use counterfoil::mcp::{McpConfig, McpError, McpGateway};
use counterfoil::types::http::{HeaderMap, StatusCode};
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::{Client, first, text};
use super::kill::gateway;
use crate::tls::TlsProxy;
use crate::world::TestClock;

/// A server of notes over HTTP, written by hand so that it can misbehave.
#[derive(Default)]
struct Notes {
    session: Mutex<u32>,
    /// The tools that were called on the wire, whether or not the call had an effect.
    wire: watch::Sender<Vec<String>>,
    /// True while calls of tools that write are not answered.
    hangs: watch::Sender<bool>,
    effects: Mutex<Vec<Value>>,
    /// What happens to the next call of a tool that writes.
    fault: Mutex<&'static str>,
    headers: Mutex<HeaderMap>,
}

impl Notes {
    fn effect(&self, arguments: &Value) -> Value {
        let mut effects = self.effects.lock().unwrap();
        let note = json!({ "id": effects.len() + 1, "ref": arguments["ref"], "title": arguments["title"] });
        effects.push(note.clone());
        note
    }

    fn writes_on_the_wire(&self) -> usize {
        writes(&self.wire.borrow())
    }
}

/// The number of these tools that write.
fn writes(tools: &[String]) -> usize {
    tools.iter().filter(|tool| *tool != "list_notes").count()
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn answered(id: &Value, result: &Value) -> Response {
    (JSON, json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()).into_response()
}

/// An error that names no request, as many servers write it.
fn unaddressed(status: StatusCode, code: i32, message: &str) -> Response {
    let error = json!({ "jsonrpc": "2.0", "error": { "code": code, "message": message }, "id": null });
    (status, JSON, error.to_string()).into_response()
}

async fn serve(State(notes): State<Arc<Notes>>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let id = &message["id"];
    let method = message["method"].as_str().unwrap_or_default();
    if method == "initialize" {
        let result = json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "notes", "version": "1" },
        });
        let session = notes.session.lock().unwrap().to_string();
        return ([("mcp-session-id", session)], answered(id, &result)).into_response();
    }
    let writes = method == "tools/call" && message["params"]["name"] != "list_notes";
    let fault = if writes { std::mem::take(&mut *notes.fault.lock().unwrap()) } else { "" };
    if ["expired", "unknown_session"].contains(&fault) {
        *notes.session.lock().unwrap() += 1;
    }
    if method == "tools/call" {
        let tool = message["params"]["name"].as_str().unwrap().to_owned();
        notes.wire.send_modify(|wire| wire.push(tool));
    }
    if writes {
        let mut hangs = notes.hangs.subscribe();
        hangs.wait_for(|hangs| !hangs).await.map(drop).unwrap();
    }
    let session = headers.get("mcp-session-id").and_then(|session| session.to_str().ok());
    if session != Some(notes.session.lock().unwrap().to_string().as_str()) {
        return match fault {
            "unknown_session" => {
                unaddressed(StatusCode::BAD_REQUEST, -32000, "Bad Request: No valid session ID provided")
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        };
    }
    *notes.headers.lock().unwrap() = headers;
    match method {
        "tools/list" => {
            let schema = json!({ "type": "object" });
            let tools = ["list_notes", "create_note", "write_blindly"];
            answered(
                id,
                &json!({ "tools": tools.map(|name| json!({ "name": name, "inputSchema": schema })) }),
            )
        }
        "ping" => answered(id, &json!({})),
        "tools/call" => called(&notes, id, &message["params"], fault),
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

fn called(notes: &Notes, id: &Value, params: &Value, fault: &str) -> Response {
    let structured = |content: &Value| json!({ "content": [], "structuredContent": content });
    if params["name"] == "list_notes" {
        return answered(id, &structured(&json!({ "notes": *notes.effects.lock().unwrap() })));
    }
    match fault {
        "redirect" => return (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response(),
        "unauthorized" => {
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response();
        }
        _ => {}
    }
    let note = notes.effect(&params["arguments"]);
    match fault {
        "cut" => {
            let cut = futures_util::stream::iter([Ok(Bytes::from("{")), Err(std::io::Error::other("cut"))]);
            (JSON, Body::from_stream(cut)).into_response()
        }
        "cut_stream" => {
            let nothing = futures_util::stream::iter([Ok::<_, Infallible>(Bytes::from(": nothing\n\n"))]);
            ([("content-type", "text/event-stream")], Body::from_stream(nothing)).into_response()
        }
        "server_error" => (StatusCode::INTERNAL_SERVER_ERROR, "oops").into_response(),
        "to_nobody" => unaddressed(StatusCode::OK, -32603, "Internal server error"),
        _ => answered(id, &structured(&note)),
    }
}

async fn elsewhere(State(notes): State<Arc<Notes>>, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    answered(&message["id"], &notes.effect(&message["params"]["arguments"]))
}

/// Starts the server. Returns its address, too.
async fn listening() -> (Arc<Notes>, String) {
    let notes = Arc::<Notes>::default();
    let app = Router::new().route("/mcp", post(serve)).route("/elsewhere", post(elsewhere));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(tokio::spawn(axum::serve(listener, app.with_state(notes.clone())).into_future()));
    (notes, address)
}

struct Bench {
    notes: Arc<Notes>,
    gateway: McpGateway,
    client: Client,
}

fn config(url: &str) -> String {
    format!(
        "ledger: calls.db
client: tester
servers:
  web:
    url: {url}
    headers: {{ X-Path: 'path ${{PATH}}' }}
    tools:
      list_notes: {{ effect: read_only }}
      create_note:
        reference: /ref
        id: /id
        timeout: 5 s
        settle: 5 s
        lookup: {{ tool: list_notes, at: /notes, matches: {{ /ref: '{{key}}' }}, id: /id }}
"
    )
}

impl Bench {
    async fn new() -> Self {
        let (notes, server) = listening().await;
        let url = format!("http://{server}/mcp");
        let config = McpConfig::parse(config(&url)).unwrap();
        let gateway = McpGateway::open_on(config, Executor::in_memory()).await.unwrap();
        let client = Client::of(&gateway, &json!({})).await;
        Self { notes, gateway, client }
    }

    async fn call(&mut self, tool: &str, fault: &'static str) -> Value {
        *self.notes.fault.lock().unwrap() = fault;
        self.client.call(tool, json!({ "title": "Tea" })).await
    }

    fn effects(&self) -> usize {
        self.notes.effects.lock().unwrap().len()
    }
}

#[tokio::test]
async fn a_call_is_one_request_with_the_headers_of_the_configuration() {
    let mut bench = Bench::new().await;
    let made = bench.call("create_note", "").await;
    assert!(first(&made), "{made}");
    assert!(!first(&bench.call("create_note", "").await));
    assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (1, 1));
    let headers = bench.notes.headers.lock().unwrap();
    assert!(headers["x-path"].to_str().unwrap().starts_with("path /"), "{headers:?}");
}

// A process of its own, because the variable that names the certificate is of a process.
#[tokio::test]
async fn a_server_at_an_https_url_is_reached_if_its_certificate_is_trusted() {
    let (notes, server) = listening().await;
    let proxy = TlsProxy::of(server).await;
    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("ledger: {}", folder.path().join("calls.db").display());
    let written = config(&format!("{}/mcp", proxy.url)).replace("ledger: calls.db", &ledger);
    let path = folder.path().join("gateway.yml");
    std::fs::write(&path, written).unwrap();

    let mut stranger = gateway(&path).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = Client::of_process(&mut stranger).await.unwrap();
    let refused = client.request("tools/call", json!({ "name": "create_note", "arguments": {} })).await;
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains("the server \"web\" is not ready") && told.contains("certificate"), "{told}");
    assert_eq!(notes.wire.borrow().len(), 0);
    stranger.kill().await.unwrap();

    let mut trusting = gateway(&path).env("SSL_CERT_FILE", proxy.certificate()).spawn().unwrap();
    let mut client = Client::of_process(&mut trusting).await.unwrap();
    let made = client.call("create_note", json!({ "title": "Tea" })).await;
    assert!(first(&made), "{made}");
    assert_eq!((notes.effects.lock().unwrap().len(), notes.writes_on_the_wire()), (1, 1));
}

#[tokio::test]
async fn a_lost_answer_is_looked_up_or_asked_about_and_the_request_is_not_sent_again() {
    for fault in ["cut", "cut_stream", "server_error", "to_nobody"] {
        let mut bench = Bench::new().await;
        let found = bench.call("create_note", fault).await;
        assert_ne!(found["isError"], true, "{fault}: {found}");
        assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (1, 1), "{fault}");

        for _ in 0..2 {
            let asked = bench.call("write_blindly", fault).await;
            assert!(text(&asked).contains("Nobody knows"), "{fault}: {asked}");
        }
        assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (2, 2), "{fault}");
        assert_eq!(bench.gateway.executor().questions(&Tenant::default()).await.unwrap().len(), 1, "{fault}");
    }
}

// The connection of a server carries 16 requests at once, and the others wait in a queue.
#[tokio::test]
async fn a_call_that_was_given_up_in_the_queue_of_a_server_that_hangs_is_not_sent_when_it_goes_on() {
    const TIMEOUT: Duration = Duration::from_mins(7);
    let (notes, server) = listening().await;
    let policy = "    tools:\n      write_blindly: { timeout: 7 min }\n";
    let config = config(&format!("http://{server}/mcp")).replace("    tools:\n", policy);
    let clock = TestClock::breathing();
    let executor = Executor::in_memory().clock(clock.clone());
    let gateway = McpGateway::open_on(McpConfig::parse(config).unwrap(), executor).await.unwrap();
    let mut client = Client::of(&gateway, &json!({})).await;
    client.request("tools/list", json!({})).await;
    notes.hangs.send_replace(true);
    let mut calls = Vec::new();
    for number in 0..16 {
        let call = json!({ "name": "write_blindly", "arguments": { "title": number } });
        calls.push(client.send("tools/call", call).await.unwrap());
    }
    notes.wire.subscribe().wait_for(|wire| writes(wire) == 16).await.map(drop).unwrap();
    let queued = json!({ "name": "write_blindly", "arguments": { "title": "queued" } });
    calls.push(client.send("tools/call", queued).await.unwrap());
    clock.asleep(17, TIMEOUT..=TIMEOUT).await;
    clock.advance(TIMEOUT);
    for call in calls {
        let unknown = client.answer(call).await.unwrap();
        assert!(text(&unknown["result"]).contains("Nobody knows"), "{unknown}");
    }
    notes.hangs.send_replace(false);
    assert!(first(&client.call("write_blindly", json!({ "title": "after" })).await));
    assert_eq!(notes.writes_on_the_wire(), 17, "the call in the queue was not sent");
    assert!(notes.effects.lock().unwrap().iter().all(|note| note["title"] != "queued"));
}

#[tokio::test]
async fn a_session_that_the_server_does_not_know_any_more_is_begun_anew() {
    for fault in ["expired", "unknown_session"] {
        let mut bench = Bench::new().await;
        assert!(first(&bench.call("write_blindly", "").await));
        *bench.notes.fault.lock().unwrap() = fault;
        let made = bench.client.call("write_blindly", json!({ "title": "Milk" })).await;
        assert!(first(&made), "{fault}: {made}");
        // The refused request, and the one in the new session: each is an attempt of its own in the record.
        assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (2, 3), "{fault}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut bench = Bench::new().await;
    let asked = bench.call("write_blindly", "redirect").await;
    assert_eq!(asked["isError"], true, "{asked}");
    assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (0, 1));
}

#[tokio::test]
async fn a_server_that_takes_the_token_again_gets_the_call_after_all() {
    let mut bench = Bench::new().await;
    let made = bench.call("write_blindly", "unauthorized").await;
    assert!(first(&made), "{made}");
    assert_eq!((bench.effects(), bench.notes.writes_on_the_wire()), (1, 2));
}

#[tokio::test]
async fn a_url_is_checked_and_a_secret_must_be_there() {
    let server = "ledger: calls.db\nservers:\n  web:\n    url: http://127.0.0.1:1/mcp\n";
    for (wrong, told) in [
        ("    command: notes\n", "not both"),
        ("    args: [x]\n", "no arguments"),
        ("    headers: { A b: x }\n", "no name of a header"),
        ("    headers: { A: '${X' }\n", "without its"),
    ] {
        let error = McpConfig::parse(server.to_owned() + wrong).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    assert!(McpConfig::parse(server.replace("http:", "ftp:")).is_err());
    let secret = server.to_owned() + "    headers: { A: '${COUNTERFOIL_NO_SUCH_VARIABLE}' }\n";
    let config = McpConfig::parse(secret).unwrap();
    let error = McpGateway::open_on(config, Executor::in_memory()).await.unwrap_err();
    assert!(matches!(&error, McpError::Server { name, .. } if name == "web"), "{error}");
    assert!(error.to_string().contains("COUNTERFOIL_NO_SUCH_VARIABLE"), "{error}");
}
