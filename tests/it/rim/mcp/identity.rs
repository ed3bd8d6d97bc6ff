//! What makes two calls one operation.

use std::path::Path;
use std::time::Duration;

use counterfoil::mcp::{McpConfig, McpGateway};
use counterfoil::{Clock as _, Executor};
use serde_json::{Value, json};

use super::client::{Client, first, text};
use super::{Bench, config, one_server, server};
use crate::world::TestClock;

#[tokio::test]
async fn the_key_of_the_request_counts_before_all_else() {
    let mut bench = Bench::new().await;
    let arguments = json!({ "title": "Tea" });
    let meta =
        json!({ "name": "write_blindly", "arguments": arguments, "_meta": { "idempotencyKey": "k1" } });
    let beside = json!({ "name": "write_blindly", "arguments": arguments, "idempotencyKey": "k1" });
    assert!(first(&bench.client.call_with(meta.clone()).await));
    let same = bench.client.call_with(beside).await;
    assert!(!first(&same));
    assert!(!text(&same).contains("counterfoil_again"), "a client that gives a key expects the same answer");
    let other =
        json!({ "name": "write_blindly", "arguments": arguments, "_meta": { "idempotencyKey": "k2" } });
    assert!(first(&bench.client.call_with(other).await));
    assert_eq!(bench.effects().len(), 2);
    // The same key with other arguments is a conflict.
    let mut changed = meta;
    changed["arguments"]["title"] = "Coffee".into();
    let conflict = bench.client.call_with(changed).await;
    assert_eq!(conflict["isError"], true);
    assert!(text(&conflict).contains("title"), "{conflict}");
    assert_eq!(bench.effects().len(), 2);
}

#[tokio::test]
async fn the_arguments_that_the_policy_names_are_the_key() {
    let mut bench = Bench::new().await;
    let arguments = json!({ "title": "Tea", "order": "o1" });
    assert!(first(&bench.client.call("pay", arguments.clone()).await));
    assert!(!first(&bench.client.call("pay", arguments).await));
    let conflict = bench.client.call("pay", json!({ "title": "Coffee", "order": "o1" })).await;
    assert_eq!(conflict["isError"], true, "{conflict}");
    let nameless = bench.client.call("pay", json!({ "title": "Tea" })).await;
    assert!(text(&nameless).contains("`/order`"), "{nameless}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn optional_arguments_are_compared_as_the_schema_reads_them() {
    let mut bench = Bench::new().await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert!(!first(&bench.client.call("write_blindly", json!({ "body": null, "title": "Tea" })).await));
    assert!(first(&bench.client.call("write_blindly", json!({ "body": "x", "title": "Tea" })).await));
}

// The server may be newer than its schema, and read an absent argument in another way.
#[tokio::test]
async fn an_argument_that_equals_its_default_is_sent_and_not_compared() {
    let mut bench = Bench::new().await;
    let all = json!({ "title": "Tea", "limit": 5, "body": null });
    assert!(first(&bench.client.call("write_blindly", all.clone()).await));
    assert!(!first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert_eq!(bench.effects().len(), 1);
    assert_eq!(bench.effects()[0]["arguments"], all);
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_asked_for_its_schemas() {
    let mut bench = Bench::new().await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea", "limit": 10 })).await));
    std::fs::write(bench.folder.path().join("newer"), "").unwrap();
    bench.fault("die_after");
    bench.client.call("write_blindly", json!({ "title": "Milk" })).await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Bread" })).await));
    bench.client.told("notifications/tools/list_changed").await;
    // The default of the server is 10 now, so both spellings are one call.
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Salt" })).await));
    assert!(!first(&bench.client.call("write_blindly", json!({ "title": "Salt", "limit": 10 })).await));
}

#[tokio::test]
async fn a_call_is_made_once_more_when_it_is_asked_for_on_purpose() {
    let mut bench = Bench::new().await;
    for again in [json!(null), json!(1), json!(2)] {
        let arguments = json!({ "title": "Tea", "counterfoil_again": again });
        assert!(first(&bench.client.call("write_blindly", arguments.clone()).await), "{again}");
        assert!(!first(&bench.client.call("write_blindly", arguments).await), "{again}");
    }
    assert_eq!(bench.effects().len(), 3);
    assert!(bench.effects().iter().all(|effect| effect["arguments"].get("counterfoil_again").is_none()));
    let wrong = bench.client.call("write_blindly", json!({ "title": "Tea", "counterfoil_again": "x" })).await;
    assert!(text(&wrong).starts_with("Nothing was done"), "{wrong}");
}

#[tokio::test]
async fn after_its_window_the_same_call_is_another_operation() {
    let folder = tempfile::tempdir().unwrap();
    let clock = TestClock::breathing();
    let executor = Executor::in_memory().clock(clock.clone());
    let gateway = McpGateway::open_on(config(folder.path()), executor).await.unwrap();
    let mut client = Client::of(&gateway, &json!({})).await;
    for round in 1..=4 {
        assert!(first(&client.call("write_blindly", json!({ "title": "Tea" })).await), "{round}");
        clock.advance(Duration::from_mins(9));
        assert!(!first(&client.call("write_blindly", json!({ "title": "Tea" })).await), "{round}");
        clock.advance(Duration::from_mins(1));
        assert_eq!(super::server::effects(folder.path()).len(), round);
    }
}

/// A gateway on this folder's ledger, whose server has these settings.
async fn on_file(folder: &Path, settings: &str) -> (McpGateway, Client) {
    let config = one_server(folder, "").replace("    tools:", settings);
    let executor = Executor::sqlite(folder.join("calls.db"));
    let gateway = McpGateway::open_on(McpConfig::parse(config).unwrap(), executor).await.unwrap();
    let client = Client::of(&gateway, &json!({})).await;
    (gateway, client)
}

#[tokio::test]
async fn a_tool_that_is_given_a_policy_keeps_its_operations() {
    let folder = tempfile::tempdir().unwrap();
    let effects = || server::effects(folder.path()).len();
    let (gateway, mut client) = on_file(folder.path(), "").await;
    assert!(first(&client.call("create_note", json!({ "title": "Tea" })).await));
    server::fault(folder.path(), "die_after");
    let unknown = client.call("create_note", json!({ "title": "Milk" })).await;
    assert!(text(&unknown).contains("Nobody knows"), "{unknown}");
    gateway.shutdown(Duration::ZERO).await;

    let policy = "    tools:\n      create_note: { timeout: 5 s, settle: 5 s, lookup: { tool: list_notes, at: /notes, matches: { /key: '{key}' } } }";
    let (gateway, mut client) = on_file(folder.path(), policy).await;
    assert!(!first(&client.call("create_note", json!({ "title": "Tea" })).await));
    let same = client.call("create_note", json!({ "title": "Milk" })).await;
    assert!(text(&same).contains("Nobody knows") || !first(&same), "{same}");
    assert_eq!(effects(), 2);
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_tool_that_claims_something_else_keeps_its_operations() {
    let folder = tempfile::tempdir().unwrap();
    for trust in ["    trust: [idempotent]", "", "    trust: [idempotent]"] {
        let (gateway, mut client) = on_file(folder.path(), trust).await;
        let call = client.call("claims_to_be_idempotent", json!({ "title": "Tea" })).await;
        assert_eq!(call["structuredContent"]["id"], 1, "{call}");
        assert_eq!(server::effects(folder.path()).len(), 1);
        gateway.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_key_beside_the_parameters_counts_although_their_metadata_are_null() {
    let mut bench = Bench::new().await;
    for (key, is_first) in [("k1", true), ("k2", true), ("k1", false)] {
        let call = json!({ "name": "write_blindly", "arguments": { "title": "Tea" }, "idempotencyKey": key, "_meta": null });
        assert_eq!(first(&bench.client.call_with(call).await), is_first, "{key}");
    }
}

#[tokio::test]
async fn a_key_that_is_null_beside_the_parameters_leaves_the_one_in_their_metadata() {
    let mut bench = Bench::new().await;
    let call = |beside: Value, meta: Value| {
        json!({
            "name": "write_blindly",
            "arguments": { "title": "Tea" },
            "idempotencyKey": beside,
            "_meta": { "idempotencyKey": meta },
        })
    };
    assert!(first(&bench.client.call_with(call(json!(null), json!("k1"))).await));
    assert!(first(&bench.client.call_with(call(json!(null), json!("k2"))).await));
    let k1 = json!("k1");
    for (beside, meta) in [(json!(null), k1.clone()), (k1.clone(), k1.clone()), (k1, json!(null))] {
        assert!(!first(&bench.client.call_with(call(beside, meta)).await));
    }
    let refused = bench.client.request("tools/call", call(json!("k3"), json!("k4"))).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("the same wherever"), "{refused}");
    assert_eq!(bench.effects().len(), 2);
}

#[tokio::test]
async fn a_call_over_the_rate_waits_for_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (clock, hour) = (TestClock::breathing(), Duration::from_hours(1));
    let tools = "\n      write_blindly: { quota: { calls: 1, per: 60 min } }\n";
    let config = McpConfig::parse(one_server(folder.path(), tools)).unwrap();
    let gateway = McpGateway::open_on(config, Executor::in_memory().clock(clock.clone())).await.unwrap();
    let mut client = Client::of(&gateway, &json!({})).await;
    assert!(first(&client.call("write_blindly", json!({ "title": "Tea" })).await));
    let began = clock.now();
    let second = client.call("write_blindly", json!({ "title": "Milk" }));
    let turn = async {
        clock.slept(hour).await;
        clock.advance(hour);
    };
    let (second, ()) = futures_util::join!(second, turn);
    assert!(first(&second) && clock.now() >= began.after(hour), "{second}");
}

#[tokio::test]
async fn two_connections_of_one_client_share_an_operation() {
    let mut bench = Bench::new().await;
    let mut other = Client::of(&bench.gateway, &json!({})).await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert!(!first(&other.call("write_blindly", json!({ "title": "Tea" })).await));
}
