//! What a client sets at the servers: the level of log messages, and subscriptions.

use counterfoil::mcp::McpConfig;
use serde_json::{Value, json};

use super::client::{Client, text};
use super::server::{Notes, SETTINGS};
use super::{Bench, one_server};

/// What the server knows of the client's settings, and its process.
async fn settings(client: &mut Client) -> (Value, Value) {
    let read = client.request("resources/read", json!({ "uri": SETTINGS })).await;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    let mut settings: Value = serde_json::from_str(text).unwrap();
    let process = settings["process"].take();
    (settings, process)
}

async fn set(client: &mut Client, method: &str, params: Value) {
    let answer = client.request(method, params).await;
    assert!(answer.get("result").is_some(), "{method}: {answer}");
}

#[tokio::test]
async fn a_server_that_is_started_anew_knows_the_level_and_the_subscriptions() {
    let mut bench = Bench::new().await;
    let client = &mut bench.client;
    set(client, "logging/setLevel", json!({ "level": "warning" })).await;
    set(client, "resources/subscribe", json!({ "uri": "notes://all" })).await;
    set(client, "resources/subscribe", json!({ "uri": "notes://drafts" })).await;
    set(client, "resources/unsubscribe", json!({ "uri": "notes://drafts" })).await;
    let (before, first) = settings(client).await;
    let expected = json!({ "level": "warning", "subscribed": ["notes://all"], "process": null });
    assert_eq!(before, expected);

    bench.fault("die_before");
    let lost = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&lost).contains("Nobody knows"), "{lost}");
    let (after, second) = settings(&mut bench.client).await;
    assert_ne!(first, second, "the server was started anew");
    assert_eq!(after, expected);
}

#[tokio::test]
async fn a_change_of_a_resource_reaches_the_client_that_has_subscribed() {
    let mut bench = Bench::new().await;
    set(&mut bench.client, "resources/subscribe", json!({ "uri": "notes://all" })).await;
    bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    let updated = bench.client.told("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "notes://all");
}

#[tokio::test]
async fn a_level_is_set_at_the_servers_behind_one_that_refuses_it() {
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("stubborn"), "").unwrap();
    let read = |folder: &std::path::Path| {
        let Notes { command, args, env } = Notes::started_in(other.path());
        let second = format!("  drafts: {{ command: {command:?}, args: {args}, env: {env} }}\n");
        McpConfig::parse(one_server(folder, " {}\n") + &second).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    let refused = bench.client.request("logging/setLevel", json!({ "level": "error" })).await;
    assert_eq!(refused["error"]["message"], "this one is refused", "{refused}");
    let (settings, _) = settings(&mut bench.client).await;
    assert_eq!(settings["level"], "error");
}
